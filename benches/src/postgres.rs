//! Scenarios of the server on PostgreSQL. Throughput is a ratio to a plain table on the same PostgreSQL, driven by the
//! same generator right before and right after; several nodes to one node; claims on full tables to claims on empty ones.

mod database;
mod redis;
mod plain;
mod fill;
mod claim;

use anyhow::Result;

use crate::ingest::{self, event};
use crate::load::{self, Meter, Rate, Watched};
use crate::postgres::database::Postgres;
use crate::postgres::plain::{Plain, PlainWork};
use crate::postgres::redis::Redis;
use crate::process::{Backing, Server};
use crate::report::Report;
use crate::settings::{Scenario, Settings};
use crate::throughput::report_ratio;
use crate::work::Work;

/// Four times as many as on the embedded store: those who need several nodes have that many workers. The plain table gets
/// as many.
const CONNECTIONS: usize = 256;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let postgres = Postgres::start(&settings.dir).await?;
    report.note("PostgreSQL", postgres.describe().await?);
    for comparison in COMPARISONS {
        if settings.wants(comparison.scenario) {
            compare(&comparison, &postgres, settings, report).await?;
        }
    }
    if settings.wants(Scenario::PgTwoNodes) {
        compare_nodes(&postgres, settings, report).await?;
    }
    if settings.wants(Scenario::PgIngest) {
        compare_ingest(&postgres, settings, report).await?;
    }
    if settings.wants(Scenario::PgClaim) {
        claim::run(&postgres, settings, report).await?;
    }
    Ok(())
}

/// The server and the plain table doing the same.
struct Comparison {
    scenario: Scenario,
    name: &'static str,
    work: Work,
    plain_work: PlainWork,
    limit: f64,
}

const COMPARISONS: [Comparison; 3] = [
    Comparison {
        scenario: Scenario::PgPublish,
        name: "PostgreSQL: publish / plain table",
        work: Work::Publish,
        plain_work: PlainWork::Insert,
        limit: 1.5,
    },
    Comparison {
        scenario: Scenario::PgLifecycle,
        name: "PostgreSQL: lifecycle / plain table",
        work: Work::Lifecycle,
        plain_work: PlainWork::Lifecycle,
        limit: 3.0,
    },
    Comparison {
        scenario: Scenario::PgLifecycleBatch,
        name: "PostgreSQL: lifecycle in batches / plain table",
        work: Work::BatchLifecycle,
        plain_work: PlainWork::BatchLifecycle,
        limit: 2.0,
    },
];

async fn compare(comparison: &Comparison, postgres: &Postgres, settings: &Settings, report: &mut Report) -> Result<()> {
    let Comparison { name, work, limit, .. } = *comparison;
    let mut plain = Plain::new(postgres, comparison.plain_work, CONNECTIONS).await?;
    report.note("plain table with fewer connections", plain.trials().await?);
    let before = plain.rate(settings.postgres_span).await?;
    report.note("plain table", before.describe());
    let phase = NodesPhase { postgres, redis: None, nodes: 1, work, connections: CONNECTIONS };
    let rate = phase.rate(settings).await?;
    report.note(name, rate.describe());
    let after = plain.rate(settings.postgres_span).await?;
    report.note("plain table", after.describe());
    report_ratio(report, name, &[rate], &[before, after], limit);
    Ok(())
}

async fn compare_nodes(postgres: &Postgres, settings: &Settings, report: &mut Report) -> Result<()> {
    let name = "PostgreSQL: lifecycle of two nodes / one node";
    let redis = Redis::start()?;
    let mut rates = Vec::new();
    for nodes in [1, 2, 1] {
        let phase =
            NodesPhase { postgres, redis: Some(&redis), nodes, work: Work::Lifecycle, connections: CONNECTIONS };
        let rate = phase.rate(settings).await?;
        report.note(&format!("lifecycle, nodes: {nodes}"), rate.describe());
        rates.push(rate);
    }
    if let [before, two, after] = *rates.as_slice() {
        report_ratio(report, name, &[two], &[before, after], 1.0);
    }
    Ok(())
}

/// An event is a row more than a job, and eight times its bytes.
async fn compare_ingest(postgres: &Postgres, settings: &Settings, report: &mut Report) -> Result<()> {
    let name = "PostgreSQL: ingest / publish";
    let mut rates = Vec::new();
    for work in [Work::Publish, Work::Events, Work::Publish] {
        let phase = NodesPhase { postgres, redis: None, nodes: 1, work, connections: CONNECTIONS };
        let rate = phase.rate(settings).await?;
        report.note(if matches!(work, Work::Events) { name } else { "publish on PostgreSQL" }, rate.describe());
        rates.push(rate);
    }
    if let [before, events, after] = *rates.as_slice() {
        report_ratio(report, name, &[events], &[before, after], 0.5);
    }
    Ok(())
}

/// One phase of servers on a new database.
struct NodesPhase<'a> {
    postgres: &'a Postgres,
    redis: Option<&'a Redis>,
    nodes: usize,
    work: Work,
    connections: usize,
}

impl NodesPhase<'_> {
    async fn rate(&self, settings: &Settings) -> Result<Rate> {
        let backing = Backing {
            database_url: Some(self.postgres.new_database("outlast").await?),
            redis_url: self.redis.map(Redis::url),
            config: matches!(self.work, Work::Events).then(|| event::config(ingest::QUEUE)),
            ..Backing::default()
        };
        let nodes = Server::start_nodes(&settings.server, &settings.dir, &backing, self.nodes).await?;
        let targets: Vec<_> = nodes.iter().map(|node| node.target.clone()).collect();
        let mut databases = vec![self.postgres.pid()];
        databases.extend(self.redis.map(Redis::pid));
        let watched = Watched { servers: nodes.iter().map(Server::pid).collect(), databases };
        self.postgres.checkpoint().await?;
        let meter = Meter::default();
        let workers = self.work.start(&targets, self.connections, &meter).await?;
        load::measure(workers, &meter, settings.postgres_span, &watched).await
    }
}
