//! Whether the database has crashed. A row in an unlogged table lives until it does: recovery empties such tables. Nothing
//! else tells for certain; the server's start time stays the same when only its processes are restarted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::session::Sql;
use super::shared::StoreContext;

/// Rows of nodes that are long gone are cleared away.
static BEGIN_LIFE: Sql = Sql {
    text: "
        WITH past AS (DELETE FROM crash_epoch WHERE since < now() - interval '30 days')
        INSERT INTO crash_epoch (id) VALUES ($1) ON CONFLICT DO NOTHING",
    types: &[Type::INT8],
};
static IS_ALIVE: Sql = Sql { text: "SELECT EXISTS (SELECT FROM crash_epoch WHERE id = $1)", types: &[Type::INT8] };
const ASK_MAX: Duration = Duration::from_secs(2);

impl StoreContext {
    /// The row that is there unless the database has crashed since now. 0 when there is none.
    pub(super) fn crash_epoch(&self) -> i64 {
        self.crash_epoch.load(Ordering::SeqCst)
    }

    /// Has the database gone on without a crash since this crash_epoch began? `None` when it cannot be asked. After a crash a
    /// new crash epoch begins.
    pub(super) async fn has_not_crashed(self: &Arc<Self>, crash_epoch: i64) -> Option<bool> {
        let rows = timeout(ASK_MAX, self.read(&IS_ALIVE, &[&crash_epoch])).await.ok()?.ok()?;
        let alive = rows.first().is_some_and(|row| row.get(0));
        if !alive && crash_epoch == self.crash_epoch() {
            let _ = timeout(ASK_MAX, self.begin_crash_epoch()).await;
        }
        Some(alive)
    }

    pub(super) async fn begin_crash_epoch(self: &Arc<Self>) -> Result<(), crate::Error> {
        let crash_epoch = (self.entropy().next_u64() >> 1).cast_signed().max(1);
        self.read(&BEGIN_LIFE, &[&crash_epoch]).await?;
        self.crash_epoch.store(crash_epoch, Ordering::SeqCst);
        Ok(())
    }
}
