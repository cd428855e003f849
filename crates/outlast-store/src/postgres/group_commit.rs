//! A lane gathers calls and runs them together: while its transactions are under way, the calls that come in meanwhile make
//! up the next one. No timer and no artificial delay.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::shared::StoreContext;
use super::transact::{Fault, Tx, TxWork};
use crate::error::Error;

/// A call that waits for its turn.
pub(super) struct PendingRequest<Q, A> {
    pub(super) request: Q,
    pub(super) reply: oneshot::Sender<Result<A, Error>>,
    since: Instant,
}

/// The work of a batcher on a group of requests.
#[async_trait]
pub(super) trait BatchHandler: Send + Sync + 'static {
    type Request: Send + Sync + 'static;
    type Answer: Send + 'static;

    /// How much a call weighs, where a whole group weighs at most [`GROUP_WEIGHT_MAX`].
    fn weight(request: &Self::Request) -> usize;

    /// Is the effect harmful once the caller has disconnected?
    fn is_moot_when_dropped(request: &Self::Request) -> bool;

    /// Is this the fault of one call alone? Then its neighbours are run again without it.
    fn is_fault_of_one_request(_error: &Error) -> bool {
        false
    }

    /// One answer per call, in order. May run more than once; only the last run counts.
    async fn run(requests: &[Self::Request], tx: &mut Tx<'_>) -> Result<Vec<Self::Answer>, Fault>;

    /// The receiver went away while its call was under way.
    fn on_undelivered(_shared: &Arc<StoreContext>, _answer: Self::Answer) {}
}

/// Jobs that share a transaction at most: more would cost latency and gain nothing.
const GROUP_WEIGHT_MAX: usize = 1000;

type PendingCall<T> = PendingRequest<<T as BatchHandler>::Request, <T as BatchHandler>::Answer>;
type Calls<T> = mpsc::Receiver<PendingCall<T>>;

pub(super) struct Batcher<T: BatchHandler> {
    calls: Mutex<Option<mpsc::Sender<PendingCall<T>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl<T: BatchHandler> Batcher<T> {
    /// `seats` transactions at most are under way at once.
    pub(super) fn start(shared: &Arc<StoreContext>, seats: usize, waiting_max: usize) -> Batcher<T> {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let task = tokio::spawn(serve::<T>(Arc::clone(shared), receiver, seats));
        Batcher { calls: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    pub(super) fn send(&self, request: T::Request) -> Result<oneshot::Receiver<Result<T::Answer, Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match calls.as_ref().ok_or(Error::Stopped)?.try_send(PendingRequest { request, reply, since: Instant::now() }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(Error::Overloaded),
            Err(TrySendError::Closed(_)) => Err(Error::Stopped),
        }
    }

    pub(super) async fn call(&self, request: T::Request) -> Result<T::Answer, Error> {
        self.send(request)?.await.map_err(|_| Error::Indeterminate)?
    }

    /// Finishes what was sent before and ends.
    pub(super) async fn close(&self) {
        drop(self.calls.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

async fn serve<T: BatchHandler>(shared: Arc<StoreContext>, mut calls: Calls<T>, seats: usize) {
    let seats = Arc::new(Semaphore::new(seats));
    let mut groups = JoinSet::new();
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await
        && let Some(group) = gather::<T>(&mut calls).await
    {
        // In a task of its own: if it panics, the callers get an indeterminate result, and the batcher goes on.
        groups.spawn(serve_group::<T>(Arc::clone(&shared), group, seat));
        while groups.try_join_next().is_some() {}
    }
    while groups.join_next().await.is_some() {}
}

/// The next group: whatever waits, up to the greatest weight. `None` when the lane is closed.
async fn gather<T: BatchHandler>(calls: &mut Calls<T>) -> Option<Vec<PendingCall<T>>> {
    let first = calls.recv().await?;
    let mut weight = T::weight(&first.request);
    let mut group = vec![first];
    while weight < GROUP_WEIGHT_MAX
        && let Ok(next) = calls.try_recv()
    {
        weight += T::weight(&next.request);
        group.push(next);
    }
    Some(group)
}

async fn serve_group<T: BatchHandler>(
    shared: Arc<StoreContext>,
    group: Vec<PendingCall<T>>,
    seat: OwnedSemaphorePermit,
) {
    let since = group.iter().map(|call| call.since).min().unwrap_or_else(Instant::now);
    let live = group.into_iter().filter(|call| !(call.reply.is_closed() && T::is_moot_when_dropped(&call.request)));
    let (requests, replies): (Vec<_>, Vec<_>) = live.map(|call| (call.request, call.reply)).unzip();
    if requests.is_empty() {
        return;
    }
    match shared.transact_since(since, &mut RequestGroup::<T>::new(&requests, Some(seat))).await {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                answer_to::<T>(&shared, reply, Ok(answer));
            }
        }
        // One call that cannot be carried out must not take its neighbours with it.
        Err(error)
            if requests.len() > 1
                && (matches!(error, Error::Unreadable(_) | Error::Corrupt(_))
                    || T::is_fault_of_one_request(&error)) =>
        {
            for (request, reply) in requests.into_iter().zip(replies) {
                let alone = shared.transact(&mut RequestGroup::<T>::new(&[request], None)).await;
                answer_to::<T>(&shared, reply, alone.and_then(|mut answers| answers.pop().ok_or(Error::Indeterminate)));
            }
        }
        Err(error) => {
            for reply in replies {
                answer_to::<T>(&shared, reply, Err(error.clone()));
            }
        }
    }
}

fn answer_to<T: BatchHandler>(
    shared: &Arc<StoreContext>,
    reply: oneshot::Sender<Result<T::Answer, Error>>,
    answer: Result<T::Answer, Error>,
) {
    if let Err(Ok(unwanted)) = reply.send(answer) {
        T::on_undelivered(shared, unwanted);
    }
}

/// Calls that share a transaction.
pub(super) struct RequestGroup<'g, T: BatchHandler> {
    requests: &'g [T::Request],
    seat: Option<OwnedSemaphorePermit>,
}

impl<'g, T: BatchHandler> RequestGroup<'g, T> {
    pub(super) fn new(requests: &'g [T::Request], seat: Option<OwnedSemaphorePermit>) -> RequestGroup<'g, T> {
        RequestGroup { requests, seat }
    }
}

#[async_trait]
impl<T: BatchHandler> TxWork for RequestGroup<'_, T> {
    type Answer = Vec<T::Answer>;

    async fn run(&mut self, tx: &mut Tx<'_>) -> Result<Vec<T::Answer>, Fault> {
        T::run(self.requests, tx).await
    }

    /// The next group need not wait for that.
    fn is_lost(&mut self) {
        self.seat = None;
    }
}
