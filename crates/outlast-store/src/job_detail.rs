//! A job with everything that its page shows, read in one snapshot: its newest events, what attempts have saved, what is
//! known of its result, and the job that calls its callback URL. The rules of what is read stand here, once for all engines.

use std::collections::VecDeque;

use outlast_core::queue::Mode;
use outlast_core::system_queue::{CALLBACKS, JOB_TAG};
use outlast_core::{Event, Job, Role, State};

use crate::jobs::{Found, ListJobs, Reach};
use crate::kept::{Kept, Stored};
use crate::page::Written;

/// Events shown with a job.
const EVENTS_MAX: u64 = 50;
/// Their bytes as they are written; of longer ones the newest are shown.
const EVENTS_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct JobDetail {
    pub found: Found,
    /// The newest ones, oldest first.
    pub events: Vec<Event>,
    /// `None` where no attempt has saved anything.
    pub kept: Option<Kept>,
    pub result: Option<ResultDetail>,
    /// The job in the queue of callbacks that tells of this one's end.
    pub callback: Option<Found>,
}

/// What is known of a result without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum ResultDetail {
    Inline { downloads: u64 },
    Object(Box<Stored>),
}

impl Stored {
    /// Is it the uploaded result of its job?
    pub fn is_result(&self) -> bool {
        self.kept && self.doomed_at.is_none() && self.object.role == Role::Result
    }
}

pub fn has_inline_result(job: &Job) -> bool {
    matches!(&job.state, State::Succeeded { result: Some(result), .. } if result.inline)
}

/// Has an attempt saved anything?
pub fn has_kept(job: &Job) -> bool {
    job.headway.has_checkpoint || job.headway.has_sections
}

/// Finds the job that calls the callback URL of this one, if it has ended and has such a URL.
pub fn callback_of(found: &Found) -> Option<ListJobs> {
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

/// The newest events of a log that is read page by page.
pub struct NewestEvents {
    after: u64,
    last: u64,
    events: VecDeque<Event>,
    bytes: usize,
}

impl NewestEvents {
    pub fn of(job: &Job) -> NewestEvents {
        let after = job.events.saturating_sub(EVENTS_MAX);
        NewestEvents { after, last: job.events, events: VecDeque::new(), bytes: 0 }
    }

    /// After which event to read on, and how many; `None` when all are there.
    pub fn wanted(&self) -> Option<(u64, usize)> {
        let count = usize::try_from(self.last.saturating_sub(self.after)).unwrap_or(usize::MAX);
        (count > 0).then_some((self.after, count))
    }

    /// Takes a page; an empty one is the last.
    pub fn add(&mut self, page: Vec<Event>) {
        self.after = page.last().map_or(self.last, |last| last.seq);
        for event in page {
            self.bytes += event.written();
            self.events.push_back(event);
        }
        while self.bytes > EVENTS_BYTES_MAX
            && self.events.len() > 1
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.written();
        }
    }

    pub fn into_events(self) -> Vec<Event> {
        self.events.into()
    }
}
