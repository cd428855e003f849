//! The statements of nearly every transaction, prepared once for the life of the writer: looking them up in a cache each
//! time costs more than some of them do.

use rusqlite::{Connection, Statement};

use super::rows::{JOB_COLUMNS, SPEC_COLUMNS};
use super::{arrival_keys, arrivals};

pub(super) struct Hot<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) select: Statement<'c>,
    pub(super) insert_job: Statement<'c>,
    pub(super) insert_spec: Statement<'c>,
    pub(super) update_job: Statement<'c>,
    pub(super) find_arrival_key: Statement<'c>,
    pub(super) insert_arrival: Statement<'c>,
}

impl<'c> Hot<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Hot<'c>> {
        Ok(Hot {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            select: connection.prepare(&select_record())?,
            insert_job: connection.prepare(INSERT_JOB)?,
            insert_spec: connection.prepare(INSERT_SPEC)?,
            update_job: connection.prepare(UPDATE_JOB)?,
            find_arrival_key: connection.prepare(arrival_keys::FIND)?,
            insert_arrival: connection.prepare(arrivals::INSERT)?,
        })
    }
}

pub(super) fn select_record() -> String {
    select(SPEC_COLUMNS)
}

/// The same without the payload, which lists do not show.
pub(super) fn select_listed() -> String {
    select(&SPEC_COLUMNS.replacen("spec.payload", "''", 1))
}

fn select(spec_columns: &str) -> String {
    format!(
        "SELECT {JOB_COLUMNS}, {spec_columns}
         FROM job JOIN spec ON spec.seq = job.seq LEFT JOIN arrival ON arrival.seq = spec.arrival
         WHERE job.seq = ?1"
    )
}

const INSERT_JOB: &str = "
    INSERT INTO job (seq, queue, status, detail, priority, created_at, version, run, attempt, epoch, deferrals, events,
                     history, state_at, wake_at, key_hash, opened_at, queued_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

const INSERT_SPEC: &str = "
    INSERT INTO spec (seq, payload, idempotency_key, key, tags, not_before, start_by, callback_url, notify_email,
                      traceparent, overrides, origin, arrival)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

const UPDATE_JOB: &str = "
    UPDATE job
    SET status = ?2, detail = ?3, version = ?4, run = ?5, attempt = ?6, epoch = ?7, deferrals = ?8, events = ?9,
        history = ?10, state_at = ?11, wake_at = ?12, opened_at = ?13, queued_at = ?14, started_at = ?15, lease = ?16,
        last_how = ?17, expires_at = ?18, extension = ?19, heartbeat_at = ?20, revoke_at = ?21, result = ?22,
        last_error = ?23, worker = ?24, work = ?25
    WHERE seq = ?1";
