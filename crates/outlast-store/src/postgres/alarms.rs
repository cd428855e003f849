//! When the first thing of every kind besides jobs is due. The alarms of jobs are in the table `turn`.

use std::sync::Arc;

use outlast_core::Timestamp;
use outlast_core::arrival::forgotten_at;

use super::rows::get;
use super::session::Sql;
use super::shared::Shared;
use crate::alarms::AlarmKind;
use crate::error::Error;

/// Numbers of events are in the order of time, but for those that were stored at once.
pub(super) static OTHERS: Sql = Sql {
    text: "
        SELECT (SELECT doomed_at FROM object WHERE doomed_at IS NOT NULL ORDER BY doomed_at LIMIT 1),
               (SELECT at FROM arrival ORDER BY seq LIMIT 1),
               (SELECT created_at FROM operation WHERE status = 'running' ORDER BY id LIMIT 1)",
    types: &[],
};

pub(super) async fn others(shared: &Arc<Shared>) -> Result<Vec<(AlarmKind, Timestamp)>, Error> {
    let rows = shared.read(&OTHERS, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    let first = |column: usize| get::<Option<i64>>(row, column).map(|at| at.map(Timestamp::from_millis));
    let firsts = [
        (AlarmKind::Object, first(0)?),
        (AlarmKind::Event, first(1)?.map(forgotten_at)),
        (AlarmKind::Operation, first(2)?),
    ];
    Ok(firsts.into_iter().filter_map(|(kind, at)| Some((kind, at?))).collect())
}
