//! The state of a job in a few dozen bytes. One value instead of two dozen columns: a change is written twice to three
//! times as fast, and nothing in it is ever asked for by SQL. Numbers are short, times relative to the job's creation.

use outlast_core::Timestamp;

use crate::checksum::{Digest, RowSum, Table};
use crate::codec::events::{ByteReader, put_number, put_text};
use crate::codec::row::JobRecord;
use crate::codec::row::{HotRow, opened_at_column, queued_at_column, state_columns};
use crate::codec::work::work_column;
use crate::error::Error;

/// Raised when the form changes; older rows are then still read. The second one has a checksum behind it.
const FORM: u8 = 2;
const FORM_WITHOUT_CHECKSUM: u8 = 1;
const CHECKSUM_BYTES: usize = size_of::<i32>();
const LEASE: u64 = 1 << 11;
const WORK: u64 = 1 << 12;

/// Fields of a packed state besides the job itself.
pub(super) struct DecodedState {
    pub(super) priority: i8,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) history: Vec<u8>,
}

pub(super) fn pack(record: &JobRecord) -> Vec<u8> {
    let job = &record.job;
    let columns = state_columns(job);
    let created_at = job.created_at.as_millis();
    let since = |at: Option<i64>| at.map(|at| at.wrapping_sub(created_at));
    let numbers = [
        since(columns.state_at),
        since(opened_at_column(job)),
        since(queued_at_column(job)),
        since(job.started_at.map(Timestamp::as_millis)),
        since(columns.expires_at),
        columns.extension,
        since(columns.heartbeat_at),
        since(columns.revoke_at),
        columns.result,
        since(record.wake_at.map(Timestamp::as_millis)),
        columns.last_how,
    ];
    let work = work_column(job);
    let mut present = if columns.lease.is_some() { LEASE } else { 0 };
    present |= if work.is_some() { WORK } else { 0 };
    for (at, number) in numbers.iter().enumerate() {
        present |= u64::from(number.is_some()) << at;
    }
    let mut bytes = Vec::with_capacity(64 + record.history.len());
    bytes.push(FORM);
    bytes.extend_from_slice(&[0; CHECKSUM_BYTES]);
    put_number(&mut bytes, present);
    put_number(&mut bytes, zigzag(columns.detail));
    put_number(&mut bytes, zigzag(i64::from(job.spec.priority)));
    for number in [job.version, job.replays.into(), job.attempt.into(), job.epoch, job.deferrals.into(), job.events] {
        put_number(&mut bytes, number);
    }
    for number in numbers.into_iter().flatten() {
        put_number(&mut bytes, zigzag(number));
    }
    bytes.extend(columns.lease.into_iter().flatten());
    put_text(&mut bytes, columns.worker);
    put_text(&mut bytes, job.last_error.as_deref());
    if let Some(work) = work {
        put_number(&mut bytes, u64::try_from(work.len()).unwrap_or(0));
        bytes.extend(work);
    }
    bytes.extend_from_slice(&record.history);
    let sum = checksum(
        [record.seq, created_at, i64::from(job.queue.0), columns.status],
        record.spec_digest,
        bytes.get(1 + CHECKSUM_BYTES..).unwrap_or_default(),
    );
    if let Some(place) = bytes.get_mut(1..=CHECKSUM_BYTES) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Covers the columns beside the state that no later statement can tell from wrong ones, and the spec.
fn checksum(columns: [i64; 4], spec: Option<Digest>, state: &[u8]) -> i32 {
    let mut sum = RowSum::of(Table::Job);
    columns.into_iter().for_each(|column| sum.integer(column));
    match spec {
        Some(spec) => sum.digest(spec),
        None => sum.null(),
    }
    sum.blob(state);
    sum.finish()
}

/// Fills in what the packed state says. `row` has the columns already.
pub(super) fn unpack(bytes: &[u8], spec: Option<Digest>, row: &mut HotRow) -> Result<DecodedState, Error> {
    let seq = row.seq;
    let body = match bytes.split_first() {
        Some((&FORM_WITHOUT_CHECKSUM, body)) => Some(body),
        Some((&FORM, rest)) => rest.split_first_chunk::<CHECKSUM_BYTES>().and_then(|(stored, body)| {
            let columns = [seq, row.created_at, i64::from(row.queue), row.status];
            (checksum(columns, spec, body).to_le_bytes() == *stored).then_some(body)
        }),
        _ => None,
    };
    let body = body.ok_or_else(|| Error::Corrupt(format!("job row {seq} fails its checksum")))?;
    read(body, row).ok_or_else(|| Error::Corrupt(format!("column state of job row {seq}")))
}

fn read(bytes: &[u8], row: &mut HotRow) -> Option<DecodedState> {
    let mut reader = ByteReader { bytes };
    let present = reader.number()?;
    row.detail = unzigzag(reader.number()?);
    let priority = i8::try_from(unzigzag(reader.number()?)).ok()?;
    row.version = reader.number()?;
    row.replays = u32::try_from(reader.number()?).ok()?;
    row.attempt = u32::try_from(reader.number()?).ok()?;
    row.epoch = reader.number()?;
    row.deferrals = u32::try_from(reader.number()?).ok()?;
    row.events = reader.number()?;
    let created_at = row.created_at;
    let mut numbers = [None; 11];
    for (at, number) in numbers.iter_mut().enumerate() {
        if present >> at & 1 == 1 {
            *number = Some(unzigzag(reader.number()?));
        }
    }
    let [
        state_at,
        opened_at,
        queued_at,
        started_at,
        expires_at,
        extension,
        heartbeat_at,
        revoke_at,
        result,
        wake_at,
        last_how,
    ] = numbers;
    let at = |since: Option<i64>| since.map(|since| since.wrapping_add(created_at));
    row.state_at = at(state_at);
    row.opened_at = at(opened_at);
    row.queued_at = at(queued_at);
    row.started_at = at(started_at);
    row.expires_at = at(expires_at);
    row.extension = extension;
    row.heartbeat_at = at(heartbeat_at);
    row.revoke_at = at(revoke_at);
    row.result = result;
    row.last_how = last_how;
    if present & LEASE != 0 {
        let (lease, rest) = reader.bytes.split_first_chunk::<16>()?;
        row.lease = Some(*lease);
        reader.bytes = rest;
    }
    row.worker = reader.text()?;
    row.last_error = reader.text()?;
    if present & WORK != 0 {
        let length = usize::try_from(reader.number()?).ok()?;
        let (work, rest) = reader.bytes.split_at_checked(length)?;
        row.work = Some(work.to_vec());
        reader.bytes = rest;
    }
    Some(DecodedState { priority, wake_at: at(wake_at).map(Timestamp::from_millis), history: reader.bytes.to_vec() })
}

/// Small numbers of either sign in few bytes.
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_either_sign_survive() {
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN, 1_763_238_999_042] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    #[test]
    fn damaged_bytes_are_reported_and_never_panic() {
        let sound = [FORM_WITHOUT_CHECKSUM, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0];
        assert!(unpack(&sound, None, &mut HotRow::default()).is_ok());

        for cut in 0..sound.len() {
            assert!(unpack(&sound[..cut], None, &mut HotRow::default()).is_err(), "{cut}");
            let mut flipped = sound;
            flipped[cut] ^= 0xff;
            let _ = unpack(&flipped, None, &mut HotRow::default());
        }
    }
}
