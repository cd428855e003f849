//! The inbox: events that come in at the same time share a transaction. It uses at most two connections of the pool, so that a
//! provider which sends many events leaves the others to publishes, claims and outcomes.

use async_trait::async_trait;

use super::group_commit::BatchHandler;
use super::inbound_events;
use super::transact::{Fault, Tx};
use crate::error::Error;
use crate::inbound_events::{Ingested, NewInboundEvent};

/// Transactions with events that are under way at once: while one is being synced, the next one is made.
pub(super) const INGEST_TRANSACTIONS_MAX: usize = 2;

pub(super) struct IngestHandler;

#[async_trait]
impl BatchHandler for IngestHandler {
    type Request = Vec<NewInboundEvent>;
    type Answer = Vec<Ingested>;

    fn weight(request: &Vec<NewInboundEvent>) -> usize {
        request.iter().map(|new| 1 + new.jobs.len()).sum()
    }

    /// The provider sends it again and learns that it came.
    fn is_moot_when_dropped(_: &Vec<NewInboundEvent>) -> bool {
        false
    }

    /// An event of a namespace that is full, or one that is pruned in this moment, fails alone.
    fn is_fault_of_one_request(error: &Error) -> bool {
        matches!(error, Error::QuotaReached { .. } | Error::Overloaded)
    }

    async fn run(requests: &[Vec<NewInboundEvent>], tx: &mut Tx<'_>) -> Result<Vec<Vec<Ingested>>, Fault> {
        let all: Vec<&NewInboundEvent> = requests.iter().flatten().collect();
        let mut answers = inbound_events::ingest(&all, tx).await?.into_iter();
        Ok(requests.iter().map(|request| answers.by_ref().take(request.len()).collect()).collect())
    }
}
