//! What long-running work costs while it runs: ten thousand jobs are handed out, and their workers send a heartbeat every
//! thirty seconds and a report of progress every two, evenly spread. A worker has twenty jobs. It speaks for all of them in
//! one call, which is what the limit is about; and, on the same server, with a call for each job, which is held against the
//! same number of calls to the bare HTTP stack. The server's processor time is measured over at least half a minute, so
//! that every job has sent its heartbeat.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::answer;
use crate::backlog;
use crate::clock;
use crate::connection::{self, Connection};
use crate::load::{Meter, Workers};
use crate::process::{Ceiling, Server};
use crate::procfs;
use crate::report::{Limit, Report};
use crate::request::{Publish, QUEUE, Target};
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
#[derive(Clone)]
struct Held {
    id: String,
    lease: String,
}

/// How a worker speaks.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// For all its jobs in one call.
    Together,
    /// With a call for each job.
    Apart,
}

#[derive(Clone, Default)]
struct Sent {
    calls: Meter,
    reports: Meter,
    beats: Meter,
}

/// What a phase has cost.
struct Cost {
    /// Of one core.
    share: f64,
    /// Of the server, for one call.
    micros: f64,
}

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    backlog::fill(&server.target, JOBS as u64).await?;
    let jobs = receive_all(&server.target).await?;
    let together = phase(settings, report, &server, &jobs, Way::Together).await?;
    report.figure("processor for 10,000 running jobs", together.share * 100.0, "%", Limit::AtMost(15.0));
    let apart = phase(settings, report, &server, &jobs, Way::Apart).await?;
    let counts = backlog::counts(&server.target, QUEUE).await?;
    ensure!(counts.running == JOBS as u64, "{JOBS} jobs were running, the queue says {counts:?}");
    drop(server);

    let bare = bare(settings).await?;
    report.note("the bare HTTP stack at that pace", format!("{:.1} % of a core", bare.share * 100.0));
    report.figure("with a call for each job / bare HTTP", apart.share / bare.share, "", Limit::AtMost(2.5));
    Ok(())
}

async fn phase(settings: &Settings, report: &mut Report, server: &Server, jobs: &[Held], way: Way) -> Result<Cost> {
    let (target, sent, mut workers) = (&server.target, Sent::default(), Workers::default());
    for (number, mine) in jobs.chunks(JOBS_EACH).enumerate() {
        let connection = Connection::open(target).await?;
        let worker = Worker { connection, target: target.clone(), jobs: mine.to_vec(), sent: sent.clone() };
        match way {
            Way::Together => workers.start(worker.together(number)),
            Way::Apart => workers.start(worker.apart(number)),
        }
    }
    // The first report of each job is written down; two rounds are enough to be past that.
    workers.run_for(PROGRESS_EVERY * 2).await?;
    let (reports_before, beats_before) = (sent.reports.total(), sent.beats.total());
    let (cost, seconds) = measured(settings, server.pid(), &mut workers, &sent.calls).await?;
    let (reports, beats) = (sent.reports.total() - reports_before, sent.beats.total() - beats_before);
    let due = JOBS as f64 * seconds / PROGRESS_EVERY.as_secs_f64();
    ensure!(
        reports as f64 >= due * SENT_MIN,
        "only {reports} of {due:.0} reports were sent: the generator is too slow"
    );
    let name = if way == Way::Together { "a call for twenty jobs" } else { "a call for each job" };
    report.note(
        &format!("running jobs, {name}"),
        format!(
            "{:.0} reports and {:.0} heartbeats per second cost {:.1} % of a core, {:.0} µs a call",
            reports as f64 / seconds,
            beats as f64 / seconds,
            cost.share * 100.0,
            cost.micros
        ),
    );
    Ok(cost)
}

/// Lets the workers go on and reads what that costs the process; also how long it was.
async fn measured(settings: &Settings, pid: u32, workers: &mut Workers, calls: &Meter) -> Result<(Cost, f64)> {
    let span = if settings.is_quick { QUICK_MEASURED } else { settings.span.measured.max(MEASURED_MIN) };
    let (ticks_before, calls_before, start) = (procfs::cpu_ticks(pid)?, calls.total(), clock::now());
    workers.run_for(span).await?;
    let (ticks, seconds) = (procfs::cpu_ticks(pid)? - ticks_before, start.elapsed().as_secs_f64());
    let (share, calls) = (procfs::cores(ticks, seconds), calls.total() - calls_before);
    Ok((Cost { share, micros: share * seconds * 1e6 / calls as f64 }, seconds))
}

/// As many calls as jobs that speak for themselves make, to the ceiling.
async fn bare(settings: &Settings) -> Result<Cost> {
    let ceiling = Ceiling::start()?;
    let (calls, mut workers) = (Meter::default(), Workers::default());
    for number in 0..WORKERS {
        let connection = Connection::open(&ceiling.target).await?;
        workers.start(call_at_pace(connection, ceiling.target.clone(), number, calls.clone()));
    }
    workers.run_for(PROGRESS_EVERY).await?;
    Ok(measured(settings, ceiling.pid(), &mut workers, &calls).await?.0)
}

async fn call_at_pace(mut connection: Connection, target: Target, number: usize, calls: Meter) -> Result<()> {
    // A heartbeat comes with every so many-th report.
    let pace =
        (PROGRESS_EVERY / u32::try_from(JOBS_EACH)?).mul_f64(REPORTS_PER_BEAT as f64 / (REPORTS_PER_BEAT as f64 + 1.0));
    let mut ticks = ticks(pace, number);
    let mut publish = Publish::new(&target);
    for sequence in 0.. {
        ticks.tick().await;
        connection.call(publish.numbered(sequence)).await?.expect(202)?;
        calls.add(1);
    }
    Ok(())
}

/// Evenly spread over the workers.
fn ticks(pace: Duration, number: usize) -> tokio::time::Interval {
    let offset = pace.mul_f64(number as f64 / WORKERS as f64);
    tokio::time::interval_at(tokio::time::Instant::now() + offset, pace)
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

/// A process that works on some jobs at once.
struct Worker {
    connection: Connection,
    target: Target,
    jobs: Vec<Held>,
    sent: Sent,
}

impl Worker {
    /// Reports of all its jobs in turn, at its own times, without end.
    async fn apart(mut self, number: usize) -> Result<()> {
        let pace = PROGRESS_EVERY / u32::try_from(self.jobs.len()).context("too many jobs")?;
        let mut ticks = ticks(pace, number);
        for round in 0.. {
            for (place, job) in self.jobs.iter().enumerate() {
                ticks.tick().await;
                self.connection.call(&progress(&self.target, job, round)).await?.expect(200)?;
                self.sent.reports.add(1);
                self.sent.calls.add(1);
                if (round + place + number).is_multiple_of(REPORTS_PER_BEAT) {
                    self.connection.call(&heartbeat(&self.target, job)).await?.expect(200)?;
                    self.sent.beats.add(1);
                    self.sent.calls.add(1);
                }
            }
        }
        Ok(())
    }

    /// Reports of all its jobs in one call.
    async fn together(mut self, number: usize) -> Result<()> {
        let mut ticks = ticks(PROGRESS_EVERY, number);
        for round in 0.. {
            ticks.tick().await;
            let reports = list(&self.jobs, |job| format!("{{{}}}", said(job, round)));
            let body = format!("{{\"reports\":[{reports}]}}");
            self.all_accepted(&self.target.post("/v1/progress", body.as_bytes())).await?;
            self.sent.reports.add(self.jobs.len() as u64);
            if (round + number).is_multiple_of(REPORTS_PER_BEAT) {
                let beats = list(&self.jobs, |Held { id, lease }| format!("{{\"id\":\"{id}\",\"lease\":\"{lease}\"}}"));
                let body = format!("{{\"heartbeats\":[{beats}]}}");
                self.all_accepted(&self.target.post("/v1/heartbeats", body.as_bytes())).await?;
                self.sent.beats.add(self.jobs.len() as u64);
            }
        }
        Ok(())
    }

    async fn all_accepted(&mut self, request: &[u8]) -> Result<()> {
        let body = self.connection.call(request).await?.expect(200)?;
        let accepted = body.windows(ACCEPTED.len()).filter(|part| *part == ACCEPTED).count();
        let (jobs, answer) = (self.jobs.len(), String::from_utf8_lossy(body));
        ensure!(accepted == jobs, "{accepted} of {jobs} were accepted: {answer:.300}");
        self.sent.calls.add(1);
        Ok(())
    }
}

const ACCEPTED: &[u8] = b"\"accepted\":true";

fn list(jobs: &[Held], entry: impl Fn(&Held) -> String) -> String {
    jobs.iter().map(entry).collect::<Vec<_>>().join(",")
}

fn said(job: &Held, round: usize) -> String {
    let Held { id, lease } = job;
    format!(
        "\"id\":\"{id}\",\"lease\":\"{lease}\",\"stage\":\"render\",\"itemsDone\":{round},\"itemsTotal\":5000,\"message\":\"page {round}\""
    )
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
