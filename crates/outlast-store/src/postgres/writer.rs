//! The writer: publishes, claims and commands that come in at the same time share one transaction. What can be asked is
//! asked in one flight with BEGIN, what is written goes in one flight with COMMIT.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join;

use super::apply::{Outcomes, Patience, release};
use super::lane::Trade;
use super::shared::Shared;
use super::transact::{Fault, Opened, Opening, Tx};
use super::{apply, claim, publish};
use crate::jobs::{Claim, Claimed, NewJob, Order, Published};
use crate::publish::Publisher;

pub(super) struct Writer;

pub(super) enum Ask {
    Publish(Vec<NewJob>),
    Claim(Claim),
    Apply(Arc<[Order]>, Patience),
}

pub(super) enum Answer {
    Published(Vec<Published>),
    Claimed(Option<Claimed>),
    /// `None` when a job is held by somebody else or not there: to be asked again with patience.
    Applied(Option<Outcomes>),
}

#[async_trait]
impl Trade for Writer {
    type Ask = Ask;
    type Answer = Answer;

    fn weight(ask: &Ask) -> usize {
        match ask {
            Ask::Publish(jobs) => jobs.len(),
            Ask::Claim(claim) => claim.limit,
            Ask::Apply(orders, _) => orders.len(),
        }
    }

    /// A hand-out that nobody waits for would only keep the job from others.
    fn is_moot_unheard(ask: &Ask) -> bool {
        matches!(ask, Ask::Claim(_))
    }

    async fn run(asks: &[Ask], tx: &mut Tx<'_>) -> Result<Vec<Answer>, Fault> {
        let (mut jobs, mut claims, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        for ask in asks {
            match ask {
                Ask::Publish(new) => jobs.extend(new),
                Ask::Claim(claim) => claims.push(claim),
                Ask::Apply(list, patience) => orders.push((&**list, *patience)),
            }
        }
        let session = tx.session;
        let applies = apply::Part::new(orders, tx.shared.ids);
        let claims = claim::Part::new(claims, tx.shared);
        let publishes = publish::Part::new(jobs, Publisher::User);
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
        let Opened { seqs, queues, rest: (locked, taken) } = tx.begin(opening, flight).await?;
        let applied = applies.finish(locked, tx).await?;
        let published = publishes.finish(&queues, seqs, tx).await?;
        let claimed = claims.finish(taken, &queues, tx).await?;
        Ok(in_order(asks, published, claimed, applied))
    }

    /// What a vanished receiver would have got goes back at once, free.
    fn undelivered(shared: &Arc<Shared>, answer: Answer) {
        if let Answer::Claimed(claimed) = answer {
            release(shared, claimed);
        }
    }
}

/// The answers as they were asked for.
fn in_order(
    asks: &[Ask],
    published: Vec<Published>,
    claimed: Vec<Option<Claimed>>,
    applied: Vec<Option<Outcomes>>,
) -> Vec<Answer> {
    let (mut published, mut claimed, mut applied) = (published.into_iter(), claimed.into_iter(), applied.into_iter());
    let answer = |ask: &Ask| match ask {
        Ask::Publish(jobs) => Answer::Published(published.by_ref().take(jobs.len()).collect()),
        Ask::Claim(_) => Answer::Claimed(claimed.next().flatten()),
        Ask::Apply(..) => Answer::Applied(applied.next().flatten()),
    };
    asks.iter().map(answer).collect()
}
