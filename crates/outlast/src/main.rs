//! The `outlast` binary: the server, and the command line that talks to one over its public API.

mod progress_bar;
mod client;
mod commands;
mod config;
mod failure;
mod output;
mod serve;
mod telemetry;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::queues::shortcut::{self, Shortcut};
use crate::commands::{
    backup, completions, defaults, doctor, filter, jobs, keys, listen, queues, reload, restore, send, sources, start,
    tail, validate, worker,
};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::serve::Mode;

/// Requests are allocated on one thread and freed on another all the time, which the system's allocator does slowly:
/// with this one a publish takes a tenth less CPU.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Jobs that outlast the request: a durable, HTTP-first job queue.
#[derive(Parser)]
#[command(name = "outlast", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(start::Args),
    /// Run the server for development on this machine
    Dev(start::Args),
    /// Print every option with its default
    Config,
    /// Check a configuration file and explain every problem
    Validate(validate::Args),
    /// Check data directory, configuration, server and key
    Doctor(doctor::Args),
    /// Copy an embedded store with its keys and objects, while the server runs
    Backup(backup::Args),
    /// Make a data directory of a backup
    Restore(restore::Args),
    /// Try a filter on an event and show why it matches or does not
    Filter(filter::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Make, inspect and operate queues
    Queues(Box<queues::Args>),
    #[command(flatten)]
    Queue(Box<Shortcut>),
    /// Publish, inspect and operate jobs
    Jobs(jobs::Args),
    /// List the sources of a configuration file
    Sources(sources::Args),
    /// Send an event to a source as its provider would, for trying out
    Send(send::Args),
    /// Follow the events of sources as they come
    Tail(tail::Args),
    /// Let a running server read its configuration again
    Reload(reload::Args),
    /// Make, list and revoke API keys
    Keys(keys::Args),
    /// Receive deliveries on this machine, show them, and answer as told
    Listen(listen::Args),
    /// Do the jobs of a pull queue with any program
    Worker(worker::Args),
}

fn main() -> ExitCode {
    // The TLS library is built without a default provider. An error means that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let environment = Environment::from_process();
    match execute(cli.command, &environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit.code())
        }
    }
}

fn execute(command: Command, environment: &Environment) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Refused, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(run(command, environment))
}

async fn run(command: Command, environment: &Environment) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => start::run(&args, environment, Mode::Serve).await,
        Command::Dev(args) => start::run(&args, environment, Mode::Dev).await,
        Command::Config => defaults::run(),
        Command::Validate(args) => validate::run(&args, environment),
        Command::Doctor(args) => doctor::run(&args, environment).await,
        Command::Backup(args) => backup::run(args, environment).await,
        Command::Restore(args) => restore::run(args, environment).await,
        Command::Filter(args) => filter::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Queues(args) => queues::run(*args, environment).await,
        Command::Queue(shortcut) => shortcut::run(*shortcut, environment).await,
        Command::Jobs(args) => jobs::run(args, environment).await,
        Command::Sources(args) => sources::run(&args, environment),
        Command::Send(args) => send::run(&args, environment).await,
        Command::Tail(args) => tail::run(&args, environment).await,
        Command::Reload(args) => reload::run(&args, environment).await,
        Command::Keys(args) => keys::run(args, environment).await,
        Command::Listen(args) => listen::run(args, environment).await,
        Command::Worker(args) => worker::run(args, environment).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_all_commands_go_together() {
        Cli::command().debug_assert();
    }
}
