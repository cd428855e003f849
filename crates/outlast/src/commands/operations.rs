//! `outlast operations`: bulk operations, which run on the server. Other commands start one and follow it
//! here; leaving early, with Ctrl-C for example, does not stop it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use crate::age;
use crate::client::{Answer, Call, Remote};
use crate::config::Environment;
use crate::display::Display;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, cell, escape};
use crate::table::{Cell, Column, Pairs, Table};

/// Between two reads of a running operation.
const POLL: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the newest operations
    #[command(after_help = EXIT_CODES)]
    List {
        /// Number of operations
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
        limit: u16,
    },
    /// Show an operation
    #[command(after_help = EXIT_CODES)]
    Show { id: String },
    /// Wait until an operation ends
    #[command(after_help = EXIT_CODES)]
    Watch { id: String },
    /// Stop an operation; jobs that it has processed stay as they are
    #[command(after_help = EXIT_CODES)]
    Stop { id: String },
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    match args.action {
        Action::List { limit } => list(&session, limit).await,
        Action::Show { id } => {
            let answer = session.client.send(Call::get(&["v1", "operations", &id])).await?;
            show(&session, &answer)
        }
        Action::Watch { id } => {
            let answer = session.client.send(Call::get(&["v1", "operations", &id])).await?;
            follow(&session, answer).await.map(drop)
        }
        Action::Stop { id } => {
            let answer = session.client.send(Call::post(&["v1", "operations", &id, "stop"])).await?;
            show(&session, &answer)
        }
    }
}

async fn list(session: &Session, limit: u16) -> Result<(), Failure> {
    let call = Call::get(&["v1", "operations"]).query("limit", limit.to_string());
    let page = session.client.page(call).await?;
    session.print_page(&page, "no operations", |page| table(&page.values(), session.display))
}

fn table(operations: &[Value], display: Display) -> String {
    let mut table = Table::new(&[
        Column::fixed("id"),
        Column::fixed("kind"),
        Column::text("queue"),
        Column::fixed("status"),
        Column::number("processed"),
        Column::number("skipped").rank(2),
        Column::fixed("started"),
        Column::fixed("finished").rank(1),
    ]);
    let now = age::now();
    for operation in operations {
        let time = |name: &str| operation.get(name).and_then(|at| age::relative(at, now)).unwrap_or("-".to_owned());
        table.row([
            cell(operation, "id").into(),
            cell(operation, "kind").into(),
            cell(operation, "queue").into(),
            Cell::status(cell(operation, "status")),
            cell(operation, "processed").into(),
            cell(operation, "skipped").into(),
            time("createdAt").into(),
            time("finishedAt").into(),
        ]);
    }
    table.render(display)
}

fn show(session: &Session, answer: &Answer) -> Result<(), Failure> {
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let (mut pairs, now) = (Pairs::default(), age::now());
    for (name, value) in answer.json.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "status" => pairs.row(name, Cell::status(output::show(value))),
            name if name.ends_with("At") => pairs.row(name, age::stamp(value, now)),
            name => pairs.row(name, output::show(value)),
        }
    }
    output::print(&pairs.render(session.display))
}

/// Follows the operation that `started` shows to its end, prints it and returns it.
pub(crate) async fn follow(session: &Session, started: Answer) -> Result<Value, Failure> {
    let id = cell(&started.json, "id");
    let mut answer = started;
    let is_live = io::stderr().is_terminal();
    if is_running(&answer.json) {
        output::note(&format!(
            "operation {id} is running; Ctrl-C does not stop it, `outlast operations stop {id}` does"
        ));
    }
    while is_running(&answer.json) {
        tokio::time::sleep(POLL).await;
        answer = session.client.send(Call::get(&["v1", "operations", &id])).await?;
        if is_live {
            // Only a progress line; a terminal that cannot be written to loses nothing that matters.
            let _ = write!(io::stderr(), "\r{} processed", escape(&cell(&answer.json, "processed")));
        }
    }
    if is_live {
        let _ = write!(io::stderr(), "\r");
    }
    finish(session, &answer)?;
    Ok(answer.json)
}

fn finish(session: &Session, answer: &Answer) -> Result<(), Failure> {
    if session.is_json {
        output::print_json(&answer.text)?;
    } else {
        output::print(&format!("{}\n", escape(&summary(&answer.json))))?;
    }
    match answer.json.get("status").and_then(Value::as_str) {
        Some("done") => Ok(()),
        _ => {
            let message = format!("operation {} is {}", cell(&answer.json, "id"), cell(&answer.json, "status"));
            Err(Failure::new(Exit::Refused, message).printed())
        }
    }
}

fn summary(operation: &Value) -> String {
    let kind = cell(operation, "kind");
    let head = format!("{kind} of queue \"{}\" {}", cell(operation, "queue"), cell(operation, "status"));
    let skipped = operation.get("skipped").and_then(Value::as_u64).unwrap_or_default();
    let skipped = match skipped {
        0 => String::new(),
        count => format!(", {count} skipped (another job has their idempotency key)"),
    };
    format!("{head}: {} processed{skipped}", cell(operation, "processed"))
}

fn is_running(operation: &Value) -> bool {
    operation.get("status").and_then(Value::as_str) == Some("running")
}
