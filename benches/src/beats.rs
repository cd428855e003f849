//! What long-running work costs while it runs: ten thousand jobs are handed out, and their workers send a heartbeat every
//! thirty seconds and a report of progress every two, evenly spread. The server's processor time is measured over at least
//! half a minute, so that every job has sent its heartbeat.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::answer;
use crate::backlog;
use crate::clock;
use crate::connection::{self, Connection};
use crate::load::{Meter, Workers};
use crate::process::Server;
use crate::procfs;
use crate::report::{Limit, Report};
use crate::request::{QUEUE, Target};
use crate::settings::Settings;

const JOBS: usize = 10_000;
/// Processes that work, with a connection each, as far as one address may have them.
const WORKERS: usize = 500;
const JOBS_EACH: usize = JOBS / WORKERS;
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// A heartbeat comes with every so many-th report.
const REPORTS_PER_BEAT: usize = 15;
const MEASURED_MIN: Duration = Duration::from_secs(30);
const QUICK_MEASURED: Duration = Duration::from_secs(5);
const BATCH: usize = 100;
/// A generator that sends less than this part of what is due measures itself.
const SENT_MIN: f64 = 0.97;

/// A job and the lease it is worked on with.
struct Held {
    id: String,
    lease: String,
}

#[derive(Clone, Default)]
struct Sent {
    reports: Meter,
    beats: Meter,
}

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let target = &server.target;
    backlog::fill(target, JOBS as u64).await?;
    let mut jobs = receive_all(target).await?;
    let (sent, mut workers) = (Sent::default(), Workers::default());
    for number in 0..WORKERS {
        let mine = jobs.split_off(jobs.len().saturating_sub(JOBS_EACH));
        let connection = Connection::open(target).await?;
        workers.start(work(connection, target.clone(), mine, number, sent.clone()));
    }
    // The first report of each job is written down; two rounds are enough to be past that.
    workers.run_for(PROGRESS_EVERY * 2).await?;

    let measured = if settings.is_quick { QUICK_MEASURED } else { settings.span.measured.max(MEASURED_MIN) };
    let (ticks_before, start) = (procfs::cpu_ticks(server.pid())?, clock::now());
    let (reports_before, beats_before) = (sent.reports.total(), sent.beats.total());
    workers.run_for(measured).await?;
    let (reports, beats) = (sent.reports.total() - reports_before, sent.beats.total() - beats_before);
    let (ticks, seconds) = (procfs::cpu_ticks(server.pid())? - ticks_before, start.elapsed().as_secs_f64());

    let due = JOBS as f64 * seconds / PROGRESS_EVERY.as_secs_f64();
    ensure!(
        reports as f64 >= due * SENT_MIN,
        "only {reports} of {due:.0} reports were sent: the generator is too slow"
    );
    let cores = procfs::cores(ticks, seconds);
    report.note(
        "running jobs that report",
        format!(
            "{:.0} reports and {:.0} heartbeats per second, {:.0} µs of the server's processor each",
            reports as f64 / seconds,
            beats as f64 / seconds,
            cores * seconds * 1e6 / (reports + beats) as f64
        ),
    );
    report.figure("processor for 10,000 running jobs", cores * 100.0, "%", Limit::AtMost(15.0));
    let counts = backlog::counts(target, QUEUE).await?;
    ensure!(counts.running == JOBS as u64, "{JOBS} jobs were running, the queue says {counts:?}");
    Ok(())
}

async fn receive_all(target: &Target) -> Result<Vec<Held>> {
    let mut held = Vec::with_capacity(JOBS);
    while held.len() < JOBS {
        let answer = connection::call_once(target, &target.receive(BATCH), &[200]).await?;
        let jobs = answer::received(&answer.body)?;
        ensure!(!jobs.is_empty(), "received nothing where {} jobs were queued", JOBS - held.len());
        held.extend(jobs.iter().map(|job| Held { id: job.id.to_owned(), lease: job.lease.to_owned() }));
    }
    Ok(held)
}

/// Reports of all its jobs in turn, at its own times, without end.
async fn work(mut connection: Connection, target: Target, jobs: Vec<Held>, number: usize, sent: Sent) -> Result<()> {
    let pace = PROGRESS_EVERY / u32::try_from(jobs.len()).context("too many jobs")?;
    let offset = pace.mul_f64(number as f64 / WORKERS as f64);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + offset, pace);
    for round in 0.. {
        for (place, job) in jobs.iter().enumerate() {
            ticks.tick().await;
            connection.call(&progress(&target, job, round)).await?.expect(200)?;
            sent.reports.add(1);
            if (round + place + number).is_multiple_of(REPORTS_PER_BEAT) {
                connection.call(&heartbeat(&target, job)).await?.expect(200)?;
                sent.beats.add(1);
            }
        }
    }
    Ok(())
}

fn progress(target: &Target, job: &Held, round: usize) -> Vec<u8> {
    let Held { id, lease } = job;
    let body = format!(
        "{{\"lease\":\"{lease}\",\"stage\":\"render\",\"itemsDone\":{round},\"itemsTotal\":5000,\"message\":\"page {round}\"}}"
    );
    target.put(&format!("/v1/jobs/{id}/progress"), body.as_bytes())
}

fn heartbeat(target: &Target, job: &Held) -> Vec<u8> {
    let Held { id, lease } = job;
    target.post(&format!("/v1/jobs/{id}/heartbeat"), format!("{{\"lease\":\"{lease}\"}}").as_bytes())
}
