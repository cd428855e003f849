//! An open loop at a fixed rate: publishes that leave at their moment whatever the server does, the journal of when each
//! was sent and when it arrived, and the quantiles of the times between.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::clock;
use crate::connection::Connection;
use crate::load::{Span, Workers};
use crate::request::{Publish, QUEUE, Target};

const JOBS_PER_SECOND: u32 = 500;
const PUBLISHERS: u32 = 16;
/// After the last publish; a job that has not arrived by then is lost.
pub(crate) const RECEIVED_WITHIN: Duration = Duration::from_secs(30);

/// How many jobs are sent, and how many of the first are not counted.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    warm_up: u32,
    pub(crate) total: u32,
}

impl Plan {
    pub(crate) fn new(span: Span) -> Self {
        let jobs_in = |time: Duration| {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            millis.saturating_mul(JOBS_PER_SECOND) / 1000
        };
        let warm_up = jobs_in(span.warm_up);
        let total = warm_up.saturating_add(jobs_in(span.measured));
        Self { warm_up, total }
    }

    pub(crate) fn time_limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.total / JOBS_PER_SECOND)) + RECEIVED_WITHIN
    }
}

/// When each job was sent, and the times counted so far.
pub(crate) struct Journal {
    plan: Plan,
    sent: Mutex<Vec<Option<Instant>>>,
    pub(crate) answered: Mutex<Vec<Duration>>,
    pub(crate) received: Mutex<Vec<Duration>>,
}

impl Journal {
    pub(crate) fn new(plan: Plan) -> Arc<Self> {
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

    pub(crate) fn note_time(&self, times: &Mutex<Vec<Duration>>, sequence: u32, time: Duration) {
        if sequence >= self.plan.warm_up {
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            times.push(time);
        }
    }

    /// Takes the moment out: a job that is received twice is an error of the server.
    pub(crate) fn take_sent(&self, sequence: u32) -> Result<Instant> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.get_mut(sequence as usize)
            .and_then(Option::take)
            .with_context(|| format!("job {sequence} was received twice or never sent"))
    }
}

pub(crate) fn take_times(times: &Mutex<Vec<Duration>>) -> Vec<Duration> {
    std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) async fn exchange_times(target: &Target, plan: Plan) -> Result<Vec<Duration>> {
    let journal = Journal::new(plan);
    let publishers = start_publishers(target, QUEUE, &journal).await?;
    publishers.finish(plan.time_limit()).await?;
    Ok(take_times(&journal.answered))
}

pub(crate) async fn start_publishers(target: &Target, queue: &str, journal: &Arc<Journal>) -> Result<Workers> {
    let mut publishers = Workers::default();
    let connections = Connection::open_many(target, PUBLISHERS as usize).await?;
    let start = clock::now();
    for (first, connection) in (0..PUBLISHERS).zip(connections) {
        let request = Publish::to(target, queue);
        publishers.start(publish_on_time(connection, request, journal.clone(), first, start));
    }
    Ok(publishers)
}

/// Sends every sixteenth job at its moment (open loop). The generator's own lateness in waking is not counted, but the
/// time a job waits because the answer before it is late is.
async fn publish_on_time(
    mut connection: Connection,
    mut request: Publish,
    journal: Arc<Journal>,
    first: u32,
    start: Instant,
) -> Result<()> {
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

pub(crate) struct Quantiles {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    max: Duration,
    count: usize,
}

impl Quantiles {
    pub(crate) fn of(mut times: Vec<Duration>) -> Result<Self> {
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

    pub(crate) fn describe(&self) -> String {
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
