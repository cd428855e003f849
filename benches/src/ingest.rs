//! Signed events, as many as a crowd of connections can post: verified, filtered, stored with the job that comes of
//! each. A ratio to the ceiling under the very same requests. The two take turns, so that a change of the machine's speed
//! meets both.

pub(crate) mod event;

use anyhow::{Result, ensure};

use self::event::Events;
use crate::answer;
use crate::connection::{self, Connection};
use crate::load::{self, Meter, Rate, Span, Watched, Workers};
use crate::process::{Ceiling, Server};
use crate::report::Report;
use crate::request::Target;
use crate::settings::Settings;
use crate::throughput::report_ratio;

const NAME: &str = "ingest / ceiling";
const LIMIT: f64 = 0.35;
pub(crate) const QUEUE: &str = "billing";
/// Providers do not wait for each other: many connections, each with one webhook under way.
const CONNECTIONS: u32 = 256;
const TURNS: u32 = 5;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let ceiling = Ceiling::start()?;
    let config = event::config(QUEUE);
    let server = Server::start_with_config(&settings.server, &settings.dir, config)?;
    note_sizes(&server, &ceiling, report).await?;
    let (mut taken, mut ceilings, mut answered) = (Vec::new(), Vec::new(), 0);
    for turn in 0..=TURNS {
        let (rate, _) = take_turn(&ceiling.target, ceiling.pid(), turn, settings).await?;
        report.note("ceiling with events", rate.describe());
        ceilings.push(rate);
        // The ceiling comes first and last.
        if turn < TURNS {
            let (rate, count) = take_turn(&server.target, server.pid(), turn, settings).await?;
            report.note(NAME, rate.describe());
            taken.push(rate);
            answered += count;
        }
    }
    check_queue(&server, answered).await?;
    report_ratio(report, NAME, &taken, &ceilings, LIMIT);
    Ok(())
}

/// How fast events are taken, and how many were answered in all.
async fn take_turn(target: &Target, pid: u32, turn: u32, settings: &Settings) -> Result<(Rate, u64)> {
    let meter = Meter::default();
    let mut workers = Workers::default();
    let connections = Connection::open_many(target, CONNECTIONS as usize).await?;
    // Numbers that no other turn has.
    for (number, connection) in (turn * CONNECTIONS..).zip(connections) {
        workers.start(post(connection, Events::new(target, number)?, meter.clone()));
    }
    let watched = Watched { servers: vec![pid], ..Watched::default() };
    let span = Span { measured: settings.span.measured / 2, ..settings.span };
    let rate = load::measure(workers, &meter, span, &watched).await?;
    Ok((rate, meter.total()))
}

/// One event per request, without end. Each is new and makes one job.
pub(crate) async fn post(mut connection: Connection, mut events: Events, meter: Meter) -> Result<()> {
    loop {
        let body = connection.call(events.next()).await?.expect(200)?;
        ensure!(answer::made_one_job(body), "an event made no job: {}", String::from_utf8_lossy(body));
        meter.add(1);
    }
}

/// The ceiling is fair only if it reads and sends as much as the server does.
async fn note_sizes(server: &Server, ceiling: &Ceiling, report: &mut Report) -> Result<()> {
    let mut sizes = Vec::new();
    // A number that no connection of a turn has.
    let mut events = Events::new(&server.target, u32::MAX)?;
    let request = events.next();
    for target in [&server.target, &ceiling.target] {
        sizes.push(connection::call_once(target, request, &[200]).await?.total_bytes.to_string());
    }
    report.note("bytes of an event, with its head", request.len().to_string());
    report.note("answer bytes, event and ceiling", sizes.join(" and "));
    Ok(())
}

/// Every event that was answered has its job, and so may those that were cut off at the end of a turn.
async fn check_queue(server: &Server, answered: u64) -> Result<()> {
    let request = server.target.get(&format!("/v1/queues/{QUEUE}"));
    let answer = connection::call_once(&server.target, &request, &[200]).await?;
    let queued = answer::counts(&answer.body)?.queued;
    // One event was posted before the first turn.
    let possible = answered + 1..=answered + 1 + u64::from(CONNECTIONS * TURNS);
    ensure!(possible.contains(&queued), "{queued} jobs are queued after {answered} events");
    Ok(())
}
