//! One attempt of a job from hand-out to outcome: work directory, program, heartbeats, reports and outcome. No process of
//! the program is left when it ends.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::directives::{Directives, StopReason, StopSignal};
use super::exit::{End, classify};
use super::handout::Handout;
use super::job_client::{CallError, JobClient};
use super::lease::{self, LeaseState};
use super::outbox::Outbox;
use super::pipe::ProgressReader;
use super::program::{Program, Start};
use super::workdir::Workdir;
use super::{Stop, Work, result};
use crate::commands::settings::Fields;
use crate::output;

/// Removed from the program's environment; the worker's own key is passed only with `--pass-key`.
const HIDDEN: [&str; 3] = ["OUTLAST_KEY", "OUTLAST_ADMIN_KEY", "OUTLAST_SECRET_KEY"];
/// How long reports may take after a second stop signal.
const ABORT_GRACE: Duration = Duration::from_secs(5);

/// The reported outcome and the job's status after it, or why none was reported.
pub(crate) type Reported = Result<(&'static str, String), String>;

struct Attempt {
    work: Arc<Work>,
    handout: Handout,
    client: Arc<JobClient>,
    lease_state: watch::Receiver<LeaseState>,
    stop: watch::Receiver<Stop>,
}

/// Runs one job. Ends when its outcome is reported, or when the lease is lost.
pub(crate) async fn run(work: Arc<Work>, handout: Handout, stop: watch::Receiver<Stop>) -> Reported {
    let client = Arc::new(JobClient::new(Arc::clone(&work.session), &handout.id, &handout.lease));
    let mut workdir = match Workdir::make() {
        Ok(workdir) => workdir,
        Err(error) => return report(&client, "nack", cannot_start(&error)).await,
    };
    let (sender, lease_state) = watch::channel(LeaseState::default());
    let mut keeper = JoinSet::new();
    let pace = work.pace.clone();
    keeper.spawn(lease::keep(Arc::clone(&client), pace, handout.lease_expires_at, workdir.directives(), sender));

    let reported = Attempt { work, handout, client, lease_state, stop }.run(&mut workdir).await;
    keeper.shutdown().await;
    reported
}

impl Attempt {
    async fn run(mut self, workdir: &mut Workdir) -> Reported {
        let filled = self.unless_given_up(workdir.fill(&self.handout, &self.client)).await?;
        if let Err(trouble) = filled {
            return match trouble {
                CallError::Refused(why) | CallError::TooLarge(why) => {
                    self.unless_given_up(report(&self.client, "nack", cannot_start(&why))).await?
                }
                CallError::Lost(why) | CallError::Unavailable(why) => Err(why),
            };
        }
        let outbox = Arc::new(Outbox::default());
        let started = workdir.pipe().and_then(|pipe| Ok((pipe, self.start(workdir)?)));
        let (pipe, mut program) = match started {
            Ok(started) => started,
            Err(error) => return self.unless_given_up(report(&self.client, "nack", cannot_start(&error))).await?,
        };
        let (end, ended) = oneshot::channel();
        let mut carriers = JoinSet::new();
        carriers.spawn(ProgressReader::new(&self.handout.id, Arc::clone(&outbox)).carry(pipe, ended));
        carriers.spawn(deliver(Arc::clone(&outbox), Arc::clone(&self.client)));

        let (status, why) = self.supervise(&mut program).await;
        let stderr_tail = program.finish().await;
        if matches!(why, Some(StopReason::Lost | StopReason::HardLimit)) {
            carriers.shutdown().await;
            return Err(self.why_not(why));
        }
        let report_end = async {
            // Reports go out before the outcome. The receiver of the signal may have ended already.
            let _ = end.send(());
            while carriers.join_next().await.is_some() {}
            self.report_end(workdir, status, why, &stderr_tail).await
        };
        self.unless_given_up(report_end).await?
    }

    fn start(&self, workdir: &Workdir) -> io::Result<Program> {
        let work = &self.work;
        let stdout = match work.result_flags.stdout_result {
            true => Stdio::from(workdir.stdout()?),
            // With --json our stdout has JSON lines and nothing else.
            false if work.session.is_json => Stdio::from(io::stderr()),
            false => Stdio::inherit(),
        };
        let mut environment = workdir.environment();
        environment.extend(self.environment());
        let command = &work.command;
        Program::start(Start { command, environment, hidden: &HIDDEN, stdin: workdir.stdin()?, stdout })
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let (work, job) = (&self.work, &self.handout);
        let mut texts = vec![
            ("OUTLAST_JOB_ID", job.id.clone()),
            ("OUTLAST_LEASE", job.lease.clone()),
            ("OUTLAST_ATTEMPT", job.attempt.to_string()),
            ("OUTLAST_REPLAYS", job.replays.clone()),
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

    /// Waits for the program to end; sends SIGTERM and SIGKILL when they are due.
    async fn supervise(&mut self, program: &mut Program) -> (io::Result<ExitStatus>, Option<StopReason>) {
        let mut directives = Directives::new(self.work.grace, self.handout.hard_time_limit);
        // Both may have changed before this loop began.
        self.lease_state.mark_changed();
        self.stop.mark_changed();
        loop {
            let sign = tokio::select! {
                status = program.wait() => return (status, directives.why),
                Ok(()) = self.lease_state.changed() => directives.observe(&self.lease_state.borrow_and_update().clone()),
                Ok(()) = self.stop.changed() => directives.stop(*self.stop.borrow_and_update()),
                () = until(directives.hard_end) => Some(directives.end_hard()),
                () = until(directives.kill_at) => Some(directives.kill()),
            };
            match sign {
                Some(StopSignal::Terminate) => program.terminate(),
                Some(StopSignal::Kill) => program.kill(),
                None => {}
            }
        }
    }

    /// Reports the outcome that the exit status means.
    async fn report_end(
        &self,
        workdir: &Workdir,
        status: io::Result<ExitStatus>,
        why: Option<StopReason>,
        stderr_tail: &str,
    ) -> Reported {
        let status = match status {
            Ok(status) => status,
            Err(error) => return report(&self.client, "nack", cannot_start(&error)).await,
        };
        if why == Some(StopReason::Cancel) {
            return report(&self.client, "cancelled", Fields::default()).await;
        }
        match (classify(status, stderr_tail), why) {
            (End::Done, _) => match result::ack(&self.client, &workdir.result(), &self.work.result_flags).await {
                Ok(status) => Ok(("ack", status)),
                Err(CallError::Refused(why) | CallError::TooLarge(why)) => {
                    report(&self.client, "nack", nack(true, &format!("the result was refused: {why}"))).await
                }
                Err(CallError::Lost(why) | CallError::Unavailable(why)) => Err(why),
            },
            (End::Failed { .. }, Some(StopReason::Stop | StopReason::HandOver)) => {
                report(&self.client, "release", Fields::default()).await
            }
            (End::Failed { is_retryable, reason }, _) => {
                report(&self.client, "nack", nack(is_retryable, &reason)).await
            }
        }
    }

    /// Runs `work` unless it becomes pointless: the lease is lost, or the worker stops while the server is unavailable.
    async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        let lost = async {
            let mut lease_state = self.lease_state.clone();
            let lost = lease_state
                .wait_for(|lease_state| lease_state.lost.is_some())
                .await
                .ok()
                .and_then(|lease_state| lease_state.lost.clone());
            match lost {
                Some(why) => why,
                None => pending().await,
            }
        };
        let stopped = async {
            stopped_at(&self.stop, Stop::Draining).await;
            tokio::select! {
                () = sleep(self.work.grace.max(ABORT_GRACE)) => {}
                () = async { stopped_at(&self.stop, Stop::Aborting).await; sleep(ABORT_GRACE).await } => {}
            }
        };
        tokio::select! {
            done = work => Ok(done),
            why = lost => Err(why),
            () = stopped => Err("the worker stopped before it could reach the server".to_owned()),
        }
    }

    fn why_not(&self, why: Option<StopReason>) -> String {
        match (why, &self.lease_state.borrow().lost) {
            (Some(StopReason::HardLimit), _) => "the hard time limit passed; the server ends the attempt".to_owned(),
            (_, Some(lost)) => lost.clone(),
            _ => "the lease is lost".to_owned(),
        }
    }
}

/// Sends all reports of the program. Logs and skips those that the server refuses.
async fn deliver(outbox: Arc<Outbox>, client: Arc<JobClient>) {
    while let Some(next) = outbox.take().await {
        match client.report(&next).await {
            Ok(()) => {}
            Err(CallError::Refused(why) | CallError::TooLarge(why)) => {
                output::note(&format!("job {}: {} was refused: {why}", client.id, next.name()))
            }
            // The heartbeats notice the same.
            Err(CallError::Lost(_) | CallError::Unavailable(_)) => return,
        }
    }
}

async fn report(client: &JobClient, verb: &'static str, fields: Fields) -> Reported {
    match client.outcome(verb, &fields).await {
        Ok(status) => Ok((verb, status)),
        Err(
            CallError::Lost(why) | CallError::Unavailable(why) | CallError::Refused(why) | CallError::TooLarge(why),
        ) => Err(format!("{verb}: {why}")),
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

/// Ends when the worker has reached this stage of stopping.
async fn stopped_at(stop: &watch::Receiver<Stop>, least: Stop) {
    let is_stopped = stop.clone().wait_for(|stop| *stop >= least).await.is_ok();
    if !is_stopped {
        pending::<()>().await;
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
