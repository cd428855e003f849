//! Reads that callers share. Who asks while the same thing is being read waits for the next read, together with all who
//! come meanwhile. A read begins after everybody who gets its answer has asked, so it shows whatever any of them was told
//! before: this is no cache, nothing is kept once it is answered, and no answer is older than its question.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turn, OnceCell};

/// Bounded by those who ask: a thing that nobody asks for takes no room.
pub struct Looks<K, V> {
    things: Mutex<HashMap<K, Thing<V>>>,
}

struct Thing<V> {
    /// Those who wait for an answer.
    askers: usize,
    /// Held by the look that reads; the others gather meanwhile.
    turn: Arc<Turn<()>>,
    /// The look that still takes in who asks.
    open: Option<Arc<OnceCell<V>>>,
}

impl<K, V> Default for Looks<K, V> {
    fn default() -> Looks<K, V> {
        Looks { things: Mutex::new(HashMap::new()) }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Looks<K, V> {
    /// What `read` gives, or what the same read gave to somebody who asked for the same thing. It runs in the task of one
    /// of them; if he goes away, another one reads. Cancel-safe.
    pub async fn share<F: Future<Output = V>>(&self, key: K, read: impl FnOnce() -> F) -> V {
        let place = self.join(key);
        let reading = || async {
            let _turn = place.turn.lock().await;
            self.close(&place);
            read().await
        };
        place.look.get_or_init(reading).await.clone()
    }

    fn join(&self, key: K) -> Place<'_, K, V> {
        let mut things = self.lock();
        let thing = things.entry(key.clone()).or_insert_with(|| Thing { askers: 0, turn: Arc::default(), open: None });
        thing.askers += 1;
        let look = Arc::clone(thing.open.get_or_insert_with(Arc::default));
        Place { looks: self, key, turn: Arc::clone(&thing.turn), look }
    }

    /// From here on nobody joins: who asks later must not get what is read now.
    fn close(&self, place: &Place<'_, K, V>) {
        if let Some(thing) = self.lock().get_mut(&place.key) {
            thing.open.take_if(|open| Arc::ptr_eq(open, &place.look));
        }
    }
}

impl<K, V> Looks<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Thing<V>>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits. Dropping it leaves.
struct Place<'a, K: Eq + Hash, V> {
    looks: &'a Looks<K, V>,
    key: K,
    turn: Arc<Turn<()>>,
    look: Arc<OnceCell<V>>,
}

impl<K: Eq + Hash, V> Drop for Place<'_, K, V> {
    fn drop(&mut self) {
        let mut things = self.looks.lock();
        if let Some(thing) = things.get_mut(&self.key) {
            thing.askers -= 1;
            if thing.askers == 0 {
                things.remove(&self.key);
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

    /// Something that changes, and is read slowly: each read needs a permit to end.
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

    /// Lets somebody go on as far as he comes.
    async fn step<F: Future>(asker: &mut Pin<Box<F>>) -> Poll<F::Output> {
        poll_fn(|cx| Poll::Ready(asker.as_mut().poll(cx))).await
    }

    #[tokio::test]
    async fn those_who_ask_during_a_read_share_the_next_one() {
        let (looks, source) = (Looks::default(), Source::new());
        let ask = || looks.share("job", || source.read());
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
        let (looks, source) = (Looks::default(), Source::new());
        let ask = || looks.share("job", || source.read());
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
        let (looks, source) = (Looks::default(), Source::new());
        let ask = || looks.share("job", || source.read());
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
        let (looks, source) = (Looks::default(), Source::new());
        let mut stuck = Box::pin(looks.share("stuck", || source.read()));
        assert!(step(&mut stuck).await.is_pending());

        let mut other = Box::pin(looks.share("other", || async { 7 }));

        assert_eq!(step(&mut other).await, Poll::Ready(7));
        drop((stuck, other));
        assert!(looks.lock().is_empty());
    }
}
