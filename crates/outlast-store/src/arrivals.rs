//! What stores say about arrivals: the events that providers send.

use std::sync::Arc;

use outlast_core::arrival::{Arrival, ArrivalId, Headers, Origin};
use outlast_core::{NamespaceId, Spec};

use crate::error::Error;
use crate::jobs::{NewJob, Published};

/// An arrival to be stored, with the jobs that come of it: all of it or nothing.
#[derive(Clone, Debug)]
pub struct NewArrival {
    pub namespace: NamespaceId,
    pub source: Arc<str>,
    pub kind: Arc<str>,
    /// The provider's own id; a second arrival of the source with the same one is a repetition.
    pub key: Option<Box<str>>,
    pub headers: Headers,
    pub body: Arc<str>,
    pub jobs: Vec<NewJob>,
}

impl NewArrival {
    /// What its jobs remember of it.
    pub fn origin(&self, event: ArrivalId) -> Origin {
        let (source, kind) = (Arc::clone(&self.source), Arc::clone(&self.kind));
        Origin { event, source, kind, headers: Arc::clone(&self.headers) }
    }

    /// The same job, which knows where it came from.
    pub fn stamped(&self, job: &NewJob, event: ArrivalId) -> NewJob {
        let spec = Spec { origin: Some(Box::new(self.origin(event))), ..Spec::clone(&job.spec) };
        NewJob { spec: Arc::new(spec), ..job.clone() }
    }

    /// As it is when it has been stored under this id.
    pub fn stored(&self, id: ArrivalId, at: outlast_core::Timestamp, jobs: u32) -> Arrival {
        Arrival {
            id,
            at,
            source: Arc::clone(&self.source),
            kind: Arc::clone(&self.kind),
            key: self.key.clone(),
            headers: Arc::clone(&self.headers),
            body: Arc::clone(&self.body),
            jobs,
        }
    }
}

/// The answer to one arrival.
#[derive(Clone, Debug, PartialEq)]
pub enum Ingested {
    /// It is stored; the jobs in the order in which they were asked for.
    Created { id: ArrivalId, jobs: Vec<Published> },
    /// It came before, as this one; nothing was done.
    Existing { id: ArrivalId },
}

/// How many jobs were made.
pub fn created(jobs: &[Published]) -> u32 {
    let made = jobs.iter().filter(|job| matches!(job, Published::Created { .. })).count();
    u32::try_from(made).unwrap_or(u32::MAX)
}

/// Which arrivals to list, newest first.
#[derive(Clone, Debug)]
pub struct ListArrivals {
    pub namespace: NamespaceId,
    pub source: Option<String>,
    pub kind: Option<String>,
    /// Only those older than this position.
    pub before: Option<u64>,
    pub limit: usize,
}

/// Rows one page of a list looks at.
pub(crate) const LOOK_MAX: u32 = 5000;

impl ListArrivals {
    fn fits(&self, arrival: &Arrival) -> bool {
        self.source.as_deref().is_none_or(|wanted| wanted == &*arrival.source)
            && self.kind.as_deref().is_none_or(|wanted| wanted == &*arrival.kind)
    }

    /// The page out of at most [`LOOK_MAX`] rows of the namespace, newest first, each with its number.
    pub(crate) fn page(&self, rows: impl Iterator<Item = Result<(i64, Arrival), Error>>) -> Result<ArrivalPage, Error> {
        let mut page = ArrivalPage { arrivals: Vec::new(), next: None };
        for (looked_at, row) in (1..).zip(rows) {
            let (seq, arrival) = row?;
            if self.fits(&arrival) {
                page.arrivals.push(arrival);
            }
            if page.arrivals.len() == self.limit || looked_at == LOOK_MAX {
                page.next = Some(seq.cast_unsigned());
                break;
            }
        }
        Ok(page)
    }
}

/// A page may be short, even empty, and still have a `next`: a page looks at a bounded number of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalPage {
    pub arrivals: Vec<Arrival>,
    pub next: Option<u64>,
}
