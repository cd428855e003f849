//! Types of the store port for inbound events, which providers send.

use std::sync::Arc;

use outlast_core::inbound_event::{EventHeaders, EventOrigin, InboundEvent, InboundEventId};
use outlast_core::{NamespaceId, Spec};

use crate::jobs::{NewJob, Published};
use crate::page::{EncodedSize, PageSize};

/// An inbound event to be stored, with the jobs that come of it: all of it or nothing.
#[derive(Clone, Debug)]
pub struct NewInboundEvent {
    pub namespace: NamespaceId,
    pub source: Arc<str>,
    pub kind: Arc<str>,
    /// The provider's own id; a second inbound event of the source with the same one is a repetition.
    pub key: Option<Box<str>>,
    pub headers: EventHeaders,
    pub body: Arc<str>,
    pub jobs: Vec<NewJob>,
}

impl NewInboundEvent {
    /// The part of it that its jobs remember.
    pub fn origin(&self, event: InboundEventId) -> EventOrigin {
        let (source, kind) = (Arc::clone(&self.source), Arc::clone(&self.kind));
        EventOrigin { event, source, kind, headers: Arc::clone(&self.headers) }
    }

    /// The same job, which knows where it came from.
    pub fn stamped(&self, job: &NewJob, event: InboundEventId) -> NewJob {
        let spec = Spec { origin: Some(Box::new(self.origin(event))), ..Spec::clone(&job.spec) };
        NewJob { spec: Arc::new(spec), ..job.clone() }
    }

    /// As it is when it has been stored under this id.
    pub fn stored(&self, id: InboundEventId, at: outlast_core::Timestamp, jobs: u32) -> InboundEvent {
        InboundEvent {
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

/// The answer to one inbound_event.
#[derive(Clone, Debug, PartialEq)]
pub enum Ingested {
    /// It is stored; the jobs in the order in which they were asked for.
    Created { id: InboundEventId, jobs: Vec<Published> },
    /// A duplicate of this event; nothing was done.
    Existing { id: InboundEventId },
}

/// How many jobs were made.
pub fn created(jobs: &[Published]) -> u32 {
    let made = jobs.iter().filter(|job| matches!(job, Published::Created { .. })).count();
    u32::try_from(made).unwrap_or(u32::MAX)
}

/// Which inbound events to list, newest first.
#[derive(Clone, Debug)]
pub struct ListInboundEvents {
    pub namespace: NamespaceId,
    pub source: Option<String>,
    pub kind: Option<String>,
    /// Only those older than this position.
    pub before: Option<u64>,
    pub limit: usize,
}

/// Rows one page of a list looks at.
const LOOK_MAX: usize = 5000;

impl ListInboundEvents {
    fn fits(&self, inbound_event: &InboundEvent) -> bool {
        self.source.as_deref().is_none_or(|wanted| wanted == &*inbound_event.source)
            && self.kind.as_deref().is_none_or(|wanted| wanted == &*inbound_event.kind)
    }

    pub(crate) fn begin(&self) -> InboundEventListing<'_> {
        let page = InboundEventPage { inbound_events: Vec::new(), next: None };
        InboundEventListing { list: self, page, size: PageSize::default(), looked_at: 0 }
    }
}

/// A page that is being gathered out of at most [`LOOK_MAX`] rows of the namespace, newest first.
pub(crate) struct InboundEventListing<'l> {
    list: &'l ListInboundEvents,
    page: InboundEventPage,
    size: PageSize,
    looked_at: usize,
}

impl InboundEventListing<'_> {
    /// Looks at the next row. True when the page is complete.
    pub(crate) fn look(&mut self, (seq, inbound_event): (i64, InboundEvent)) -> bool {
        self.looked_at += 1;
        if self.list.fits(&inbound_event) {
            self.size.add(inbound_event.written());
            self.page.inbound_events.push(inbound_event);
        }
        let is_complete =
            self.page.inbound_events.len() == self.list.limit || self.looked_at == LOOK_MAX || self.size.is_full();
        if is_complete {
            self.page.next = Some(seq.cast_unsigned());
        }
        is_complete
    }

    pub(crate) fn page(self) -> InboundEventPage {
        self.page
    }
}

/// A page may be short, even empty, and still have a `next`: a page looks at a bounded number of inbound events and ends when
/// they fill it. The inbound events are without their bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct InboundEventPage {
    pub inbound_events: Vec<InboundEvent>,
    pub next: Option<u64>,
}
