//! Signed events, as many as a crowd of connections can post: verified, filtered, stored with the job that comes of
//! each. A ratio to the ceiling under the very same requests, measured right before and right after it.

pub(crate) mod event;

use anyhow::{Result, ensure};

use self::event::Events;
use crate::answer;
use crate::connection::{self, Connection};
use crate::load::{self, Meter, Rate, Watched, Workers};
use crate::process::{Ceiling, Server};
use crate::report::Report;
use crate::request::Target;
use crate::settings::Settings;
use crate::throughput::report_ratio;

const NAME: &str = "ingest / ceiling";
const LIMIT: f64 = 0.35;
const QUEUE: &str = "billing";
/// Providers do not wait for each other: many connections, each with one webhook under way.
const CONNECTIONS: usize = 256;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let ceiling = Ceiling::start()?;
    let before = rate(&ceiling.target, ceiling.pid(), settings).await?.0;
    report.note("ceiling with events", before.describe());

    let config = event::config(QUEUE);
    let server = Server::start_with_config(&settings.server, &settings.dir, config)?;
    note_sizes(&server, &ceiling, report).await?;
    let (taken, count) = rate(&server.target, server.pid(), settings).await?;
    report.note(NAME, taken.describe());
    check_queue(&server, count).await?;

    let after = rate(&ceiling.target, ceiling.pid(), settings).await?.0;
    report.note("ceiling with events", after.describe());
    report_ratio(report, NAME, taken, [before, after], LIMIT);
    Ok(())
}

/// How fast events are taken, and how many were answered in all.
async fn rate(target: &Target, pid: u32, settings: &Settings) -> Result<(Rate, u64)> {
    let meter = Meter::default();
    let mut workers = Workers::default();
    for connection in (0..).zip(Connection::open_many(target, CONNECTIONS).await?) {
        let (number, connection) = connection;
        workers.start(post(connection, Events::new(target, number)?, meter.clone()));
    }
    let watched = Watched { servers: vec![pid], ..Watched::default() };
    let rate = load::measure(workers, &meter, settings.span, &watched).await?;
    Ok((rate, meter.total()))
}

/// One event per request, without end. Each is new and makes one job.
async fn post(mut connection: Connection, mut events: Events, meter: Meter) -> Result<()> {
    loop {
        let body = connection.call(events.next()).await?.expect(200)?;
        ensure!(answer::made_one_job(body), "an event made no job: {}", String::from_utf8_lossy(body));
        meter.add(1);
    }
}

/// The ceiling is fair only if it reads and sends as much as the server does.
async fn note_sizes(server: &Server, ceiling: &Ceiling, report: &mut Report) -> Result<()> {
    let mut sizes = Vec::new();
    // A number that no connection of a phase has.
    let mut events = Events::new(&server.target, u32::MAX)?;
    let request = events.next();
    for target in [&server.target, &ceiling.target] {
        sizes.push(connection::call_once(target, request, &[200]).await?.total_bytes.to_string());
    }
    report.note("bytes of an event, with its head", request.len().to_string());
    report.note("answer bytes, event and ceiling", sizes.join(" and "));
    Ok(())
}

/// Every event that was answered has its job, and so may those that were cut off at the end of the phase.
async fn check_queue(server: &Server, answered: u64) -> Result<()> {
    let request = server.target.get(&format!("/v1/queues/{QUEUE}"));
    let answer = connection::call_once(&server.target, &request, &[200]).await?;
    let queued = answer::counts(&answer.body)?.queued;
    // One event was posted before the phase.
    let possible = answered + 1..=answered + 1 + CONNECTIONS as u64;
    ensure!(possible.contains(&queued), "{queued} jobs are queued after {answered} events");
    Ok(())
}
