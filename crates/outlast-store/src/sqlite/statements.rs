//! The statements of nearly every transaction, prepared once for the life of the writer: looking them up in a cache each
//! time costs more than some of them do.

use rusqlite::{Connection, Statement};

use super::rows::{JOB_COLUMNS, SPEC_COLUMNS};
use super::{event_dedupe, inbound_events};

pub(super) struct Statements<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) select: Statement<'c>,
    pub(super) insert_job: Statement<'c>,
    pub(super) insert_spec: Statement<'c>,
    pub(super) update_job: Statement<'c>,
    pub(super) find_event_key: Statement<'c>,
    pub(super) insert_inbound_event: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Statements<'c>> {
        Ok(Statements {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            select: connection.prepare(&select_record())?,
            insert_job: connection.prepare(INSERT_JOB)?,
            insert_spec: connection.prepare(INSERT_SPEC)?,
            update_job: connection.prepare(UPDATE_JOB)?,
            find_event_key: connection.prepare(event_dedupe::FIND)?,
            insert_inbound_event: connection.prepare(inbound_events::INSERT)?,
        })
    }
}

pub(super) fn select_record() -> String {
    format!(
        "SELECT {JOB_COLUMNS}, job.checksum, {SPEC_COLUMNS}
         FROM job LEFT JOIN spec ON spec.seq = job.seq LEFT JOIN inbound_event ON inbound_event.seq = spec.inbound_event
         WHERE job.seq = ?1"
    )
}

/// The parameters of the statements on `job` are its columns in the order of [`JOB_COLUMNS`], then the checksum.
const INSERT_JOB: &str = "
    INSERT INTO job (seq, queue, status, detail, priority, created_at, version, replays, attempt, epoch, deferrals, events,
                     history, state_at, wake_at, key_hash, opened_at, queued_at, started_at, lease, last_how, expires_at,
                     extension, heartbeat_at, revoke_at, result, last_error, worker, work, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
            ?25, ?26, ?27, ?28, ?29, ?30)";

const INSERT_SPEC: &str = "
    INSERT INTO spec (seq, payload, idempotency_key, key, tags, not_before, start_by, callback_url, notify_email,
                      traceparent, overrides, origin, inbound_event, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

const UPDATE_JOB: &str = "
    UPDATE job
    SET status = ?3, detail = ?4, version = ?7, replays = ?8, attempt = ?9, epoch = ?10, deferrals = ?11, events = ?12,
        history = ?13, state_at = ?14, wake_at = ?15, opened_at = ?17, queued_at = ?18, started_at = ?19, lease = ?20,
        last_how = ?21, expires_at = ?22, extension = ?23, heartbeat_at = ?24, revoke_at = ?25, result = ?26,
        last_error = ?27, worker = ?28, work = ?29, checksum = ?30
    WHERE seq = ?1";

/// Sets the alarm and nothing else.
pub(super) const UPDATE_ALARM: &str = "UPDATE job SET wake_at = ?15, checksum = ?30 WHERE seq = ?1";
