//! A lane gathers calls and runs them together: while its transactions are under way, the calls that come in meanwhile make
//! up the next one. No timer and no artificial delay.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::shared::Shared;
use super::transact::{Fault, Tx, Work};
use crate::error::Error;

/// A call that waits for its turn.
pub(super) struct Waiting<Q, A> {
    pub(super) ask: Q,
    pub(super) reply: oneshot::Sender<Result<A, Error>>,
    since: Instant,
}

/// What a lane does with a group of calls.
#[async_trait]
pub(super) trait Trade: Send + Sync + 'static {
    type Ask: Send + Sync + 'static;
    type Answer: Send + 'static;

    /// How much a call weighs, where a whole group weighs at most [`GROUP_WEIGHT_MAX`].
    fn weight(ask: &Self::Ask) -> usize;

    /// Would the effect only harm once nobody waits for the answer?
    fn is_moot_unheard(ask: &Self::Ask) -> bool;

    /// Is this the fault of one call alone? Then its neighbours are run again without it.
    fn is_of_one_call(_error: &Error) -> bool {
        false
    }

    /// One answer per call, in order. May run more than once; only the last run counts.
    async fn run(asks: &[Self::Ask], tx: &mut Tx<'_>) -> Result<Vec<Self::Answer>, Fault>;

    /// The receiver went away while its call was under way.
    fn undelivered(_shared: &Arc<Shared>, _answer: Self::Answer) {}
}

/// Jobs that share a transaction at most: more would cost latency and gain nothing.
const GROUP_WEIGHT_MAX: usize = 1000;

type Call<T> = Waiting<<T as Trade>::Ask, <T as Trade>::Answer>;
type Calls<T> = mpsc::Receiver<Call<T>>;

pub(super) struct Lane<T: Trade> {
    calls: Mutex<Option<mpsc::Sender<Call<T>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Trade> Lane<T> {
    /// `seats` transactions at most are under way at once.
    pub(super) fn start(shared: &Arc<Shared>, seats: usize, waiting_max: usize) -> Lane<T> {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let task = tokio::spawn(serve::<T>(Arc::clone(shared), receiver, seats));
        Lane { calls: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    pub(super) fn send(&self, ask: T::Ask) -> Result<oneshot::Receiver<Result<T::Answer, Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match calls.as_ref().ok_or(Error::Stopped)?.try_send(Waiting { ask, reply, since: Instant::now() }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(Error::Overloaded),
            Err(TrySendError::Closed(_)) => Err(Error::Stopped),
        }
    }

    pub(super) async fn call(&self, ask: T::Ask) -> Result<T::Answer, Error> {
        self.send(ask)?.await.map_err(|_| Error::Indeterminate)?
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

async fn serve<T: Trade>(shared: Arc<Shared>, mut calls: Calls<T>, seats: usize) {
    let seats = Arc::new(Semaphore::new(seats));
    let mut groups = JoinSet::new();
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await
        && let Some(group) = gather::<T>(&mut calls).await
    {
        // As a task of its own: should it panic, those who wait hear that nobody knows, and the lane goes on.
        groups.spawn(serve_group::<T>(Arc::clone(&shared), group, seat));
        while groups.try_join_next().is_some() {}
    }
    while groups.join_next().await.is_some() {}
}

/// The next group: whatever waits, up to the greatest weight. `None` when the lane is closed.
async fn gather<T: Trade>(calls: &mut Calls<T>) -> Option<Vec<Call<T>>> {
    let first = calls.recv().await?;
    let mut weight = T::weight(&first.ask);
    let mut group = vec![first];
    while weight < GROUP_WEIGHT_MAX
        && let Ok(next) = calls.try_recv()
    {
        weight += T::weight(&next.ask);
        group.push(next);
    }
    Some(group)
}

async fn serve_group<T: Trade>(shared: Arc<Shared>, group: Vec<Call<T>>, seat: OwnedSemaphorePermit) {
    let since = group.iter().map(|call| call.since).min().unwrap_or_else(Instant::now);
    let live = group.into_iter().filter(|call| !(call.reply.is_closed() && T::is_moot_unheard(&call.ask)));
    let (asks, replies): (Vec<_>, Vec<_>) = live.map(|call| (call.ask, call.reply)).unzip();
    if asks.is_empty() {
        return;
    }
    match shared.transact_since(since, &mut Group::<T>::new(&asks, Some(seat))).await {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                answer_to::<T>(&shared, reply, Ok(answer));
            }
        }
        // One call that cannot be carried out must not take its neighbours with it.
        Err(error)
            if asks.len() > 1
                && (matches!(error, Error::Unreadable(_) | Error::Corrupt(_)) || T::is_of_one_call(&error)) =>
        {
            for (ask, reply) in asks.into_iter().zip(replies) {
                let alone = shared.transact(&mut Group::<T>::new(&[ask], None)).await;
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

fn answer_to<T: Trade>(
    shared: &Arc<Shared>,
    reply: oneshot::Sender<Result<T::Answer, Error>>,
    answer: Result<T::Answer, Error>,
) {
    if let Err(Ok(unwanted)) = reply.send(answer) {
        T::undelivered(shared, unwanted);
    }
}

/// Calls that share a transaction.
pub(super) struct Group<'g, T: Trade> {
    asks: &'g [T::Ask],
    seat: Option<OwnedSemaphorePermit>,
}

impl<'g, T: Trade> Group<'g, T> {
    pub(super) fn new(asks: &'g [T::Ask], seat: Option<OwnedSemaphorePermit>) -> Group<'g, T> {
        Group { asks, seat }
    }
}

#[async_trait]
impl<T: Trade> Work for Group<'_, T> {
    type Answer = Vec<T::Answer>;

    async fn run(&mut self, tx: &mut Tx<'_>) -> Result<Vec<T::Answer>, Fault> {
        T::run(self.asks, tx).await
    }

    /// The next group need not wait for that.
    fn is_lost(&mut self) {
        self.seat = None;
    }
}
