//! Listening to many jobs at once, for requests that wait until one of them changes: heartbeats and `POST /v1/jobs/wait`.

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_core::{JobId, NamespaceId};

use super::{Listener, Notifier};

/// Listens from the moment it is made. A place is the position of a job in the list it was made from.
pub(crate) struct JobListeners {
    listeners: Vec<Listener<JobId>>,
    /// Of each listener, from before the last read of its job.
    looks: Vec<u64>,
    /// One for each listener, once the first wait has begun.
    waiting: FuturesUnordered<BoxFuture<'static, usize>>,
}

impl JobListeners {
    pub(crate) fn new(
        notifier: &Notifier,
        jobs: impl Iterator<Item = JobId>,
        namespace: Option<NamespaceId>,
    ) -> JobListeners {
        let listeners: Vec<_> = jobs.map(|id| notifier.listen_job(id, namespace)).collect();
        let looks = listeners.iter().map(Listener::look).collect();
        JobListeners { listeners, looks, waiting: FuturesUnordered::new() }
    }

    /// The caller has changed this job itself since it began to listen. If that was the only change, it needs no read.
    pub(crate) fn skip_own_change(&mut self, place: usize) {
        if let (Some(listener), Some(look)) = (self.listeners.get(place), self.looks.get_mut(place))
            && listener.look() == *look + 1
        {
            *look += 1;
        }
    }

    /// The places of jobs that may have changed, at least one; they are listened to again before this returns, so that a
    /// read which follows misses nothing. Never returns without jobs. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> Vec<usize> {
        if self.waiting.is_empty() {
            (0..self.listeners.len()).for_each(|place| self.wait_for(place));
        }
        let Some(first) = self.waiting.next().await else {
            return std::future::pending().await;
        };
        let mut places = vec![first];
        while let Some(Some(place)) = self.waiting.next().now_or_never() {
            places.push(place);
        }
        for place in &places {
            if let (Some(listener), Some(look)) = (self.listeners.get(*place), self.looks.get_mut(*place)) {
                *look = listener.look();
            }
            self.wait_for(*place);
        }
        places
    }

    fn wait_for(&self, place: usize) {
        if let (Some(listener), Some(look)) = (self.listeners.get(place), self.looks.get(place)) {
            self.waiting.push(listener.changed_since(*look).map(move |()| place).boxed());
        }
    }
}
