//! Scenarios on a large backlog: what it costs in memory and on disk, that it rests, how fast it comes back after
//! kill -9, and that its size does not slow the claims.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::answer::{self, Counts};
use crate::claim;
use crate::clock;
use crate::connection::{self, Connection};
use crate::disk;
use crate::load::Workers;
use crate::process::Server;
use crate::procfs;
use crate::report::{Limit, Report};
use crate::request::{self, Publish, QUEUE, Target};
use crate::settings::{Scenario, Settings};

const FILL_BATCH: u64 = 1000;
/// Few, so that the requests in flight do not count as memory of the backlog.
const FILL_CONNECTIONS: u64 = 4;
const FILL_WITHIN: Duration = Duration::from_secs(600);
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Work left over from the fill may go on for so long before the server has to rest.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
const RESTART_WITHIN: Duration = Duration::from_secs(60);
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let mut server = Server::start(&settings.server, &settings.dir).await?;
    let seconds = fill(&server.target, settings.backlog).await?;
    report.note(
        "fill",
        format!(
            "{} jobs in {seconds:.1} s, {:.0}/s in batches of {FILL_BATCH}",
            settings.backlog,
            settings.backlog as f64 / seconds
        ),
    );
    let settle = settle(server.pid()).await?;
    report.note("quiet after the fill", settle);

    if settings.wants(Scenario::Memory) {
        let memory = procfs::memory(server.pid())?;
        report_memory(report, "RSS with the backlog", memory.resident_bytes);
        // Not a figure: it depends on how hard the fill pushed, not on how many jobs wait.
        report.note("memory at the peak of the fill", format!("{:.0} MiB", memory.peak_bytes as f64 / MIB));
    }
    if settings.wants(Scenario::Disk) {
        measure_disk(&server.data_dir(), settings.backlog, report)?;
    }
    if settings.wants(Scenario::Idle) {
        measure_idle(server.pid(), report).await?;
    }
    if settings.wants(Scenario::Restart) {
        measure_restart(&mut server, settings.backlog, report).await?;
    }
    if settings.wants(Scenario::Memory) && settings.wants(Scenario::Restart) {
        let memory = procfs::memory(server.pid())?;
        report_memory(report, "RSS after the restart", memory.resident_bytes);
    }
    if settings.wants(Scenario::Claim) {
        claim::run(&server.target, settings, report).await?;
    }
    Ok(())
}

/// Publishes `count` jobs in batches and checks that the queue holds them. Gives the seconds it took.
pub(crate) async fn fill(target: &Target, count: u64) -> Result<f64> {
    let start = clock::now();
    let mut workers = Workers::default();
    for index in 0..FILL_CONNECTIONS {
        let connection = Connection::open(target).await?;
        workers.start(publish_batches(connection, target.clone(), index, count));
    }
    workers.finish(FILL_WITHIN).await?;
    let seconds = start.elapsed().as_secs_f64();
    check_queued(target, count).await?;
    Ok(seconds)
}

/// Publishes every fourth batch, from the batch number `index` on.
async fn publish_batches(mut connection: Connection, target: Target, index: u64, count: u64) -> Result<()> {
    let mut first = index * FILL_BATCH;
    while first < count {
        let jobs = FILL_BATCH.min(count - first);
        let request = request::publish_batch(&target, first, jobs);
        let body = connection.call(&request).await?.expect(202)?;
        answer::all_published(body, usize::try_from(jobs)?)?;
        first += FILL_BATCH * FILL_CONNECTIONS;
    }
    Ok(())
}

async fn check_queued(target: &Target, expected: u64) -> Result<()> {
    let queued = counts(target, QUEUE).await?.queued;
    ensure!(queued == expected, "the queue says it holds {queued} queued jobs, {expected} were published");
    Ok(())
}

/// What the queue says it holds.
pub(crate) async fn counts(target: &Target, queue: &str) -> Result<Counts> {
    let request = target.get(&format!("/v1/queues/{queue}"));
    let answer = connection::call_once(target, &request, &[200]).await?;
    answer::counts(&answer.body)
}

/// Waits for the first second without work, so that what follows measures a server at rest.
pub(crate) async fn settle(pid: u32) -> Result<String> {
    let start = clock::now();
    while start.elapsed() < SETTLE_WITHIN {
        let before = (procfs::cpu_ticks(pid)?, procfs::sleeps(pid)?);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = (procfs::cpu_ticks(pid)?, procfs::sleeps(pid)?);
        if before == after {
            return Ok(format!("within {:.0} s", start.elapsed().as_secs_f64()));
        }
    }
    Ok(format!("not within {} s", SETTLE_WITHIN.as_secs()))
}

fn report_memory(report: &mut Report, name: &str, bytes: u64) {
    report.figure(name, bytes as f64 / MIB, "MiB", Limit::AtMost(150.0));
}

fn measure_disk(data_dir: &Path, backlog: u64, report: &mut Report) -> Result<()> {
    let bytes = disk::used_bytes(data_dir)?;
    report.note("data directory", format!("{:.1} MiB", bytes as f64 / MIB));
    let per_job = bytes as f64 / backlog as f64;
    report.figure("disk per queued job", per_job, "B", Limit::AtMost(600.0));
    Ok(())
}

async fn measure_idle(pid: u32, report: &mut Report) -> Result<()> {
    let ticks_before = procfs::cpu_ticks(pid)?;
    let sleeps_before = procfs::sleeps(pid)?;
    tokio::time::sleep(IDLE_TIME).await;
    let ticks = procfs::cpu_ticks(pid)? - ticks_before;
    let wake_ups = procfs::sleeps(pid)?.since(&sleeps_before);
    // One tick of 10 ms is the resolution of the reading.
    let name = "processor ticks in 5 s of rest";
    report.figure(name, ticks as f64, "", Limit::AtMost(1.0));
    let name = "wake-ups in 5 s of rest";
    report.figure(name, wake_ups as f64, "", Limit::AtMost(0.0));
    Ok(())
}

async fn measure_restart(server: &mut Server, backlog: u64, report: &mut Report) -> Result<()> {
    let start = clock::now();
    server.kill_and_restart()?;
    tokio::time::timeout(RESTART_WITHIN, first_publish(&server.target))
        .await
        .context("no publish was answered after the restart")?;
    let seconds = start.elapsed().as_secs_f64();
    let name = "kill -9 to first publish answered";
    report.figure(name, seconds, "s", Limit::AtMost(1.5));

    server.wait_until_ready()?;
    // Nothing of the backlog is lost, and the first publish is on top of it.
    check_queued(&server.target, backlog + 1).await
}

/// Tries until a publish is stored: the server refuses connections, or answers 503, while it starts.
async fn first_publish(target: &Target) {
    loop {
        if try_publish(target).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn try_publish(target: &Target) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    let mut request = Publish::new(target);
    connection.call(request.numbered(0)).await?.expect(202)?;
    Ok(())
}
