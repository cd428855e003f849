//! The inbox: events that come in at the same time share a transaction. It uses at most two connections of the pool, so that a
//! provider which sends many events leaves the others to publishes, claims and outcomes.

use async_trait::async_trait;

use super::arrivals;
use super::lane::Trade;
use super::transact::{Fault, Tx};
use crate::arrivals::{Ingested, NewArrival};
use crate::error::Error;

/// Transactions with events that are under way at once: while one is being synced, the next one is made.
pub(super) const INBOX_SEATS: usize = 2;

pub(super) struct Inbox;

#[async_trait]
impl Trade for Inbox {
    type Ask = Vec<NewArrival>;
    type Answer = Vec<Ingested>;

    fn weight(ask: &Vec<NewArrival>) -> usize {
        ask.iter().map(|new| 1 + new.jobs.len()).sum()
    }

    /// The provider sends it again and learns that it came.
    fn is_moot_unheard(_: &Vec<NewArrival>) -> bool {
        false
    }

    /// An event of a namespace that is full, or one that is pruned in this moment, fails alone.
    fn is_of_one_call(error: &Error) -> bool {
        matches!(error, Error::QuotaReached { .. } | Error::Overloaded)
    }

    async fn run(asks: &[Vec<NewArrival>], tx: &mut Tx<'_>) -> Result<Vec<Vec<Ingested>>, Fault> {
        let all: Vec<&NewArrival> = asks.iter().flatten().collect();
        let mut answers = arrivals::ingest(&all, tx).await?.into_iter();
        Ok(asks.iter().map(|ask| answers.by_ref().take(ask.len()).collect()).collect())
    }
}
