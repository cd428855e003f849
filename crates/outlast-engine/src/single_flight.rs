//! Reads that concurrent callers share. A caller that arrives during a read waits for the next one, together with all callers
//! that arrive meanwhile. A read begins after every caller that gets its result has asked, so it is never older than any of
//! them expects. This is no cache: nothing is kept once the callers have the result.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turn, OnceCell};

/// Bounded by the number of waiting callers.
pub struct SingleFlight<K, V> {
    by_key: Mutex<HashMap<K, Flight<V>>>,
}

struct Flight<V> {
    /// Callers that wait for a result.
    callers: usize,
    /// Held by the caller that reads; the others gather meanwhile.
    turn: Arc<Turn<()>>,
    /// The next read, which callers may still join.
    open: Option<Arc<OnceCell<V>>>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> SingleFlight<K, V> {
        SingleFlight { by_key: Mutex::new(HashMap::new()) }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// The result of `read`, or of the same read by a concurrent caller with the same key. It runs in the task of one of them; if
    /// that caller goes away, another one reads. Cancel-safe.
    pub async fn share<F: Future<Output = V>>(&self, key: K, read: impl FnOnce() -> F) -> V {
        self.share_after(key, std::future::ready(()), read).await
    }

    /// The same; a read does not begin before `pause` has ended, and callers that come during the pause share it.
    pub(crate) async fn share_after<F: Future<Output = V>>(
        &self,
        key: K,
        pause: impl Future<Output = ()>,
        read: impl FnOnce() -> F,
    ) -> V {
        let caller = self.join(key);
        let reading = || async {
            let _turn = caller.turn.lock().await;
            pause.await;
            self.close(&caller);
            read().await
        };
        caller.read.get_or_init(reading).await.clone()
    }

    fn join(&self, key: K) -> Caller<'_, K, V> {
        let mut by_key = self.lock();
        let flight =
            by_key.entry(key.clone()).or_insert_with(|| Flight { callers: 0, turn: Arc::default(), open: None });
        flight.callers += 1;
        let read = Arc::clone(flight.open.get_or_insert_with(Arc::default));
        Caller { flights: self, key, turn: Arc::clone(&flight.turn), read }
    }

    /// From here on no caller joins: one that asks later must not get this result.
    fn close(&self, caller: &Caller<'_, K, V>) {
        if let Some(flight) = self.lock().get_mut(&caller.key) {
            flight.open.take_if(|open| Arc::ptr_eq(open, &caller.read));
        }
    }
}

impl<K, V> SingleFlight<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Flight<V>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiting caller. Dropping it leaves.
struct Caller<'a, K: Eq + Hash, V> {
    flights: &'a SingleFlight<K, V>,
    key: K,
    turn: Arc<Turn<()>>,
    read: Arc<OnceCell<V>>,
}

impl<K: Eq + Hash, V> Drop for Caller<'_, K, V> {
    fn drop(&mut self) {
        let mut by_key = self.flights.lock();
        if let Some(flight) = by_key.get_mut(&self.key) {
            flight.callers -= 1;
            if flight.callers == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Poll;

    use tokio::sync::Semaphore;

    use super::*;

    /// A value that changes and is read slowly: each read needs a permit to end.
    struct Source {
        value: AtomicU64,
        reads: AtomicU64,
        ends: Semaphore,
    }

    impl Source {
        fn new() -> Source {
            Source { value: AtomicU64::new(0), reads: AtomicU64::new(0), ends: Semaphore::new(0) }
        }

        async fn read(&self) -> u64 {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let value = self.value.load(Ordering::SeqCst);
            self.ends.acquire().await.expect("it is never closed").forget();
            value
        }

        fn reads(&self) -> u64 {
            self.reads.load(Ordering::SeqCst)
        }
    }

    /// Polls a caller once.
    async fn step<F: Future>(asker: &mut Pin<Box<F>>) -> Poll<F::Output> {
        poll_fn(|cx| Poll::Ready(asker.as_mut().poll(cx))).await
    }

    #[tokio::test]
    async fn those_who_ask_during_a_read_share_the_next_one() {
        let (flights, source) = (SingleFlight::default(), Source::new());
        let ask = || flights.share("job", || source.read());
        let mut first = Box::pin(ask());
        assert!(step(&mut first).await.is_pending());
        let mut later: Vec<_> = (0..100).map(|_| Box::pin(ask())).collect();
        for asker in &mut later {
            assert!(step(asker).await.is_pending());
        }
        assert_eq!(source.reads(), 1);

        source.ends.add_permits(2);
        first.await;
        for asker in later {
            asker.await;
        }

        assert_eq!(source.reads(), 2);
    }

    #[tokio::test]
    async fn a_question_is_not_answered_by_a_read_that_began_before_it() {
        let (flights, source) = (SingleFlight::default(), Source::new());
        let ask = || flights.share("job", || source.read());
        let mut first = Box::pin(ask());
        assert!(step(&mut first).await.is_pending());

        source.value.store(1, Ordering::SeqCst);
        let mut second = Box::pin(ask());
        assert!(step(&mut second).await.is_pending());
        source.ends.add_permits(2);

        assert_eq!((first.await, second.await), (0, 1));
    }

    #[tokio::test]
    async fn when_the_one_who_reads_goes_away_another_one_reads() {
        let (flights, source) = (SingleFlight::default(), Source::new());
        let ask = || flights.share("job", || source.read());
        let mut first = Box::pin(ask());
        assert!(step(&mut first).await.is_pending());
        let (mut reader, mut other) = (Box::pin(ask()), Box::pin(ask()));
        assert!(step(&mut reader).await.is_pending() && step(&mut other).await.is_pending());
        source.ends.add_permits(1);
        first.await;
        assert!(step(&mut reader).await.is_pending());
        assert_eq!(source.reads(), 2, "it is the one who reads");

        source.value.store(1, Ordering::SeqCst);
        drop(reader);
        source.ends.add_permits(1);

        assert_eq!(other.await, 1);
        assert_eq!(source.reads(), 3);
    }

    #[tokio::test]
    async fn different_things_do_not_wait_for_each_other_and_leave_nothing_behind() {
        let (flights, source) = (SingleFlight::default(), Source::new());
        let mut stuck = Box::pin(flights.share("stuck", || source.read()));
        assert!(step(&mut stuck).await.is_pending());

        let mut other = Box::pin(flights.share("other", || async { 7 }));

        assert_eq!(step(&mut other).await, Poll::Ready(7));
        drop((stuck, other));
        assert!(flights.lock().is_empty());
    }
}
