//! `outlast queues`: create, inspect and operate queues.

pub(crate) mod shortcut;

mod flags;
mod create;
mod secret;
mod list;
mod inspect;
mod peek;
mod purge;
mod delete;

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, escape, show};

use delete::Delete;
use inspect::Inspect;
use peek::Peek;
use purge::Purge;

/// Below the help of the noun.
const SHORTCUTS: &str = "inspect, peek and purge also work without the word queues, as in `outlast peek mail`.";

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SHORTCUTS}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List queues with their waiting, running and dead jobs, holds and the age of the oldest waiting job
    #[command(after_help = EXIT_CODES)]
    List,
    /// Create a queue
    #[command(after_help = EXIT_CODES)]
    Create(create::Create),
    /// Change settings of a queue; the others stay as they are
    #[command(after_help = EXIT_CODES)]
    Update(create::Update),
    /// Create a new signing secret and show it, once
    #[command(after_help = EXIT_CODES)]
    RotateSecret(secret::Rotate),
    /// Show settings, counts and recent jobs
    #[command(after_help = EXIT_CODES, visible_alias = "show")]
    Inspect(Inspect),
    /// Show the next waiting jobs without receiving them
    #[command(after_help = EXIT_CODES)]
    Peek(Peek),
    /// Stop handing out jobs; publishing still works
    #[command(after_help = EXIT_CODES)]
    Pause { name: String },
    /// Hand out jobs again
    #[command(after_help = EXIT_CODES)]
    Resume { name: String },
    /// Cancel every waiting job
    #[command(after_help = EXIT_CODES)]
    Purge(Purge),
    /// Delete a queue
    #[command(after_help = EXIT_CODES)]
    Delete(Delete),
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    match args.action {
        Action::List => list::run(&session).await,
        Action::Create(create) => create::create(&session, &create).await,
        Action::Update(update) => create::update(&session, &update).await,
        Action::RotateSecret(rotate) => secret::rotate(&session, &rotate).await,
        Action::Inspect(args) => inspect::run(&session, &args).await,
        Action::Peek(args) => peek::run(&session, &args).await,
        Action::Pause { name } => switch(&session, &name, "pause").await,
        Action::Resume { name } => switch(&session, &name, "resume").await,
        Action::Purge(args) => purge::run(&session, &args).await,
        Action::Delete(args) => delete::run(&session, &args).await,
    }
}

/// How many jobs of a queue are in a state.
fn count(queue: &Value, status: &str) -> String {
    show(queue.pointer(&format!("/counts/{status}")).unwrap_or(&Value::Null))
}

async fn switch(session: &Session, name: &str, verb: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::post(&["v1", "queues", name, verb])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("queue \"{}\" is {verb}d\n", escape(name)))
}
