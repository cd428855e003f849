//! When the first thing of every kind besides jobs is due. The alarms of jobs are in the index in memory.

use outlast_core::Timestamp;
use outlast_core::inbound_event::event_delete_after;
use rusqlite::OptionalExtension;

use super::faults::{Fault, is_damage};
use super::writer::WriterState;
use crate::alarms::AlarmKind;

const FIRST_OBJECT: &str = "
    SELECT delete_after FROM object INDEXED BY object_delete_after WHERE delete_after IS NOT NULL ORDER BY delete_after LIMIT 1";
/// In order of number, which is the order of time.
const FIRST_EVENT: &str = "SELECT at FROM inbound_event ORDER BY seq LIMIT 1";
const FIRST_OPERATION: &str = "
    SELECT created_at FROM operation INDEXED BY operation_open WHERE status = 'running' ORDER BY id LIMIT 1";

impl WriterState<'_> {
    pub(super) fn other_alarms(&self) -> Result<Vec<(AlarmKind, Timestamp)>, Fault> {
        let firsts = [
            (AlarmKind::Object, self.first(FIRST_OBJECT)?),
            (AlarmKind::Event, self.first(FIRST_EVENT)?.map(event_delete_after)),
            (AlarmKind::Operation, self.first(FIRST_OPERATION)?),
        ];
        Ok(firsts.into_iter().filter_map(|(kind, at)| Some((kind, at?))).collect())
    }

    /// Damage in the table of one kind stops the alarms of no other.
    fn first(&self, statement: &str) -> Result<Option<Timestamp>, Fault> {
        let read = || self.connection.prepare_cached(statement)?.query_row([], |row| row.get(0)).optional();
        match read() {
            Ok(at) => Ok(at.map(Timestamp::from_millis)),
            Err(error) if is_damage(&error) => {
                self.damage.note(&format!("the first alarm of a table cannot be read: {error}"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
