//! The sections that jobs have when a worker saves another one: their number is bounded, and a section may be replaced at any time.

use std::collections::{HashMap, HashSet};

use outlast_core::checkpoint::SECTIONS_MAX;
use tokio_postgres::types::Type;

use super::session::Sql;
use super::transact::{Fault, Tx};

static STORED: Sql = Sql {
    text: "
        SELECT saved.job, saved.name,
            EXISTS (SELECT FROM section WHERE section.job = saved.job AND section.name = saved.name),
            (SELECT count(*) FROM section WHERE section.job = saved.job)
        FROM unnest($1, $2) AS saved (job, name)",
    types: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};

/// By row of the job.
#[derive(Debug, Default)]
pub(super) struct StoredSections(HashMap<i64, SectionsOfJob>);

#[derive(Debug, Default)]
struct SectionsOfJob {
    count: usize,
    /// Those that commands of this transaction replace.
    replaced: HashSet<String>,
}

/// Counts the sections of the jobs that get another one. The transaction has locked the jobs.
pub(super) async fn load(saved: &[(i64, Box<str>)], tx: &mut Tx<'_>) -> Result<(), Fault> {
    let has_sections = |seq: i64| tx.writes.get(seq).is_some_and(|record| record.job.work_summary.has_sections);
    let (jobs, names): (Vec<i64>, Vec<&str>) =
        saved.iter().filter(|(seq, _)| has_sections(*seq)).map(|(seq, name)| (*seq, &**name)).unzip();
    if jobs.is_empty() {
        return Ok(());
    }
    for row in &tx.session.query(&STORED, &[&jobs, &names]).await? {
        let sections = tx.stored_sections.0.entry(row.get(0)).or_default();
        sections.count = usize::try_from(row.get::<_, i64>(3)).unwrap_or(usize::MAX);
        if row.get(2) {
            sections.replaced.insert(row.get(1));
        }
    }
    Ok(())
}

impl StoredSections {
    /// `pending` are the names of sections that this transaction has saved before.
    pub(super) fn has_room<'a>(&self, seq: i64, name: &str, pending: impl Iterator<Item = &'a str>) -> bool {
        let stored = self.0.get(&seq);
        let is_stored = |name: &str| stored.is_some_and(|stored| stored.replaced.contains(name));
        let (mut count, mut is_pending) = (stored.map_or(0, |stored| stored.count), false);
        for other in pending {
            is_pending |= other == name;
            count += usize::from(!is_stored(other));
        }
        is_pending || is_stored(name) || count < SECTIONS_MAX
    }
}
