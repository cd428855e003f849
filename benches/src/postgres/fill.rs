//! Fills a server's database with millions of jobs. Two real jobs are made through the API, one queued and one finished;
//! then PostgreSQL copies every row they have, each copy under a number of its own. What came out is checked through the
//! API.

use anyhow::{Context, Result, ensure};

use crate::answer::{self, Counts};
use crate::backlog;
use crate::connection::Connection;
use crate::postgres::database::Session;
use crate::process::Server;
use crate::request::{Publish, QUEUE, Target};

/// The tables that hold rows of single jobs, each with its other columns.
const TABLES: &str = "
    SELECT table_name || ':' || coalesce(string_agg(column_name, ',') FILTER (WHERE column_name <> 'seq'), '')
    FROM information_schema.columns
    WHERE table_schema = 'public'
    GROUP BY table_name
    HAVING bool_or(column_name = 'seq')
    ORDER BY table_name";

const NEWEST: &str = "SELECT max(seq)::text FROM job";

/// Jobs that are made by copying.
#[derive(Clone, Copy)]
pub(crate) struct Stock {
    pub(crate) queued: u64,
    pub(crate) finished: u64,
}

/// Fills the database of an empty server. The server is started anew, so that it knows only what is stored.
pub(crate) async fn fill(server: &mut Server, database_url: &str, stock: Stock) -> Result<()> {
    let session = Session::open(database_url).await?;
    let mut connection = Connection::open(&server.target).await?;

    finish_one(&mut connection, &server.target).await?;
    copy_newest(&session, stock.finished - 1, "succeeded").await?;
    publish_one(&mut connection, &server.target).await?;
    copy_newest(&session, stock.queued - 1, "queued").await?;
    // What autovacuum would have done by the time there are that many.
    session.run("VACUUM ANALYZE").await?;
    drop(connection);
    server.kill_and_restart()?;
    server.wait_until_ready()?;

    check(&server.target, stock).await
}

async fn publish_one(connection: &mut Connection, target: &Target) -> Result<()> {
    let mut request = Publish::new(target);
    connection.call(request.numbered(0)).await?.expect(202)?;
    Ok(())
}

async fn finish_one(connection: &mut Connection, target: &Target) -> Result<()> {
    publish_one(connection, target).await?;
    take_one(connection, target).await
}

/// Receives one job, looks whether it is whole, and acknowledges it.
async fn take_one(connection: &mut Connection, target: &Target) -> Result<()> {
    let body = connection.call(&target.receive(1)).await?.expect(200)?;
    let jobs = answer::received(body)?;
    let job = jobs.first().context("received nothing where a job was queued")?;
    ensure!(job.sequence()? == 0, "the payload came back changed");
    let acknowledge = target.acknowledge(job.id, job.lease);
    connection.call(&acknowledge).await?.expect(200)?;
    Ok(())
}

/// Copies all rows of the newest job `count` times, and counts the copies as jobs of that state.
async fn copy_newest(session: &Session, count: u64, state: &str) -> Result<()> {
    let newest = session.text(NEWEST).await?;
    session.run("DROP TABLE IF EXISTS pg_temp.copy").await?;
    session
        .run(&format!(
            "CREATE TEMPORARY TABLE copy AS
             SELECT nextval('job_seq') AS seq
             FROM generate_series(1, {count})"
        ))
        .await?;
    for table in session.text(TABLES).await?.lines() {
        let (table, columns) = table.split_once(':').context("a table without columns")?;
        let columns: Vec<_> = columns.split(',').filter(|column| !column.is_empty()).collect();
        let named: String = columns.iter().map(|column| format!(", {column}")).collect();
        let copied: String = columns.iter().map(|column| format!(", {}", copied_column(column))).collect();
        session
            .run(&format!(
                "INSERT INTO {table} (seq{named})
                 SELECT copy.seq{copied}
                 FROM copy
                 CROSS JOIN (SELECT * FROM {table} WHERE seq = {newest}) AS original"
            ))
            .await?;
    }
    session
        .run(&format!(
            "UPDATE queue_count
             SET {state} = {state} + {count}
             WHERE (queue, slot) = (SELECT queue, slot FROM queue_count ORDER BY queue, slot LIMIT 1)"
        ))
        .await
}

/// A checksum covers the number of its row, so that of the original does not fit a copy. Rows of before checksums have none
/// and are read all the same: NULL in the columns, and the first form of a job's state in place of the second, which has
/// four bytes of checksum behind its first byte.
fn copied_column(column: &str) -> String {
    match column {
        "checksum" | "payload_checksum" => "NULL".to_owned(),
        "state" => "'\\x01'::bytea || substring(state FROM 6)".to_owned(),
        other => other.to_owned(),
    }
}

/// The server sees the stock it should have, and what it hands out is a whole job. That one is finished afterwards.
async fn check(target: &Target, stock: Stock) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    let expected = Counts { queued: stock.queued, running: 0, succeeded: stock.finished };
    let counts = backlog::counts(target, QUEUE).await?;
    ensure!(counts == expected, "the fill made {counts:?} instead of {expected:?}");
    take_one(&mut connection, target).await
}
