//! Receives jobs while there are free slots and runs each of them to its end. One long poll at a time; retries while the
//! server is unavailable.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::attempt::{self, Reported};
use super::backoff::Backoff;
use super::handout::{self, Handout};
use super::{Stop, Work};
use crate::client::Call;
use crate::commands::settings::Fields;
use crate::failure::{Exit, Failure};
use crate::output;

/// Long-poll time of a receive: the server's maximum.
const WAIT: Duration = Duration::from_secs(30);
/// The most jobs the server hands out in one response.
const BATCH_MAX: usize = 100;

/// When the worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Signalled,
    OneJob,
    /// Nothing is due any more.
    Empty,
}

pub(crate) struct Pool {
    pub work: Arc<Work>,
    pub slots: usize,
    pub until: Until,
    /// Set by signals, and by a refusal that retries cannot fix.
    pub stop: Arc<watch::Sender<Stop>>,
}

/// An attempt that has ended.
struct Ended {
    id: String,
    attempt: u64,
    reported: Reported,
}

#[derive(Debug, Default)]
struct Tally {
    reported: usize,
    unreported: usize,
}

impl Tally {
    fn summary(&self) -> String {
        let attempts = if self.reported == 1 { "attempt" } else { "attempts" };
        let finished = format!("{} {attempts} finished", self.reported);
        match self.unreported {
            0 => finished,
            count => format!("{finished}, {count} without a reported outcome"),
        }
    }
}

enum Step {
    Handout(Vec<Handout>),
    Ended(Ended),
    /// The server is away; a pause was made.
    Waited,
}

impl Pool {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let mut jobs = JoinSet::new();
        let mut tally = Tally::default();
        let ended = self.hand_out(&mut jobs, &mut tally).await;
        if ended.is_err() {
            // Without a key or a queue nothing of what the programs do can be reported.
            self.stop.send_modify(|stop| *stop = Stop::Draining.max(*stop));
        }
        while let Some(job) = join(&mut jobs).await? {
            self.count(&job, &mut tally)?;
        }
        output::note(&tally.summary());
        ended
    }

    /// Starts jobs until the worker stops, or until the work that was asked for is done.
    async fn hand_out(&self, jobs: &mut JoinSet<Ended>, tally: &mut Tally) -> Result<(), Failure> {
        let mut stop = self.stop.subscribe();
        let mut backoff = Backoff::new(&std::process::id().to_string());
        loop {
            let step = tokio::select! {
                // A receive that is dropped while it waits leases nothing.
                _ = stop.wait_for(|stop| *stop != Stop::Working) => return Ok(()),
                step = self.step(jobs, &mut backoff) => step?,
            };
            match step {
                Step::Ended(job) => self.count(&job, tally)?,
                Step::Waited => {}
                Step::Handout(received) => {
                    let is_last = match self.until {
                        Until::Signalled => false,
                        Until::OneJob => !received.is_empty(),
                        Until::Empty => received.is_empty(),
                    };
                    received.into_iter().for_each(|job| self.start(jobs, job));
                    if is_last {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for a job to end if all slots are busy, else for new jobs. Fails when the server refuses for good. Cancel-safe,
    /// except for jobs whose response is in flight: their leases expire.
    async fn step(&self, jobs: &mut JoinSet<Ended>, backoff: &mut Backoff) -> Result<Step, Failure> {
        let free = self.slots.saturating_sub(jobs.len());
        if free == 0
            && let Some(job) = join(jobs).await?
        {
            return Ok(Step::Ended(job));
        }
        match self.receive(free).await {
            Ok(received) => {
                backoff.reset();
                // Running jobs may return to the queue: it is empty when neither waiting nor running jobs are left.
                if received.is_empty()
                    && self.until == Until::Empty
                    && let Some(job) = join(jobs).await?
                {
                    return Ok(Step::Ended(job));
                }
                Ok(Step::Handout(received))
            }
            Err(failure) if failure.is_temporary => {
                if backoff.is_first() {
                    output::note(&format!("{}; retrying", failure.message));
                }
                tokio::time::sleep(backoff.next()).await;
                Ok(Step::Waited)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn receive(&self, free: usize) -> Result<Vec<Handout>, Failure> {
        let work = &self.work;
        let wait = if self.until == Until::Empty { Duration::ZERO } else { WAIT };
        let batch = if self.until == Until::OneJob { 1 } else { free.min(BATCH_MAX) };
        let mut fields = Fields::default();
        fields.put("batch", batch);
        fields.set_duration("wait", Some(wait))?;
        fields.set_duration("visibilityTimeout", Some(work.pace.lease))?;
        fields.set_some("worker", work.name.as_ref())?;
        if !work.accepts_schema.is_empty() {
            fields.put("acceptsSchema", work.accepts_schema.clone());
        }
        let path = ["v1", "queues", &work.queue, "receive"];
        let answer = work.session.client.send(Call::post(&path).body(fields.to_json()?).wait(wait)).await?;
        handout::read(&answer)
            .map_err(|why| Failure::new(Exit::Refused, format!("the response to receive is invalid: {why}")))
    }

    fn start(&self, jobs: &mut JoinSet<Ended>, received: Handout) {
        let (id, attempt) = (received.id.clone(), received.attempt);
        let run = attempt::run(Arc::clone(&self.work), received, self.stop.subscribe());
        jobs.spawn(async move { Ended { id, attempt, reported: run.await } });
    }

    fn count(&self, job: &Ended, tally: &mut Tally) -> Result<(), Failure> {
        let (Ended { id, attempt, reported }, is_json) = (job, self.work.session.is_json);
        match reported {
            Ok(_) => tally.reported += 1,
            Err(_) => tally.unreported += 1,
        }
        let line = match reported {
            Ok((verb, status)) if is_json => json!({"id": id, "attempt": attempt, "outcome": verb, "status": status}),
            Err(why) if is_json => json!({"id": id, "attempt": attempt, "outcome": null, "reason": why}),
            Ok((verb, status)) => {
                output::note(&format!("job {id} attempt {attempt}: {verb}, the job is {status}"));
                return Ok(());
            }
            Err(why) => {
                output::note(&format!("job {id} attempt {attempt}: no outcome was reported: {why}"));
                return Ok(());
            }
        };
        output::print_json_line(&line.to_string())
    }
}

/// The next attempt that ends; `None` when none is running.
async fn join(jobs: &mut JoinSet<Ended>) -> Result<Option<Ended>, Failure> {
    match jobs.join_next().await {
        Some(Ok(job)) => Ok(Some(job)),
        Some(Err(error)) => Err(Failure::new(Exit::Refused, format!("the task of a job ended abnormally: {error}"))),
        None => Ok(None),
    }
}
