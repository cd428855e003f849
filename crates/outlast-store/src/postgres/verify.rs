//! Checks for tests: do the tables that are kept beside the jobs say what the jobs say, and does the database find its way
//! by the indexes?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::Status;
use tokio_postgres::types::Type;

use super::alarms::OTHERS;
use super::apply::{DUE, LOCK};
use super::batch::{ALARMS, COUNT, DELETE_TURNS, INSERT_JOB, INSERT_TURNS, UPDATE_JOB};
use super::claim_scan::{IN_LINE, TAKE};
use super::publish::TAKE_NEW_KEYS;
use super::queues::census;
use super::read::{EVENTS, JOB};
use super::rows::{job_columns, record};
use super::session::Sql;
use super::shared::StoreContext;
use super::transact::{Fault, OPENING_TO_PUBLISH, Tx, TxWork};
use crate::codec::row::IndexEntry;
use crate::error::Error;
use crate::queues::QueueCounts;

static JOBS: Sql = Sql { text: concat!("SELECT ", job_columns!(), ", NULL::text FROM job"), types: &[] };
static TURNS: Sql = Sql { text: "SELECT queue, place, at, seq FROM ready_and_alarm", types: &[] };
static DEAD: Sql = Sql { text: "SELECT queue, seq FROM dead_letter", types: &[] };
/// Rows that belong to no job, or jobs that lack a row, per table.
static ORPHANS: Sql = Sql {
    text: "
        SELECT 'a label without job' FROM label WHERE NOT EXISTS (SELECT FROM job WHERE job.seq = label.seq)
        UNION ALL
        SELECT 'a result without job' FROM result WHERE NOT EXISTS (SELECT FROM job WHERE job.seq = result.seq)
        UNION ALL
        SELECT 'a history without job' FROM history WHERE NOT EXISTS (SELECT FROM job WHERE job.seq = history.job)
        UNION ALL
        SELECT 'a key without job'
        FROM dedupe, unnest(seqs) AS holder
        WHERE NOT EXISTS (SELECT FROM job WHERE job.seq = holder)
        UNION ALL
        SELECT 'a key held by nobody' FROM dedupe WHERE cardinality(seqs) = 0",
    types: &[],
};

/// Tables as sorted rows of numbers.
#[derive(Debug, Default, PartialEq)]
struct Tables {
    turns: BTreeSet<(i32, i16, i64, i64)>,
    dead: BTreeSet<(i32, i64)>,
    counts: BTreeMap<i32, QueueCounts>,
}

pub(super) async fn verify(shared: &Arc<StoreContext>) -> Result<bool, Error> {
    let (wanted, found) = (wanted(shared).await?, found(shared).await?);
    let orphans: Vec<String> = shared.read(&ORPHANS, &[]).await?.iter().map(|row| row.get(0)).collect();
    let sound = wanted == found && orphans.is_empty();
    if !sound {
        tracing::error!(?wanted, ?found, ?orphans, "the tables differ from the jobs");
    }
    Ok(sound)
}

/// The expected content of the tables beside the jobs.
async fn wanted(shared: &Arc<StoreContext>) -> Result<Tables, Error> {
    let mut tables = Tables::default();
    for row in &shared.read(&JOBS, &[]).await? {
        let record = record(row, shared.ids)?;
        let (place, seq) = (IndexEntry::of(&record), record.seq);
        let queue = place.queue.0.cast_signed();
        tables.counts.entry(queue).or_default().add(place.status);
        tables.turns.extend(place.wake_at.map(|at| (ALARMS, 0, at.as_millis(), seq)));
        if place.status == Status::Queued {
            tables.turns.insert((queue, 100 - i16::from(place.priority), place.ready_at.as_millis(), seq));
        }
        if place.status == Status::Failed {
            tables.dead.insert((queue, seq));
        }
    }
    Ok(tables)
}

async fn found(shared: &Arc<StoreContext>) -> Result<Tables, Error> {
    let mut tables = Tables::default();
    for row in &shared.read(&TURNS, &[]).await? {
        tables.turns.insert((row.get(0), row.get(1), row.get(2), row.get(3)));
    }
    tables.dead.extend(shared.read(&DEAD, &[]).await?.iter().map(|row| (row.get(0), row.get(1))));
    for (queue, counts) in census(shared).await? {
        if counts.total() > 0 {
            tables.counts.insert(queue.id.0.cast_signed(), counts);
        }
    }
    Ok(tables)
}

/// The statements of nearly every transaction.
static HOT: [(&str, &Sql); 14] = [
    ("open", &OPENING_TO_PUBLISH),
    ("insert jobs", &INSERT_JOB),
    ("take new keys", &TAKE_NEW_KEYS),
    ("take the next jobs", &TAKE),
    ("what is in line", &IN_LINE),
    ("lock jobs", &LOCK),
    ("update jobs", &UPDATE_JOB),
    ("give up a turn", &DELETE_TURNS),
    ("take a turn", &INSERT_TURNS),
    ("count", &COUNT),
    ("alarms that have rung", &DUE),
    ("alarms of other kinds", &OTHERS),
    ("read a job", &JOB),
    ("read a page of a log", &EVENTS),
];

/// The plan of each hot statement as a transaction of this store gets it, costs left out.
pub(super) async fn plans(shared: &Arc<StoreContext>) -> Result<Vec<(&'static str, String)>, Error> {
    let mut plans = Vec::new();
    for (name, sql) in HOT {
        plans.push((name, shared.transact(&mut Explained(sql)).await?));
    }
    Ok(plans)
}

struct Explained(&'static Sql);

#[async_trait]
impl TxWork for Explained {
    type Answer = String;

    async fn run(&mut self, tx: &mut Tx<'_>) -> Result<String, Fault> {
        explain(self.0, tx).await
    }
}

/// Prepared and explained as text, since parameters of EXPLAIN itself would be values.
async fn explain(sql: &'static Sql, tx: &mut Tx<'_>) -> Result<String, Fault> {
    tx.begin_write().await?;
    let types: Vec<String> = sql.types.iter().map(type_name).collect();
    let nulls = vec!["NULL"; sql.types.len()].join(", ");
    let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
    let nulls = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    tx.session.send(&format!("PREPARE outlast_explained {types} AS {}", sql.text)).await?;
    let lines = tx.session.lines(&format!("EXPLAIN (COSTS OFF) EXECUTE outlast_explained {nulls}")).await?;
    tx.session.send("DEALLOCATE outlast_explained").await?;
    Ok(lines.join("\n"))
}

fn type_name(kind: &Type) -> String {
    match kind.name().strip_prefix('_') {
        Some(element) => format!("{element}[]"),
        None => kind.name().to_owned(),
    }
}
