//! The dispatcher of one queue: claims as many jobs as there are slots, sends each of them on its own, and sleeps when there is
//! nothing to do. Dispatchers share nothing but the slots, so a dead endpoint delays no other queue.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::Queue;
use outlast_core::state::Phase;
use outlast_store::Error;
use outlast_store::jobs::{ClaimRequest, Claimed};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::queues::secrets::SecretError;

use super::deliver::Delivery;
use super::endpoint::Endpoint;
use super::slots::Reserved;
use super::{Push, QueueName, RETRY_PAUSE};

/// One claim takes no more than this: a longer transaction would hold up others.
const CLAIM_MAX: usize = 200;
/// The pause after secrets could not be opened: an operator has to act.
const SEALED_PAUSE: Duration = Duration::from_secs(5);

/// The result of a look at the queue.
enum Look {
    /// There may be more.
    More,
    /// Nothing until something happens, or until this much time has passed.
    Wait(Option<Duration>),
    /// The jobs cannot be signed; a look before this time would find the same.
    Stuck(Duration),
    /// No such queue, or none that delivers.
    Gone,
}

impl Push {
    /// Runs until the engine stops or the queue delivers no more. Ends after its last delivery.
    pub(super) async fn run_dispatcher(self: Arc<Self>, (namespace, queue): QueueName) {
        let mut stopping = self.lifecycle.stopping();
        let mut deliveries = JoinSet::new();
        let mut endpoint = None;
        let listener = self.announcer.notifier.listen_queue(namespace, &queue);
        while !self.lifecycle.is_draining() {
            let mut notified = std::pin::pin!(listener.notify().notified());
            notified.as_mut().enable();
            let mut freed = std::pin::pin!(self.slots.freed().notified());
            freed.as_mut().enable();
            reap(&mut deliveries);
            let slots = self.slots.take(deliveries.len(), CLAIM_MAX);
            if slots.is_empty() {
                tokio::select! {
                    biased;
                    _ = stopping.changed() => {}
                    () = freed => {}
                }
                continue;
            }
            let look = listener.look();
            let found = self.look(&(namespace, Arc::clone(&queue)), slots, &mut endpoint, &mut deliveries).await;
            let pause = match found {
                Look::Gone if deliveries.is_empty() => break,
                // It may be made anew while the last deliveries are under way.
                Look::Gone => {
                    tokio::select! {
                        biased;
                        _ = stopping.changed() => {}
                        () = notified => {}
                        _ = deliveries.join_next() => {}
                    }
                    continue;
                }
                Look::Stuck(pause) => {
                    // Wake-ups are ignored: the jobs that were put back cause them.
                    tokio::select! {
                        biased;
                        _ = stopping.changed() => {}
                        () = sleep(pause) => {}
                    }
                    continue;
                }
                Look::More => {
                    listener.found();
                    continue;
                }
                Look::Wait(pause) => {
                    listener.found_nothing(look);
                    pause
                }
            };
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                () = notified => {}
                () = super::wait(pause) => {}
            }
        }
        while deliveries.join_next().await.is_some() {}
    }

    async fn look(
        self: &Arc<Self>,
        name: &QueueName,
        mut slots: Reserved,
        endpoint: &mut Option<Arc<Endpoint>>,
        deliveries: &mut JoinSet<()>,
    ) -> Look {
        if endpoint.is_none() {
            // A node that cannot sign must not claim: it would use up the rate and keep other nodes from the probe.
            match self.prepare(name, endpoint).await {
                Ok(true) => {}
                Ok(false) => return Look::Gone,
                Err(SecretError::Store(Error::Stopped)) => return Look::Gone,
                Err(SecretError::Store(error)) => {
                    tracing::warn!(%error, queue = &*name.1, "a queue could not be read; trying again");
                    return Look::Wait(Some(RETRY_PAUSE));
                }
                Err(error) => {
                    tracing::error!(%error, queue = &*name.1, "cannot open signing secrets; this node stops delivering for the queue");
                    return Look::Stuck(SEALED_PAUSE);
                }
            }
        }
        // While the circuit is open one job is enough to put the queue on hold.
        let host = endpoint.as_ref().and_then(|endpoint| endpoint.host());
        if host.is_some_and(|host| self.breakers.is_open(name.0, host, self.clock.now())) {
            slots.truncate(1);
        }
        let want = ClaimRequest {
            namespace: name.0,
            queue: Arc::clone(&name.1),
            limit: slots.len(),
            phase: Phase::Delivering,
            visibility: None,
            worker: None,
        };
        let claimed = match self.jobs.claim_now(&want).await {
            Ok(Some(claimed)) if claimed.queue.settings.is_push() => claimed,
            Ok(_) | Err(Error::Stopped) => return Look::Gone,
            Err(error) => {
                tracing::warn!(%error, queue = &*name.1, "nothing could be claimed for delivery; trying again");
                return Look::Wait(Some(RETRY_PAUSE));
            }
        };
        let is_full = claimed.is_full(want.limit);
        let after_hold = claimed.held_until.map(|until| until.since(self.clock.now()));
        let pause = after_hold.into_iter().chain(claimed.look_again).min();
        if let Err(error) = self.send_all(claimed, slots, endpoint, deliveries).await {
            tracing::error!(%error, queue = &*name.1, "deliveries cannot be signed and were put back");
            return Look::Stuck(SEALED_PAUSE);
        }
        if is_full && pause.is_none() { Look::More } else { Look::Wait(pause) }
    }

    /// Works out the endpoint before the first claim. False when there is no queue that delivers.
    async fn prepare(&self, name: &QueueName, endpoint: &mut Option<Arc<Endpoint>>) -> Result<bool, SecretError> {
        match self.store.queue(name.0, &name.1).await? {
            Some((queue, _)) if queue.settings.is_push() => self.endpoint(&queue, endpoint).await.map(|_| true),
            _ => Ok(false),
        }
    }

    async fn send_all(
        self: &Arc<Self>,
        claimed: Claimed,
        slots: Reserved,
        endpoint: &mut Option<Arc<Endpoint>>,
        deliveries: &mut JoinSet<()>,
    ) -> Result<(), SecretError> {
        if claimed.jobs.is_empty() {
            return Ok(());
        }
        let endpoint = match self.endpoint(&claimed.queue, endpoint).await {
            Ok(endpoint) => endpoint,
            Err(error) => {
                self.jobs.hand_back(&claimed.jobs).await;
                return Err(error);
            }
        };
        let hold = claimed.queue.hold;
        for (job, place) in claimed.jobs.into_iter().zip(slots) {
            let delivery = Delivery { job, endpoint: Arc::clone(&endpoint), probes: hold.map(|hold| hold.cause) };
            let push = Arc::clone(self);
            deliveries.spawn(async move {
                push.deliver(delivery).await;
                drop(place);
            });
        }
        Ok(())
    }

    /// The endpoint as of this version of the queue.
    async fn endpoint(
        &self,
        queue: &Arc<Queue>,
        known: &mut Option<Arc<Endpoint>>,
    ) -> Result<Arc<Endpoint>, SecretError> {
        if let Some(known) = known.as_ref().filter(|known| is_same(&known.queue, queue)) {
            return Ok(Arc::clone(known));
        }
        let (secrets, headers) = (self.queues.signing_secrets(queue).await?, self.queues.open_headers(queue)?);
        let endpoint = Arc::new(Endpoint::new(Arc::clone(queue), secrets, &headers));
        *known = Some(Arc::clone(&endpoint));
        Ok(endpoint)
    }
}

/// Nothing has changed that an endpoint is made of. A version without secrets gets them, and so another version.
fn is_same(one: &Queue, other: &Queue) -> bool {
    one.id == other.id && one.version == other.version
}

/// Forgets deliveries that have ended.
fn reap(deliveries: &mut JoinSet<()>) {
    while let Some(ended) = deliveries.try_join_next() {
        if let Err(error) = ended {
            tracing::error!(%error, "a delivery has failed; its lease will run out");
        }
    }
}
