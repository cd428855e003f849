//! What stores say about arrivals: the events that providers send.

use std::sync::Arc;

use outlast_core::arrival::{Arrival, ArrivalId, Headers, Origin};
use outlast_core::{NamespaceId, Spec};

use crate::jobs::{NewJob, Published};
use crate::page::{PageSize, Written};

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
const LOOK_MAX: usize = 5000;

impl ListArrivals {
    fn fits(&self, arrival: &Arrival) -> bool {
        self.source.as_deref().is_none_or(|wanted| wanted == &*arrival.source)
            && self.kind.as_deref().is_none_or(|wanted| wanted == &*arrival.kind)
    }

    pub(crate) fn begin(&self) -> ArrivalListing<'_> {
        let page = ArrivalPage { arrivals: Vec::new(), next: None };
        ArrivalListing { list: self, page, size: PageSize::default(), looked_at: 0 }
    }
}

/// A page that is being gathered out of at most [`LOOK_MAX`] rows of the namespace, newest first.
pub(crate) struct ArrivalListing<'l> {
    list: &'l ListArrivals,
    page: ArrivalPage,
    size: PageSize,
    looked_at: usize,
}

impl ArrivalListing<'_> {
    /// Looks at the next row. True when the page is complete.
    pub(crate) fn look(&mut self, (seq, arrival): (i64, Arrival)) -> bool {
        self.looked_at += 1;
        if self.list.fits(&arrival) {
            self.size.add(arrival.written());
            self.page.arrivals.push(arrival);
        }
        let is_complete =
            self.page.arrivals.len() == self.list.limit || self.looked_at == LOOK_MAX || self.size.is_full();
        if is_complete {
            self.page.next = Some(seq.cast_unsigned());
        }
        is_complete
    }

    pub(crate) fn page(self) -> ArrivalPage {
        self.page
    }
}

/// A page may be short, even empty, and still have a `next`: a page looks at a bounded number of arrivals and ends when
/// they fill it. The arrivals are without their bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalPage {
    pub arrivals: Vec<Arrival>,
    pub next: Option<u64>,
}
