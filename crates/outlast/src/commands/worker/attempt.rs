//! One job from hand-out to outcome: the files, the program, the lease, what the program reports meanwhile, and what its
//! end leads to. Whatever happens, nothing of the program is left when this is over.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::desk::{Desk, Trouble};
use super::exit::{End, judge};
use super::lease::{self, Heard};
use super::orders::{Orders, Sign, Why};
use super::outbox::Outbox;
use super::pipe::Lines;
use super::program::{Program, Start};
use super::received::Received;
use super::scratch::Scratch;
use super::{Stop, Work, result};
use crate::commands::settings::Fields;
use crate::output;

/// Not for programs; the worker's own key only on request.
const HIDDEN: [&str; 3] = ["OUTLAST_KEY", "OUTLAST_ADMIN_KEY", "OUTLAST_SECRET_KEY"];
/// How long reports may take when the worker is to end at once.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The outcome that was reported and the state after it, or why there is none.
pub(crate) type Told = Result<(&'static str, String), String>;

struct Attempt {
    work: Arc<Work>,
    received: Received,
    desk: Arc<Desk>,
    heard: watch::Receiver<Heard>,
    stop: watch::Receiver<Stop>,
}

/// Does one job. Ends when its outcome is reported, or when there is no point in reporting one.
pub(crate) async fn run(work: Arc<Work>, received: Received, stop: watch::Receiver<Stop>) -> Told {
    let desk = Arc::new(Desk::new(Arc::clone(&work.session), &received.id, &received.lease));
    let mut scratch = match Scratch::make() {
        Ok(scratch) => scratch,
        Err(error) => return report(&desk, "nack", cannot_start(&error)).await,
    };
    let (sender, heard) = watch::channel(Heard::default());
    let mut keeper = JoinSet::new();
    let pace = work.pace.clone();
    keeper.spawn(lease::keep(Arc::clone(&desk), pace, received.lease_expires_at, scratch.directives(), sender));

    let told = Attempt { work, received, desk, heard, stop }.run(&mut scratch).await;
    keeper.shutdown().await;
    told
}

impl Attempt {
    async fn run(mut self, scratch: &mut Scratch) -> Told {
        let filled = self.unless_given_up(scratch.fill(&self.received, &self.desk)).await?;
        if let Err(trouble) = filled {
            return match trouble {
                Trouble::Refused(why) | Trouble::TooLarge(why) => {
                    self.unless_given_up(report(&self.desk, "nack", cannot_start(&why))).await?
                }
                Trouble::Lost(why) | Trouble::Away(why) => Err(why),
            };
        }
        let outbox = Arc::new(Outbox::default());
        let started = scratch.pipe().and_then(|pipe| Ok((pipe, self.start(scratch)?)));
        let (pipe, mut program) = match started {
            Ok(started) => started,
            Err(error) => return self.unless_given_up(report(&self.desk, "nack", cannot_start(&error))).await?,
        };
        let (end, ended) = oneshot::channel();
        let mut carriers = JoinSet::new();
        carriers.spawn(Lines::new(&self.received.id, Arc::clone(&outbox)).carry(pipe, ended));
        carriers.spawn(deliver(Arc::clone(&outbox), Arc::clone(&self.desk)));

        let (status, why) = self.supervise(&mut program).await;
        let said = program.finish().await;
        if matches!(why, Some(Why::Lost | Why::HardLimit)) {
            carriers.shutdown().await;
            return Err(self.why_not(why));
        }
        let settle = async {
            // What was reported comes before the outcome. The receiver of the signal may have ended already.
            let _ = end.send(());
            while carriers.join_next().await.is_some() {}
            self.settle(scratch, status, why, &said).await
        };
        self.unless_given_up(settle).await?
    }

    fn start(&self, scratch: &Scratch) -> io::Result<Program> {
        let work = &self.work;
        let stdout = match work.wishes.stdout_result {
            true => Stdio::from(scratch.stdout()?),
            false => Stdio::inherit(),
        };
        let mut environment = scratch.environment();
        environment.extend(self.environment());
        let command = &work.command;
        Program::start(Start { command, environment, hidden: &HIDDEN, stdin: scratch.stdin()?, stdout })
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let (work, job) = (&self.work, &self.received);
        let mut texts = vec![
            ("OUTLAST_JOB_ID", job.id.clone()),
            ("OUTLAST_LEASE", job.lease.clone()),
            ("OUTLAST_ATTEMPT", job.attempt.clone()),
            ("OUTLAST_RUN", job.run.clone()),
            ("OUTLAST_QUEUE", work.queue.clone()),
            ("OUTLAST_URL", work.session.client.base().to_owned()),
        ];
        if let Some(checkpoint) = &job.checkpoint {
            texts.push(("OUTLAST_CHECKPOINT_SCHEMA", checkpoint.schema_version.clone()));
        }
        if job.is_checkpoint_incompatible {
            texts.push(("OUTLAST_CHECKPOINT_INCOMPATIBLE", "1".to_owned()));
        }
        if let Some(traceparent) = &job.traceparent {
            texts.push(("TRACEPARENT", traceparent.clone()));
        }
        if let Some(key) = work.session.client.key().filter(|_| work.passes_key) {
            texts.push(("OUTLAST_KEY", key.expose().to_owned()));
        }
        texts.into_iter().map(|(name, text)| (name, OsString::from(text))).collect()
    }

    /// Waits for the end of the program; tells it to end, and kills it, when it is time.
    async fn supervise(&mut self, program: &mut Program) -> (io::Result<ExitStatus>, Option<Why>) {
        let mut orders = Orders::new(self.work.grace, self.received.hard_time_limit);
        // Both may have changed since they were last looked at.
        self.heard.mark_changed();
        self.stop.mark_changed();
        loop {
            let sign = tokio::select! {
                status = program.wait() => return (status, orders.why),
                Ok(()) = self.heard.changed() => orders.hear(&self.heard.borrow_and_update().clone()),
                Ok(()) = self.stop.changed() => orders.obey(*self.stop.borrow_and_update()),
                () = until(orders.hard_end) => Some(orders.end_hard()),
                () = until(orders.kill_at) => Some(orders.kill()),
            };
            match sign {
                Some(Sign::Terminate) => program.terminate(),
                Some(Sign::Kill) => program.kill(),
                None => {}
            }
        }
    }

    /// Reports what the end of the program means.
    async fn settle(&self, scratch: &Scratch, status: io::Result<ExitStatus>, why: Option<Why>, said: &str) -> Told {
        let status = match status {
            Ok(status) => status,
            Err(error) => return report(&self.desk, "nack", cannot_start(&error)).await,
        };
        if why == Some(Why::Cancel) {
            return report(&self.desk, "cancelled", Fields::default()).await;
        }
        match (judge(status, said), why) {
            (End::Done, _) => match result::ack(&self.desk, &scratch.result(), &self.work.wishes).await {
                Ok(status) => Ok(("ack", status)),
                Err(Trouble::Refused(why) | Trouble::TooLarge(why)) => {
                    report(&self.desk, "nack", nack(true, &format!("the result was refused: {why}"))).await
                }
                Err(Trouble::Lost(why) | Trouble::Away(why)) => Err(why),
            },
            (End::Failed { .. }, Some(Why::Stop | Why::HandOver)) => {
                report(&self.desk, "release", Fields::default()).await
            }
            (End::Failed { is_retryable, reason }, _) => report(&self.desk, "nack", nack(is_retryable, &reason)).await,
        }
    }

    /// What `work` gives, unless it becomes pointless: the lease is lost, or the worker is to end and the server is away.
    async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        let lost = async {
            let mut heard = self.heard.clone();
            let lost = heard.wait_for(|heard| heard.lost.is_some()).await.ok().and_then(|heard| heard.lost.clone());
            match lost {
                Some(why) => why,
                None => pending().await,
            }
        };
        let stopped = async {
            told(&self.stop, Stop::Draining).await;
            tokio::select! {
                () = sleep(self.work.grace.max(LAST_WORDS)) => {}
                () = async { told(&self.stop, Stop::Aborting).await; sleep(LAST_WORDS).await } => {}
            }
        };
        tokio::select! {
            done = work => Ok(done),
            why = lost => Err(why),
            () = stopped => Err("the worker ended before the server could be told".to_owned()),
        }
    }

    fn why_not(&self, why: Option<Why>) -> String {
        match (why, &self.heard.borrow().lost) {
            (Some(Why::HardLimit), _) => "its time was over; the server ends the attempt".to_owned(),
            (_, Some(lost)) => lost.clone(),
            _ => "the lease is lost".to_owned(),
        }
    }
}

/// Sends what the program has reported, to the last of it. What the server refuses is told and left out.
async fn deliver(outbox: Arc<Outbox>, desk: Arc<Desk>) {
    while let Some(next) = outbox.take().await {
        match desk.report(&next).await {
            Ok(()) => {}
            Err(Trouble::Refused(why) | Trouble::TooLarge(why)) => {
                output::note(&format!("job {}: {} was refused: {why}", desk.id, next.name()))
            }
            // Whoever keeps the lease hears the same.
            Err(Trouble::Lost(_) | Trouble::Away(_)) => return,
        }
    }
}

async fn report(desk: &Desk, verb: &'static str, fields: Fields) -> Told {
    match desk.outcome(verb, &fields).await {
        Ok(status) => Ok((verb, status)),
        Err(Trouble::Lost(why) | Trouble::Away(why) | Trouble::Refused(why) | Trouble::TooLarge(why)) => {
            Err(format!("{verb}: {why}"))
        }
    }
}

fn cannot_start(why: &impl std::fmt::Display) -> Fields {
    nack(true, &format!("the worker cannot run the program: {why}"))
}

fn nack(is_retryable: bool, reason: &str) -> Fields {
    let mut fields = Fields::default();
    fields.put("retryable", is_retryable);
    fields.put("reason", reason);
    fields
}

/// Done when the worker has been told to end this far.
async fn told(stop: &watch::Receiver<Stop>, least: Stop) {
    let is_told = stop.clone().wait_for(|stop| *stop >= least).await.is_ok();
    if !is_told {
        pending::<()>().await;
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
