//! `outlast worker run`: runs any program as a worker of a pull queue. Receives jobs, starts the program for each, renews
//! the lease, forwards progress and cancels, and reports the outcome.

mod attempt;
mod backoff;
mod job_client;
mod exit;
mod lease;
mod protocol;
mod directives;
mod outbox;
mod pipe;
mod pool;
mod program;
mod handout;
mod result;
mod workdir;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use rustix::fs::{Access, access};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Session;
use crate::client::{Remote, duration};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output;

use exit::PROGRAM_EXITS;
use lease::Pace;
use pool::{Pool, Until};
use result::ResultFlags;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a program for each job of a pull queue: payload on stdin, exit code as outcome
    #[command(after_help = format!("{PROGRAM_EXITS}\n\n{EXIT_CODES}"))]
    Run(Box<Run>),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// A pull queue
    queue: String,
    /// Number of jobs that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: u16,
    /// Lease time; heartbeats renew the lease while the program runs
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    visibility: Duration,
    /// Time between heartbeats; the worker learns of a cancel at the next one [default: a third of the lease]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    heartbeat: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when the worker stops or has lost the lease
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// End after one job
    #[arg(long, conflicts_with = "until_empty")]
    once: bool,
    /// End when no job is waiting
    #[arg(long)]
    until_empty: bool,
    /// Name of this worker; `jobs show` displays it
    #[arg(long)]
    name: Option<String>,
    /// Accept checkpoints of this schema version only; may be repeated
    #[arg(long, value_name = "VERSION")]
    accepts_schema: Vec<u32>,
    /// Pass the API key to the program, as OUTLAST_KEY
    #[arg(long)]
    pass_key: bool,
    #[command(flatten)]
    result_flags: ResultFlags,
    /// The program and its arguments
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Settings that all jobs of this worker share.
struct Work {
    session: Arc<Session>,
    queue: String,
    name: Option<String>,
    command: Vec<OsString>,
    pace: Pace,
    grace: Duration,
    accepts_schema: Vec<u32>,
    passes_key: bool,
    result_flags: ResultFlags,
}

/// Stages of stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Working,
    /// No new jobs; programs have their grace to end.
    Draining,
    /// Programs are killed.
    Aborting,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Arc::new(Session::open(remote, environment)?);
    match args.action {
        Action::Run(run) => work(*run, session, environment).await,
    }
}

async fn work(run: Run, session: Arc<Session>, environment: &Environment) -> Result<(), Failure> {
    let program = run.command.first().map(OsString::as_os_str).unwrap_or_default();
    find(program, environment.variable("PATH").unwrap_or_default())?;
    let until = match (run.once, run.until_empty) {
        (true, _) => Until::OneJob,
        (_, true) => Until::Empty,
        _ => Until::Signalled,
    };
    let work = Work {
        session,
        queue: run.queue,
        name: run.name,
        command: run.command,
        pace: Pace { lease: run.visibility, interval: run.heartbeat },
        grace: run.grace,
        accepts_schema: run.accepts_schema,
        passes_key: run.pass_key,
        result_flags: run.result_flags,
    };
    // Before the first job, so that a signal never leaves a program running.
    let mut signals = Signals::take()?;
    output::note(&format!("receiving jobs from queue \"{}\"; Ctrl-C stops", work.queue));
    let stop = Arc::new(watch::channel(Stop::Working).0);
    let pool = Pool { work: Arc::new(work), slots: usize::from(run.concurrency), until, stop: Arc::clone(&stop) };
    let mut working = std::pin::pin!(pool.run());
    loop {
        tokio::select! {
            ended = &mut working => return ended,
            () = signals.next() => {
                stop.send_modify(|stop| *stop = stop.next());
                output::note("stopping: no new jobs; running programs got SIGTERM, the next signal kills them");
            }
        }
    }
}

impl Stop {
    fn next(self) -> Stop {
        match self {
            Stop::Working => Stop::Draining,
            Stop::Draining | Stop::Aborting => Stop::Aborting,
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn take() -> Result<Signals, Failure> {
        let refuse = |error: std::io::Error| Failure::new(Exit::Refused, format!("cannot wait for signals: {error}"));
        let interrupt = signal(SignalKind::interrupt()).map_err(refuse)?;
        Ok(Signals { interrupt, terminate: signal(SignalKind::terminate()).map_err(refuse)? })
    }

    /// Cancel-safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Checks the program before the first job: a missing one is a usage error, not a failure of every job.
fn find(program: &OsStr, search: &str) -> Result<PathBuf, Failure> {
    let is_runnable = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let given = Path::new(program);
    let mut candidates: Vec<PathBuf> = match given.components().count() {
        1 if !program.as_encoded_bytes().contains(&b'/') => {
            std::env::split_paths(search).map(|directory| directory.join(given)).collect()
        }
        _ => vec![given.to_owned()],
    };
    candidates.retain(|path| is_runnable(path));
    candidates.into_iter().next().ok_or_else(|| {
        Failure::usage(format!("\"{}\" is not an executable program", given.display()))
            .with_hint("give its path, as in -- ./work.sh, or a shell, as in -- sh -c 'cat; echo'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_a_shell_would() {
        assert_eq!(find(OsStr::new("sh"), "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
        assert!(find(OsStr::new("/bin/sh"), "").is_ok());
        for missing in ["sh", "./sh", "/bin", ""] {
            assert_eq!(find(OsStr::new(missing), "/nowhere").unwrap_err().exit, Exit::Usage, "{missing}");
        }
    }

    #[test]
    fn a_second_signal_ends_at_once() {
        assert_eq!(Stop::Working.next(), Stop::Draining);
        assert_eq!(Stop::Draining.next(), Stop::Aborting);
    }
}
