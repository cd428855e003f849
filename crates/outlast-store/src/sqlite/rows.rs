//! A job as rows: the hot one that is overwritten in place, and the spec that is written once. Both directions stand
//! side by side, so that a reader can check them against each other.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::job::Ended;
use outlast_core::state::{CancelReason, FailReason, PendingReason, Phase, ResultMeta};
use outlast_core::{Job, Lease, Overrides, QueueId, Running, Spec, State, Status, Timestamp};
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::ids::Ids;
use crate::error::Error;
use crate::history::{ENDINGS, PHASES, code};

/// A job with what only the store knows about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) seq: i64,
    pub(super) job: Job,
    /// The latest events, in bytes; older ones may have moved to the history table.
    pub(super) history: Vec<u8>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) key_hash: Option<i64>,
}

/// The order is the stored form: append only. The same holds for the other tables here.
const PENDING: [PendingReason; 4] =
    [PendingReason::Delayed, PendingReason::Backoff, PendingReason::Deferred, PendingReason::Dependencies];
const CANCELS: [CancelReason; 3] = [CancelReason::User, CancelReason::Timeout, CancelReason::Pipeline];
const RESULT_NONE: i64 = 0;
const RESULT_INLINE: i64 = 1;
const RESULT_OBJECT: i64 = 2;
/// Added to a running job's phase when a finalised result waits.
const UPLOAD: i64 = 16;

/// The columns that depend on the state, as they are stored.
#[derive(Debug, Default)]
pub(super) struct StateColumns<'a> {
    pub(super) status: i64,
    pub(super) detail: i64,
    pub(super) state_at: Option<i64>,
    pub(super) lease: Option<[u8; 16]>,
    pub(super) last_how: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) extension: Option<i64>,
    pub(super) heartbeat_at: Option<i64>,
    pub(super) revoke_at: Option<i64>,
    pub(super) result: Option<i64>,
    pub(super) worker: Option<&'a str>,
}

pub(super) fn state_columns(job: &Job) -> StateColumns<'_> {
    let mut columns = StateColumns { status: i64::from(code(&Status::ALL, job.status())), ..StateColumns::default() };
    if let Some(last) = &job.last {
        columns.lease = Some(last.lease.as_u128().to_be_bytes());
        columns.last_how = Some(i64::from(code(&ENDINGS, last.how)));
    }
    match &job.state {
        State::Pending { reason, until } => {
            columns.detail = i64::from(code(&PENDING, *reason));
            columns.state_at = Some(until.as_millis());
        }
        State::Queued { ready_at } => {
            columns.state_at = Some(ready_at.as_millis()).filter(|at| *at != job.created_at.as_millis())
        }
        State::Running(running) => fill_running(&mut columns, running),
        State::Succeeded { at, result } => {
            columns.state_at = Some(at.as_millis());
            columns.detail =
                result.as_ref().map_or(RESULT_NONE, |result| if result.inline { RESULT_INLINE } else { RESULT_OBJECT });
            columns.result = result.as_ref().map(|result| result.length.cast_signed());
        }
        State::Failed { at, reason } => {
            columns.detail = i64::from(code(&FailReason::ALL, *reason));
            columns.state_at = Some(at.as_millis());
        }
        State::Cancelled { at, reason } => {
            columns.detail = i64::from(code(&CANCELS, *reason));
            columns.state_at = Some(at.as_millis());
        }
        State::Expired { at, expired_at } => {
            columns.state_at = Some(at.as_millis());
            columns.expires_at = Some(expired_at.as_millis());
        }
    }
    columns
}

fn fill_running<'a>(columns: &mut StateColumns<'a>, running: &'a Running) {
    let upload = if running.upload.is_some() { UPLOAD } else { 0 };
    columns.detail = i64::from(code(&PHASES, running.phase)) + upload;
    columns.state_at = Some(running.began_at.as_millis());
    columns.lease = Some(running.lease.as_u128().to_be_bytes());
    columns.expires_at = Some(running.expires_at.as_millis());
    columns.extension = Some(i64::try_from(running.extension.as_millis()).unwrap_or(i64::MAX));
    columns.heartbeat_at = running.heartbeat_at.map(Timestamp::as_millis);
    columns.revoke_at = running.revoke_at.map(Timestamp::as_millis);
    columns.result = running.upload.as_ref().map(|upload| upload.length.cast_signed());
    columns.worker = running.worker.as_deref();
}

/// Columns of the hot row, in the order [`record`] reads them.
pub(super) const JOB_COLUMNS: &str = "
    job.seq, job.queue, job.status, job.detail, job.priority, job.created_at, job.version, job.run, job.attempt, job.epoch,
    job.deferrals, job.events, job.history, job.state_at, job.wake_at, job.key_hash, job.opened_at, job.queued_at,
    job.started_at, job.lease, job.last_how, job.expires_at, job.extension, job.heartbeat_at, job.revoke_at, job.result,
    job.last_error, job.worker";

/// Columns of the spec, read right after the hot ones.
pub(super) const SPEC_COLUMNS: &str = "
    spec.payload, spec.idempotency_key, spec.key, spec.tags, spec.not_before, spec.start_by, spec.callback_url,
    spec.notify_email, spec.traceparent, spec.overrides";

const FIRST_SPEC_COLUMN: usize = 28;

/// Reads a row of [`JOB_COLUMNS`] followed by [`SPEC_COLUMNS`].
pub(super) fn record(row: &Row<'_>, ids: Ids) -> Result<Record, Error> {
    let seq: i64 = get(row, 0)?;
    let priority: i8 = get(row, 4)?;
    let created_at = Timestamp::from_millis(get(row, 5)?);
    let status = *Status::ALL.get(get::<usize>(row, 2)?).ok_or_else(|| corrupt(seq, "status"))?;
    let state = state(row, status, created_at).map_err(|column| corrupt(seq, column))?;
    let or_created = |at: Option<i64>| at.map_or(created_at, Timestamp::from_millis);
    let queued_at = match get::<Option<i64>>(row, 17)? {
        Some(NEVER) => None,
        at => Some(or_created(at)),
    };
    let job = Job {
        id: ids.id(seq, created_at),
        queue: QueueId(get(row, 1)?),
        spec: Arc::new(spec(row, priority)?),
        created_at,
        version: get(row, 6)?,
        run: get(row, 7)?,
        attempt: get(row, 8)?,
        epoch: get(row, 9)?,
        deferrals: get(row, 10)?,
        last: last(row, &state)?,
        state,
        opened_at: or_created(get(row, 16)?),
        queued_at,
        started_at: get::<Option<i64>>(row, 18)?.map(Timestamp::from_millis),
        last_error: get::<Option<String>>(row, 26)?.map(Into::into),
        events: get(row, 11)?,
    };
    Ok(Record {
        seq,
        job,
        history: get(row, 12)?,
        wake_at: get::<Option<i64>>(row, 14)?.map(Timestamp::from_millis),
        key_hash: get(row, 15)?,
    })
}

/// Stands in `queued_at` for "never", since NULL means "as created".
pub(super) const NEVER: i64 = -1;

/// The stored form of `queued_at`.
pub(super) fn queued_at_column(job: &Job) -> Option<i64> {
    match job.queued_at {
        None => Some(NEVER),
        Some(at) if at == job.created_at => None,
        Some(at) => Some(at.as_millis()),
    }
}

fn state(row: &Row<'_>, status: Status, created_at: Timestamp) -> Result<State, &'static str> {
    let column = |at: usize, name: &'static str| row.get::<_, Option<i64>>(at).map_err(|_| name);
    let detail = column(3, "detail")?.unwrap_or(0);
    let at = column(13, "state_at")?.map_or(created_at, Timestamp::from_millis);
    let place = usize::try_from(detail).map_err(|_| "detail")?;
    Ok(match status {
        Status::Pending => State::Pending { reason: *PENDING.get(place).ok_or("detail")?, until: at },
        Status::Queued => State::Queued { ready_at: at },
        Status::Running => State::Running(running(row, at, detail)?),
        Status::Succeeded => {
            let length = column(25, "result")?.map(i64::cast_unsigned);
            State::Succeeded { at, result: length.map(|length| ResultMeta { length, inline: detail == RESULT_INLINE }) }
        }
        Status::Failed => State::Failed { at, reason: *FailReason::ALL.get(place).ok_or("detail")? },
        Status::Cancelled => State::Cancelled { at, reason: *CANCELS.get(place).ok_or("detail")? },
        Status::Expired => {
            State::Expired { at, expired_at: column(21, "expires_at")?.map_or(at, Timestamp::from_millis) }
        }
    })
}

fn running(row: &Row<'_>, began_at: Timestamp, detail: i64) -> Result<Running, &'static str> {
    let time = |at: usize, name: &'static str| {
        row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(|_| name)
    };
    let length = row.get::<_, Option<i64>>(25).map_err(|_| "result")?;
    let phase: Phase = *usize::try_from(detail % UPLOAD).ok().and_then(|place| PHASES.get(place)).ok_or("detail")?;
    Ok(Running {
        phase,
        lease: lease(row).map_err(|_| "lease")?.ok_or("lease")?,
        began_at,
        expires_at: time(21, "expires_at")?.ok_or("expires_at")?,
        extension: Duration::from_millis(row.get::<_, u64>(22).map_err(|_| "extension")?),
        heartbeat_at: time(23, "heartbeat_at")?,
        revoke_at: time(24, "revoke_at")?,
        worker: row.get::<_, Option<String>>(27).map_err(|_| "worker")?.map(Into::into),
        upload: (detail >= UPLOAD).then_some(ResultMeta { length: length.unwrap_or(0).cast_unsigned(), inline: false }),
    })
}

fn lease(row: &Row<'_>) -> rusqlite::Result<Option<Lease>> {
    let bytes: Option<[u8; 16]> = row.get(19)?;
    Ok(bytes.map(|bytes| Lease::from_u128(u128::from_be_bytes(bytes))))
}

fn last(row: &Row<'_>, state: &State) -> Result<Option<Ended>, Error> {
    let how: Option<usize> = get(row, 20)?;
    let (Some(how), false) = (how, matches!(state, State::Running(_))) else {
        return Ok(None);
    };
    let lease = lease(row).map_err(|error| Error::Corrupt(error.to_string()))?;
    let how = ENDINGS.get(how).copied();
    Ok(lease.zip(how).map(|(lease, how)| Ended { lease, how }))
}

fn spec(row: &Row<'_>, priority: i8) -> Result<Spec, Error> {
    let at = |offset: usize| FIRST_SPEC_COLUMN + offset;
    let text = |offset: usize| get::<Option<String>>(row, at(offset)).map(|text| text.map(Into::into));
    let time = |offset: usize| get::<Option<i64>>(row, at(offset)).map(|time| time.map(Timestamp::from_millis));
    Ok(Spec {
        payload: get::<String>(row, at(0))?.into(),
        priority,
        idempotency_key: text(1)?,
        key: text(2)?,
        tags: get::<Option<String>>(row, at(3))?.map(|json| from_json(&json)).transpose()?.unwrap_or_default(),
        not_before: time(4)?,
        start_by: time(5)?,
        callback_url: text(6)?,
        notify_email: text(7)?,
        traceparent: text(8)?,
        overrides: get::<Option<String>>(row, at(9))?
            .map(|json| from_json::<StoredOverrides>(&json))
            .transpose()?
            .unwrap_or_default()
            .into(),
    })
}

pub(super) fn tags_json(spec: &Spec) -> Option<String> {
    (!spec.tags.is_empty()).then(|| serde_json::to_string(&spec.tags).unwrap_or_default())
}

pub(super) fn overrides_json(spec: &Spec) -> Option<String> {
    let stored = StoredOverrides::from(&spec.overrides);
    (spec.overrides != Overrides::default()).then(|| serde_json::to_string(&stored).unwrap_or_default())
}

/// Overrides as stored: durations in milliseconds, absent ones left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_deferrals: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    millis: Vec<Option<u64>>,
}

impl From<&Overrides> for StoredOverrides {
    fn from(from: &Overrides) -> StoredOverrides {
        let durations = [
            from.visibility_timeout,
            from.ack_timeout,
            from.heartbeat_timeout,
            from.soft_time_limit,
            from.hard_time_limit,
            from.job_timeout,
            from.max_age,
            from.result_ttl,
        ];
        let millis =
            durations.map(|duration| duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)));
        StoredOverrides { max_attempts: from.max_attempts, max_deferrals: from.max_deferrals, millis: millis.to_vec() }
    }
}

impl From<StoredOverrides> for Overrides {
    fn from(from: StoredOverrides) -> Overrides {
        let duration = |place: usize| from.millis.get(place).copied().flatten().map(Duration::from_millis);
        Overrides {
            max_attempts: from.max_attempts,
            max_deferrals: from.max_deferrals,
            visibility_timeout: duration(0),
            ack_timeout: duration(1),
            heartbeat_timeout: duration(2),
            soft_time_limit: duration(3),
            hard_time_limit: duration(4),
            job_timeout: duration(5),
            max_age: duration(6),
            result_ttl: duration(7),
        }
    }
}

fn from_json<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::Corrupt(error.to_string()))
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, at: usize) -> Result<T, Error> {
    row.get(at).map_err(|error| Error::Corrupt(error.to_string()))
}

fn corrupt(seq: i64, column: &str) -> Error {
    Error::Corrupt(format!("column {column} of job row {seq}"))
}
