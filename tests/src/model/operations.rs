//! Operations: a walk over the jobs of a queue in order of position, some at a time.

use outlast_core::{NamespaceId, QueueId, Status};
use outlast_store::operations::{
    NewOperation, Operation, OperationId, OperationKind, OperationStatus, OperationStep, Processed,
};

use super::world::{Done, World};

impl World {
    pub(super) fn start_operation(&mut self, new: NewOperation) -> Option<Operation> {
        let id = OperationId(self.operations.len() as u32 + 1);
        let operation = self.draft(&new, id)?;
        self.operations.insert(id, operation.clone());
        Some(operation)
    }

    pub(super) fn operation(&self, namespace: NamespaceId, id: OperationId) -> Option<Operation> {
        self.operations.get(&id).filter(|operation| operation.namespace == namespace).cloned()
    }

    pub(super) fn operations(&self, namespace: NamespaceId, limit: usize) -> Vec<Operation> {
        let newest = self.operations.values().rev();
        newest.filter(|operation| operation.namespace == namespace).take(limit).cloned().collect()
    }

    pub(super) fn open_operations(&self) -> Vec<Operation> {
        let open = |operation: &&Operation| operation.status == OperationStatus::Running;
        self.operations.values().filter(open).cloned().collect()
    }

    pub(super) fn stop_operation(&mut self, namespace: NamespaceId, id: OperationId) -> Option<Operation> {
        let now = self.now;
        let operation = self.operations.get_mut(&id).filter(|operation| operation.namespace == namespace)?;
        if operation.status == OperationStatus::Running {
            operation.status = OperationStatus::Stopped;
            operation.finished_at = Some(now);
        }
        Some(operation.clone())
    }

    pub(super) fn advance_operation(&mut self, id: OperationId, limit: usize) -> Option<Operation> {
        let mut operation = self.operations.get(&id)?.clone();
        if operation.status != OperationStatus::Running {
            return Some(operation);
        }
        let seen_all = self.walk(&mut operation, limit);
        if seen_all || operation.limit.is_some_and(|limit| operation.processed >= limit) {
            operation.status = OperationStatus::Done;
            operation.finished_at = Some(self.now);
            if operation.kind == OperationKind::Delete && self.is_empty(operation.queue) {
                self.queues.remove(&operation.queue);
            }
        }
        self.operations.insert(id, operation.clone());
        Some(operation)
    }

    pub(super) fn count_operation(&self, new: &NewOperation, limit: usize) -> u64 {
        let Some(operation) = self.draft(new, OperationId(0)) else {
            return 0;
        };
        let candidates = self.candidates(operation.queue, operation.kind, 0);
        let touched =
            |position: &u64| (self.rules.operate)(&operation, &self.rows[position].job) != OperationStep::Skip;
        candidates.into_iter().filter(touched).take(limit).count() as u64
    }

    /// True when there is nothing left to look at.
    fn walk(&mut self, operation: &mut Operation, limit: usize) -> bool {
        let mut done = 0;
        for position in self.candidates(operation.queue, operation.kind, operation.position) {
            if done >= limit || operation.limit.is_some_and(|limit| operation.processed >= limit) {
                return false;
            }
            let job = &self.rows[&position].job;
            let id = job.id;
            let processed = match (self.rules.operate)(operation, job) {
                OperationStep::Skip => Processed::Unmatched,
                OperationStep::Command(command) => match self.command(position, command) {
                    Ok(Done::Changed { .. }) => Processed::Changed,
                    Ok(Done::Unchanged | Done::Deleted) => Processed::Unmatched,
                    Err(refusal) => Processed::of_refusal(refusal),
                },
                OperationStep::Delete => {
                    self.remove(id);
                    Processed::Changed
                }
            };
            operation.position = position;
            done += usize::from(operation.count(processed));
        }
        true
    }

    /// Replay and discard walk over the dead letters, the others over all jobs of the queue.
    fn candidates(&self, queue: QueueId, kind: OperationKind, after: u64) -> Vec<u64> {
        let only_dead = matches!(kind, OperationKind::Replay | OperationKind::Discard);
        let rows = self.rows.range(after + 1..).filter(|(_, row)| row.job.queue == queue);
        rows.filter(|(_, row)| !only_dead || row.job.status() == Status::Failed)
            .map(|(position, _)| *position)
            .collect()
    }

    fn draft(&self, new: &NewOperation, id: OperationId) -> Option<Operation> {
        let queue = self.find_queue(new.namespace, &new.queue)?;
        Some(Operation {
            id,
            namespace: new.namespace,
            queue: queue.id,
            queue_name: queue.name.clone(),
            kind: new.kind,
            filter: new.filter.clone(),
            limit: new.limit,
            rate_per_second: new.rate_per_second,
            status: OperationStatus::Running,
            position: 0,
            processed: 0,
            skipped: 0,
            created_at: self.now,
            finished_at: None,
        })
    }
}
