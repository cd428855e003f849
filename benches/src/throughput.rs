//! Scenarios that load the server as hard as 64 connections can: publish, and the lifecycle of a job one by one and in
//! batches. Each is a ratio to the ceiling, measured right before and right after it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tokio::sync::Semaphore;

use crate::answer;
use crate::connection::{self, Connection};
use crate::load::{self, Meter, Rate, Workers};
use crate::process::{Ceiling, Server};
use crate::report::{Limit, Report};
use crate::request::{Publish, Target};
use crate::settings::{Scenario, Settings};

const CONNECTIONS: usize = 64;
const BATCH: u32 = 100;
/// Connections that receive and acknowledge in the batched lifecycle; the others publish.
const BATCH_CONSUMERS: usize = 4;
/// In the batched lifecycle, jobs published and not yet acknowledged; publishers wait above it.
const BATCH_BACKLOG_MAX: usize = 20_000;
/// Two ceilings further apart than this say that the machine was not left alone.
const NOISE_MAX: f64 = 0.2;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let scenarios = [
        (Scenario::Publish, "publish / ceiling", 0.55),
        (Scenario::Lifecycle, "lifecycle / ceiling", 0.18),
        (Scenario::LifecycleBatch, "lifecycle in batches / ceiling", 0.35),
    ];
    let ceiling = Ceiling::start()?;
    note_answer_sizes(&ceiling, settings, report).await?;
    let mut before = None;
    for (scenario, name, limit) in scenarios {
        if !settings.wants(scenario) {
            continue;
        }
        let ceiling_before = match before {
            Some(rate) => rate,
            None => ceiling_rate(&ceiling, settings, report).await?,
        };
        let rate = scenario_rate(scenario, settings).await?;
        note_rate(report, name, rate);
        let ceiling_after = ceiling_rate(&ceiling, settings, report).await?;
        before = Some(ceiling_after);

        let ceiling_mean = f64::midpoint(ceiling_before, ceiling_after);
        let change = (ceiling_after - ceiling_before).abs() / ceiling_mean;
        if change > NOISE_MAX {
            let text = format!("the ceiling changed by {:.0} %: noise", change * 100.0);
            report.note("warning", text);
        }
        let ratio = rate.per_second / ceiling_mean;
        report.figure(name, ratio, "", Limit::AtLeast(limit));
    }
    Ok(())
}

/// The ceiling is fair only if it sends as much as a publish does.
async fn note_answer_sizes(ceiling: &Ceiling, settings: &Settings, report: &mut Report) -> Result<()> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let mut sizes = Vec::new();
    for target in [&server.target, &ceiling.target] {
        let mut request = Publish::new(target);
        let answer = connection::call_once(target, request.numbered(0), &[202]).await?;
        sizes.push(answer.total_bytes.to_string());
    }
    report.note("answer bytes, publish and ceiling", sizes.join(" and "));
    Ok(())
}

async fn ceiling_rate(ceiling: &Ceiling, settings: &Settings, report: &mut Report) -> Result<f64> {
    let meter = Meter::default();
    let mut workers = Workers::default();
    for connection in Connection::open_many(&ceiling.target, CONNECTIONS).await? {
        workers.start(publish(connection, ceiling.target.clone(), meter.clone()));
    }
    let rate = load::measure(workers, &meter, settings.span, ceiling.pid()).await?;
    note_rate(report, "ceiling", rate);
    Ok(rate.per_second)
}

async fn scenario_rate(scenario: Scenario, settings: &Settings) -> Result<Rate> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let meter = Meter::default();
    let mut workers = Workers::default();
    let connections = Connection::open_many(&server.target, CONNECTIONS).await?;
    let flow = Arc::new(Flow::new());
    for (index, connection) in connections.into_iter().enumerate() {
        let (target, meter) = (server.target.clone(), meter.clone());
        match scenario {
            Scenario::Publish => workers.start(publish(connection, target, meter)),
            Scenario::Lifecycle => workers.start(live(connection, target, meter)),
            _ if index < BATCH_CONSUMERS => {
                workers.start(consume_batches(connection, target, meter, flow.clone()));
            }
            _ => workers.start(publish_into(connection, target, flow.clone())),
        }
    }
    load::measure(workers, &meter, settings.span, server.pid()).await
}

fn note_rate(report: &mut Report, name: &str, rate: Rate) {
    report.note(
        name,
        format!(
            "{:.0}/s (cores used: server {:.2}, generator {:.2}; generator's share {:.0} %)",
            rate.per_second,
            rate.server_cores,
            rate.client_cores,
            rate.client_share() * 100.0
        ),
    );
}

/// One job per request, without end.
async fn publish(mut connection: Connection, target: Target, meter: Meter) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in 0.. {
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        meter.add(1);
    }
    Ok(())
}

/// Publish, receive, acknowledge: three calls of one job each. The job received is often another connection's.
async fn live(mut connection: Connection, target: Target, meter: Meter) -> Result<()> {
    let mut request = Publish::new(&target);
    let receive = target.receive(1);
    for sequence in 0.. {
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        let body = connection.call(&receive).await?.expect(200)?;
        let jobs = answer::received(body)?;
        // Every connection takes one job for each it published, so there is always one to take.
        let [job] = jobs.as_slice() else {
            anyhow::bail!("received {} jobs where one was queued", jobs.len());
        };
        let acknowledge = target.acknowledge(job.id, job.lease);
        connection.call(&acknowledge).await?.expect(200)?;
        meter.add(1);
    }
    Ok(())
}

/// Couples publishers and consumers of the batched lifecycle: batches are full, and the backlog is bounded.
struct Flow {
    /// One permit for each job that waits to be received.
    queued: Semaphore,
    /// One permit for each job that may still be published.
    room: Semaphore,
}

impl Flow {
    fn new() -> Self {
        Self { queued: Semaphore::new(0), room: Semaphore::new(BATCH_BACKLOG_MAX) }
    }
}

async fn publish_into(mut connection: Connection, target: Target, flow: Arc<Flow>) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in 0.. {
        flow.room.acquire().await?.forget();
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        flow.queued.add_permits(1);
    }
    Ok(())
}

async fn consume_batches(mut connection: Connection, target: Target, meter: Meter, flow: Arc<Flow>) -> Result<()> {
    let receive = target.receive(BATCH as usize);
    loop {
        flow.queued.acquire_many(BATCH).await?.forget();
        let body = connection.call(&receive).await?.expect(200)?;
        let jobs = answer::received(body)?;
        let count = jobs.len();
        ensure!(count > 0, "received nothing where {BATCH} jobs were queued");
        let outcomes: Vec<_> = jobs
            .iter()
            .map(|job| {
                let (id, lease) = (job.id, job.lease);
                format!("{{\"id\":\"{id}\",\"lease\":\"{lease}\",\"outcome\":\"ack\"}}")
            })
            .collect();
        let body = format!("{{\"outcomes\":[{}]}}", outcomes.join(","));
        let request = target.post("/v1/outcomes", body.as_bytes());
        let body = connection.call(&request).await?.expect(200)?;
        answer::all_accepted(body, count)?;

        meter.add(count as u64);
        flow.room.add_permits(count);
        flow.queued.add_permits((BATCH as usize).saturating_sub(count));
    }
}
