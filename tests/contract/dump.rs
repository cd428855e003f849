//! Everything a store remembers, as far as its trait shows it.

use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::InboundEvent;
use outlast_core::{Event, Job, NamespaceId, Queue, Timestamp};
use outlast_store::JobStore;
use outlast_store::artifacts::{Artifacts, DueDeletions, InlineResult, StoredObject};
use outlast_store::dead_letters::ListDeadLetters;
use outlast_store::inbound_events::ListInboundEvents;
use outlast_store::jobs::{FoundJob, ListJobs, Reach};
use outlast_store::keys::KeyRecord;
use outlast_store::operations::Operation;
use outlast_store::queues::QueueCounts;

#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    pub queues: Vec<(Queue, QueueCounts)>,
    /// Newest first.
    pub jobs: Vec<Entry>,
    pub inbound_events: Vec<InboundEvent>,
    pub doomed: DueDeletions,
    pub rung: Vec<outlast_core::JobId>,
    pub next_alarm: Option<Timestamp>,
    pub keys: Vec<KeyRecord>,
    pub operations: Vec<Operation>,
}

/// A job and all that is kept beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub job: Job,
    pub events: Vec<Event>,
    pub result: Option<InlineResult>,
    pub kept: Artifacts,
    pub sections: Vec<Section>,
    pub objects: Vec<StoredObject>,
}

const EVERYTHING: usize = 1_000_000;

pub async fn dump(store: &dyn JobStore, namespaces: &[NamespaceId]) -> Dump {
    let mut queues: Vec<_> =
        store.census().await.unwrap().into_iter().map(|(queue, counts)| (Queue::clone(&queue), counts)).collect();
    queues.sort_by_key(|(queue, _)| queue.id);
    let mut jobs = Vec::new();
    for found in all_jobs(store, every_job()).await {
        let id = found.job.id;
        let events =
            store.events(&Reach::Everything, id, 0, EVERYTHING).await.unwrap().expect("a listed job has events");
        jobs.push(Entry {
            job: found.job,
            events,
            result: store.result(&Reach::Everything, id).await.unwrap(),
            kept: store.artifacts(&Reach::Everything, id).await.unwrap().expect("the job is there"),
            sections: store.sections(&Reach::Everything, id, None, EVERYTHING).await.unwrap().unwrap_or_default(),
            objects: store.objects(&Reach::Everything, id).await.unwrap().unwrap_or_default(),
        });
    }
    let due = store.due(EVERYTHING).await.unwrap();
    let (mut operations, mut inbound_events) = (Vec::new(), Vec::new());
    for namespace in namespaces {
        let list = ListInboundEvents { namespace: *namespace, source: None, kind: None, before: None, limit: 50 };
        inbound_events.extend(all_inbound_events(store, list).await);
        operations.extend(store.operations(*namespace, EVERYTHING).await.unwrap());
    }
    let mut doomed = store.due_deletions(EVERYTHING).await.unwrap();
    doomed.objects.sort();
    let keys = store.keys().await.unwrap();
    Dump { queues, jobs, inbound_events, doomed, rung: due.jobs, next_alarm: due.next, keys, operations }
}

/// Follows the cursor to the end. Lists have no bodies, so each event is read once more.
pub async fn all_inbound_events(store: &dyn JobStore, mut list: ListInboundEvents) -> Vec<InboundEvent> {
    let mut found = Vec::new();
    loop {
        let page = store.inbound_events(list.clone()).await.unwrap();
        assert!(page.inbound_events.len() <= list.limit, "a page is longer than asked for");
        for listed in page.inbound_events {
            found.extend(store.inbound_event(list.namespace, listed.id).await.unwrap());
        }
        match page.next {
            None => return found,
            Some(next) => list.before = Some(next),
        }
    }
}

pub fn every_job() -> ListJobs {
    ListJobs {
        reach: Reach::Everything,
        queue: None,
        status: None,
        tags: Vec::new(),
        key: None,
        before: None,
        limit: 50,
    }
}

/// Dead letters of a queue over all pages, the latest failure first.
pub async fn all_dead(store: &dyn JobStore, reach: Reach, queue: &str, limit: usize) -> Vec<FoundJob> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let list = ListDeadLetters { reach: reach.clone(), queue: queue.to_owned(), before, limit };
        let page = store.dead_letters(list).await.unwrap();
        found.extend(page.jobs);
        match page.next {
            Some(next) => before = Some(next),
            None => return found,
        }
    }
}

/// Follows the cursor to the end. A page may be short, even empty, and still lead on. Lists have no payloads, so each job is
/// read once more.
pub async fn all_jobs(store: &dyn JobStore, mut list: ListJobs) -> Vec<FoundJob> {
    let mut found = Vec::new();
    loop {
        let page = store.jobs(list.clone()).await.unwrap();
        assert!(page.jobs.len() <= list.limit, "a page is longer than asked for");
        for listed in page.jobs {
            assert_eq!(&*listed.job.spec.payload, "", "a list has no payloads");
            found.extend(store.job(&list.reach, listed.job.id).await.unwrap());
        }
        match page.next {
            None => return found,
            Some(next) => {
                assert!(list.before.is_none_or(|before| next < before), "a cursor leads back");
                list.before = Some(next);
            }
        }
    }
}
