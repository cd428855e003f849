//! The jobs and facts of one queue that its feed must read again. Bounded: too many jobs become a new start.

use std::collections::BTreeSet;

use outlast_core::JobId;

/// Jobs read in one round: more than a dashboard can show, and little for a store.
const JOBS_MAX: usize = 256;

#[derive(Debug, Default, PartialEq)]
pub(super) struct DirtySet {
    pub(super) jobs: BTreeSet<JobId>,
    /// Changes were missed, or were too many.
    pub(super) is_lost: bool,
    /// The settings of the queue may have changed.
    pub(super) is_stale: bool,
    /// A signal may have been lost.
    pub(super) is_unsure: bool,
    /// The counts may have changed.
    pub(super) is_counted: bool,
}

impl DirtySet {
    pub(super) fn add_job(&mut self, id: JobId) {
        self.is_counted = true;
        if self.is_lost {
            return;
        }
        self.jobs.insert(id);
        if self.jobs.len() > JOBS_MAX {
            self.lose();
        }
    }

    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.jobs.clear();
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    #[test]
    fn many_jobs_become_a_new_beginning_and_take_no_more_room() {
        let mut dirty = DirtySet::default();

        for number in 0..10_000u128 {
            dirty.add_job(JobId::new(Timestamp::from_millis(1), number));
            assert!(dirty.jobs.len() <= JOBS_MAX);
        }

        assert!(dirty.is_lost && dirty.is_counted && dirty.jobs.is_empty());
    }
}
