//! The commands for what is in a queue, without the word `queues` in front: `outlast peek mail`. Hidden in the list of
//! commands, where they would stand beside their own noun; the help of `queues` tells of them.

use clap::Subcommand;

use super::{Action, Args, Dlq, Drain, Inspect, Peek, Retry};
use crate::client::Remote;
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum Shortcut {
    /// Show settings, counts and recent jobs of a queue
    #[command(hide = true, after_help = EXIT_CODES)]
    Inspect(Alone<Inspect>),
    /// Show the next waiting jobs of a queue without taking them
    #[command(hide = true, after_help = EXIT_CODES)]
    Peek(Alone<Peek>),
    /// Show the dead letters of a queue, the newest first
    #[command(hide = true, after_help = EXIT_CODES)]
    Dlq(Alone<Dlq>),
    /// Replay dead letters of a queue: all of them, or those that are named
    #[command(hide = true, after_help = EXIT_CODES)]
    Retry(Alone<Retry>),
    /// Cancel every waiting job of a queue
    #[command(hide = true, after_help = EXIT_CODES)]
    Drain(Alone<Drain>),
}

/// A command with the flags that its noun has otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Alone<T: clap::Args> {
    #[command(flatten)]
    remote: Remote,
    #[command(flatten)]
    args: T,
}

pub(crate) async fn run(shortcut: Shortcut, environment: &Environment) -> Result<(), Failure> {
    let (remote, action) = match shortcut {
        Shortcut::Inspect(alone) => (alone.remote, Action::Inspect(alone.args)),
        Shortcut::Peek(alone) => (alone.remote, Action::Peek(alone.args)),
        Shortcut::Dlq(alone) => (alone.remote, Action::Dlq(alone.args)),
        Shortcut::Retry(alone) => (alone.remote, Action::Retry(alone.args)),
        Shortcut::Drain(alone) => (alone.remote, Action::Drain(alone.args)),
    };
    super::run(Args { remote, action }, environment).await
}
