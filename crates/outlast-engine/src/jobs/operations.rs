//! Operations on many jobs: bulk replay, purge, discard, delete. A round of the sweep carries them on; after a crash it goes on
//! from the stored position.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::NamespaceId;
use outlast_store::Error;
use outlast_store::operations::{NewOperation, Operation, OperationId, OperationStatus};
use tokio::time::{Instant, sleep};

use super::Jobs;

/// Jobs changed in one transaction: long enough to be quick, short enough that other writers hardly notice.
const STEP_MAX: usize = 200;
/// The pause between two rounds while all open operations have a rate.
const PACED_PAUSE: Duration = Duration::from_millis(100);

/// When each operation with a rate was taken up, and how many jobs it had changed by then.
type Paces = HashMap<OperationId, (Instant, u64)>;

impl Jobs {
    /// `None` when there is no such queue.
    pub async fn start_operation(self: &Arc<Self>, operation: NewOperation) -> Result<Option<Operation>, Error> {
        let jobs = Arc::clone(self);
        let call = async move {
            let started = jobs.store.start_operation(operation).await;
            jobs.announcer.alarms.look_now();
            jobs.announcer.notifier.operation_started();
            started
        };
        self.detached.commit(call).await
    }

    /// `None` when there is no such operation.
    pub async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.store.stop_operation(namespace, id).await
    }

    pub async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.store.operation(namespace, id).await
    }

    pub async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.store.operations(namespace, limit).await
    }

    /// How many jobs the operation would change, counted up to `limit`.
    pub async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        self.store.count_operation(operation, limit).await
    }

    /// Carries all open operations on until none is left. What a failure interrupts is taken up again by the next round.
    pub(crate) async fn carry_on_operations(&self) -> Result<Duration, Error> {
        let mut stopping = self.lifecycle.stopping();
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
        let open = self.store.open_operations().await?;
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
            let advanced = self.store.advance_operation(operation.id, limit).await;
            // A step whose answer is lost may have been the last one, so it is announced as well.
            if matches!(advanced, Ok(Some(_)) | Err(Error::Indeterminate)) {
                self.announcer.operation_advanced(operation);
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
