//! Handing out to pullers, with long poll: a waiting receive is woken, it does not poll.

use std::time::Duration;

use outlast_store::Error;
use outlast_store::jobs::{Claim, Claimed};
use tokio::time::{Instant, sleep, sleep_until};

use crate::engine::Engine;

/// After which pause a claim is tried again that found the memory for hand-outs full; then twice as long, up to the last one.
const CROWDED_PAUSE: Duration = Duration::from_millis(20);
const CROWDED_PAUSE_MAX: Duration = Duration::from_millis(320);

impl Engine {
    /// Up to `want.limit` jobs; waits up to `wait` for the first one. `None` when there is no such queue.
    ///
    /// Cancel-safe in effect: when the caller goes away, nothing stays leased; what had been handed out goes back free.
    pub async fn claim(&self, want: Claim, wait: Duration) -> Result<Option<Claimed>, Error> {
        let claimed = self.claim_now(&want).await?;
        match claimed {
            Some(claimed) if claimed.jobs.is_empty() && !claimed.push_only && !wait.is_zero() => {
                self.claim_waiting(want, wait).await
            }
            claimed => Ok(claimed),
        }
    }

    /// The same, for a caller that has just found nothing.
    pub async fn claim_waiting(&self, want: Claim, wait: Duration) -> Result<Option<Claimed>, Error> {
        let end = Instant::now() + wait;
        let listener = self.shared.notifier.listen_queue(want.namespace, &want.queue);
        loop {
            // Listening starts before looking, so that a publish in between is not missed.
            let mut notified = std::pin::pin!(listener.notify().notified());
            notified.as_mut().enable();
            let look = listener.look();
            let claimed = self.claim_now(&want).await?;
            match &claimed {
                Some(claimed) if claimed.jobs.is_empty() => listener.found_nothing(look),
                // A queue that is gone concerns all who wait for it, as a job may.
                Some(_) | None => listener.found(),
            }
            let Some(claimed) = claimed else {
                return Ok(None);
            };
            if !claimed.jobs.is_empty() || Instant::now() >= end || self.is_draining() {
                return Ok(Some(claimed));
            }
            let after_hold = claimed.held_until.map(|until| until.since(self.now()));
            let pause = after_hold.into_iter().chain(claimed.look_again).min();
            tokio::select! {
                biased;
                () = notified => {}
                () = sleep_until(pause.map_or(end, |pause| end.min(Instant::now() + pause))) => {}
            }
        }
    }

    /// While hand-outs of others hold the memory for them, tries again for a moment.
    async fn claim_when_uncrowded(&self, want: &Claim) -> Result<Option<Claimed>, Error> {
        let mut pause = CROWDED_PAUSE;
        loop {
            let claimed = self.shared.store.claim(want.clone()).await?;
            if claimed.as_ref().is_none_or(|claimed| !claimed.is_crowded) {
                return Ok(claimed);
            }
            if pause > CROWDED_PAUSE_MAX {
                return Err(Error::Overloaded);
            }
            sleep(self.jitter(pause)).await;
            pause *= 2;
        }
    }

    /// The same without waiting.
    pub async fn claim_now(&self, want: &Claim) -> Result<Option<Claimed>, Error> {
        self.tick();
        if self.is_draining() {
            let queue = self.shared.store.queue(want.namespace, &want.queue).await?;
            return Ok(queue.map(|(queue, _)| Claimed::none(queue)));
        }
        let (engine, want, owner) = (self.clone(), want.clone(), self.clone());
        let call = async move { engine.claim_and_announce(&want).await };
        // If the caller goes away, the jobs go back: others wait for them.
        let hand_back = move |claimed: Result<Option<Claimed>, Error>| {
            if let Ok(Some(claimed)) = claimed {
                drop(owner.on_the_way(&claimed.jobs));
            }
        };
        self.shared.detached.guard(call, hand_back).await
    }

    async fn claim_and_announce(&self, want: &Claim) -> Result<Option<Claimed>, Error> {
        let claimed = self.claim_when_uncrowded(want).await;
        if matches!(claimed, Err(Error::Indeterminate)) {
            self.announce_unknown(want.namespace, &want.queue);
        }
        if let Ok(Some(claimed)) = &claimed {
            self.shared.counters.handed_out.add(claimed.jobs.len());
            self.note_alarm(claimed.wake_at);
            self.jobs_published(want.namespace, &claimed.published);
            for id in claimed.jobs.iter().map(|job| job.id).chain(claimed.ended.iter().copied()) {
                self.shared.progress.forget(id);
                self.shared.notifier.job_changed(want.namespace, &want.queue, id);
            }
        }
        claimed
    }
}
