//! Bulk operations: shows how far one is until it ends. The server carries it out by itself; leaving this early, with
//! Ctrl-C say, does not stop it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::Value;

use super::Session;
use crate::client::{Answer, Call};
use crate::failure::{Exit, Failure};
use crate::output::{self, cell, escape};

/// Between two looks at a running operation.
const POLL: Duration = Duration::from_millis(500);

/// Follows the operation that `started` answered with to its end, prints it and hands it back.
pub(crate) async fn follow(session: &Session, started: Answer) -> Result<Value, Failure> {
    let id = cell(&started.json, "id");
    let mut answer = started;
    let is_live = io::stderr().is_terminal();
    if is_running(&answer.json) {
        output::note(&format!("operation {id} started"));
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
        _ => Err(Failure::new(Exit::Refused, format!("operation {} did not finish", cell(&answer.json, "id")))),
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
