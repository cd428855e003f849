//! The command line, and what a run takes from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::load::Span;

const SECONDS: u64 = 8;
const BACKLOG: u64 = 1_000_000;
const QUICK_SECONDS: u64 = 2;
const QUICK_BACKLOG: u64 = 50_000;
const WARM_UP: Duration = Duration::from_secs(1);
/// Phases on PostgreSQL are this many times longer: its tables slow down as dead rows pile up between two vacuums.
const POSTGRES_LONGER: u32 = 3;

/// Measures an Outlast server on this machine and prints ratios.
#[derive(Parser)]
#[command(name = "outlast-bench", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve the bare ceiling until stdin closes (started by the benchmark itself).
    Ceiling {
        #[arg(long)]
        listen: SocketAddr,
    },
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The server to measure.
    #[arg(long, default_value = "target/release/outlast")]
    server: PathBuf,
    /// Run only this scenario; may be given more than once.
    #[arg(long)]
    scenario: Vec<Scenario>,
    /// Seconds that each phase is measured, after one second of warm-up; three times as long on PostgreSQL.
    #[arg(long)]
    seconds: Option<u64>,
    /// Where data directories are made; by default beside the server.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Short phases and a small backlog: shows that the benchmark works, says nothing about speed.
    #[arg(long)]
    quick: bool,
    /// Write the figures as JSON to this file.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Fail when a limit is missed.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    Publish,
    Lifecycle,
    LifecycleBatch,
    Polls,
    Latency,
    Memory,
    Disk,
    Idle,
    Restart,
    Claim,
    Push,
    PushLatency,
    PushAwaiting,
    PushFair,
    Viewers,
    Beats,
    Download,
    Filter,
    Ingest,
    PgPublish,
    PgLifecycle,
    PgLifecycleBatch,
    PgTwoNodes,
    PgClaim,
    PgIngest,
}

impl Scenario {
    pub(crate) const THROUGHPUT: [Self; 4] = [Self::Publish, Self::Lifecycle, Self::LifecycleBatch, Self::Polls];
    pub(crate) const BACKLOG: [Self; 5] = [Self::Memory, Self::Disk, Self::Idle, Self::Restart, Self::Claim];
    pub(crate) const PUSH: [Self; 4] = [Self::Push, Self::PushLatency, Self::PushAwaiting, Self::PushFair];
    pub(crate) const POSTGRES: [Self; 6] =
        [Self::PgPublish, Self::PgLifecycle, Self::PgLifecycleBatch, Self::PgTwoNodes, Self::PgClaim, Self::PgIngest];
}

pub(crate) struct Settings {
    pub(crate) server: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) span: Span,
    pub(crate) postgres_span: Span,
    pub(crate) backlog: u64,
    pub(crate) is_quick: bool,
    scenarios: Vec<Scenario>,
}

impl Settings {
    pub(crate) fn new(args: &RunArgs) -> Result<Self> {
        let server =
            args.server.canonicalize().with_context(|| format!("there is no server at {}", args.server.display()))?;
        let dir = match (&args.dir, server.parent()) {
            (Some(dir), _) => dir.clone(),
            (None, Some(parent)) => parent.to_owned(),
            (None, None) => anyhow::bail!("the server has no directory"),
        };
        let (default_seconds, backlog) = if args.quick { (QUICK_SECONDS, QUICK_BACKLOG) } else { (SECONDS, BACKLOG) };
        let measured = Duration::from_secs(args.seconds.unwrap_or(default_seconds));
        Ok(Self {
            server,
            dir,
            span: Span { warm_up: WARM_UP, measured },
            postgres_span: Span { warm_up: WARM_UP, measured: measured * POSTGRES_LONGER },
            backlog,
            is_quick: args.quick,
            scenarios: args.scenario.clone(),
        })
    }

    /// Without a choice, all scenarios are wanted.
    pub(crate) fn wants(&self, scenario: Scenario) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    pub(crate) fn wants_any(&self, scenarios: &[Scenario]) -> bool {
        scenarios.iter().any(|scenario| self.wants(*scenario))
    }
}
