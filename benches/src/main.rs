//! The benchmark of the server: starts the real program, loads it over loopback HTTP and prints ratios with limits.
//! The generator runs on one thread, since it shares the cores with what it measures.

mod answer;
mod backlog;
mod beats;
mod ceiling;
mod claim;
mod clock;
mod connection;
mod disk;
mod download;
mod filter;
mod ingest;
mod latency;
mod load;
mod nginx;
mod open_loop;
mod postgres;
mod process;
mod procfs;
mod push;
mod receiver;
mod report;
mod request;
mod settings;
mod throughput;
mod unit;
mod viewers;
mod work;

use std::fs;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::Report;
use crate::settings::{Cli, Command, RunArgs, Scenario, Settings};

/// The ceiling runs on the same allocator as the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if let Some(Command::Ceiling { listen }) = cli.command {
        ceiling::run(listen)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = run(&cli.run) => done,
            // Returning drops what was started: processes end, data directories go.
            interrupted = interrupt() => {
                interrupted?;
                bail!("interrupted");
            }
        }
    })
}

async fn interrupt() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn run(args: &RunArgs) -> Result<ExitCode> {
    let settings = Settings::new(args)?;
    let mut report = Report::default();
    describe_machine(&settings, &mut report);
    if settings.wants_any(&Scenario::THROUGHPUT) {
        throughput::run(&settings, &mut report).await?;
    }
    if settings.wants(Scenario::Ingest) {
        ingest::run(&settings, &mut report).await?;
    }
    if settings.wants(Scenario::Latency) {
        latency::run(&settings, &mut report).await?;
    }
    if settings.wants_any(&Scenario::BACKLOG) {
        backlog::run(&settings, &mut report).await?;
    }
    if settings.wants_any(&Scenario::PUSH) {
        push::run(&settings, &mut report).await?;
    }
    if settings.wants(Scenario::Viewers) {
        viewers::run(&settings, &mut report).await?;
    }
    if settings.wants(Scenario::Beats) {
        beats::run(&settings, &mut report).await?;
    }
    if settings.wants(Scenario::Filter) {
        filter::run(&settings, &mut report)?;
    }
    let mut ended = Ok(());
    if settings.wants(Scenario::Download) {
        // An nginx or PostgreSQL that is missing or fails does not take away the figures that are there already.
        ended = download::run(&settings, &mut report).await;
    }
    if settings.wants_any(&Scenario::POSTGRES) {
        ended = ended.and(postgres::run(&settings, &mut report).await);
    }

    println!("\n{}", report.table());
    if let Some(path) = &args.out {
        let text = serde_json::to_string_pretty(&report.json())?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    ended?;
    let missed = report.missed();
    if missed > 0 {
        println!("{missed} missed");
    }
    Ok(ExitCode::from(u8::from(args.strict && missed > 0)))
}

fn describe_machine(settings: &Settings, report: &mut Report) {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let file_system = procfs::file_system(&settings.dir);
    report.note("machine", format!("{cores} × {}", procfs::cpu_model()));
    report.note("file system of the data", file_system.clone());
    if file_system == "tmpfs" {
        report.note("warning", "tmpfs makes a sync free: use --dir".to_owned());
    }
    report.note(
        "load",
        format!(
            "{} s per phase ({} s on PostgreSQL), backlog {}, payload {} B",
            settings.span.measured.as_secs(),
            settings.postgres_span.measured.as_secs(),
            settings.backlog,
            request::PAYLOAD_BYTES
        ),
    );
    if settings.is_quick {
        report.note("warning", "a quick run: do not quote it".to_owned());
    }
}
