//! The latency from publish to receive at a fixed rate, in units of what the machine itself needs: one local HTTP
//! exchange with the ceiling at the same rate plus one synced append to the same file system.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::answer;
use crate::clock;
use crate::connection::Connection;
use crate::disk;
use crate::load::{Meter, Workers};
use crate::process::{Ceiling, Server};
use crate::report::{Limit, Report};
use crate::request::{Publish, Target};
use crate::settings::Settings;

const JOBS_PER_SECOND: u32 = 500;
const PUBLISHERS: u32 = 16;
const CONSUMERS: usize = 48;
const SYNCED_APPENDS: usize = 500;
/// After the last publish; a job that is not received by then is lost.
const RECEIVED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let ceiling = Ceiling::start()?;
    let plan = Plan::new(settings);

    let mut appends = disk::synced_appends(&settings.dir, SYNCED_APPENDS)?;
    let mut exchanges = exchange_times(&ceiling.target, plan).await?;
    let (publishes, jobs) = job_times(settings, plan).await?;
    exchanges.extend(exchange_times(&ceiling.target, plan).await?);
    appends.extend(disk::synced_appends(&settings.dir, SYNCED_APPENDS)?);

    let exchange = Quantiles::of(exchanges)?;
    let append = Quantiles::of(appends)?;
    let publish = Quantiles::of(publishes)?;
    let job = Quantiles::of(jobs)?;
    report.note("one HTTP exchange with the ceiling", exchange.describe());
    report.note("one synced append of 4 KiB", append.describe());
    report.note("publish answered at 500/s", publish.describe());
    report.note("publish to receive at 500/s", job.describe());

    let unit = (exchange.median + append.median).as_secs_f64();
    let p50 = job.median.as_secs_f64() / unit;
    let p99 = job.p99.as_secs_f64() / unit;
    report.figure("latency p50 / (exchange + sync)", p50, "", Limit::AtMost(6.0));
    report.figure("latency p99 / (exchange + sync)", p99, "", Limit::AtMost(25.0));
    Ok(())
}

/// How many jobs are sent, and how many of the first are not counted.
#[derive(Clone, Copy)]
struct Plan {
    warm_up: u32,
    total: u32,
}

impl Plan {
    fn new(settings: &Settings) -> Self {
        let jobs_in = |time: Duration| {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            millis.saturating_mul(JOBS_PER_SECOND) / 1000
        };
        let warm_up = jobs_in(settings.span.warm_up);
        let total = warm_up.saturating_add(jobs_in(settings.span.measured));
        Self { warm_up, total }
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.total / JOBS_PER_SECOND)) + RECEIVED_WITHIN
    }
}

/// When each job was sent, and the times counted so far.
struct Journal {
    plan: Plan,
    sent: Mutex<Vec<Option<Instant>>>,
    answered: Mutex<Vec<Duration>>,
    received: Mutex<Vec<Duration>>,
}

impl Journal {
    fn new(plan: Plan) -> Arc<Self> {
        Arc::new(Self {
            plan,
            sent: Mutex::new(vec![None; plan.total as usize]),
            answered: Mutex::default(),
            received: Mutex::default(),
        })
    }

    fn note_sent(&self, sequence: u32, at: Instant) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = sent.get_mut(sequence as usize) {
            *slot = Some(at);
        }
    }

    fn note_time(&self, times: &Mutex<Vec<Duration>>, sequence: u32, time: Duration) {
        if sequence >= self.plan.warm_up {
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            times.push(time);
        }
    }

    /// Takes the moment out: a job that is received twice is an error of the server.
    fn take_sent(&self, sequence: u32) -> Result<Instant> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.get_mut(sequence as usize)
            .and_then(Option::take)
            .with_context(|| format!("job {sequence} was received twice or never sent"))
    }
}

fn take_times(times: &Mutex<Vec<Duration>>) -> Vec<Duration> {
    std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn exchange_times(target: &Target, plan: Plan) -> Result<Vec<Duration>> {
    let journal = Journal::new(plan);
    let publishers = start_publishers(target, &journal).await?;
    publishers.finish(plan.time_limit()).await?;
    Ok(take_times(&journal.answered))
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

    let publishers = start_publishers(&server.target, &journal).await?;
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
    Ok((take_times(&journal.answered), take_times(&journal.received)))
}

async fn start_publishers(target: &Target, journal: &Arc<Journal>) -> Result<Workers> {
    let mut publishers = Workers::default();
    let connections = Connection::open_many(target, PUBLISHERS as usize).await?;
    let start = clock::now();
    for (first, connection) in (0..PUBLISHERS).zip(connections) {
        let (target, journal) = (target.clone(), journal.clone());
        publishers.start(publish_on_time(connection, target, journal, first, start));
    }
    Ok(publishers)
}

/// Sends every sixteenth job at its moment (open loop). The generator's own lateness in waking is not counted, but the
/// time a job waits because the answer before it is late is.
async fn publish_on_time(
    mut connection: Connection,
    target: Target,
    journal: Arc<Journal>,
    first: u32,
    start: Instant,
) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in (first..journal.plan.total).step_by(PUBLISHERS as usize) {
        let due = start + Duration::from_secs(1) / JOBS_PER_SECOND * sequence;
        let sent = if clock::now() < due {
            tokio::time::sleep_until(due.into()).await;
            clock::now()
        } else {
            due
        };
        journal.note_sent(sequence, sent);
        connection.call(request.numbered(sequence.into())).await?.expect(202)?;
        journal.note_time(&journal.answered, sequence, sent.elapsed());
    }
    Ok(())
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

struct Quantiles {
    median: Duration,
    p99: Duration,
    max: Duration,
    count: usize,
}

impl Quantiles {
    fn of(mut times: Vec<Duration>) -> Result<Self> {
        times.sort_unstable();
        let count = times.len();
        let at = |percent: usize| times.get(count * percent / 100).copied();
        let missing = "nothing was measured";
        Ok(Self {
            median: at(50).context(missing)?,
            p99: at(99).context(missing)?,
            max: times.last().copied().context(missing)?,
            count,
        })
    }

    fn describe(&self) -> String {
        format!("p50 {:?}, p99 {:?}, max {:?} ({} samples)", self.median, self.p99, self.max, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_do_not_depend_on_order() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();

        let quantiles = Quantiles::of(times).unwrap();

        assert_eq!(quantiles.median, Duration::from_millis(101));
        assert_eq!(quantiles.p99, Duration::from_millis(199));
        assert_eq!(quantiles.max, Duration::from_millis(200));
    }

    #[test]
    fn no_samples_are_an_error_and_not_zero() {
        assert!(Quantiles::of(Vec::new()).is_err());
    }

    #[test]
    fn a_job_received_twice_is_noticed() {
        let journal = Journal::new(Plan { warm_up: 0, total: 2 });
        journal.note_sent(1, clock::now());

        assert!(journal.take_sent(1).is_ok());
        assert!(journal.take_sent(1).is_err());
        assert!(journal.take_sent(0).is_err());
    }
}
