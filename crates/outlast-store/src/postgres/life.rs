//! Whether the database has crashed. A row in an unlogged table lives until it does: recovery empties such tables. Nothing
//! else tells for certain; the server's start time stays the same when only its processes are restarted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::session::Sql;
use super::shared::Shared;

/// Rows of nodes that are long gone are cleared away.
static BEGIN_LIFE: Sql = Sql {
    text: "
        WITH past AS (DELETE FROM life WHERE since < now() - interval '30 days')
        INSERT INTO life (id) VALUES ($1) ON CONFLICT DO NOTHING",
    types: &[Type::INT8],
};
static IS_ALIVE: Sql = Sql { text: "SELECT EXISTS (SELECT FROM life WHERE id = $1)", types: &[Type::INT8] };
const ASK_MAX: Duration = Duration::from_secs(2);

impl Shared {
    /// The row that is there unless the database has crashed since now. 0 when there is none.
    pub(super) fn life(&self) -> i64 {
        self.life.load(Ordering::SeqCst)
    }

    /// Has the database gone on without a crash since this life began? `None` when it cannot be asked. After a crash a
    /// new life begins.
    pub(super) async fn is_alive(self: &Arc<Self>, life: i64) -> Option<bool> {
        let rows = timeout(ASK_MAX, self.read(&IS_ALIVE, &[&life])).await.ok()?.ok()?;
        let alive = rows.first().is_some_and(|row| row.get(0));
        if !alive && life == self.life() {
            let _ = timeout(ASK_MAX, self.begin_life()).await;
        }
        Some(alive)
    }

    pub(super) async fn begin_life(self: &Arc<Self>) -> Result<(), crate::Error> {
        let life = (self.entropy().next_u64() >> 1).cast_signed().max(1);
        self.read(&BEGIN_LIFE, &[&life]).await?;
        self.life.store(life, Ordering::SeqCst);
        Ok(())
    }
}
