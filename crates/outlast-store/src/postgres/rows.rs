//! Rows of PostgreSQL: the hot one, which also has the small parts of the spec as JSON, and the payload beside it.

use std::sync::Arc;

use outlast_core::inbound_event::EventOrigin;
use outlast_core::{Overrides, Spec, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::state_codec::unpack;
use crate::checksum::{Digest, RowSum, Table};
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{HotRow, JobRecord, StoredOverrides, from_json};
use crate::error::Error;

/// Columns of the hot row, in the order [`record`] reads them. The payload, or NULL where it is not needed, follows.
macro_rules! job_columns {
    () => {
        "job.seq, job.queue, job.status, job.created_at, job.state, job.spec, job.payload_checksum"
    };
}
pub(super) use job_columns;

/// How many columns [`record`] reads, the payload included.
pub(super) const COLUMNS: usize = 8;

/// Reads a row of `job_columns!` followed by the payload. Without a payload the job has an empty one, which must not be
/// shown to anybody.
pub(super) fn record(row: &Row, ids: JobIdCodec) -> Result<JobRecord, Error> {
    let mut hot = HotRow {
        seq: get(row, 0)?,
        queue: get::<i32>(row, 1)?.cast_unsigned(),
        status: get::<i16>(row, 2)?.into(),
        created_at: get(row, 3)?,
        ..HotRow::default()
    };
    let seq = hot.seq;
    let spec_digest = get::<Option<&str>>(row, 5)?.map(|json| Digest::of_text(json.as_bytes()));
    let unpacked = unpack(get(row, 4)?, spec_digest, &mut hot)?;
    if let Some(payload) = get::<Option<&str>>(row, 7)? {
        verify(Table::Payload, &seq.to_string(), get(row, 6)?, text_sum(Table::Payload, seq, payload))?;
    }
    let spec = Arc::new(spec(row, unpacked.priority)?);
    let (history, wake_at) = (unpacked.history, unpacked.wake_at);
    Ok(JobRecord { seq, job: hot.job(ids, spec)?, history, wake_at, key_hash: None, spec_digest })
}

fn spec(row: &Row, priority: i8) -> Result<Spec, Error> {
    let stored: StoredSpec = get::<Option<&str>>(row, 5)?.map(from_json::<StoredSpec>).transpose()?.unwrap_or_default();
    let payload = get::<Option<&str>>(row, 7)?.unwrap_or_default();
    Ok(Spec {
        payload: payload.into(),
        priority,
        not_before: stored.not_before,
        start_by: stored.start_by,
        idempotency_key: stored.idempotency_key,
        key: stored.key,
        tags: stored.tags,
        callback_url: stored.callback_url,
        notify_email: stored.notify_email,
        traceparent: stored.traceparent,
        overrides: stored.overrides.unwrap_or_default().into(),
        origin: stored.origin,
    })
}

/// The spec but for payload and priority. JSON, since text of PostgreSQL cannot hold every character that a user may
/// send, and since most jobs have none of it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_by: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<(Box<str>, Box<str>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notify_email: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrides: Option<StoredOverrides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Box<EventOrigin>>,
}

/// The column `spec`. NULL when there is nothing in it.
pub(super) fn spec_json(spec: &Spec) -> Option<String> {
    let plain = Spec { payload: Arc::clone(&spec.payload), priority: spec.priority, ..Spec::default() };
    if *spec == plain {
        return None;
    }
    let stored = StoredSpec {
        not_before: spec.not_before,
        start_by: spec.start_by,
        idempotency_key: spec.idempotency_key.clone(),
        key: spec.key.clone(),
        tags: spec.tags.clone(),
        callback_url: spec.callback_url.clone(),
        notify_email: spec.notify_email.clone(),
        traceparent: spec.traceparent.clone(),
        overrides: (spec.overrides != Overrides::default()).then(|| StoredOverrides::from(&spec.overrides)),
        origin: spec.origin.clone(),
    };
    Some(serde_json::to_string(&stored).unwrap_or_default())
}

/// The checksum of a row that is one text.
pub(super) fn text_sum(table: Table, row: i64, text: &str) -> i32 {
    let mut sum = RowSum::of(table);
    sum.integer(row);
    sum.text(text.as_bytes());
    sum.finish()
}

/// A row without a checksum is older than they are and passes.
pub(super) fn verify(table: Table, row: &str, stored: Option<i32>, found: i32) -> Result<(), Error> {
    match stored.is_none_or(|stored| stored == found) {
        true => Ok(()),
        false => Err(Error::Corrupt(format!("{} row {row} fails its checksum", table.name()))),
    }
}

/// Columns of a row in the order in which its checksum covers them.
pub(super) enum Cell<'a> {
    Number(i64),
    Text(&'a str),
    OwnText(String),
    Bytes(&'a [u8]),
    OwnBytes(Vec<u8>),
    Null,
}

/// The cells of a row, of whatever can be one.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { [$(Cell::from($cell)),*] };
}
pub(super) use cells;

macro_rules! cell_from {
    ($($kind:ty => |$value:ident| $cell:expr),* $(,)?) => {
        $(impl<'a> From<$kind> for Cell<'a> {
            fn from($value: $kind) -> Cell<'a> {
                $cell
            }
        })*
    };
}
cell_from! {
    i64 => |number| Cell::Number(number),
    i32 => |number| Cell::Number(number.into()),
    i16 => |number| Cell::Number(number.into()),
    u32 => |number| Cell::Number(number.into()),
    u16 => |number| Cell::Number(number.into()),
    u8 => |number| Cell::Number(number.into()),
    bool => |flag| Cell::Number(flag.into()),
    &'a str => |text| Cell::Text(text),
    String => |text| Cell::OwnText(text),
    &'a [u8] => |bytes| Cell::Bytes(bytes),
    Vec<u8> => |bytes| Cell::OwnBytes(bytes),
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Cell<'a> {
        value.map_or(Cell::Null, Into::into)
    }
}

impl<'a> Cell<'a> {
    pub(super) fn number(number: Option<i64>) -> Cell<'a> {
        number.map_or(Cell::Null, Cell::Number)
    }

    pub(super) fn text(text: Option<&'a str>) -> Cell<'a> {
        text.map_or(Cell::Null, Cell::Text)
    }

    pub(super) fn bytes(bytes: Option<&'a [u8]>) -> Cell<'a> {
        bytes.map_or(Cell::Null, Cell::Bytes)
    }
}

pub(super) fn row_sum(table: Table, cells: &[Cell<'_>]) -> i32 {
    let mut sum = RowSum::of(table);
    for cell in cells {
        match cell {
            Cell::Number(number) => sum.integer(*number),
            Cell::Text(text) => sum.text(text.as_bytes()),
            Cell::OwnText(text) => sum.text(text.as_bytes()),
            Cell::Bytes(bytes) => sum.blob(bytes),
            Cell::OwnBytes(bytes) => sum.blob(bytes),
            Cell::Null => sum.null(),
        }
    }
    sum.finish()
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|error| Error::Corrupt(super::connect::causes(&error)))
}

/// Text that may hold any character, and so is stored as bytes.
pub(super) fn text(row: &Row, at: usize) -> Result<Option<Box<str>>, Error> {
    let Some(bytes) = get::<Option<&[u8]>>(row, at)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(Some(text.into()))
}
