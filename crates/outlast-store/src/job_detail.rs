//! A job with everything that its page shows, read in one snapshot: its newest events, what attempts have saved, what is
//! known of its result, and the job that calls its callback URL. The rules of what is read stand here, once for all engines.

use std::collections::VecDeque;

use outlast_core::queue::Mode;
use outlast_core::system_queue::{CALLBACKS, JOB_TAG};
use outlast_core::{Event, EventKind, Job, Role, State};

use crate::artifacts::{Artifacts, StoredObject};
use crate::jobs::{FoundJob, ListJobs, Reach};
use crate::page::EncodedSize;

/// Events shown with a job.
const EVENTS_MAX: u64 = 50;
/// Their bytes as they are written; of longer ones the newest are shown.
const EVENTS_BYTES_MAX: usize = 256 << 10;
/// Moves and attempts shown with a job, at most as many bytes as events.
const MOVES_MAX: usize = 200;
/// How far back they are looked for: the events above, and four parts. Twelve reports of 161 sections have fewer.
const LOOKED_AT_MAX: u64 = EVENTS_MAX + 4 * PART;
const PART: u64 = 500;
/// A log of long outputs is not read any further for them.
const LOOKED_AT_BYTES_MAX: usize = 2 << 20;

#[derive(Clone, Debug)]
pub struct JobDetail {
    pub found: FoundJob,
    /// The newest ones, oldest first.
    pub events: Vec<Event>,
    /// The newest moves and attempts, oldest first; also those that are older than `events`.
    pub moves: Vec<Event>,
    /// `None` where no attempt has saved anything.
    pub artifacts: Option<Artifacts>,
    pub result: Option<ResultDetail>,
    /// The job in the queue of callbacks that tells of this one's end.
    pub callback: Option<FoundJob>,
}

/// Facts about a result without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ResultDetail {
    Inline { downloads: u64 },
    Object(Box<StoredObject>),
}

impl StoredObject {
    /// Is it the uploaded result of its job?
    pub fn is_result(&self) -> bool {
        self.attached && self.delete_after.is_none() && self.object.role == Role::Result
    }
}

pub fn has_inline_result(job: &Job) -> bool {
    matches!(&job.state, State::Succeeded { result: Some(result), .. } if result.inline)
}

/// Has an attempt saved anything?
pub fn has_artifacts(job: &Job) -> bool {
    job.work_summary.has_checkpoint || job.work_summary.has_sections
}

/// Finds the job that calls the callback URL of this one, if it has ended and has such a URL.
pub fn callback_of(found: &FoundJob) -> Option<ListJobs> {
    let is_told = found.job.spec.callback_url.is_some() && found.queue.settings.mode != Mode::Callback;
    (is_told && found.job.status().is_terminal()).then(|| ListJobs {
        reach: Reach::Namespace(found.queue.namespace),
        queue: Some(CALLBACKS.to_owned()),
        status: None,
        tags: vec![(JOB_TAG.to_owned(), found.job.id.to_string())],
        key: None,
        before: None,
        limit: 1,
    })
}

/// The log of a job as its page shows it, read page by page from its end: the newest events, and the moves and attempts
/// among many more, which finished sections and lines of output would push out otherwise.
pub struct LogView {
    /// The part that is being read: after this event, up to that one. Later parts come first.
    after: u64,
    until: u64,
    /// Where this part began.
    began: u64,
    events: VecDeque<Event>,
    events_bytes: usize,
    /// Of this part, and of those behind it.
    part: Vec<Event>,
    moves: Vec<Event>,
    last: u64,
    bytes: usize,
}

impl LogView {
    pub fn of(job: &Job) -> LogView {
        let after = job.events.saturating_sub(EVENTS_MAX);
        LogView {
            after,
            until: job.events,
            began: after,
            events: VecDeque::new(),
            events_bytes: 0,
            part: Vec::new(),
            moves: Vec::new(),
            last: job.events,
            bytes: 0,
        }
    }

    /// After which event to read on, and how many; `None` when all are there.
    pub fn wanted(&self) -> Option<(u64, usize)> {
        let count = usize::try_from(self.until.saturating_sub(self.after)).unwrap_or(usize::MAX);
        (count > 0).then_some((self.after, count))
    }

    /// Takes a page; an empty one ends the part.
    pub fn add(&mut self, page: Vec<Event>) {
        self.after = page.last().map_or(self.until, |last| last.seq);
        let is_newest = self.until == self.last;
        for event in page {
            self.bytes += event.written();
            if matches!(event.kind, EventKind::State { .. } | EventKind::Attempt(_)) {
                self.part.push(event.clone());
            }
            if is_newest {
                self.events_bytes += event.written();
                self.events.push_back(event);
            }
        }
        while self.events_bytes > EVENTS_BYTES_MAX
            && self.events.len() > 1
            && let Some(oldest) = self.events.pop_front()
        {
            self.events_bytes -= oldest.written();
        }
        if self.after >= self.until {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        self.part.append(&mut self.moves);
        std::mem::swap(&mut self.part, &mut self.moves);
        let is_enough = self.moves.len() >= MOVES_MAX
            || self.last.saturating_sub(self.began) >= LOOKED_AT_MAX
            || self.bytes >= LOOKED_AT_BYTES_MAX;
        self.until = if is_enough { 0 } else { self.began };
        self.began = self.until.saturating_sub(PART);
        self.after = self.began;
    }

    /// The newest events, and the newest moves and attempts; each oldest first.
    pub fn into_parts(self) -> (Vec<Event>, Vec<Event>) {
        let mut bytes = 0;
        let newest_first = self.moves.iter().rev().take(MOVES_MAX);
        let fitting = newest_first.take_while(|event| {
            bytes += event.written();
            bytes <= EVENTS_BYTES_MAX
        });
        let count = fitting.count().max(usize::from(!self.moves.is_empty()));
        let mut moves = self.moves;
        moves.drain(..moves.len().saturating_sub(count));
        (self.events.into(), moves)
    }
}
