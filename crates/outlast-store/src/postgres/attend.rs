//! Whether anybody looks after the alarms. Whoever does moves one stamp on; when a stamp is found that nobody has moved
//! for a while, all nodes stood still or none could reach the database. That is noted for all of them. No session state,
//! no list of nodes: one living node is enough for there to be no outage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::{Outage, Timestamp};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::session::Sql;
use super::shared::Shared;
use crate::error::Error;

/// The stamp is moved this often at most, by whichever node comes first.
const MOVED_EVERY: Duration = Duration::from_secs(2);
/// Nodes look once a second, so a stamp this old means that none did. Three chances missed.
const UNATTENDED_MIN: Duration = Duration::from_secs(6);

/// Moves the stamp to $1 if it is not newer than $2, and notes an outage if it is older than $3. Of two nodes that come at
/// once the second finds the stamp moved.
static MOVE_STAMP: Sql = Sql {
    text: "
        WITH stamp AS (
            SELECT value FROM meta WHERE name = 'attended_at' AND value <= $2 FOR UPDATE
        ),
        noted AS (
            INSERT INTO meta (name, value)
            SELECT name, at
            FROM stamp, LATERAL (VALUES ('outage_from', stamp.value), ('outage_to', $1)) AS outage (name, at)
            WHERE stamp.value < $3
            ON CONFLICT (name) DO UPDATE SET value = excluded.value
        )
        INSERT INTO meta (name, value)
        SELECT 'attended_at', $1
        WHERE EXISTS (SELECT FROM stamp) OR NOT EXISTS (SELECT FROM meta WHERE name = 'attended_at')
        ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value)",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static LAST_OUTAGE: Sql = Sql {
    text: "
        SELECT began.value, ended.value
        FROM meta AS began, meta AS ended
        WHERE began.name = 'outage_from' AND ended.name = 'outage_to'
        LIMIT 1",
    types: &[],
};

/// What this node asked last, so that it does not ask with every look. An outage cannot end between two looks that are
/// closer than [`MOVED_EVERY`]: the first one has moved the stamp, or found it fresh.
#[derive(Default)]
pub(super) struct Attendance {
    asked: Mutex<Option<(Instant, Option<Outage>)>>,
}

impl Attendance {
    pub(super) async fn attend(&self, shared: &Arc<Shared>) -> Result<Option<Outage>, Error> {
        if let Some((at, outage)) = *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
            && at.elapsed() < MOVED_EVERY
        {
            return Ok(outage);
        }
        // Before the question: a pause in the middle of it must not make the answer look fresh.
        let asked_at = Instant::now();
        let now = shared.now();
        let before = |age: Duration| now.as_millis().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let (movable, unattended) = (before(MOVED_EVERY), before(UNATTENDED_MIN));
        shared.read(&MOVE_STAMP, &[&now.as_millis(), &movable, &unattended]).await?;
        // A statement of its own: one that had to wait for another node's would not see what that one noted.
        let rows = shared.read(&LAST_OUTAGE, &[]).await?;
        let outage = rows
            .first()
            .map(|row| Outage { from: Timestamp::from_millis(row.get(0)), to: Timestamp::from_millis(row.get(1)) });
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked_at, outage));
        Ok(outage)
    }
}
