//! Handing out: the claims of a group take jobs together and share them in the order they came. The order of the jobs
//! comes from the table `ready_and_alarm`, the lock from the job's row, the effect from `decide`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::state::Phase;
use outlast_core::{NamespaceId, Queue, Status};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::claim_scan::{
    ClaimBudget, ClaimScan, ScannedJobs, TAKE, leave, line_up, look_again, read_saved_bytes, take, take_for,
};
use super::queue_cache::{QUEUE_COLUMNS, queue_columns};
use super::session::{Session, Sql};
use super::shared::StoreContext;
use super::transact::{Fault, QueueName, Queues, Tx};
use crate::checked_decide::admit;
use crate::jobs::{ClaimRequest, Claimed};
use crate::transition::hand_out;

/// The claims of a group.
pub(super) struct ClaimPart<'g> {
    count: usize,
    by_queue: BTreeMap<QueueName, Vec<GroupedClaim<'g>>>,
    /// Of the queues that looked open when they were last seen.
    takings: BTreeMap<QueueName, ClaimScan>,
}

/// A claim and its place in the group.
struct GroupedClaim<'g> {
    at: usize,
    claim: &'g ClaimRequest,
}

impl<'g> ClaimPart<'g> {
    pub(super) fn new(claims: Vec<&'g ClaimRequest>, shared: &StoreContext) -> ClaimPart<'g> {
        let count = claims.len();
        let mut by_queue: BTreeMap<QueueName, Vec<GroupedClaim<'g>>> = BTreeMap::new();
        for (at, claim) in claims.into_iter().enumerate() {
            by_queue.entry((claim.namespace, Arc::clone(&claim.queue))).or_default().push(GroupedClaim { at, claim });
        }
        let mut takings = BTreeMap::new();
        for (name, asked) in &by_queue {
            if let Some(hint) = shared.registry.hint(name.0, &name.1).filter(|hint| is_promising(hint)) {
                takings.insert(name.clone(), ClaimScan::new(&hint, wanted(asked), shared));
            }
        }
        ClaimPart { count, by_queue, takings }
    }

    pub(super) async fn ready(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        if self.count == 0 { Ok(()) } else { session.ready(&[&TAKE]).await }
    }

    /// The queues it is about.
    pub(super) fn queues(&self) -> impl Iterator<Item = (NamespaceId, &str)> {
        self.by_queue.keys().map(|(namespace, name)| (*namespace, &**name))
    }

    /// Takes jobs, in the first flight.
    pub(super) async fn look(&self, session: &Session) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        let parameters: Vec<_> = self.takings.values().map(ClaimScan::parameters).collect();
        let taken = join_all(parameters.iter().map(|parameters| session.query(&TAKE, parameters))).await;
        taken.into_iter().collect()
    }

    /// One answer per claim, in order.
    pub(super) async fn finish(
        mut self,
        taken: Vec<Vec<Row>>,
        queues: &Queues,
        tx: &mut Tx<'_>,
    ) -> Result<Vec<Option<Claimed>>, Fault> {
        let mut found = self.sort(taken, queues, tx).await?;
        let mut answers: Vec<Option<Claimed>> = (0..self.count).map(|_| None).collect();
        let mut narrow = Vec::new();
        for (name, asked) in &self.by_queue {
            let Some(found) = found.remove(name) else {
                tx.shared.registry.forget(name.0, &name.1);
                continue;
            };
            // A command of this very group may have put a hold on it.
            let queue = tx.writes.queue(found.queue.id).cloned().unwrap_or_else(|| Arc::clone(&found.queue));
            match is_wide(&queue) {
                true => put(&mut answers, asked, hand_out_wide(&queue, &found, asked, tx).await?),
                false => narrow.push((queue.id, name, asked)),
            }
        }
        // All who lock several queues do so in this order.
        narrow.sort_unstable_by_key(|(id, _, _)| *id);
        for (_, name, asked) in narrow {
            put(&mut answers, asked, hand_out_narrow(name, asked, tx).await?);
        }
        Ok(answers)
    }

    /// Which rows belong to which queue. A queue that looked shut, or was not known here, is looked at now.
    async fn sort(
        &mut self,
        taken: Vec<Vec<Row>>,
        queues: &Queues,
        tx: &mut Tx<'_>,
    ) -> Result<BTreeMap<QueueName, ClaimedQueue>, Fault> {
        let mut taken: BTreeMap<QueueName, (ClaimScan, Vec<Row>)> = std::mem::take(&mut self.takings)
            .into_iter()
            .zip(taken)
            .map(|((name, taking), rows)| (name, (taking, rows)))
            .collect();
        let mut found = BTreeMap::new();
        for (name, asked) in &self.by_queue {
            let Some(queue) = queues.get(name).cloned() else {
                continue;
            };
            let entry = match taken.remove(name) {
                Some((taking, rows)) if taking.queue == queue.id.0.cast_signed() => {
                    ClaimedQueue { queue, taken: taking.taken(rows) }
                }
                _ if is_promising(&queue) => {
                    let taken = take_for(&queue, wanted(asked), tx).await?;
                    ClaimedQueue { queue, taken }
                }
                _ => ClaimedQueue { taken: ScannedJobs::none(tx.shared.cursors.look(queue.id)), queue },
            };
            found.insert(name.clone(), entry);
        }
        Ok(found)
    }
}

/// Gives each claim its jobs; none when the queue is gone.
fn put(answers: &mut [Option<Claimed>], asked: &[GroupedClaim<'_>], handed_out: Vec<Claimed>) {
    for (asked, claimed) in asked.iter().zip(handed_out) {
        if let Some(answer) = answers.get_mut(asked.at) {
            *answer = Some(claimed);
        }
    }
}

/// Will this claim be served without waiting for others, as far as this node knows?
pub(super) fn looks_wide(claim: &ClaimRequest, shared: &StoreContext) -> bool {
    shared.registry.hint(claim.namespace, &claim.queue).is_some_and(|hint| is_promising(&hint))
}

/// Nothing but the jobs themselves decides how many go out, so claimers need not wait for each other.
fn is_wide(queue: &Queue) -> bool {
    let settings = &queue.settings;
    queue.hold.is_none() && settings.concurrency_limit().is_none() && settings.rate_limit.is_none()
}

/// Is the queue, as last seen, worth a look in the first flight?
fn is_promising(hint: &Queue) -> bool {
    is_wide(hint) && !hint.paused
}

/// The jobs that a scan of a queue found.
struct ClaimedQueue {
    queue: Arc<Queue>,
    taken: ScannedJobs,
}

fn wanted(asked: &[GroupedClaim<'_>]) -> ClaimBudget {
    ClaimBudget { claims: asked.len(), jobs: asked.iter().map(|asked| asked.claim.limit).sum() }
}

/// Jobs that were locked for several claims are given to them in the order they came.
async fn hand_out_wide(
    queue: &Arc<Queue>,
    found: &ClaimedQueue,
    asked: &[GroupedClaim<'_>],
    tx: &mut Tx<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let (mut line, mut planned) = line_up(queue, &found.taken, tx);
    read_saved_bytes(line.as_slice(), tx).await?;
    let (mut answers, mut is_short) = (Vec::with_capacity(asked.len()), false);
    for GroupedClaim { claim, .. } in asked {
        let (mut claimed, limit) = admit(Arc::clone(queue), claim, 0, tx.now, &tx.shared.handouts);
        fill(&mut claimed, claim, limit, &mut line, tx)?;
        // Jobs that were taken and could not be handed out were in the way of others.
        while !claimed.is_full(limit) && tx.writes.has_left_line() {
            tx.writes.flush(tx.session, tx.shared.slot()).await?;
            planned = hand_out_more(queue, limit, claim, &mut claimed, tx).await?;
        }
        claimed.is_crowded |= claimed.jobs.is_empty() && limit > 0 && found.taken.is_cut;
        claimed.hold(&tx.shared.handouts);
        is_short |= claimed.jobs.is_empty() && limit > 0;
        answers.push((claimed, limit));
    }
    leave(queue, line, tx);
    let pause = if is_short { look_again(queue, planned, tx).await? } else { None };
    for (claimed, limit) in &mut answers {
        claimed.look_again = pause.filter(|_| claimed.jobs.is_empty() && *limit > 0);
    }
    Ok(answers.into_iter().map(|(claimed, _)| claimed).collect())
}

/// Takes what a claim still lacks. Gives the time after which looking again may find what this look could not see.
async fn hand_out_more(
    queue: &Queue,
    limit: usize,
    claim: &ClaimRequest,
    claimed: &mut Claimed,
    tx: &mut Tx<'_>,
) -> Result<Option<Duration>, Fault> {
    let taken = take(queue, limit - claimed.jobs.len(), tx).await?;
    let (mut more, planned) = line_up(queue, &taken, tx);
    read_saved_bytes(more.as_slice(), tx).await?;
    fill(claimed, claim, limit, &mut more, tx)?;
    leave(queue, more, tx);
    Ok(planned)
}

/// For queues that count what runs or wait for a probe: one claimer at a time.
static LOCK_QUEUE: Sql = Sql {
    text: concat!(
        "SELECT ",
        queue_columns!(),
        ", pg_current_xact_id()::text
          FROM queue
          WHERE queue.namespace = $1 AND queue.name = $2
          FOR NO KEY UPDATE"
    ),
    types: &[Type::INT4, Type::TEXT],
};
static RUNNING: Sql =
    Sql { text: "SELECT coalesce(sum(running), 0)::bigint FROM queue_count WHERE queue = $1", types: &[Type::INT4] };

/// One claim after the other, alone with the queue. No answer when it is gone.
async fn hand_out_narrow(name: &QueueName, asked: &[GroupedClaim<'_>], tx: &mut Tx<'_>) -> Result<Vec<Claimed>, Fault> {
    let rows = tx.session.query(&LOCK_QUEUE, &[&name.0.0.cast_signed(), &&*name.1]).await?;
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    tx.number = row.get(QUEUE_COLUMNS);
    let queue = tx.shared.registry.queue(row, 0)?;
    tx.writes.know_queue(Arc::clone(&queue));
    let counted = tx.session.query(&RUNNING, &[&queue.id.0.cast_signed()]).await?;
    let mut running = counted.first().map_or(0, |row| row.get::<_, i64>(0));
    let mut answers = Vec::with_capacity(asked.len());
    for GroupedClaim { claim, .. } in asked {
        let queue = tx.writes.queue(queue.id).cloned().unwrap_or_else(|| Arc::clone(&queue));
        let now_running = u64::try_from(running).unwrap_or(0);
        let (mut claimed, limit) = admit(Arc::clone(&queue), claim, now_running, tx.now, &tx.shared.handouts);
        while !claimed.is_full(limit) {
            let taken = take(&queue, limit - claimed.jobs.len(), tx).await?;
            let (mut more, planned) = line_up(&queue, &taken, tx);
            if taken.rows.is_empty() {
                // A puller that got jobs asks again; a dispatcher sleeps until a signal.
                if claimed.jobs.is_empty() || claim.phase == Phase::Delivering {
                    claimed.look_again = look_again(&queue, planned, tx).await?;
                }
                break;
            }
            read_saved_bytes(more.as_slice(), tx).await?;
            fill(&mut claimed, claim, limit, &mut more, tx)?;
            leave(&queue, more, tx);
            tx.writes.flush(tx.session, tx.shared.slot()).await?;
        }
        claimed.came_up_short_of(limit);
        claimed.hold(&tx.shared.handouts);
        running += i64::try_from(claimed.jobs.len()).unwrap_or(0);
        answers.push(claimed);
    }
    Ok(answers)
}

/// Hands jobs of the line to a claim until it is full.
fn fill(
    claimed: &mut Claimed,
    claim: &ClaimRequest,
    limit: usize,
    line: &mut std::vec::IntoIter<i64>,
    tx: &mut Tx<'_>,
) -> Result<(), Fault> {
    while !claimed.is_full(limit)
        && let Some(seq) = line.next()
    {
        // Another call of this very group may have moved it.
        if tx.writes.get(seq).is_some_and(|record| record.job.status() == Status::Queued)
            && let Some(entry) = tx.writes.take(seq)
        {
            hand_out(tx, entry, claim, claimed)?;
        }
    }
    Ok(())
}
