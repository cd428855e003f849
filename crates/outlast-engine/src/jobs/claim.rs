//! Handing out to workers that pull, with long poll: a waiting receive is woken, it does not poll the store.

use std::sync::Arc;
use std::time::Duration;

use outlast_store::Error;
use outlast_store::jobs::{ClaimRequest, Claimed};
use tokio::time::{Instant, sleep, sleep_until};

use super::Jobs;

/// After which pause a claim is tried again that found the memory for hand-outs full; then twice as long, up to the last one.
const CROWDED_PAUSE: Duration = Duration::from_millis(20);
const CROWDED_PAUSE_MAX: Duration = Duration::from_millis(320);

impl Jobs {
    /// Up to `want.limit` jobs; waits up to `wait` for the first one. `None` when there is no such queue.
    ///
    /// Cancel-safe in effect: when the caller goes away, nothing stays leased; what had been handed out goes back free.
    pub async fn claim(self: &Arc<Self>, want: ClaimRequest, wait: Duration) -> Result<Option<Claimed>, Error> {
        let claimed = self.claim_now(&want).await?;
        match claimed {
            Some(claimed) if claimed.jobs.is_empty() && !claimed.push_only && !wait.is_zero() => {
                self.claim_waiting(want, wait).await
            }
            claimed => Ok(claimed),
        }
    }

    /// The same, for a caller that has just found nothing.
    pub async fn claim_waiting(self: &Arc<Self>, want: ClaimRequest, wait: Duration) -> Result<Option<Claimed>, Error> {
        let end = Instant::now() + wait;
        let listener = self.announcer.notifier.listen_queue(want.namespace, &want.queue);
        loop {
            // Listening starts before looking, so that a publish in between is not missed.
            let mut notified = std::pin::pin!(listener.notify().notified());
            notified.as_mut().enable();
            let look = listener.look();
            let claimed = self.claim_now(&want).await?;
            match &claimed {
                Some(claimed) if claimed.jobs.is_empty() => listener.found_nothing(look),
                // A queue that is gone concerns all its consumers.
                Some(_) | None => listener.found(),
            }
            let Some(claimed) = claimed else {
                return Ok(None);
            };
            if !claimed.jobs.is_empty() || Instant::now() >= end || self.lifecycle.is_draining() {
                return Ok(Some(claimed));
            }
            let after_hold = claimed.held_until.map(|until| until.since(self.clock.now()));
            let pause = after_hold.into_iter().chain(claimed.look_again).min();
            tokio::select! {
                biased;
                () = notified => {}
                () = sleep_until(pause.map_or(end, |pause| end.min(Instant::now() + pause))) => {}
            }
        }
    }

    /// Retries for a moment while other hand-outs use up the memory for them.
    async fn claim_when_uncrowded(&self, want: &ClaimRequest) -> Result<Option<Claimed>, Error> {
        let mut pause = CROWDED_PAUSE;
        loop {
            let claimed = self.store.claim(want.clone()).await?;
            if claimed.as_ref().is_none_or(|claimed| !claimed.is_crowded) {
                return Ok(claimed);
            }
            if pause > CROWDED_PAUSE_MAX {
                return Err(Error::Overloaded);
            }
            sleep(self.random.jitter(pause)).await;
            pause *= 2;
        }
    }

    /// The same without waiting.
    pub async fn claim_now(self: &Arc<Self>, want: &ClaimRequest) -> Result<Option<Claimed>, Error> {
        self.pause_detector.tick(&*self.clock);
        if self.lifecycle.is_draining() {
            let queue = self.store.queue(want.namespace, &want.queue).await?;
            return Ok(queue.map(|(queue, _)| Claimed::none(queue)));
        }
        let (jobs, want, owner) = (Arc::clone(self), want.clone(), Arc::clone(self));
        let call = async move {
            let claimed = jobs.claim_when_uncrowded(&want).await;
            match &claimed {
                Ok(Some(claimed)) => jobs.announcer.claimed(&want, claimed),
                Err(Error::Indeterminate) => jobs.announcer.maybe_written(want.namespace, &want.queue),
                Ok(None) | Err(_) => {}
            }
            claimed
        };
        // If the caller disconnects, the jobs go back: other consumers wait for them.
        let hand_back = move |claimed: Result<Option<Claimed>, Error>| {
            if let Ok(Some(claimed)) = claimed {
                drop(owner.handover(&claimed.jobs));
            }
        };
        self.detached.guard(call, hand_back).await
    }
}
