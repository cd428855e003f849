//! Rows of SQLite: the hot one that is overwritten in place, and the spec that is written once.

use std::sync::Arc;

use outlast_core::inbound_event::{EventHeaders, EventOrigin, InboundEventId};
use outlast_core::{Overrides, Spec, Timestamp};
use rusqlite::Row;

use super::compressed_text::DecompressedText;
use super::row_checksums::verify;
use crate::checksum::Table;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{HotRow, JobRecord, StoredOverrides, from_json};
use crate::error::Error;

/// Columns of the statements row, in the order [`record`] reads them.
pub(super) const JOB_COLUMNS: &str = "
    job.seq, job.queue, job.status, job.detail, job.priority, job.created_at, job.version, job.replays, job.attempt, job.epoch,
    job.deferrals, job.events, job.history, job.state_at, job.wake_at, job.key_hash, job.opened_at, job.queued_at,
    job.started_at, job.lease, job.last_how, job.expires_at, job.extension, job.heartbeat_at, job.revoke_at, job.result,
    job.last_error, job.worker, job.work";
pub(super) const JOB_WIDTH: usize = 29;

/// Columns of the spec, read right after the hot ones; the last ones are of the event it came of. Each part ends with its
/// checksum.
pub(super) const SPEC_COLUMNS: &str = "
    spec.payload, spec.idempotency_key, spec.key, spec.tags, spec.not_before, spec.start_by, spec.callback_url,
    spec.notify_email, spec.traceparent, spec.overrides, spec.origin, spec.inbound_event, spec.checksum, inbound_event.seq,
    inbound_event.namespace, inbound_event.at, inbound_event.source, inbound_event.kind, inbound_event.key, inbound_event.headers, inbound_event.jobs,
    inbound_event.checksum";

const FIRST_SPEC_COLUMN: usize = JOB_WIDTH + 1;
const SPEC_CHECKSUM: usize = FIRST_SPEC_COLUMN + 12;
const FIRST_EVENT_COLUMN: usize = SPEC_CHECKSUM + 1;
const EVENT_CHECKSUM: usize = FIRST_EVENT_COLUMN + 8;

/// Reads a row of [`JOB_COLUMNS`] and its checksum followed by [`SPEC_COLUMNS`].
pub(super) fn record(row: &Row<'_>, ids: JobIdCodec) -> Result<JobRecord, Error> {
    verify(Table::Job, row, 0..JOB_WIDTH, JOB_WIDTH)?;
    verify(Table::Spec, row, std::iter::once(0).chain(FIRST_SPEC_COLUMN..SPEC_CHECKSUM), SPEC_CHECKSUM)?;
    let statements = HotRow {
        seq: get(row, 0)?,
        queue: get(row, 1)?,
        status: get(row, 2)?,
        detail: get(row, 3)?,
        created_at: get(row, 5)?,
        version: get(row, 6)?,
        replays: get(row, 7)?,
        attempt: get(row, 8)?,
        epoch: get(row, 9)?,
        deferrals: get(row, 10)?,
        events: get(row, 11)?,
        state_at: get(row, 13)?,
        opened_at: get(row, 16)?,
        queued_at: get(row, 17)?,
        started_at: get(row, 18)?,
        lease: get(row, 19)?,
        last_how: get(row, 20)?,
        expires_at: get(row, 21)?,
        extension: get(row, 22)?,
        heartbeat_at: get(row, 23)?,
        revoke_at: get(row, 24)?,
        result: get(row, 25)?,
        last_error: get(row, 26)?,
        worker: get(row, 27)?,
        work: get(row, 28)?,
    };
    let spec = Arc::new(spec(row, get(row, 4)?, ids)?);
    Ok(JobRecord {
        seq: statements.seq,
        job: statements.job(ids, spec)?,
        history: get(row, 12)?,
        wake_at: get::<Option<i64>>(row, 14)?.map(Timestamp::from_millis),
        key_hash: get(row, 15)?,
        spec_digest: None,
    })
}

fn spec(row: &Row<'_>, priority: i8, ids: JobIdCodec) -> Result<Spec, Error> {
    let at = |offset: usize| FIRST_SPEC_COLUMN + offset;
    let text = |offset: usize| get::<Option<String>>(row, at(offset)).map(|text| text.map(Into::into));
    let time = |offset: usize| get::<Option<i64>>(row, at(offset)).map(|time| time.map(Timestamp::from_millis));
    Ok(Spec {
        payload: get::<DecompressedText>(row, at(0))?.0.into(),
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
        origin: origin(row, at(10), ids)?.map(Box::new),
    })
}

/// A job's own, in column `first`, or that of the event it came of.
fn origin(row: &Row<'_>, first: usize, ids: JobIdCodec) -> Result<Option<EventOrigin>, Error> {
    if let Some(json) = get::<Option<String>>(row, first)? {
        return from_json(&json).map(Some);
    }
    let Some(seq) = get(row, first + 1)? else {
        return Ok(None);
    };
    verify(Table::InboundEvent, row, FIRST_EVENT_COLUMN..EVENT_CHECKSUM, EVENT_CHECKSUM)?;
    // If the event is gone, its columns are empty, which is an error.
    let came_at = Timestamp::from_millis(get(row, FIRST_EVENT_COLUMN + 2)?);
    Ok(Some(EventOrigin {
        event: InboundEventId(ids.id(seq, came_at)),
        source: get::<String>(row, FIRST_EVENT_COLUMN + 3)?.into(),
        kind: get::<String>(row, FIRST_EVENT_COLUMN + 4)?.into(),
        headers: headers(get(row, FIRST_EVENT_COLUMN + 6)?)?,
    }))
}

/// The headers of an event; none are not written.
pub(super) fn headers(json: Option<String>) -> Result<EventHeaders, Error> {
    Ok(json.map(|json| from_json(&json)).transpose()?.unwrap_or_default())
}

pub(super) fn tags_json(spec: &Spec) -> Option<String> {
    (!spec.tags.is_empty()).then(|| serde_json::to_string(&spec.tags).unwrap_or_default())
}

pub(super) fn overrides_json(spec: &Spec) -> Option<String> {
    let written = || serde_json::to_string(&StoredOverrides::from(&spec.overrides)).unwrap_or_default();
    (spec.overrides != Overrides::default()).then(written)
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, at: usize) -> Result<T, Error> {
    row.get(at).map_err(|error| Error::Corrupt(error.to_string()))
}
