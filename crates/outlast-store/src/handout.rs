//! The bytes of handed-out jobs, from the claim that takes them to the last byte of the answer that brings them. Claims of a
//! whole group are decided before the first of them is answered, and a receiver may be slow: each store bounds what they
//! hold together, with a share for each namespace that shrinks as the whole fills.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::NamespaceId;

/// Limit for all hand-outs together.
const HANDOUT_BYTES_MAX: usize = 32 << 20;
/// While a namespace holds less than this, it may claim as long as the whole is not full. Small, so that a dozen greedy
/// namespaces do not use up the whole by what each of them is granted.
const NAMESPACE_LEAST: usize = 64 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct HandoutPool(Arc<Mutex<HandoutUsage>>);

#[derive(Debug, Default)]
struct HandoutUsage {
    all: usize,
    by_namespace: HashMap<NamespaceId, usize>,
}

impl HandoutPool {
    /// Bytes that a claim of this namespace may still take. At 0 it must wait until a response is sent.
    pub(crate) fn free(&self, namespace: NamespaceId) -> usize {
        let held = lock(&self.0);
        let free = HANDOUT_BYTES_MAX.saturating_sub(held.all);
        let own = held.by_namespace.get(&namespace).copied().unwrap_or(0);
        // A namespace alone gets half; the share shrinks with the square of what is free, so that twelve greedy ones leave
        // room for the next.
        let allowed = 2 * free.saturating_mul(free) / HANDOUT_BYTES_MAX;
        free.min(allowed.max(NAMESPACE_LEAST).saturating_sub(own))
    }

    /// Whatever the bound: what was handed out is counted.
    pub(crate) fn hold(&self, namespace: NamespaceId, bytes: usize) -> HandoutShare {
        let mut held = lock(&self.0);
        held.all += bytes;
        *held.by_namespace.entry(namespace).or_insert(0) += bytes;
        HandoutShare { pool: self.clone(), namespace, bytes }
    }
}

fn lock(held: &Mutex<HandoutUsage>) -> MutexGuard<'_, HandoutUsage> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One claim's share of the pool; returned when dropped.
#[derive(Debug)]
pub struct HandoutShare {
    pool: HandoutPool,
    namespace: NamespaceId,
    bytes: usize,
}

impl Drop for HandoutShare {
    fn drop(&mut self) {
        let mut held = lock(&self.pool.0);
        held.all = held.all.saturating_sub(self.bytes);
        if let Some(own) = held.by_namespace.get_mut(&self.namespace) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                held.by_namespace.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_BYTES_MAX;

    /// Claims as the stores do: a page at a time, and no more than is free.
    fn fill(pool: &HandoutPool, namespace: NamespaceId) -> Vec<HandoutShare> {
        let mut shares = Vec::new();
        while pool.free(namespace) > 0 {
            shares.push(pool.hold(namespace, pool.free(namespace).min(PAGE_BYTES_MAX)));
        }
        shares
    }

    #[test]
    fn a_greedy_namespace_leaves_room_for_the_next() {
        let pool = HandoutPool::default();

        let greedy: Vec<_> = (0..12).map(|number| fill(&pool, NamespaceId(number))).collect();

        let held: usize = greedy.first().into_iter().flatten().map(|share| share.bytes).sum();
        assert!(held <= HANDOUT_BYTES_MAX / 2, "{held} bytes");
        assert!(held >= HANDOUT_BYTES_MAX / 2 - PAGE_BYTES_MAX, "{held} bytes");
        assert!(pool.free(NamespaceId(99)) >= NAMESPACE_LEAST);
        drop(greedy);
        assert_eq!(pool.free(NamespaceId(0)), HANDOUT_BYTES_MAX, "everything was given back");
        assert!(lock(&pool.0).by_namespace.is_empty());
    }
}
