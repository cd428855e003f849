//! Progress and work_summary in bytes, for the hot row of both engines and for the link between nodes. Read as untrusted input:
//! what makes no sense is nothing.

use outlast_core::{Directives, Job, OutputPart, Progress, ProgressReport, State, Timestamp, Work, WorkSummary};
use std::sync::Arc;

use crate::codec::events::{ByteReader, put_number, put_text};

/// Longest words of a report; they are cut to it before they get here.
const WORDS_BYTES_MAX: usize = 4096;

pub(crate) fn put_progress(bytes: &mut Vec<u8>, progress: &Progress) {
    let report = &progress.report;
    let shares = [report.pct, report.stage_pct];
    let numbers = [
        report.stages_done,
        report.stages_total,
        report.items_done,
        report.items_total,
        progress.eta.map(|eta| eta.as_millis().unsigned_abs()),
    ];
    let mut present = 0u64;
    let is_there = shares.iter().map(Option::is_some).chain(numbers.iter().map(Option::is_some));
    for (at, is_there) in is_there.enumerate() {
        present |= u64::from(is_there) << at;
    }
    put_number(bytes, present);
    for share in shares.into_iter().flatten() {
        bytes.extend(share.to_bits().to_le_bytes());
    }
    for number in numbers.into_iter().flatten() {
        put_number(bytes, number);
    }
    put_time(bytes, progress.started_at);
    put_time(bytes, progress.at);
    put_text(bytes, report.stage.as_deref());
    put_text(bytes, report.message.as_deref());
}

pub(crate) fn read_progress(reader: &mut ByteReader<'_>) -> Option<Progress> {
    let present = reader.number()?;
    let mut shares = [None; 2];
    for (at, share) in shares.iter_mut().enumerate() {
        if present >> at & 1 == 1 {
            *share = Some(read_share(reader)?);
        }
    }
    let mut numbers = [None; 5];
    for (at, number) in numbers.iter_mut().enumerate() {
        if present >> (at + shares.len()) & 1 == 1 {
            *number = Some(reader.number()?);
        }
    }
    let [pct, stage_pct] = shares;
    let [stages_done, stages_total, items_done, items_total, eta] = numbers;
    let (started_at, at) = (read_time(reader)?, read_time(reader)?);
    let (stage, message) = (reader.text()?, reader.text()?);
    if [&stage, &message].into_iter().flatten().any(|words| words.len() > WORDS_BYTES_MAX) {
        return None;
    }
    let report = ProgressReport { pct, stage, stage_pct, stages_done, stages_total, items_done, items_total, message };
    let eta = eta.and_then(|eta| i64::try_from(eta).ok()).map(Timestamp::from_millis);
    Some(Progress::restored(report, started_at, at, eta))
}

fn read_share(reader: &mut ByteReader<'_>) -> Option<f64> {
    let (bits, rest) = reader.bytes.split_first_chunk::<8>()?;
    reader.bytes = rest;
    Some(f64::from_bits(u64::from_le_bytes(*bits))).filter(|share| (0.0..=100.0).contains(share))
}

fn put_time(bytes: &mut Vec<u8>, at: Timestamp) {
    put_number(bytes, at.as_millis().unsigned_abs());
}

fn read_time(reader: &mut ByteReader<'_>) -> Option<Timestamp> {
    i64::try_from(reader.number()?).ok().map(Timestamp::from_millis)
}

/// The column `work` begins with these two bytes since its form has a number. Flags, which it began with before, are never
/// none: such a column is NULL.
const FORM: [u8; 2] = [0, 1];

const MOVED_AT: u64 = 1;
const CHECKPOINT: u64 = 1 << 1;
const SECTIONS: u64 = 1 << 2;
const UPLOAD: u64 = 1 << 3;
const OUTPUT: u64 = 1 << 4;
const PROGRESS: u64 = 1 << 5;
const STALLED: u64 = 1 << 6;
const CHECKPOINT_NOW: u64 = 1 << 7;
const HAND_OVER: u64 = 1 << 8;
const SLOW_DOWN: u64 = 1 << 9;
const GRACE: u64 = 1 << 10;
const UPLOADS: u64 = 1 << 11;
const LAST_PART: u64 = 1 << 12;

/// The column `work`: what a job's attempts have left, and what is known about the one in progress. `None` for the many
/// jobs that have none of it.
pub(crate) fn work_column(job: &Job) -> Option<Vec<u8>> {
    let (work_summary, none) = (&job.work_summary, Work::default());
    let work = match &job.state {
        State::Running(running) => &running.work,
        _ => &none,
    };
    if *work_summary == WorkSummary::default() && *work == none {
        return None;
    }
    let flags = [
        (work_summary.moved_at.is_some(), MOVED_AT),
        (work_summary.has_checkpoint, CHECKPOINT),
        (work_summary.has_sections, SECTIONS),
        (work_summary.has_upload, UPLOAD),
        (work_summary.output_bytes > 0, OUTPUT),
        (work.progress.is_some(), PROGRESS),
        (work.is_stalled, STALLED),
        (work.directives.checkpoint_now, CHECKPOINT_NOW),
        (work.directives.hand_over, HAND_OVER),
        (work.directives.slow_down, SLOW_DOWN),
        (work.grace_until.is_some(), GRACE),
        (work.has_uploads, UPLOADS),
        (work.last_part.is_some(), LAST_PART),
    ];
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(FORM);
    put_number(&mut bytes, flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
    work_summary.moved_at.into_iter().for_each(|at| put_time(&mut bytes, at));
    if work_summary.output_bytes > 0 {
        put_number(&mut bytes, work_summary.output_bytes);
    }
    work.grace_until.into_iter().for_each(|at| put_time(&mut bytes, at));
    if let Some(OutputPart { part, seq }) = work.last_part {
        put_number(&mut bytes, part);
        put_number(&mut bytes, seq);
    }
    if let Some(progress) = &work.progress {
        put_progress(&mut bytes, progress);
    }
    Some(bytes)
}

/// Reads the column; `None` when it makes no sense.
pub(crate) fn read_work(bytes: &[u8]) -> Option<(WorkSummary, Work)> {
    let body = match bytes.split_first_chunk() {
        Some((&FORM, body)) => body,
        // Another form than this code knows.
        Some(([0, _], _)) => return None,
        _ => bytes,
    };
    let mut reader = ByteReader { bytes: body };
    let flags = reader.number()?;
    let has = |flag: u64| flags & flag != 0;
    let work_summary = WorkSummary {
        moved_at: if has(MOVED_AT) { Some(read_time(&mut reader)?) } else { None },
        has_checkpoint: has(CHECKPOINT),
        has_sections: has(SECTIONS),
        has_upload: has(UPLOAD),
        output_bytes: if has(OUTPUT) { reader.number()? } else { 0 },
    };
    let grace_until = if has(GRACE) { Some(read_time(&mut reader)?) } else { None };
    let last_part = match has(LAST_PART) {
        true => Some(OutputPart { part: reader.number()?, seq: reader.number()? }),
        false => None,
    };
    let progress = if has(PROGRESS) { Some(Arc::new(read_progress(&mut reader)?)) } else { None };
    let directives =
        Directives { checkpoint_now: has(CHECKPOINT_NOW), hand_over: has(HAND_OVER), slow_down: has(SLOW_DOWN) };
    let (is_stalled, has_uploads) = (has(STALLED), has(UPLOADS));
    let work = Work { progress, is_stalled, directives, grace_until, has_uploads, last_part };
    reader.bytes.is_empty().then_some((work_summary, work))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        let report = ProgressReport {
            pct: Some(12.5),
            stage: Some("ä".into()),
            items_done: Some(7),
            items_total: Some(u64::MAX),
            ..ProgressReport::default()
        };
        Progress::restored(report, Timestamp::from_millis(5), Timestamp::from_millis(9), Some(Timestamp::MAX))
    }

    #[test]
    fn progress_survives_writing_and_reading() {
        let mut bytes = Vec::new();
        put_progress(&mut bytes, &progress());

        assert_eq!(read_progress(&mut ByteReader { bytes: &bytes }), Some(progress()));
    }

    #[test]
    fn damaged_bytes_are_nothing_and_never_panic() {
        let mut bytes = Vec::new();
        put_progress(&mut bytes, &progress());
        for cut in 0..bytes.len() {
            assert_eq!(read_progress(&mut ByteReader { bytes: &bytes[..cut] }), None, "{cut}");
            let mut flipped = bytes.clone();
            flipped[cut] ^= 0xff;
            let _ = read_progress(&mut ByteReader { bytes: &flipped });
            let _ = read_work(&flipped);
        }
        let mut wrong = vec![1];
        wrong.extend(f64::NAN.to_bits().to_le_bytes());
        wrong.extend([0, 0, 0, 0]);
        assert_eq!(read_progress(&mut ByteReader { bytes: &wrong }), None);
    }
}
