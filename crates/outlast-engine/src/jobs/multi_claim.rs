//! Handing out from several queues to one request. Each hand-out draws the order of the queues by their weights; a request that
//! waits listens to all of them and, when one wakes it, claims from that one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_core::{Entropy, Job, NamespaceId};
use outlast_store::Error;
use outlast_store::jobs::{ClaimRequest, Claimed};
use outlast_store::page::PageSize;
use tokio::time::{Instant, sleep_until};

use super::Jobs;
use super::handover::Handover;
use crate::notifier::Listener;

/// One of the queues of a request. A queue of twice the weight is asked first twice as often.
#[derive(Clone, Debug)]
pub struct WeightedQueue {
    pub name: Arc<str>,
    pub weight: u32,
}

/// A hand-out from several queues.
#[derive(Clone, Debug)]
pub struct MultiClaim {
    pub queues: Vec<WeightedQueue>,
    /// The same for all queues. `queue` is not read; `limit` holds for all of them together.
    pub want: ClaimRequest,
}

/// The claimed jobs by queue. Dropped before it is completed, it hands them back.
#[derive(Default)]
pub struct MultiClaimed {
    pub claimed: Vec<Claimed>,
    handovers: Vec<Handover>,
}

impl MultiClaimed {
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.claimed.iter().flat_map(|claimed| &claimed.jobs)
    }

    pub fn is_empty(&self) -> bool {
        self.claimed.is_empty()
    }

    /// The receiver gets the jobs.
    pub fn complete(self) -> Vec<Claimed> {
        self.handovers.into_iter().for_each(Handover::complete);
        self.claimed
    }
}

impl Jobs {
    /// Up to `want.limit` jobs of the queues. A queue that does not exist has none.
    ///
    /// Cancel-safe in effect: when the caller goes away, nothing stays leased.
    pub async fn claim_any_now(self: &Arc<Self>, claim: &MultiClaim) -> Result<MultiClaimed, Error> {
        let mut looks = Looks::of(claim.queues.len());
        self.claim_at(claim, &self.draw_order(&claim.queues), &mut looks).await
    }

    /// The same for a caller that has just found nothing: waits up to `wait` for the first one.
    pub async fn claim_any_waiting(
        self: &Arc<Self>,
        claim: &MultiClaim,
        wait: Duration,
    ) -> Result<MultiClaimed, Error> {
        let end = Instant::now() + wait;
        let listeners = self.listen_to(claim);
        let mut looks = Looks::of(claim.queues.len());
        let mut waiting: FuturesUnordered<BoxFuture<'static, usize>> = FuturesUnordered::new();
        listeners.iter().enumerate().for_each(|(place, listener)| waiting.push(listener.woken(place)));
        // The first poll of a future makes it listen.
        let woken = ready(&mut waiting);
        rearm(&waiting, &listeners, &woken);
        let mut places = self.draw_order(&claim.queues);
        let mut is_woken = false;
        loop {
            let began: Vec<u64> = listeners.iter().map(Listener::look).collect();
            looks.forget(&places);
            let claimed = self.claim_at(claim, &places, &mut looks).await?;
            for place in &places {
                if let (Some(listener), Some(look)) = (listeners.get(*place), began.get(*place)) {
                    match looks.found(*place) {
                        Some(false) => listener.found_nothing(*look),
                        Some(true) => listener.found(),
                        // The batch was full before: another consumer may have what this one was woken for.
                        None if is_woken => listener.pass_on(),
                        None => {}
                    }
                }
            }
            if !claimed.is_empty() || Instant::now() >= end || self.lifecycle.is_draining() {
                return Ok(claimed);
            }
            is_woken = true;
            let timer = looks.next().map_or(end, |at| at.min(end));
            let first = tokio::select! {
                biased;
                place = waiting.next() => place,
                () = sleep_until(timer) => None,
            };
            places = first.into_iter().chain(ready(&mut waiting)).collect();
            rearm(&waiting, &listeners, &places);
            // Those that listen again are polled once, so that nothing is missed from here on.
            let again = ready(&mut waiting);
            rearm(&waiting, &listeners, &again);
            places.extend(again);
            places.extend(looks.due(Instant::now()));
            places.sort_unstable();
            places.dedup();
        }
    }

    fn listen_to(&self, claim: &MultiClaim) -> Vec<Listener<(NamespaceId, Arc<str>)>> {
        let notifier = &self.announcer.notifier;
        claim.queues.iter().map(|queue| notifier.listen_queue(claim.want.namespace, &queue.name)).collect()
    }

    /// Claims from these queues in this order until there are enough jobs.
    async fn claim_at(
        self: &Arc<Self>,
        claim: &MultiClaim,
        places: &[usize],
        looks: &mut Looks,
    ) -> Result<MultiClaimed, Error> {
        let (mut all, mut left, mut size) = (MultiClaimed::default(), claim.want.limit, PageSize::default());
        for place in places {
            let Some(queue) = claim.queues.get(*place).filter(|_| left > 0 && !size.is_full()) else {
                break;
            };
            let want = ClaimRequest { queue: Arc::clone(&queue.name), limit: left, ..claim.want.clone() };
            let claimed = match self.claim_now(&want).await {
                Ok(claimed) => claimed,
                Err(error) if all.is_empty() => return Err(error),
                Err(_) => break,
            };
            looks.note(*place, claimed.as_ref(), |until| until.since(self.clock.now()));
            let Some(claimed) = claimed.filter(|claimed| !claimed.jobs.is_empty()) else {
                continue;
            };
            left = left.saturating_sub(claimed.jobs.len());
            size.add(claimed.size.bytes());
            all.handovers.push(self.handover(&claimed.jobs));
            all.claimed.push(claimed);
        }
        Ok(all)
    }

    /// All places, each first with the chance of its weight.
    fn draw_order(&self, queues: &[WeightedQueue]) -> Vec<usize> {
        let mut drawn: Vec<(f64, usize)> = self.random.draw(|entropy| {
            let mut draw = |weight: u32| exponential(entropy) / f64::from(weight.max(1));
            queues.iter().enumerate().map(|(place, queue)| (draw(queue.weight), place)).collect()
        });
        drawn.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        drawn.into_iter().map(|(_, place)| place).collect()
    }
}

/// The shortest of several exponential times, each divided by its weight, comes first with the chance of its weight.
fn exponential(entropy: &mut dyn Entropy) -> f64 {
    -(1.0 - outlast_core::entropy::unit(entropy)).ln()
}

/// The places that are woken already; futures that were not polled before begin to listen.
fn ready(waiting: &mut FuturesUnordered<BoxFuture<'static, usize>>) -> Vec<usize> {
    let mut places = Vec::new();
    while let Some(Some(place)) = waiting.next().now_or_never() {
        places.push(place);
    }
    places
}

fn rearm(
    waiting: &FuturesUnordered<BoxFuture<'static, usize>>,
    listeners: &[Listener<(NamespaceId, Arc<str>)>],
    places: &[usize],
) {
    for place in places {
        if let Some(listener) = listeners.get(*place) {
            waiting.push(listener.woken(*place));
        }
    }
}

/// What the last look at each queue found.
struct Looks(Vec<Look>);

#[derive(Clone, Copy, Default)]
struct Look {
    /// Were there jobs? `None` where the queue was not asked.
    found: Option<bool>,
    /// When the queue may hand out again although nothing wakes its consumers.
    again_at: Option<Instant>,
}

impl Looks {
    fn of(queues: usize) -> Looks {
        Looks(vec![Look::default(); queues])
    }

    fn note(&mut self, place: usize, claimed: Option<&Claimed>, left: impl Fn(outlast_core::Timestamp) -> Duration) {
        let Some(look) = self.0.get_mut(place) else {
            return;
        };
        // A queue that is gone concerns all its consumers.
        look.found = Some(claimed.is_none_or(|claimed| !claimed.jobs.is_empty()));
        let after_hold = claimed.and_then(|claimed| claimed.held_until).map(left);
        let pause = after_hold.into_iter().chain(claimed.and_then(|claimed| claimed.look_again)).min();
        look.again_at = pause.map(|pause| Instant::now() + pause);
    }

    fn forget(&mut self, places: &[usize]) {
        for place in places {
            if let Some(look) = self.0.get_mut(*place) {
                look.found = None;
            }
        }
    }

    fn found(&self, place: usize) -> Option<bool> {
        self.0.get(place).and_then(|look| look.found)
    }

    fn next(&self) -> Option<Instant> {
        self.0.iter().filter_map(|look| look.again_at).min()
    }

    fn due(&self, now: Instant) -> Vec<usize> {
        let is_due = |look: &Look| look.again_at.is_some_and(|at| at <= now);
        self.0.iter().enumerate().filter(|(_, look)| is_due(look)).map(|(place, _)| place).collect()
    }
}
