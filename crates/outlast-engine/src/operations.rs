//! Carries operations on: bulk replay, purge, discard, delete. One of the rounds of the sweep. What a crash interrupts is
//! taken up again from the stored position.

use std::collections::HashMap;
use std::time::Duration;

use outlast_core::NamespaceId;
use outlast_core::system_queue::SYSTEM_QUEUES;
use outlast_store::Error;
use outlast_store::live::Signal;
use outlast_store::operations::{NewOperation, Operation, OperationId, OperationKind, OperationStatus};
use tokio::time::{Instant, sleep};

use crate::engine::Engine;

/// Jobs changed in one transaction: long enough to be quick, short enough that other writers hardly notice.
const STEP_MAX: usize = 200;
/// The pause between two rounds while all open operations have a rate.
const PACED_PAUSE: Duration = Duration::from_millis(100);

/// When each operation with a rate was taken up, and how many jobs it had changed by then.
type Paces = HashMap<OperationId, (Instant, u64)>;

impl Engine {
    /// `None` when there is no such queue.
    pub async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        self.commit(|engine| async move {
            let started = engine.shared.store.start_operation(operation).await;
            engine.shared.sweep.look_now();
            engine.shared.live.tell(Signal::OperationStarted);
            started
        })
        .await
    }

    /// `None` when there is no such operation.
    pub async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.shared.store.stop_operation(namespace, id).await
    }

    /// Carries all open operations on until none is left. What a failure interrupts is taken up again by the next round.
    pub(crate) async fn carry_on_operations(&self) -> Result<Duration, Error> {
        let mut stopping = self.stopping();
        let mut paces = Paces::new();
        while !*stopping.borrow()
            && let Some(pause) = self.advance_operations(&mut paces).await?
        {
            if pause.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                () = sleep(pause) => {}
            }
        }
        Ok(Duration::ZERO)
    }

    /// One step of every open operation. Returns the pause before the next round, `None` when nothing is open.
    async fn advance_operations(&self, paces: &mut Paces) -> Result<Option<Duration>, Error> {
        let open = self.shared.store.open_operations().await?;
        paces.retain(|id, _| open.iter().any(|operation| operation.id == *id));
        let mut pause = PACED_PAUSE;
        for operation in &open {
            if operation.rate_per_second.is_none() {
                pause = Duration::ZERO;
            }
            let limit = allowance(operation, paces);
            if limit == 0 {
                continue;
            }
            let advanced = self.shared.store.advance_operation(operation.id, limit).await;
            // A step whose answer is lost may have been the last one, so it is announced as well.
            if matches!(advanced, Ok(Some(_)) | Err(Error::Indeterminate)) {
                self.announce_step(operation);
            }
            let Some(after) = advanced? else {
                continue;
            };
            if after.status == OperationStatus::Done {
                tracing::info!(
                    operation = after.id.0,
                    kind = after.kind.as_str(),
                    jobs = after.processed,
                    "operation done"
                );
            }
        }
        Ok((!open.is_empty()).then_some(pause))
    }

    /// A step changed jobs of one queue that it does not name.
    fn announce_step(&self, operation: &Operation) {
        let (namespace, queue) = (operation.namespace, &operation.queue_name);
        // It may have deleted jobs that are being worked on.
        self.shared.progress.invalidate_queue(namespace, queue);
        self.has_scheduled_deletions();
        // What it changed has new alarms: the end of their retention.
        self.shared.sweep.look_now();
        self.shared.notifier.queue_changed(namespace, queue);
        self.shared.notifier.jobs_changed(namespace);
        self.shared.notifier.queue_feeds().jobs_changed(namespace, queue);
        if operation.kind == OperationKind::Purge {
            self.jobs_published(namespace, SYSTEM_QUEUES.iter().map(|queue| queue.name));
        }
    }
}

/// How many jobs an operation may change now: a whole step, or what its rate has earned since it was taken up.
fn allowance(operation: &Operation, paces: &mut Paces) -> usize {
    let Some(rate) = operation.rate_per_second else {
        return STEP_MAX;
    };
    let (since, before) = *paces.entry(operation.id).or_insert_with(|| (Instant::now(), operation.processed));
    let earned = since.elapsed().as_millis().saturating_mul(u128::from(rate)) / 1000 + 1;
    let spent = u128::from(operation.processed.saturating_sub(before));
    // A step is a tenth of a second's worth at most, so that time lost is not made up for in one burst.
    let step = usize::try_from(rate.div_ceil(10)).unwrap_or(STEP_MAX).min(STEP_MAX);
    usize::try_from(earned.saturating_sub(spent)).unwrap_or(STEP_MAX).min(step)
}
