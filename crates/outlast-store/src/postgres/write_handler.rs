//! Publishes, claims and commands that come in at the same time share one transaction. Reads go in one round trip with
//! BEGIN, writes in one round trip with COMMIT.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join;

use super::apply::{LockWait, Outcomes, release};
use super::group_commit::BatchHandler;
use super::shared::StoreContext;
use super::transact::{Fault, OpenedTx, Opening, Tx};
use super::{apply, claim, publish};
use crate::jobs::{ClaimRequest, Claimed, JobCommand, NewJob, Published};
use crate::publish::Publisher;

pub(super) struct WriteHandler;

pub(super) enum WriteRequest {
    Publish(Vec<NewJob>),
    Claim(ClaimRequest),
    Apply(Arc<[JobCommand]>, LockWait),
}

pub(super) enum WriteAnswer {
    Published(Vec<Published>),
    Claimed(Option<Claimed>),
    /// `None` when a job is held by somebody else or not there: to be asked again with patience.
    Applied(Option<Outcomes>),
}

#[async_trait]
impl BatchHandler for WriteHandler {
    type Request = WriteRequest;
    type Answer = WriteAnswer;

    fn weight(request: &WriteRequest) -> usize {
        match request {
            WriteRequest::Publish(jobs) => jobs.len(),
            WriteRequest::Claim(claim) => claim.limit,
            WriteRequest::Apply(orders, _) => orders.len(),
        }
    }

    /// A hand-out without a waiting receiver would only withhold the job.
    fn is_moot_when_dropped(request: &WriteRequest) -> bool {
        matches!(request, WriteRequest::Claim(_))
    }

    async fn run(requests: &[WriteRequest], tx: &mut Tx<'_>) -> Result<Vec<WriteAnswer>, Fault> {
        let (mut jobs, mut claims, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            match request {
                WriteRequest::Publish(new) => jobs.extend(new),
                WriteRequest::Claim(claim) => claims.push(claim),
                WriteRequest::Apply(list, patience) => orders.push((&**list, *patience)),
            }
        }
        let session = tx.session;
        let applies = apply::ApplyPart::new(orders, tx.shared.ids);
        let claims = claim::ClaimPart::new(claims, tx.shared);
        let publishes = publish::PublishPart::new(jobs, Publisher::User);
        applies.ready(session).await?;
        claims.ready(session).await?;
        let flight = async {
            let (jobs, taken) = join(applies.look(session), claims.look(session)).await;
            Ok((jobs?, taken?))
        };
        let opening = Opening {
            numbered: publishes.len() > 0,
            seqs: publishes.len(),
            jobs: applies.seqs(),
            queues: publishes.queues().chain(claims.queues()).collect(),
        };
        let OpenedTx { seqs, queues, rest: (locked, taken) } = tx.begin(opening, flight).await?;
        let applied = applies.finish(locked, tx).await?;
        let published = publishes.finish(&queues, seqs, tx).await?;
        let claimed = claims.finish(taken, &queues, tx).await?;
        Ok(in_order(requests, published, claimed, applied))
    }

    /// Jobs of a disconnected receiver go back immediately, free.
    fn on_undelivered(shared: &Arc<StoreContext>, answer: WriteAnswer) {
        if let WriteAnswer::Claimed(claimed) = answer {
            release(shared, claimed);
        }
    }
}

/// The answers as they were asked for.
fn in_order(
    requests: &[WriteRequest],
    published: Vec<Published>,
    claimed: Vec<Option<Claimed>>,
    applied: Vec<Option<Outcomes>>,
) -> Vec<WriteAnswer> {
    let (mut published, mut claimed, mut applied) = (published.into_iter(), claimed.into_iter(), applied.into_iter());
    let answer = |request: &WriteRequest| match request {
        WriteRequest::Publish(jobs) => WriteAnswer::Published(published.by_ref().take(jobs.len()).collect()),
        WriteRequest::Claim(_) => WriteAnswer::Claimed(claimed.next().flatten()),
        WriteRequest::Apply(..) => WriteAnswer::Applied(applied.next().flatten()),
    };
    requests.iter().map(answer).collect()
}
