//! The latency from publish to receive at a fixed rate, in units of what the machine itself needs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::answer;
use crate::clock;
use crate::connection::Connection;
use crate::load::{Meter, Workers};
use crate::open_loop::{self, Journal, Plan, Quantiles, RECEIVED_WITHIN};
use crate::process::{Ceiling, Server};
use crate::report::{Limit, Report};
use crate::request::{QUEUE, Target};
use crate::settings::Settings;
use crate::unit::Unit;

const CONSUMERS: usize = 48;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let ceiling = Ceiling::start()?;
    let plan = Plan::new(settings.span);
    let mut unit = Unit::default();

    unit.sample(&ceiling, plan, settings).await?;
    let (publishes, jobs) = job_times(settings, plan).await?;
    unit.sample(&ceiling, plan, settings).await?;

    let unit = unit.seconds(report)?;
    let publish = Quantiles::of(publishes)?;
    let job = Quantiles::of(jobs)?;
    report.note("publish answered at 500/s", publish.describe());
    report.note("publish to receive at 500/s", job.describe());

    let p50 = job.median.as_secs_f64() / unit;
    let p99 = job.p99.as_secs_f64() / unit;
    report.figure("latency p50 / (exchange + sync)", p50, "", Limit::AtMost(6.0));
    report.figure("latency p99 / (exchange + sync)", p99, "", Limit::AtMost(25.0));
    Ok(())
}

/// The times of publish answers, and the times from publish to receive.
async fn job_times(settings: &Settings, plan: Plan) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let journal = Journal::new(plan);
    let done = Meter::default();
    let mut consumers = Workers::default();
    for connection in Connection::open_many(&server.target, CONSUMERS).await? {
        let (target, journal) = (server.target.clone(), journal.clone());
        consumers.start(consume(connection, target, journal, done.clone()));
    }
    // Long enough for all consumers to wait in their long poll.
    consumers.run_for(Duration::from_millis(200)).await?;

    let publishers = open_loop::start_publishers(&server.target, QUEUE, &journal).await?;
    tokio::select! {
        finished = publishers.finish(plan.time_limit()) => finished?,
        failed = consumers.run_for(plan.time_limit()) => {
            failed?;
            anyhow::bail!("the publishers did not finish in time");
        }
    }
    let last_sent = clock::now();
    while done.total() < u64::from(plan.total) {
        ensure!(
            last_sent.elapsed() < RECEIVED_WITHIN,
            "only {} of {} published jobs were received",
            done.total(),
            plan.total
        );
        consumers.run_for(Duration::from_millis(5)).await?;
    }
    Ok((open_loop::take_times(&journal.answered), open_loop::take_times(&journal.received)))
}

/// Waits in long poll for one job at a time and acknowledges it, as a worker does.
async fn consume(mut connection: Connection, target: Target, journal: Arc<Journal>, done: Meter) -> Result<()> {
    let receive = target.receive(1);
    loop {
        let body = connection.call(&receive).await?.expect(200)?;
        let arrived = clock::now();
        let jobs = answer::received(body)?;
        let mut acknowledgements = Vec::with_capacity(jobs.len());
        for job in jobs {
            let sequence = u32::try_from(job.sequence()?)?;
            let sent = journal.take_sent(sequence)?;
            journal.note_time(&journal.received, sequence, arrived - sent);
            acknowledgements.push(target.acknowledge(job.id, job.lease));
        }
        for request in acknowledgements {
            connection.call(&request).await?.expect(200)?;
            done.add(1);
        }
    }
}
