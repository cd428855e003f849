//! Where a numbered part of the output stands in its job's log, for a worker that sends it again.

use outlast_core::{EventKind, JobId, OutputPart};
use outlast_store::Error;
use outlast_store::jobs::Reach;

use super::Work;

/// Events that are read at once.
const WINDOW: u64 = 64;
/// Windows that are searched. A worker repeats its last part, which needs no search; a thousand events are enough for others.
const WINDOWS_MAX: usize = 16;

impl Work {
    /// The number of the event of this part, which is at or before the last one of its hand-out. `None` when it lies too far
    /// back.
    pub async fn output_seq(
        &self,
        reach: &Reach,
        id: JobId,
        last: OutputPart,
        part: u64,
    ) -> Result<Option<u64>, Error> {
        if part == last.part {
            return Ok(Some(last.seq));
        }
        // Between two parts is at least one event, so it is not behind this one.
        let mut until = last.seq.saturating_sub(last.part.saturating_sub(part));
        for _ in 0..WINDOWS_MAX {
            let after = until.saturating_sub(WINDOW);
            if let Some(seq) = self.part_between(reach, id, (after, until), part).await? {
                return Ok(Some(seq));
            }
            until = after;
            if until == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// The latest event of that part in `(after, until]`; a page may be shorter than the window.
    async fn part_between(
        &self,
        reach: &Reach,
        id: JobId,
        (mut after, until): (u64, u64),
        part: u64,
    ) -> Result<Option<u64>, Error> {
        let mut latest = None;
        while after < until {
            let limit = usize::try_from(until - after).unwrap_or(1);
            let Some(events) = self.store.events(reach, id, after, limit).await? else {
                return Ok(None);
            };
            let is_part =
                |kind: &EventKind| matches!(kind, EventKind::Output { part: Some(known), .. } if *known == part);
            latest = events.iter().rev().find(|event| is_part(&event.kind)).map(|event| event.seq).or(latest);
            let Some(last) = events.last() else {
                break;
            };
            after = last.seq;
        }
        Ok(latest)
    }
}
