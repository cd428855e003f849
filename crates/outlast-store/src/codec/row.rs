//! A job as a row: the columns that both engines store, in both directions, side by side, so that a reader can check
//! them against each other. How a row is fetched and written is each engine's own.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::job::EndedLease;
use outlast_core::state::{CancelReason, FailReason, PendingReason, Phase, ResultMeta};
use outlast_core::{Job, Lease, Overrides, QueueId, Running, Spec, State, Status, Timestamp, Work, WorkSummary};
use serde::{Deserialize, Serialize};

use crate::checksum::Digest;
use crate::codec::events::{ENDINGS, PHASES, code};
use crate::codec::job_id::JobIdCodec;
use crate::codec::work::read_work;
use crate::error::Error;

/// The order is the stored form: append only. The same holds for the other tables here.
const PENDING: [PendingReason; 4] =
    [PendingReason::Delayed, PendingReason::Backoff, PendingReason::Deferred, PendingReason::Dependencies];
const CANCELS: [CancelReason; 3] = [CancelReason::User, CancelReason::Timeout, CancelReason::Pipeline];
const RESULT_NONE: i64 = 0;
const RESULT_INLINE: i64 = 1;
const RESULT_OBJECT: i64 = 2;
/// Added to a running job's phase when a finalised result waits.
pub(crate) const UPLOAD: i64 = 16;

/// Bits of `last_how` that say how a lease ended; the digest of the outcome is above them, 0 for none.
const ENDING_BITS: u32 = 8;

/// A job with what only a store knows about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobRecord {
    pub(crate) seq: i64,
    pub(crate) job: Job,
    /// The latest events, in bytes; older ones may have moved to the history table.
    pub(crate) history: Vec<u8>,
    pub(crate) wake_at: Option<Timestamp>,
    /// Of the idempotency key, where the engine keeps it with the row.
    pub(crate) key_hash: Option<i64>,
    /// Of the column `spec`, where the engine has one.
    pub(crate) spec_digest: Option<Digest>,
}

/// A job's entry in the ready list and the list of alarms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexEntry {
    pub(crate) seq: i64,
    pub(crate) queue: QueueId,
    pub(crate) status: Status,
    pub(crate) priority: i8,
    /// Order within a priority; only of queued jobs.
    pub(crate) ready_at: Timestamp,
    pub(crate) wake_at: Option<Timestamp>,
}

impl IndexEntry {
    pub(crate) fn of(record: &JobRecord) -> IndexEntry {
        let ready_at = match &record.job.state {
            State::Queued { ready_at } => *ready_at,
            _ => Timestamp::EPOCH,
        };
        IndexEntry {
            seq: record.seq,
            queue: record.job.queue,
            status: record.job.status(),
            priority: record.job.spec.priority,
            ready_at,
            wake_at: record.wake_at,
        }
    }
}

/// The columns that depend on the state, as they are stored.
#[derive(Debug, Default)]
pub(crate) struct StateColumns<'a> {
    pub(crate) status: i64,
    pub(crate) detail: i64,
    pub(crate) state_at: Option<i64>,
    pub(crate) lease: Option<[u8; 16]>,
    pub(crate) last_how: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) extension: Option<i64>,
    pub(crate) heartbeat_at: Option<i64>,
    pub(crate) revoke_at: Option<i64>,
    pub(crate) result: Option<i64>,
    pub(crate) worker: Option<&'a str>,
}

pub(crate) fn state_columns(job: &Job) -> StateColumns<'_> {
    let mut columns = StateColumns { status: i64::from(code(&Status::ALL, job.status())), ..StateColumns::default() };
    if let Some(last) = &job.last {
        columns.lease = Some(last.lease.as_u128().to_be_bytes());
        let digest = last.digest.map_or(0, |digest| digest.get().cast_signed());
        columns.last_how = Some(i64::from(code(&ENDINGS, last.how)) | digest << ENDING_BITS);
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

/// The columns of a hot row as they were stored. `NULL` is `None` throughout.
#[derive(Debug, Default)]
pub(crate) struct HotRow {
    pub(crate) seq: i64,
    pub(crate) queue: u32,
    pub(crate) status: i64,
    pub(crate) detail: i64,
    pub(crate) created_at: i64,
    pub(crate) version: u64,
    pub(crate) replays: u32,
    pub(crate) attempt: u32,
    pub(crate) epoch: u64,
    pub(crate) deferrals: u32,
    pub(crate) events: u64,
    pub(crate) state_at: Option<i64>,
    pub(crate) opened_at: Option<i64>,
    pub(crate) queued_at: Option<i64>,
    pub(crate) started_at: Option<i64>,
    pub(crate) lease: Option<[u8; 16]>,
    pub(crate) last_how: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) extension: Option<i64>,
    pub(crate) heartbeat_at: Option<i64>,
    pub(crate) revoke_at: Option<i64>,
    pub(crate) result: Option<i64>,
    pub(crate) last_error: Option<Box<str>>,
    pub(crate) worker: Option<Box<str>>,
    pub(crate) work: Option<Vec<u8>>,
}

impl HotRow {
    /// The job of this row; an error names the invalid column.
    pub(crate) fn job(mut self, ids: JobIdCodec, spec: Arc<Spec>) -> Result<Job, Error> {
        let seq = self.seq;
        let created_at = Timestamp::from_millis(self.created_at);
        let (work_summary, work) = match self.work.as_deref() {
            None => (WorkSummary::default(), Work::default()),
            Some(bytes) => read_work(bytes).ok_or_else(|| corrupt(seq, "work"))?,
        };
        let mut state = self.state(created_at).map_err(|column| corrupt(seq, column))?;
        if let State::Running(running) = &mut state {
            running.work = work;
        }
        let or_created = |at: Option<i64>| at.map_or(created_at, Timestamp::from_millis);
        Ok(Job {
            id: ids.id(seq, created_at),
            queue: QueueId(self.queue),
            spec,
            created_at,
            version: self.version,
            replays: self.replays,
            attempt: self.attempt,
            epoch: self.epoch,
            deferrals: self.deferrals,
            last: self.last(&state),
            state,
            opened_at: or_created(self.opened_at),
            queued_at: Some(self.queued_at).filter(|at| *at != Some(NEVER)).map(or_created),
            started_at: self.started_at.map(Timestamp::from_millis),
            last_error: self.last_error,
            events: self.events,
            work_summary,
        })
    }

    fn state(&mut self, created_at: Timestamp) -> Result<State, &'static str> {
        let at = self.state_at.map_or(created_at, Timestamp::from_millis);
        let status = usize::try_from(self.status).ok().and_then(|status| Status::ALL.get(status)).ok_or("status")?;
        let place = usize::try_from(self.detail).map_err(|_| "detail")?;
        Ok(match status {
            Status::Pending => State::Pending { reason: *PENDING.get(place).ok_or("detail")?, until: at },
            Status::Queued => State::Queued { ready_at: at },
            Status::Running => State::Running(self.running(at)?),
            Status::Succeeded => {
                let inline = self.detail == RESULT_INLINE;
                let result = self.result.map(|length| ResultMeta { length: length.cast_unsigned(), inline });
                State::Succeeded { at, result }
            }
            Status::Failed => State::Failed { at, reason: *FailReason::ALL.get(place).ok_or("detail")? },
            Status::Cancelled => State::Cancelled { at, reason: *CANCELS.get(place).ok_or("detail")? },
            Status::Expired => State::Expired { at, expired_at: self.expires_at.map_or(at, Timestamp::from_millis) },
        })
    }

    fn running(&mut self, began_at: Timestamp) -> Result<Running, &'static str> {
        let phase = usize::try_from(self.detail % UPLOAD).ok().and_then(|place| PHASES.get(place)).ok_or("detail")?;
        let extension = self.extension.and_then(|millis| u64::try_from(millis).ok()).ok_or("extension")?;
        let length = self.result.unwrap_or(0).cast_unsigned();
        let phase: Phase = *phase;
        Ok(Running {
            phase,
            lease: self.lease().ok_or("lease")?,
            began_at,
            expires_at: self.expires_at.map(Timestamp::from_millis).ok_or("expires_at")?,
            extension: Duration::from_millis(extension),
            heartbeat_at: self.heartbeat_at.map(Timestamp::from_millis),
            revoke_at: self.revoke_at.map(Timestamp::from_millis),
            worker: self.worker.take(),
            upload: (self.detail >= UPLOAD).then_some(ResultMeta { length, inline: false }),
            work: Work::default(),
        })
    }

    fn lease(&self) -> Option<Lease> {
        self.lease.map(|bytes| Lease::from_u128(u128::from_be_bytes(bytes)))
    }

    fn last(&self, state: &State) -> Option<EndedLease> {
        let stored = u64::try_from(self.last_how?).ok()?;
        let how = usize::try_from(stored % (1 << ENDING_BITS)).ok().and_then(|how| ENDINGS.get(how))?;
        let digest = NonZeroU64::new(stored >> ENDING_BITS);
        let ended = !matches!(state, State::Running(_));
        self.lease().filter(|_| ended).map(|lease| EndedLease { lease, how: *how, digest })
    }
}

/// Means "never" in `queued_at`, since NULL means "as created".
const NEVER: i64 = -1;

/// The stored form of `queued_at`.
pub(crate) fn queued_at_column(job: &Job) -> Option<i64> {
    match job.queued_at {
        None => Some(NEVER),
        Some(at) if at == job.created_at => None,
        Some(at) => Some(at.as_millis()),
    }
}

/// The stored form of `opened_at`.
pub(crate) fn opened_at_column(job: &Job) -> Option<i64> {
    Some(job.opened_at.as_millis()).filter(|_| job.opened_at != job.created_at)
}

/// Overrides as stored: durations in milliseconds, absent ones left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredOverrides {
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

/// A column that holds JSON.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::Corrupt(error.to_string()))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Corrupt(error.to_string()))
}

fn corrupt(seq: i64, column: &str) -> Error {
    Error::Corrupt(format!("column {column} of job row {seq}"))
}
