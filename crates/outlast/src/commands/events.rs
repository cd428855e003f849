//! `outlast events`: the events that sources have sent. Lists and shows them, and creates their jobs again.

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use super::settings::Fields;
use crate::age;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::display::Display;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, cell, escape, show, show_pairs};
use crate::table::{Column, Pairs, Table};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List events, the newest first
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Show an event with its payload
    #[command(after_help = EXIT_CODES)]
    Show { id: String },
    /// Create the jobs of an event again
    #[command(after_help = EXIT_CODES)]
    Replay {
        id: String,
        /// Only in this queue
        #[arg(long)]
        queue: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only events of this source
    #[arg(long)]
    source: Option<String>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Number of events
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Continue from a previous nextCursor
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    match args.action {
        Action::List(filter) => list(&session, filter).await,
        Action::Show { id } => show_one(&session, &id).await,
        Action::Replay { id, queue } => replay(&session, &id, queue.as_ref()).await,
    }
}

async fn list(session: &Session, filter: List) -> Result<(), Failure> {
    let mut query = Vec::new();
    for (name, value) in [("source", filter.source), ("type", filter.kind)] {
        query.extend(value.map(|value| (name, value)));
    }
    let page = session.client.list(&["v1", "events"], &query, filter.cursor, filter.limit).await?;
    session.print_page(&page, "no events", |page| table(&page.values(), session.display))
}

fn table(events: &[Value], display: Display) -> String {
    let mut table = Table::new(&[
        Column::fixed("id"),
        Column::text("source"),
        Column::text("type").at_least(12),
        Column::number("jobs"),
        Column::fixed("received"),
        Column::fixed("received at").rank(1),
    ]);
    let now = age::now();
    for event in events {
        let received = event.get("receivedAt").unwrap_or(&Value::Null);
        table.row([
            cell(event, "id").into(),
            cell(event, "source").into(),
            cell(event, "type").into(),
            cell(event, "jobsCreated").into(),
            age::relative(received, now).unwrap_or("-".to_owned()).into(),
            show(received).into(),
        ]);
    }
    table.render(display)
}

async fn show_one(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "events", id])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let (mut pairs, now) = (Pairs::default(), age::now());
    for (name, value) in answer.json.as_object().into_iter().flatten() {
        let shown = match value {
            Value::Null => continue,
            _ if name == "payload" => continue,
            Value::Object(_) => show_pairs(Some(value)),
            value if name.ends_with("At") => age::stamp(value, now),
            value => show(value),
        };
        pairs.row(name, shown);
    }
    output::print(&pairs.render(session.display))?;
    match answer.raw("payload") {
        Some(payload) => output::print(&format!("\npayload\n{}\n", escape(&payload))),
        None => Ok(()),
    }
}

async fn replay(session: &Session, id: &str, queue: Option<&String>) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set_some("queue", queue)?;
    let path = ["v1", "events", id, "replay"];
    let answer = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("event {} replayed: {}\n", escape(id), escape(&created(&answer.json))))
}

/// `2 jobs created`.
fn created(answer: &Value) -> String {
    match answer.get("jobs").and_then(Value::as_array).map_or(0, Vec::len) {
        1 => "1 job created".to_owned(),
        count => format!("{count} jobs created"),
    }
}
