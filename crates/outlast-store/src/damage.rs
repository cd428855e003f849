//! Damage found since the start: rows that failed their check, and ranges of a table that cannot be read. Shared by the
//! writer, the readers, `/metrics` and the log, which names each row once.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::invariants::Violation;

/// More findings than this are counted but not remembered.
const FINDINGS_MAX: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub struct Damage(Arc<Mutex<DamageList>>);

#[derive(Debug, Default)]
struct DamageList {
    listed: BTreeSet<String>,
    beyond: u64,
    /// Numbers of jobs whose rows cannot be reached.
    gaps: Vec<RangeInclusive<i64>>,
    /// Something is lost and nothing says what: a number without a row may be a lost one.
    is_unbounded: bool,
    /// How often a job was set aside because a rule was broken.
    set_aside: u64,
}

impl Damage {
    /// `what` names table and row. The log has it once.
    pub(crate) fn note(&self, what: &str) {
        if self.record(what) {
            tracing::error!(what, "stored data is damaged and set aside; run outlast doctor and restore from a backup");
        }
    }

    /// Without the log. True when it was not known before.
    pub(crate) fn record(&self, what: &str) -> bool {
        let mut findings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.listed.contains(what) {
            return false;
        }
        if findings.listed.len() < FINDINGS_MAX {
            findings.listed.insert(what.to_owned());
        } else {
            findings.beyond += 1;
        }
        true
    }

    /// Rows with these numbers cannot be reached.
    pub(crate) fn note_gap(&self, table: &str, rows: RangeInclusive<i64>) {
        self.note(&format!("table {table}: rows {} to {} cannot be read", rows.start(), rows.end()));
        let mut findings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !findings.gaps.contains(&rows) {
            findings.gaps.push(rows);
        }
    }

    /// Rows may be missing, and their numbers are not known.
    pub(crate) fn note_loss(&self, what: &str) {
        self.note(what);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_unbounded = true;
    }

    /// May a row that is not there have been lost?
    pub(crate) fn may_have_lost(&self, row: i64) -> bool {
        let findings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        findings.is_unbounded || findings.gaps.iter().any(|gap| gap.contains(&row))
    }

    /// A command broke a rule on this job, which is set aside. Not damage: the job can be read, and says why itself.
    pub(crate) fn note_violation(&self, violation: &Violation) {
        let Violation { id, rule, job } = violation;
        tracing::error!(job_id = %job, id, rule, "a job broke a rule of the server and was set aside; report this as a bug, replay the job");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).set_aside += 1;
    }

    /// How often a job was set aside because a rule was broken.
    pub fn violations(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).set_aside
    }

    /// How many findings there are.
    pub fn count(&self) -> u64 {
        let findings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        findings.listed.len() as u64 + findings.beyond
    }

    pub fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).listed.iter().cloned().collect()
    }
}
