//! One engine of the two: carries out calls, and tells the answers in words that can be compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::system_queue::CALLBACKS;
use outlast_core::{
    Clock, Command, Event, Job, JobId, Lease, NamespaceId, Queue, Refusal, Spec, State, Status, Timestamp,
};
use outlast_store::JobStore;
use outlast_store::artifacts::InlineResult;
use outlast_store::inbound_events::{Ingested, ListInboundEvents, NewInboundEvent};
use outlast_store::jobs::{Applied, ClaimRequest, Declined, JobCommand, ListJobs, NewJob, Published, Reach};
use outlast_store::keys::{KeyId, KeyRecord, NewKey, Revocation};
use outlast_store::operations::{NewOperation, Operation, OperationId};
use outlast_store::queues::{DeleteRefusal, QueueCounts, SaveRefusal};

use super::names::Names;
use super::plan::{Bulk, Call, Range, Told, Whom};
use crate::backend::{Backend, Ground};
use crate::dump::{Dump, Entry, all_dead, all_inbound_events, all_jobs, dump, every_job};

const NAMESPACES: [&str; 2] = ["default", "theirs"];

/// An event, and its jobs if it is new.
type TakenIn = (InboundEventId, Option<Vec<(Published, Option<Timestamp>)>>);

/// An answer with ids replaced by the order in which they appeared.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Nothing,
    /// The deliveries that the opening interrupted.
    Reopened(Vec<JobId>),
    Published(Vec<(Published, Option<Timestamp>)>),
    Claimed(Option<HandedOut>),
    Applied(Vec<Result<Effect, Declined>>),
    Swept {
        rung: Vec<JobId>,
        next: Option<Timestamp>,
        effects: Vec<Result<Effect, Declined>>,
    },
    Job(Option<Box<(Job, Queue)>>),
    Jobs(Vec<Job>),
    Events(Option<Vec<Event>>),
    Result(Option<InlineResult>),
    Saved(Result<(Queue, bool), SaveRefusal>),
    Queue(Option<Queue>),
    Deleted(Result<(), DeleteRefusal>),
    Counted(Vec<(Queue, QueueCounts)>),
    Namespace(NamespaceId),
    SealingKey(i64),
    Key(Option<KeyRecord>),
    Operations(Vec<Operation>),
    Count(u64),
    Ingested(Vec<TakenIn>),
    Arrivals(Vec<InboundEvent>),
}

#[derive(Debug, PartialEq)]
pub struct HandedOut {
    pub jobs: Vec<Job>,
    wake_at: Option<Timestamp>,
    held_until: Option<Timestamp>,
    push_only: bool,
    published: BTreeSet<Arc<str>>,
}

#[derive(Debug, PartialEq)]
pub struct Effect {
    id: JobId,
    queue: String,
    status: Status,
    version: u64,
    changed: bool,
    deleted: bool,
    frees: bool,
    stalled: bool,
    published: Vec<Arc<str>>,
    wake_at: Option<Timestamp>,
}

pub struct Side {
    pub ground: Ground,
    backend: Box<dyn Backend>,
    store: Arc<dyn JobStore>,
    names: Names,
}

impl Side {
    pub async fn new(ground: Ground, backend: Box<dyn Backend>) -> Side {
        let store = backend.open().await;
        let mut names = Names::default();
        for name in NAMESPACES {
            names.namespaces.push(store.namespace(name).await.unwrap());
        }
        Side { ground, backend, store, names }
    }

    pub async fn close(&self) {
        self.store.close().await;
    }

    pub async fn is_sound(&self) -> bool {
        self.backend.verify().await
    }

    pub fn jobs_made(&self) -> usize {
        self.names.jobs.len()
    }

    pub async fn perform(&mut self, call: &Call) -> Answer {
        let answer = self.carry_out(call).await;
        if matches!(answer, Answer::Claimed(_) | Answer::Applied(_) | Answer::Swept { .. } | Answer::Operations(_)) {
            self.meet_callbacks().await;
        }
        answer
    }

    /// Gives names to the jobs that the store itself has made, in the order it made them.
    async fn meet_callbacks(&mut self) {
        let list = ListJobs { queue: Some(CALLBACKS.to_owned()), ..every_job() };
        for found in all_jobs(&*self.store, list).await.iter().rev() {
            if !self.names.jobs.contains(&found.job.id) {
                self.names.add_job(&found.job);
            }
        }
    }

    async fn carry_out(&mut self, call: &Call) -> Answer {
        let store = Arc::clone(&self.store);
        match call.clone() {
            Call::Pass(_) => Answer::Nothing,
            Call::Reopen => {
                self.store.close().await;
                self.store = self.backend.open().await;
                let interrupted = self.store.interrupted().await.unwrap();
                let mut interrupted: Vec<_> = interrupted.into_iter().map(|id| self.names.job_id(id)).collect();
                interrupted.sort_unstable();
                Answer::Reopened(interrupted)
            }
            Call::Publish(jobs) => {
                let new = |(place, spec): (super::plan::Place, _)| NewJob {
                    namespace: self.names.namespaces[place.namespace],
                    queue: place.queue.into(),
                    spec: Arc::new(spec),
                };
                let published = store.publish(jobs.into_iter().map(new).collect()).await.unwrap();
                Answer::Published(published.into_iter().map(|answer| self.published(answer)).collect())
            }
            Call::Claim { place, limit, phase, visibility, worker } => {
                let namespace = self.names.namespaces[place.namespace];
                let want = ClaimRequest { namespace, queue: place.queue.into(), limit, phase, visibility, worker };
                let claimed = store.claim(want).await.unwrap();
                Answer::Claimed(claimed.map(|claimed| HandedOut {
                    jobs: claimed.jobs.into_iter().map(|job| self.names.job(job)).collect(),
                    wake_at: claimed.wake_at,
                    held_until: claimed.held_until,
                    push_only: claimed.push_only,
                    published: claimed.published,
                }))
            }
            Call::Apply(orders) => {
                let order =
                    |(whom, range, command)| JobCommand { id: self.id(whom), reach: self.reach(range), command };
                Answer::Applied(self.apply(orders.into_iter().map(order).collect()).await)
            }
            Call::Sweep { limit } => {
                let due = store.due(limit).await.unwrap();
                let order = |id: &JobId| JobCommand { id: *id, reach: Reach::Everything, command: Command::WAKE };
                let effects = self.apply(due.jobs.iter().map(order).collect()).await;
                Answer::Swept {
                    rung: due.jobs.iter().map(|id| self.names.job_id(*id)).collect(),
                    next: due.next,
                    effects,
                }
            }
            call => self.take_in(call).await,
        }
    }

    /// Calls about events and objects.
    async fn take_in(&mut self, call: Call) -> Answer {
        let store = Arc::clone(&self.store);
        match call {
            Call::Ingest(told) => {
                let new: Vec<NewInboundEvent> = told.into_iter().map(|told| self.inbound_event(told)).collect();
                if !self.has_room(&new).await {
                    return Answer::Nothing;
                }
                let answers = store.ingest(new).await.unwrap();
                Answer::Ingested(answers.into_iter().map(|answer| self.ingested(answer)).collect())
            }
            Call::Arrivals { namespace, source, limit } => {
                let namespace = self.names.namespaces[namespace];
                let source = source.map(str::to_owned);
                let list = ListInboundEvents { namespace, source, kind: None, before: None, limit };
                let found = all_inbound_events(&*store, list).await;
                Answer::Arrivals(found.into_iter().map(|inbound_event| self.named(inbound_event)).collect())
            }
            Call::Prune { age, limit } => {
                let before = Timestamp::from_millis(self.ground.clock.now().as_millis() - age.as_millis() as i64);
                Answer::Count(store.prune_inbound_events(before, limit).await.unwrap() as u64)
            }
            Call::Collect { limit } => {
                let mut doomed = store.due_deletions(usize::MAX >> 1).await.unwrap().objects;
                doomed.sort();
                let keys: Vec<_> = doomed.into_iter().take(limit).map(|(key, _)| key).collect();
                store.forget_objects(&keys).await.unwrap();
                Answer::Count(keys.len() as u64)
            }
            call => self.look_up(call).await,
        }
    }

    /// Near the limit an engine may count jobs that turn out to be repetitions, or not. A separate case covers that
    /// limit.
    async fn has_room(&self, new: &[NewInboundEvent]) -> bool {
        let census = self.store.census().await.unwrap();
        let waiting = |namespace: NamespaceId| -> u64 {
            let ours = census.iter().filter(|(queue, _)| queue.namespace == namespace);
            ours.map(|(_, counts)| counts.get(Status::Queued) + counts.get(Status::Pending)).sum()
        };
        let jobs: usize = new.iter().map(|new| new.jobs.len()).sum();
        new.iter().all(|new| waiting(new.namespace) + jobs as u64 <= self.ground.waiting_max)
    }

    fn inbound_event(&self, told: Told) -> NewInboundEvent {
        let namespace = self.names.namespaces[told.namespace];
        let job = |(queue, spec): (&str, Spec)| NewJob { namespace, queue: queue.into(), spec: Arc::new(spec) };
        let headers = if told.has_headers { vec![("x-a".into(), "1".into())] } else { Vec::new() };
        NewInboundEvent {
            namespace,
            source: told.source.into(),
            kind: "order.paid".into(),
            key: told.key.map(Into::into),
            headers: headers.into(),
            body: told.body.into(),
            jobs: told.jobs.into_iter().map(job).collect(),
        }
    }

    fn ingested(&mut self, answer: Ingested) -> TakenIn {
        match answer {
            Ingested::Created { id, jobs } => {
                let id = self.names.arrival_id(id);
                (id, Some(jobs.into_iter().map(|job| self.published(job)).collect()))
            }
            Ingested::Existing { id } => (self.names.arrival_id(id), None),
        }
    }

    fn named(&mut self, inbound_event: InboundEvent) -> InboundEvent {
        InboundEvent { id: self.names.arrival_id(inbound_event.id), ..inbound_event }
    }

    async fn look_up(&mut self, call: Call) -> Answer {
        let store = Arc::clone(&self.store);
        match call {
            Call::Job(range, whom) => {
                let found = store.job(&self.reach(range), self.id(whom)).await.unwrap();
                Answer::Job(found.map(|found| Box::new((self.names.job(found.job), self.names.queue(&found.queue)))))
            }
            Call::Jobs(listing) => {
                let list = ListJobs {
                    reach: self.reach(listing.range),
                    queue: listing.queue.map(str::to_owned),
                    status: listing.status,
                    tags: listing.tags,
                    key: listing.key,
                    before: None,
                    limit: listing.limit,
                };
                let dead = match (&list.queue, list.reach.namespace()) {
                    (Some(queue), Some(_)) => all_dead(&*store, list.reach.clone(), queue, list.limit).await,
                    _ => Vec::new(),
                };
                let mut found = all_jobs(&*store, list).await;
                found.extend(dead);
                Answer::Jobs(found.into_iter().map(|found| self.names.job(found.job)).collect())
            }
            Call::Events { range, whom, after, limit } => {
                Answer::Events(store.events(&self.reach(range), self.id(whom), after, limit).await.unwrap())
            }
            Call::Result(range, whom) => Answer::Result(store.result(&self.reach(range), self.id(whom)).await.unwrap()),
            call => self.manage(call).await,
        }
    }

    /// Calls about queues, keys and namespaces.
    async fn manage(&mut self, call: Call) -> Answer {
        let store = Arc::clone(&self.store);
        match call {
            Call::SaveQueue(place, draft, expect) => {
                let namespace = self.names.namespaces[place.namespace];
                let saved = store.save_queue(namespace, place.queue, *draft, expect).await.unwrap();
                Answer::Saved(saved.map(|saved| (self.names.queue(&saved.queue), saved.created)))
            }
            Call::Pause(place, paused) => {
                let namespace = self.names.namespaces[place.namespace];
                let queue = store.set_paused(namespace, place.queue, paused).await.unwrap();
                Answer::Queue(queue.map(|queue| self.names.queue(&queue)))
            }
            Call::DeleteQueue(place) => {
                Answer::Deleted(store.delete_queue(self.names.namespaces[place.namespace], place.queue).await.unwrap())
            }
            Call::Queue(place) => {
                let found = store.queue(self.names.namespaces[place.namespace], place.queue).await.unwrap();
                Answer::Counted(found.into_iter().map(|(queue, counts)| (self.names.queue(&queue), counts)).collect())
            }
            Call::Queues { namespace, after, limit } => {
                let found = store.queues(self.names.namespaces[namespace], after, limit).await.unwrap();
                Answer::Counted(found.into_iter().map(|(queue, counts)| (self.names.queue(&queue), counts)).collect())
            }
            Call::Namespace(which) => {
                let id = store.namespace(NAMESPACES[which]).await.unwrap();
                let order = self.names.namespaces.iter().position(|known| *known == id);
                Answer::Namespace(NamespaceId(order.expect("a namespace keeps its number") as u32))
            }
            Call::SealingKey(key) => Answer::SealingKey(store.sealing_key(key, &[]).await.unwrap()),
            Call::AddKey { namespace, number } => {
                let key = NewKey {
                    namespace: self.names.namespaces[namespace],
                    name: format!("key {number}"),
                    prefix: format!("{number:012}"),
                    hash: [number as u8; 32],
                    scopes: vec![if number % 2 == 0 { "admin" } else { "read" }.to_owned()],
                    expires_at: None,
                };
                Answer::Key(Some(self.names.key(store.add_key(key).await.unwrap())))
            }
            Call::RevokeKey { namespace, key } => {
                let id = self.names.keys.get(key).copied().unwrap_or(KeyId(u32::MAX));
                let namespace = namespace.map(|which| self.names.namespaces[which]);
                // Every third asks for it in earnest.
                match store.revoke_key(namespace, id, key % 3 == 0).await.unwrap() {
                    Revocation::Revoked(key) => Answer::Key(Some(self.names.key(key))),
                    Revocation::NotFound => Answer::Key(None),
                    Revocation::LastAdmin => Answer::Nothing,
                }
            }
            call => self.operate(call).await,
        }
    }

    async fn operate(&mut self, call: Call) -> Answer {
        let store = Arc::clone(&self.store);
        let found = match call {
            Call::StartOperation(bulk) => store.start_operation(self.bulk(bulk)).await.unwrap().into_iter().collect(),
            Call::AdvanceOperation { operation, limit } => {
                store.advance_operation(self.operation(operation), limit).await.unwrap().into_iter().collect()
            }
            Call::StopOperation { namespace, operation } => {
                let stopped = store.stop_operation(self.names.namespaces[namespace], self.operation(operation)).await;
                stopped.unwrap().into_iter().collect()
            }
            Call::CountOperation(bulk, limit) => {
                return Answer::Count(store.count_operation(&self.bulk(bulk), limit).await.unwrap());
            }
            Call::Operations { namespace, limit } => {
                let mut all = store.operations(self.names.namespaces[namespace], limit).await.unwrap();
                all.extend(store.open_operations().await.unwrap());
                all
            }
            other => unreachable!("{other:?} is carried out elsewhere"),
        };
        Answer::Operations(found.into_iter().map(|operation| self.names.operation(operation)).collect())
    }

    /// Everything, in words that can be compared.
    pub async fn dump(&mut self) -> Dump {
        let dump = dump(&*self.store, &self.names.namespaces).await;
        let names = &mut self.names;
        let mut queues: Vec<_> = dump.queues.iter().map(|(queue, counts)| (names.queue(queue), *counts)).collect();
        queues.sort_by_key(|(queue, _)| queue.id);
        Dump {
            queues,
            jobs: dump.jobs.into_iter().map(|entry| Entry { job: names.job(entry.job), ..entry }).collect(),
            rung: dump.rung.into_iter().map(|id| names.job_id(id)).collect(),
            inbound_events: dump
                .inbound_events
                .into_iter()
                .map(|inbound_event| InboundEvent { id: names.arrival_id(inbound_event.id), ..inbound_event })
                .collect(),
            keys: dump.keys.into_iter().map(|key| names.key(key)).collect(),
            operations: dump.operations.into_iter().map(|operation| names.operation(operation)).collect(),
            ..dump
        }
    }

    async fn apply(&mut self, orders: Vec<JobCommand>) -> Vec<Result<Effect, Declined>> {
        let answers = self.store.apply(orders).await.unwrap();
        let compared = |answer: Result<Applied, Declined>| match answer {
            Ok(applied) => Ok(self.effect(applied)),
            Err(Declined::Refused(Refusal::KeyTaken { holder })) => {
                Err(Declined::Refused(Refusal::KeyTaken { holder: self.names.job_id(holder) }))
            }
            Err(declined) => Err(declined),
        };
        answers.into_iter().map(compared).collect()
    }

    fn effect(&mut self, applied: Applied) -> Effect {
        Effect {
            id: self.names.job_id(applied.id),
            queue: applied.queue.name.clone(),
            status: applied.status,
            version: applied.version,
            changed: applied.changed,
            deleted: applied.deleted,
            frees: applied.frees,
            stalled: applied.stalled,
            published: applied.published,
            wake_at: applied.wake_at,
        }
    }

    fn published(&mut self, answer: Published) -> (Published, Option<Timestamp>) {
        match answer {
            Published::Created { job, wake_at, dedupe_by } => {
                self.names.add_job(&job);
                (Published::Created { job: self.names.job(job), wake_at, dedupe_by }, wake_at)
            }
            Published::Existing { job, payload_mismatch, dedupe_by } => {
                (Published::Existing { job: self.names.job(job), payload_mismatch, dedupe_by }, None)
            }
            other => (other, None),
        }
    }

    fn bulk(&self, bulk: Bulk) -> NewOperation {
        let mut filter = bulk.filter;
        filter.ids = bulk.jobs.map(|jobs| jobs.into_iter().map(|job| self.id(Whom::Job(job)).to_string()).collect());
        NewOperation {
            namespace: self.names.namespaces[bulk.place.namespace],
            queue: bulk.place.queue.to_owned(),
            kind: bulk.kind,
            filter,
            limit: bulk.limit,
            rate_per_second: None,
        }
    }

    fn operation(&self, order: usize) -> OperationId {
        self.names.operations.get(order).copied().unwrap_or(OperationId(u32::MAX))
    }

    fn id(&self, whom: Whom) -> JobId {
        match whom {
            Whom::Job(order) => self.names.jobs[order],
            Whom::Stranger(bits) => JobId::new(self.ground.clock.now(), u128::from(bits) << 40 | 0xabc),
        }
    }

    fn reach(&self, range: Range) -> Reach {
        match range {
            Range::Everything => Reach::Everything,
            Range::Namespace(which) => Reach::Namespace(self.names.namespaces[which]),
            Range::Queue(place) => {
                Reach::Queues(self.names.namespaces[place.namespace], vec![place.queue.to_owned()].into())
            }
        }
    }
}

/// The lease of a job that was handed out.
pub fn lease(job: &Job) -> Option<Lease> {
    match &job.state {
        State::Running(running) => Some(running.lease),
        _ => None,
    }
}
