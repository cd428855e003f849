//! What a dead endpoint does to others: the latency of a queue on a server where another queue has a flood of jobs for an
//! endpoint that takes requests and never answers, against the same on a server that has nothing else to do.

use std::net::Ipv4Addr;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::backlog;
use crate::clock;
use crate::connection;
use crate::load::{Meter, Span, Workers};
use crate::open_loop::{Plan, Quantiles};
use crate::process::Server;
use crate::receiver::Receiver;
use crate::report::{Limit, Report};
use crate::request::{QUEUE, Target};
use crate::settings::Settings;

use super::{ASK_AGAIN, SETTLED_WITHIN, timed};

const WAITING: u64 = 100_000;
/// Another host than that of the healthy receivers: requests to one host share a cap.
const DEAD_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The dead queue asks for all the room there is.
const DEAD_CONCURRENCY: u32 = 10_000;
/// The two servers take turns, so that a change of the machine's speed meets both.
const ROUNDS: u32 = 4;

pub(super) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let alone = Server::start_push(&settings.server, &settings.dir)?;
    let beside = Server::start_push(&settings.server, &settings.dir)?;
    let swallowed = Meter::default();
    let dead = Receiver::bind(DEAD_HOST).await?;
    let waiting = settings.backlog.min(WAITING);
    flood(&beside, &dead.url, waiting).await?;

    let mut receivers = Workers::default();
    receivers.start(dead.swallow(swallowed.clone()));
    let compared = tokio::select! {
        compared = compare(&alone, &beside, settings, &swallowed) => compared?,
        failed = receivers.run_for(settings.span.measured * 2 * ROUNDS + SETTLED_WITHIN * 5) => {
            failed?;
            bail!("the rounds did not end in time");
        }
    };

    let [without, with] = compared;
    report.note("publish to receiver at 500/s, alone", without.describe());
    report.note("the same beside a dead endpoint", with.describe());
    report.note("at the dead endpoint", format!("{} requests without an answer, {waiting} jobs", swallowed.total()));
    let ratio = with.p99.as_secs_f64() / without.p99.as_secs_f64();
    report.figure("push p99 beside a dead endpoint / alone", ratio, "", Limit::AtMost(2.0));
    Ok(())
}

/// The jobs are published while the queue is paused, so that they can be counted, and then let go.
async fn flood(server: &Server, url: &str, jobs: u64) -> Result<()> {
    let queue = json!({"webhookUrl": url, "webhookTimeout": 60, "concurrency": DEAD_CONCURRENCY});
    server.make_queue(QUEUE, &queue).await?;
    switch(&server.target, "pause").await?;
    backlog::fill(&server.target, jobs).await?;
    backlog::settle(server.pid()).await?;
    Ok(())
}

async fn switch(target: &Target, verb: &str) -> Result<()> {
    let request = target.post(&format!("/v1/queues/{QUEUE}/{verb}"), b"");
    connection::call_once(target, &request, &[200]).await?;
    Ok(())
}

/// Latencies on the server alone and beside the dead endpoint.
async fn compare(alone: &Server, beside: &Server, settings: &Settings, swallowed: &Meter) -> Result<[Quantiles; 2]> {
    switch(&beside.target, "resume").await?;
    wait_until_stuck(&beside.target, swallowed).await?;
    let span = Span { measured: settings.span.measured / ROUNDS, ..settings.span };
    let plan = Plan::new(span);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        // Each round has a queue of its own, so that its jobs can be counted.
        let queue = format!("round-{round}");
        without.extend(timed::deliveries(alone, &queue, plan).await?.deliveries);
        with.extend(timed::deliveries(beside, &queue, plan).await?.deliveries);
    }
    let counts = backlog::counts(&beside.target, QUEUE).await?;
    ensure!(counts.succeeded == 0 && counts.queued > 0, "the dead endpoint was not dead, or not busy: {counts:?}");
    Ok([Quantiles::of(without)?, Quantiles::of(with)?])
}

/// The dead endpoint holds as many requests as it gets: their number and that of running jobs are the same twice.
async fn wait_until_stuck(target: &Target, swallowed: &Meter) -> Result<()> {
    let start = clock::now();
    let mut before = 0;
    loop {
        let counts = backlog::counts(target, QUEUE).await?;
        if counts.running > 0 && counts.running == before && swallowed.total() >= counts.running {
            return Ok(());
        }
        ensure!(start.elapsed() < SETTLED_WITHIN, "the dead endpoint was not flooded: {counts:?}");
        before = counts.running;
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
