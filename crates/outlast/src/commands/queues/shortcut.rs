//! Commands of a queue without the word `queues`: `outlast peek mail`. Hidden in the list of commands; the help of
//! `queues` names them.

use clap::Subcommand;

use super::{Action, Args, Inspect, Peek, Purge};
use crate::client::Remote;
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};

#[derive(Debug, Subcommand)]
pub(crate) enum Shortcut {
    /// Show settings, counts and recent jobs of a queue
    #[command(hide = true, after_help = EXIT_CODES)]
    Inspect(Inspect),
    /// Show the next waiting jobs of a queue without receiving them
    #[command(hide = true, after_help = EXIT_CODES)]
    Peek(Peek),
    /// Cancel every waiting job of a queue
    #[command(hide = true, after_help = EXIT_CODES)]
    Purge(Purge),
}

pub(crate) async fn run(shortcut: Shortcut, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let action = match shortcut {
        Shortcut::Inspect(args) => Action::Inspect(args),
        Shortcut::Peek(args) => Action::Peek(args),
        Shortcut::Purge(args) => Action::Purge(args),
    };
    super::run(Args { action }, remote, environment).await
}
