//! The peer: a plain table used as a queue the usual way, one row per transaction or one batch per transaction, with
//! prepared statements on direct connections. It has what no such table can do without, queues, order, a lease that can be
//! found when it has run out, and nothing else: no history, no keys, no results, no HTTP.

use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Connection, NoTls, Socket, Statement};

use crate::load::{self, Meter, Rate, Span, Watched, Workers};
use crate::postgres::database::{Postgres, Session};
use crate::request;
use crate::work::BATCH;

/// Both indexes are partial: they hold the queued and the running rows only.
const CREATE: &str = "
    DROP TABLE IF EXISTS job;
    CREATE TABLE job (
        id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        queue       text NOT NULL,
        status      text NOT NULL DEFAULT 'queued',
        priority    integer NOT NULL DEFAULT 0,
        attempts    integer NOT NULL DEFAULT 0,
        run_at      timestamptz NOT NULL DEFAULT now(),
        lease_until timestamptz,
        finished_at timestamptz,
        payload     text NOT NULL
    );
    CREATE INDEX job_queued ON job (queue, priority DESC, run_at, id) WHERE status = 'queued';
    CREATE INDEX job_leased ON job (lease_until) WHERE status = 'running'";

/// A thousand finished rows and their statistics, so that the planner does not prepare for an empty table.
const SEED: [&str; 4] = [
    "INSERT INTO job (queue, payload) SELECT 'bench', repeat('x', 256) FROM generate_series(1, 1000)",
    "ANALYZE job",
    "UPDATE job SET status = 'done'",
    "VACUUM job",
];

const INSERT: &str = "INSERT INTO job (queue, payload) VALUES ('bench', $1)";

const CLAIM: &str = "
    UPDATE job
    SET status = 'running', attempts = attempts + 1, lease_until = now() + interval '30 s'
    WHERE id = (
        SELECT id
        FROM job
        WHERE queue = 'bench' AND status = 'queued' AND run_at <= now()
        ORDER BY priority DESC, run_at, id
        FOR UPDATE SKIP LOCKED
        LIMIT 1)
    RETURNING id, payload";

const FINISH: &str = "UPDATE job SET status = 'done', finished_at = now() WHERE id = $1";

const INSERT_BATCH: &str = "INSERT INTO job (queue, payload) SELECT 'bench', unnest($1::text[])";

/// As an array, so that the planner cannot run the subquery more than once.
const CLAIM_BATCH: &str = "
    UPDATE job
    SET status = 'running', attempts = attempts + 1, lease_until = now() + interval '30 s'
    WHERE id = ANY (ARRAY(
        SELECT id
        FROM job
        WHERE queue = 'bench' AND status = 'queued' AND run_at <= now()
        ORDER BY priority DESC, run_at, id
        FOR UPDATE SKIP LOCKED
        LIMIT $1))
    RETURNING id, payload";

const FINISH_BATCH: &str = "UPDATE job SET status = 'done', finished_at = now() WHERE id = ANY ($1)";

/// What the peer does with fewer connections is told as well; with more it only gets slower.
const FEWER_CONNECTIONS: [usize; 4] = [8, 16, 32, 64];
const TRIAL: Span = Span { warm_up: Duration::from_millis(500), measured: Duration::from_secs(2) };

#[derive(Clone, Copy)]
pub(crate) enum PlainWork {
    Insert,
    Lifecycle,
    BatchLifecycle,
}

/// A plain table in a database of its own.
pub(crate) struct Plain<'a> {
    postgres: &'a Postgres,
    url: String,
    work: PlainWork,
    connections: usize,
}

impl<'a> Plain<'a> {
    pub(crate) async fn new(postgres: &'a Postgres, work: PlainWork, connections: usize) -> Result<Self> {
        let url = postgres.new_database("plain").await?;
        Ok(Self { postgres, url, work, connections })
    }

    /// Short trials with fewer connections.
    pub(crate) async fn trials(&mut self) -> Result<String> {
        let connections = self.connections;
        let mut trials = Vec::new();
        for fewer in FEWER_CONNECTIONS {
            self.connections = fewer;
            trials.push(format!("{:.0}/s on {fewer}", self.rate(TRIAL).await?.per_second));
        }
        self.connections = connections;
        Ok(trials.join(", "))
    }

    /// One phase on a new table.
    pub(crate) async fn rate(&self, span: Span) -> Result<Rate> {
        self.renew().await?;
        let meter = Meter::default();
        let mut workers = Workers::default();
        for _ in 0..self.connections {
            let consumer = Consumer::connect(&self.url).await?;
            workers.start(consumer.work(self.work, meter.clone()));
        }
        let watched = Watched { databases: vec![self.postgres.pid()], ..Watched::default() };
        load::measure(workers, &meter, span, &watched).await
    }

    /// Makes the table anew and checks that claims go by the index: a peer that sorts would be no measure.
    async fn renew(&self) -> Result<()> {
        let session = Session::open(&self.url).await?;
        session.run(CREATE).await?;
        for statement in SEED {
            session.run(statement).await?;
        }
        for claim in [CLAIM.to_owned(), CLAIM_BATCH.replace("$1", "100")] {
            let plan = session.text(&format!("EXPLAIN {claim}")).await?;
            ensure!(plan.contains("Index Scan using job_queued"), "the plain table's claim has a poor plan:\n{plan}");
        }
        self.postgres.checkpoint().await
    }
}

struct Statements {
    insert: Statement,
    claim: Statement,
    finish: Statement,
    insert_batch: Statement,
    claim_batch: Statement,
    finish_batch: Statement,
}

/// One direct connection. Its two halves run in one task, which saves the generator a switch per statement.
struct Consumer {
    client: Client,
    connection: Pin<Box<Connection<Socket, NoTlsStream>>>,
    statements: Statements,
}

impl Consumer {
    async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let mut connection = Box::pin(connection);
        let statements = tokio::select! {
            prepared = prepare(&client) => prepared?,
            _ = &mut connection => bail!("the connection ended"),
        };
        Ok(Self { client, connection, statements })
    }

    async fn work(self, work: PlainWork, meter: Meter) -> Result<()> {
        let Self { client, connection, statements } = self;
        let endless = async {
            match work {
                PlainWork::Insert => insert(&client, &statements, &meter).await,
                PlainWork::Lifecycle => live(&client, &statements, &meter).await,
                PlainWork::BatchLifecycle => live_in_batches(&client, &statements, &meter).await,
            }
        };
        tokio::select! {
            ended = endless => ended,
            ended = connection => ended.context("the connection to PostgreSQL failed"),
        }
    }
}

async fn prepare(client: &Client) -> Result<Statements> {
    Ok(Statements {
        insert: client.prepare(INSERT).await?,
        claim: client.prepare(CLAIM).await?,
        finish: client.prepare(FINISH).await?,
        insert_batch: client.prepare(INSERT_BATCH).await?,
        claim_batch: client.prepare(CLAIM_BATCH).await?,
        finish_batch: client.prepare(FINISH_BATCH).await?,
    })
}

async fn insert(client: &Client, statements: &Statements, meter: &Meter) -> Result<()> {
    for sequence in 0.. {
        client.execute(&statements.insert, &[&request::payload(sequence)]).await?;
        meter.add(1);
    }
    Ok(())
}

async fn live(client: &Client, statements: &Statements, meter: &Meter) -> Result<()> {
    for sequence in 0.. {
        client.execute(&statements.insert, &[&request::payload(sequence)]).await?;
        let row = loop {
            // Nothing comes back when the rows this statement could see were all taken by others meanwhile.
            if let Some(row) = client.query_opt(&statements.claim, &[]).await? {
                break row;
            }
        };
        let (id, payload): (i64, &str) = (row.try_get(0)?, row.try_get(1)?);
        ensure!(payload.len() == request::PAYLOAD_BYTES, "the payload came back changed");
        let finished = client.execute(&statements.finish, &[&id]).await?;
        ensure!(finished == 1, "the claimed row is gone");
        meter.add(1);
    }
    Ok(())
}

/// As with the server: what a short batch lacks is claimed by another statement.
async fn live_in_batches(client: &Client, statements: &Statements, meter: &Meter) -> Result<()> {
    for first in (0..).step_by(BATCH as usize) {
        let payloads: Vec<_> = (first..first + u64::from(BATCH)).map(request::payload).collect();
        client.execute(&statements.insert_batch, &[&payloads]).await?;
        let mut missing = i64::from(BATCH);
        while missing > 0 {
            let rows = client.query(&statements.claim_batch, &[&missing]).await?;
            let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
            for row in &rows {
                let payload: &str = row.try_get(1)?;
                ensure!(payload.len() == request::PAYLOAD_BYTES, "the payload came back changed");
                ids.push(row.try_get(0)?);
            }
            if ids.is_empty() {
                continue;
            }
            let finished = client.execute(&statements.finish_batch, &[&ids]).await?;
            ensure!(finished == ids.len() as u64, "a claimed row is gone");
            meter.add(finished);
            missing -= i64::try_from(finished)?;
        }
    }
    Ok(())
}
