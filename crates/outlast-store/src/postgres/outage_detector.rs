//! Detects times in which no node served: every look at the alarms refreshes a timestamp row; a timestamp found too old means
//! that all nodes were down or paused, or that none could reach the database. That is recorded for all of them. No session
//! state, no list of nodes: one living node is enough for there to be no outage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::{Outage, Timestamp};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::session::Sql;
use super::shared::StoreContext;
use crate::error::Error;

/// The stamp is moved this often at most, by whichever node comes first.
const MOVED_EVERY: Duration = Duration::from_millis(500);
/// Nodes look once a second. One that has not looked for this long was down, paused or without its database itself.
const LATE_MIN: Duration = Duration::from_secs(2);
/// Such a node takes a stamp of this age for the sign that the others were away as well: one living node moves it every second.
const UNATTENDED_MIN: Duration = Duration::from_millis(1500);
/// Outages closer to each other than this are one: holders could hardly report in between.
const APART_MIN: Duration = Duration::from_secs(10);

/// Moves the stamp to $1 if it is not newer than $2, and notes an outage if it is older than $3; one that ended less than $4
/// before is continued. Of two nodes that come at once the second finds the stamp moved.
static MOVE_STAMP: Sql = Sql {
    text: "
        WITH stamp AS (
            SELECT value FROM meta WHERE name = 'attended_at' AND value <= $2 FOR UPDATE
        ),
        noted AS (
            INSERT INTO meta (name, value)
            SELECT name, at
            FROM stamp, LATERAL (
                VALUES
                    ('outage_to', $1),
                    ('outage_from', least(stamp.value, (
                        SELECT began.value
                        FROM meta AS began, meta AS ended
                        WHERE began.name = 'outage_from' AND ended.name = 'outage_to' AND ended.value > stamp.value - $4
                        LIMIT 1
                    )))
            ) AS outage (name, at)
            WHERE stamp.value < $3
            ON CONFLICT (name) DO UPDATE SET value = excluded.value
        )
        INSERT INTO meta (name, value)
        SELECT 'attended_at', $1
        WHERE EXISTS (SELECT FROM stamp) OR NOT EXISTS (SELECT FROM meta WHERE name = 'attended_at')
        ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value)",
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};
static LAST_OUTAGE: Sql = Sql {
    text: "
        SELECT began.value, ended.value
        FROM meta AS began, meta AS ended
        WHERE began.name = 'outage_from' AND ended.name = 'outage_to'
        LIMIT 1",
    types: &[],
};

/// The last answer, so that a node does not ask with every read. An outage cannot end between two reads that are closer
/// than [`MOVED_EVERY`]: the first one has moved the timestamp, or found it fresh.
#[derive(Default)]
pub(super) struct OutageDetector {
    asked: Mutex<Option<(Instant, Option<Outage>)>>,
}

impl OutageDetector {
    pub(super) async fn record_attendance(&self, shared: &Arc<StoreContext>) -> Result<Option<Outage>, Error> {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, outage)) = asked
            && at.elapsed() < MOVED_EVERY
        {
            return Ok(outage);
        }
        let was_away = asked.is_none_or(|(at, _)| at.elapsed() > LATE_MIN);
        // Before the question: a pause in the middle of it must not make the answer look fresh.
        let asked_at = Instant::now();
        let now = shared.now();
        let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let before = |age: Duration| now.as_millis().saturating_sub(millis(age));
        // A node that has looked all the time knows of no outage.
        let unattended = if was_away { before(UNATTENDED_MIN) } else { i64::MIN };
        let parameters = [now.as_millis(), before(MOVED_EVERY), unattended, millis(APART_MIN)];
        let [now, movable, unattended, apart] = &parameters;
        shared.read(&MOVE_STAMP, &[now, movable, unattended, apart]).await?;
        // A statement of its own: one that had to wait for another node's would not see what that one noted.
        let rows = shared.read(&LAST_OUTAGE, &[]).await?;
        let outage = rows
            .first()
            .map(|row| Outage { from: Timestamp::from_millis(row.get(0)), to: Timestamp::from_millis(row.get(1)) });
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked_at, outage));
        Ok(outage)
    }
}
