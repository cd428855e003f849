//! Events of providers: which queues take them, and then event and jobs stored together. Nobody is event that an event was
//! taken before it is on disk with all its jobs.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::inbound_event::{EVENT_RETENTION, EventHeaders, InboundEvent, InboundEventId, event_delete_after};
use outlast_core::{Job, NamespaceId, Spec};
use outlast_store::Error;
use outlast_store::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent, created};
use outlast_store::jobs::{NewJob, Published};
use serde_json::Value;

use super::Inbound;
use super::catalog::{Source, Subscriber};

/// How often, at most, events that are over their time are forgotten.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
const PRUNE_MAX: usize = 1000;

/// An event whose sender is known.
#[derive(Clone, Debug)]
pub struct IncomingEvent {
    pub kind: String,
    /// The sender's own id of it.
    pub key: Option<String>,
    pub headers: Vec<(String, String)>,
    /// JSON text, and the same parsed.
    pub body: Arc<str>,
    pub value: Value,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct IngestReceipt {
    /// The event's id; that of the first one for a repetition.
    pub id: InboundEventId,
    pub duplicate: bool,
    pub jobs_created: u32,
}

impl Inbound {
    /// Stores an event and a job in each queue that takes it. Durable when it returns.
    pub async fn ingest(
        self: &Arc<Self>,
        namespace: NamespaceId,
        source: &Source,
        event: IncomingEvent,
    ) -> Result<IngestReceipt, Error> {
        let body = event.body;
        let takers = self.takers(source, &event.kind, &event.value);
        let jobs: Vec<NewJob> = takers.map(|taker| job_for(taker, namespace, &body, &event.value)).collect();
        // Not held while the disk is waited for; and it is cheapest to free where it was made.
        drop(event.value);
        let places: Vec<Arc<str>> = jobs.iter().map(|job| Arc::clone(&job.queue)).collect();
        let new = NewInboundEvent {
            namespace,
            source: Arc::clone(&source.name),
            kind: event.kind.into(),
            key: event.key.map(Into::into),
            headers: headers(event.headers),
            body,
            jobs,
        };
        let inbound = Arc::clone(self);
        let answer = self.detached.commit(async move { inbound.store_event(new, &places).await }).await?;
        Ok(match answer {
            Ingested::Existing { id } => IngestReceipt { id, duplicate: true, jobs_created: 0 },
            Ingested::Created { id, jobs } => match (created(&jobs), first_of(&jobs)) {
                (0, Some(first)) => IngestReceipt { id: first, duplicate: true, jobs_created: 0 },
                (jobs_created, _) => IngestReceipt { id, duplicate: false, jobs_created },
            },
        })
    }

    async fn store_event(&self, new: NewInboundEvent, places: &[Arc<str>]) -> Result<Ingested, Error> {
        let namespace = new.namespace;
        let answer = self.store.ingest(vec![new]).await;
        // Also for a repetition: the first one may have been stored by a process that is gone.
        self.announcer.alarms.set(Some(event_delete_after(self.clock.now())));
        if matches!(answer, Err(Error::Indeterminate)) {
            places.iter().for_each(|queue| self.announcer.maybe_written(namespace, queue));
        }
        let answer = answer?.pop().ok_or(Error::Indeterminate)?;
        match &answer {
            Ingested::Existing { .. } => self.announcer.counters.events_repeated.add(1),
            Ingested::Created { jobs, .. } => {
                self.announcer.counters.events.add(1);
                for (answer, queue) in jobs.iter().zip(places) {
                    self.announcer.published(namespace, queue, answer);
                }
            }
        }
        Ok(answer)
    }

    /// New jobs of an event that came before: in the queue that is named, or in all that take it now. Keys of queues do not
    /// count: whoever asks wants the jobs.
    pub async fn replay_event(
        &self,
        namespace: NamespaceId,
        inbound_event: &InboundEvent,
        queue: Option<&str>,
    ) -> Result<Vec<(Arc<str>, Published)>, Error> {
        let value: Value = serde_json::from_str(&inbound_event.body).unwrap_or_default();
        let places: Vec<Arc<str>> = match (queue, self.catalog().source(&inbound_event.source)) {
            (Some(queue), _) => vec![queue.into()],
            (None, Some(source)) => {
                self.takers(source, &inbound_event.kind, &value).map(|taker| Arc::clone(&taker.queue)).collect()
            }
            (None, None) => Vec::new(),
        };
        let (payload, origin) = (Arc::clone(&inbound_event.body), Some(Box::new(inbound_event.origin())));
        let spec = Arc::new(Spec { payload, origin, ..Spec::default() });
        let jobs = places.iter().map(|queue| NewJob { namespace, queue: Arc::clone(queue), spec: Arc::clone(&spec) });
        let published = self.jobs.publish(jobs.collect()).await?;
        Ok(places.into_iter().zip(published).collect())
    }

    pub async fn event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error> {
        self.store.inbound_event(namespace, id).await
    }

    pub async fn list_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error> {
        self.store.inbound_events(list).await
    }

    /// A filter that cannot be judged takes nothing, and holds up nobody else: the event is stored and can be replayed.
    fn takers<'a>(&self, source: &'a Source, kind: &str, value: &Value) -> impl Iterator<Item = &'a Subscriber> {
        source.subscribers.iter().filter(move |subscriber| {
            subscriber.wants.takes(kind, value).unwrap_or_else(|exhausted| {
                self.announcer.counters.filters_exhausted.add(1);
                tracing::warn!(source = &*source.name, queue = &*subscriber.queue, %exhausted, "a filter was given up; the event was not taken");
                false
            })
        })
    }

    /// Forgets events that are over their time.
    pub(crate) async fn prune_events(&self) -> Result<Duration, Error> {
        // One that is due at this very moment goes as well.
        let before = self.clock.now().minus(EVENT_RETENTION).plus(Duration::from_millis(1));
        match self.store.prune_inbound_events(before, PRUNE_MAX).await? {
            PRUNE_MAX => Ok(Duration::ZERO),
            _ => Ok(PRUNE_EVERY),
        }
    }
}

fn job_for(taker: &Subscriber, namespace: NamespaceId, body: &Arc<str>, value: &Value) -> NewJob {
    let spec = Spec { payload: Arc::clone(body), idempotency_key: taker.key_of(value), ..Spec::default() };
    NewJob { namespace, queue: Arc::clone(&taker.queue), spec: Arc::new(spec) }
}

fn headers(headers: Vec<(String, String)>) -> EventHeaders {
    headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// The event that the first of these jobs came of, where jobs were found by their keys.
fn first_of(jobs: &[Published]) -> Option<InboundEventId> {
    jobs.iter().find_map(|job| match job {
        Published::Existing { job: Job { spec, .. }, .. } => spec.origin.as_ref().map(|origin| origin.event),
        _ => None,
    })
}
