//! Turns of reads that may be large: how much of their answers is built at the same time, in all and per caller. A turn
//! never depends on a client, so those who wait for one always come to it; each caller waits behind its own reads
//! first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::{JobId, NamespaceId};
use outlast_store::keys::KeyId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::Holder;
use crate::error::{Code, Problem};

/// Bytes of memory that one part of a turn covers.
#[cfg(test)]
const PART_BYTES: usize = 256 << 10;
/// Parts at the same time, in all, of one namespace, of one key, and of tokens to one job.
const ALL: u32 = 240;
const NAMESPACE: u32 = 120;
const KEY: u32 = 72;
const TOKEN: u32 = 24;

/// How much memory a read may need before its answer is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// One job, one section, one result.
    Single,
    /// The rows that were read, the answer written from them, and the growth of the text.
    Page,
}

impl Weight {
    fn parts(self) -> u32 {
        match self {
            Weight::Single => 4,
            Weight::Page => 12,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Namespace(NamespaceId),
    Key(KeyId),
    Token(KeyId, JobId),
}

impl Group {
    fn parts(self) -> u32 {
        match self {
            Group::Namespace(_) => NAMESPACE,
            Group::Key(_) => KEY,
            Group::Token(..) => TOKEN,
        }
    }
}

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    /// Only of callers that read or wait; with how many they are.
    groups: Mutex<HashMap<Group, (Arc<Semaphore>, usize)>>,
}

/// The right to build an answer; given back when dropped.
pub(crate) struct Turn {
    _all: OwnedSemaphorePermit,
    _groups: [Option<GroupPlace>; 2],
}

/// A place among the reads of a group.
struct GroupPlace {
    turns: Arc<Turns>,
    group: Group,
    parts: Arc<Semaphore>,
    /// Dropped before the place itself.
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new() -> Arc<Turns> {
        Arc::new(Turns { all: Arc::new(Semaphore::new(usize::try_from(ALL).unwrap_or(1))), groups: Mutex::default() })
    }

    /// Cancel-safe: a caller that goes away leaves its line.
    pub(crate) async fn take(self: &Arc<Self>, holder: Holder, weight: Weight) -> Result<Turn, Problem> {
        // From the narrowest to the widest: who waits for the whole is alone with its share.
        let groups = match holder {
            Holder::Key { namespace, key } => [Some(Group::Key(key)), Some(Group::Namespace(namespace))],
            Holder::Token { namespace, key, job } => [Some(Group::Token(key, job)), Some(Group::Namespace(namespace))],
            Holder::Address(_) => [None, None],
        };
        self.take_in(groups, weight).await
    }

    /// Among all reads of the namespace, over its keys and tokens.
    pub(crate) async fn take_shared(self: &Arc<Self>, holder: Holder, weight: Weight) -> Result<Turn, Problem> {
        let namespace = match holder {
            Holder::Key { namespace, .. } | Holder::Token { namespace, .. } => Some(Group::Namespace(namespace)),
            Holder::Address(_) => None,
        };
        self.take_in([namespace, None], weight).await
    }

    async fn take_in(self: &Arc<Self>, groups: [Option<Group>; 2], weight: Weight) -> Result<Turn, Problem> {
        let mut places = groups.map(|group| group.map(|group| self.join(group)));
        for place in places.iter_mut().flatten() {
            place.permit = Some(acquire(&place.parts, weight).await?);
        }
        Ok(Turn { _all: acquire(&self.all, weight).await?, _groups: places })
    }

    fn join(self: &Arc<Self>, group: Group) -> GroupPlace {
        let mut groups = self.lock();
        let (parts, places) = groups.entry(group).or_insert_with(|| {
            let parts = usize::try_from(group.parts()).unwrap_or(1);
            (Arc::new(Semaphore::new(parts)), 0)
        });
        *places += 1;
        GroupPlace { turns: Arc::clone(self), group, parts: Arc::clone(parts), permit: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Group, (Arc<Semaphore>, usize)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn acquire(parts: &Arc<Semaphore>, weight: Weight) -> Result<OwnedSemaphorePermit, Problem> {
    // It is never closed.
    let closed = |_| Problem::new(Code::Internal, "the turns are closed");
    Arc::clone(parts).acquire_many_owned(weight.parts()).await.map_err(closed)
}

impl Drop for GroupPlace {
    fn drop(&mut self) {
        self.permit = None;
        let mut groups = self.turns.lock();
        if let Some((_, places)) = groups.get_mut(&self.group) {
            *places -= 1;
            if *places == 0 {
                groups.remove(&self.group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key(key: u32) -> Holder {
        Holder::Key { namespace: NamespaceId(1), key: KeyId(key) }
    }

    #[test]
    fn all_turns_together_take_less_than_the_server_may() {
        assert!(usize::try_from(ALL).unwrap() * PART_BYTES <= 64 << 20);
        assert!(TOKEN >= Weight::Page.parts());
    }

    #[tokio::test]
    async fn a_caller_waits_behind_its_own_reads_and_not_behind_those_of_others() {
        let turns = Turns::new();
        let mut held = Vec::new();
        while let Some(turn) = turns.take(key(1), Weight::Page).now_or_never() {
            held.push(turn.unwrap_or_else(|_| panic!("refused")));
        }
        let reads = held.len();
        let waiting = turns.take(key(1), Weight::Page);
        let mut waiting = std::pin::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());

        assert_eq!(reads, usize::try_from(KEY / Weight::Page.parts()).unwrap());
        assert!(turns.take(key(2), Weight::Page).now_or_never().is_some());
        let other = Holder::Key { namespace: NamespaceId(2), key: KeyId(3) };
        assert!(turns.take(other, Weight::Page).now_or_never().is_some());
        held.pop();
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn those_who_are_gone_leave_nothing_behind() {
        let turns = Turns::new();

        let held: Vec<_> = (0..6).map(|_| turns.take(key(1), Weight::Page).now_or_never()).collect();
        assert!(turns.take(key(1), Weight::Page).now_or_never().is_none());
        drop(held);

        assert!(turns.lock().is_empty());
    }
}
