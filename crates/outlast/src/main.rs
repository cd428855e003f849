//! The `outlast` binary: the server, and the command line that talks to one over its public API.

mod age;
mod client;
mod commands;
mod config;
mod display;
mod failure;
mod output;
mod progress_bar;
#[cfg(test)]
mod reference;
mod serve;
mod table;
mod telemetry;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::client::Remote;
use crate::commands::queues::shortcut::{self, Shortcut};
use crate::commands::{
    backup, completions, consume, dead, defaults, doctor, events, filter, jobs, keys, listen, operations, queues,
    reload, restore, send, sources, start, tail, validate, worker,
};
use crate::config::Environment;
use crate::display::{Display, takes_colour};
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
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(start::Args),
    /// Run the server for development on this machine
    Dev(start::DevArgs),
    /// Print every configuration option with its default
    Config(defaults::Args),
    /// Check a configuration file and explain every problem
    Validate(validate::Args),
    /// Check data directory, configuration, server and key
    Doctor(doctor::Args),
    /// Copy an embedded store with its keys and objects, while the server runs
    Backup(backup::Args),
    /// Create a data directory from a backup
    Restore(restore::Args),
    /// Test a filter on an event and show why it matches or does not
    Filter(filter::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Create, inspect and operate queues
    Queues(Box<queues::Args>),
    #[command(flatten)]
    Queue(Box<Shortcut>),
    /// Publish, inspect and operate jobs
    Jobs(jobs::Args),
    /// List, replay and discard dead letters
    Dead(dead::Args),
    /// Receive jobs of a pull queue and print their leases and payloads
    Receive(consume::Receive),
    /// Report a received job as done
    Ack(consume::Ack),
    /// Report a received job as failed
    Nack(consume::Nack),
    /// Follow and stop bulk operations
    Operations(operations::Args),
    /// List the sources of a configuration file
    Sources(sources::Args),
    /// List, show and replay events of sources
    Events(events::Args),
    /// Send a test event to a source, signed as its provider would
    Send(send::Args),
    /// Follow new events of sources
    Tail(tail::Args),
    /// Make a running server read its configuration again
    Reload(reload::Args),
    /// Create, list and revoke API keys
    Keys(keys::Args),
    /// Run a test endpoint that shows deliveries and answers them
    Listen(listen::Args),
    /// Run a program for each job of a pull queue
    Worker(worker::Args),
}

/// Commands that call no server; `--url` and `--key` have no effect on them.
const LOCAL: [&str; 9] =
    ["serve", "dev", "config", "validate", "filter", "completions", "sources", "backup", "restore"];

fn main() -> ExitCode {
    // The TLS library is built without a default provider. An error means that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let environment = Environment::from_process();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let wants_json = wants_json(&arguments);
    let ended = parse(arguments).and_then(|cli| execute(cli, &environment));
    let Err(failure) = ended else {
        return ExitCode::SUCCESS;
    };
    if wants_json {
        failure.print_json();
    }
    let is_terminal = std::io::stderr().is_terminal();
    failure.print(Display { width: None, has_colour: is_terminal && takes_colour(&environment) });
    ExitCode::from(failure.exit.code())
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, Failure> {
    let matches = Cli::command().try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    let name = matches.subcommand_name().unwrap_or_default();
    let given = [("--url", cli.remote.url.is_some()), ("--key", cli.remote.key.is_some())];
    match given.iter().find(|(_, is_given)| *is_given && LOCAL.contains(&name)) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag} has no effect: `outlast {name}` calls no server"))),
        None => Ok(cli),
    }
}

/// Help and version are printed here and end the process; everything else is a usage error.
fn usage(error: &clap::Error) -> Failure {
    if !error.use_stderr() {
        error.exit();
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed stderr loses the help; the exit code still tells.
        let _ = error.print();
        return Failure::usage("a command is missing");
    }
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Failure { details: lines.map(|line| line.trim().to_owned()).collect(), ..Failure::usage(message) }
}

/// Known before the arguments are parsed, so that mistakes in them are reported as JSON too.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

fn execute(cli: Cli, environment: &Environment) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Refused, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(run(cli, environment))
}

async fn run(cli: Cli, environment: &Environment) -> Result<(), Failure> {
    let Cli { remote, command } = cli;
    match command {
        Command::Serve(args) => start::run(&args, environment, Mode::Serve).await,
        Command::Dev(args) => start::run(&args.start, environment, Mode::Dev(args.clock)).await,
        Command::Config(_) => defaults::run(),
        Command::Validate(args) => validate::run(&args, &remote, environment),
        Command::Doctor(args) => doctor::run(&args, &remote, environment).await,
        Command::Backup(args) => backup::run(args, environment).await,
        Command::Restore(args) => restore::run(args, environment).await,
        Command::Filter(args) => filter::run(&args, &remote, environment),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Queues(args) => queues::run(*args, &remote, environment).await,
        Command::Queue(shortcut) => shortcut::run(*shortcut, &remote, environment).await,
        Command::Jobs(args) => jobs::run(args, &remote, environment).await,
        Command::Dead(args) => dead::run(args, &remote, environment).await,
        Command::Receive(args) => consume::receive(&args, &remote, environment).await,
        Command::Ack(args) => consume::ack(&args, &remote, environment).await,
        Command::Nack(args) => consume::nack(&args, &remote, environment).await,
        Command::Operations(args) => operations::run(args, &remote, environment).await,
        Command::Sources(args) => sources::run(&args, &remote, environment),
        Command::Events(args) => events::run(args, &remote, environment).await,
        Command::Send(args) => send::run(&args, &remote, environment).await,
        Command::Tail(args) => tail::run(&args, &remote, environment).await,
        Command::Reload(args) => reload::run(&args, &remote, environment).await,
        Command::Keys(args) => keys::run(args, &remote, environment).await,
        Command::Listen(args) => listen::run(args, &remote, environment).await,
        Command::Worker(args) => worker::run(args, &remote, environment).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(line: &str) -> Remote {
        match parse(line.split(' ').map(OsString::from).collect()) {
            Ok(cli) => cli.remote,
            Err(failure) => panic!("{line}: {failure:?}"),
        }
    }

    #[test]
    fn the_flags_of_all_commands_go_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_flags_of_the_server_are_taken_anywhere_on_the_line() {
        for line in [
            "outlast --url http://a --key k --json -c f jobs list",
            "outlast jobs --url http://a --key k --json -c f list",
            "outlast jobs list --url http://a --key k --json -c f",
            "outlast --url http://a jobs --key k list --json -c f",
        ] {
            let remote = remote(line);
            assert_eq!((remote.url.as_deref(), remote.key.as_deref()), (Some("http://a"), Some("k")), "{line}");
            assert!(remote.json && remote.config.is_some(), "{line}");
        }
        assert_eq!(remote("outlast --url http://a jobs list --url http://b").url.as_deref(), Some("http://b"));
    }

    #[test]
    fn a_server_takes_its_flags_before_and_after_its_word() {
        for line in ["outlast --data d -c f serve", "outlast serve --data d -c f"] {
            let cli =
                parse(line.split(' ').map(OsString::from).collect()).unwrap_or_else(|failure| panic!("{failure:?}"));
            let Command::Serve(args) = cli.command else { panic!("{line}") };
            assert!(args.flags.data.is_some() && args.flags.config.is_some(), "{line}");
        }
    }

    #[test]
    fn flags_without_an_effect_are_refused() {
        for name in LOCAL {
            let words = match name {
                "filter" => vec!["outlast", "filter", "$.a exists", "--url", "http://a"],
                "completions" => vec!["outlast", "completions", "bash", "--url", "http://a"],
                "sources" => vec!["outlast", "sources", "list", "--url", "http://a"],
                "backup" | "restore" => vec!["outlast", name, "copy", "--url", "http://a"],
                name => vec!["outlast", "--url", "http://a", name],
            };
            let refused = parse(words.into_iter().map(OsString::from).collect()).err().unwrap();
            assert_eq!(refused.message, format!("--url has no effect: `outlast {name}` calls no server"));
        }
    }

    #[test]
    fn json_is_asked_for_by_the_flag_and_not_by_an_argument_of_a_program() {
        let asked = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());

        assert!(asked("outlast --json nonsense") && asked("outlast jobs list --json"));
        assert!(!asked("outlast worker run work -- program --json"));
    }
}
