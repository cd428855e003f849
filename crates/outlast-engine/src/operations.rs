//! The loop that carries operations on: bulk replay, purge, discard, delete. What a crash interrupts is taken up again
//! from the stored position.

use std::time::Duration;

use outlast_store::Error;
use outlast_store::operations::{NewOperation, Operation, OperationStatus};
use tokio::time::sleep;

use crate::engine::Engine;

/// Jobs changed in one transaction: long enough to be quick, short enough that other writers hardly notice.
const STEP_MAX: usize = 200;
/// Steps per second of an operation with a rate.
const PACED_STEPS_PER_SECOND: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

impl Engine {
    /// `None` when there is no such queue.
    pub async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        let started = self.shared.store.start_operation(operation).await?;
        self.shared.operation_started.notify_one();
        Ok(started)
    }

    pub(crate) async fn run_operations(self) {
        let mut stopping = self.stopping();
        while !*stopping.borrow() {
            match self.advance_operations().await {
                // Nothing is open: sleep until something is.
                Ok(None) => tokio::select! {
                    () = self.shared.operation_started.notified() => {}
                    _ = stopping.changed() => {}
                },
                Ok(Some(pause)) if pause.is_zero() => tokio::task::yield_now().await,
                Ok(Some(pause)) => tokio::select! {
                    () = sleep(pause) => {}
                    _ = stopping.changed() => {}
                },
                Err(Error::Stopped | Error::Indeterminate) => break,
                Err(error) => {
                    tracing::warn!(%error, "operations could not be carried on; trying again");
                    self.shared.meters.loop_failures.add(1);
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
        tracing::debug!("the operations loop has ended");
    }

    /// One step of every open operation. Returns the pause before the next round, `None` when nothing is open.
    pub async fn advance_operations(&self) -> Result<Option<Duration>, Error> {
        let open = self.shared.store.open_operations().await?;
        let mut all_paced = true;
        for operation in &open {
            let limit = match operation.rate_per_second {
                None => STEP_MAX,
                Some(rate) => usize::try_from(rate.div_ceil(PACED_STEPS_PER_SECOND)).unwrap_or(STEP_MAX).min(STEP_MAX),
            };
            all_paced &= operation.rate_per_second.is_some();
            let Some(after) = self.shared.store.advance_operation(operation.id, limit).await? else {
                continue;
            };
            self.shared.wakes.queue_changed(after.namespace, &after.queue_name);
            if after.status == OperationStatus::Done {
                tracing::info!(
                    operation = after.id.0,
                    kind = after.kind.as_str(),
                    jobs = after.processed,
                    "operation done"
                );
            }
        }
        let pause = if all_paced { Duration::from_secs(1) / PACED_STEPS_PER_SECOND } else { Duration::ZERO };
        Ok((!open.is_empty()).then_some(pause))
    }
}
