//! When the first thing of every kind besides jobs is due. The alarms of jobs are in the table `ready_and_alarm`.

use std::sync::Arc;

use outlast_core::Timestamp;
use outlast_core::inbound_event::event_delete_after;

use super::rows::get;
use super::session::Sql;
use super::shared::StoreContext;
use crate::alarms::AlarmKind;
use crate::error::Error;

/// Numbers of events are in the order of time, but for those that were stored at once.
pub(super) static OTHERS: Sql = Sql {
    text: "
        SELECT (SELECT delete_after FROM object WHERE delete_after IS NOT NULL ORDER BY delete_after LIMIT 1),
               (SELECT at FROM inbound_event ORDER BY seq LIMIT 1),
               (SELECT created_at FROM operation WHERE status = 'running' ORDER BY id LIMIT 1)",
    types: &[],
};

pub(super) async fn others(shared: &Arc<StoreContext>) -> Result<Vec<(AlarmKind, Timestamp)>, Error> {
    let rows = shared.read(&OTHERS, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    let first = |column: usize| get::<Option<i64>>(row, column).map(|at| at.map(Timestamp::from_millis));
    let firsts = [
        (AlarmKind::Object, first(0)?),
        (AlarmKind::Event, first(1)?.map(event_delete_after)),
        (AlarmKind::Operation, first(2)?),
    ];
    Ok(firsts.into_iter().filter_map(|(kind, at)| Some((kind, at?))).collect())
}
