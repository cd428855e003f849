//! `outlast queues inspect`: settings, counts and the newest jobs of a queue.

use serde_json::Value;

use super::count;
use crate::client::Call;
use crate::commands::{Session, jobs};
use crate::failure::Failure;
use crate::output::{self, Table, show, show_pairs};

const STATUSES: [&str; 7] = ["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"];

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    name: String,
    /// How many recent jobs
    #[arg(long, default_value_t = 20)]
    limit: usize,
}

pub(crate) async fn run(session: &Session, args: &Inspect) -> Result<(), Failure> {
    let name = args.name.as_str();
    let queue = session.client.send(Call::get(&["v1", "queues", name])).await?;
    let query = [("queue", name.to_owned())];
    let recent = session.client.list(&["v1", "jobs"], &query, None, args.limit).await?;
    if session.is_json {
        return output::print_json(&format!("{{\"queue\":{},\"jobs\":{}}}", queue.text.trim(), recent.to_json()?));
    }
    output::print(&settings_table(&queue.json))?;
    output::print(&format!("\n{}", counts_table(&queue.json)))?;
    if recent.items.is_empty() {
        return output::print("\nno jobs\n");
    }
    output::print(&format!("\n{}", jobs::table(&recent.values())))
}

/// What a reader looks for first; the rest follows as it came.
const FIRST: [&str; 6] = ["name", "mode", "webhookUrl", "paused", "hold", "pace"];

/// Everything that is set, names as in the API.
fn settings_table(queue: &Value) -> String {
    let mut table = Table::bare();
    let fields: Vec<(&str, &Value)> =
        queue.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)).collect();
    let first = FIRST.iter().filter_map(|name| queue.get(name).map(|value| (*name, value)));
    let rest = fields.into_iter().filter(|(name, _)| !FIRST.contains(name) && *name != "counts");
    for (name, value) in first.chain(rest) {
        let shown = if value.is_object() { show_pairs(Some(value)) } else { show(value) };
        if shown != "-" {
            table.row(&[name.to_owned(), shown]);
        }
    }
    table.render()
}

fn counts_table(queue: &Value) -> String {
    let mut table = Table::new(&STATUSES);
    table.row(&STATUSES.map(|status| count(queue, status)));
    table.render()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_show_what_is_set_and_nothing_else() {
        let queue = json!({
            "maxAttempts": 5, "jobTimeout": null, "headers": {}, "counts": {"queued": 1}, "name": "mail",
            "webhookUrl": "https://example.com/", "hold": {"reason": "http_429", "probing": false},
        });

        assert_eq!(
            settings_table(&queue),
            "name         mail\nwebhookUrl   https://example.com/\nhold         reason=http_429 probing=false\nmaxAttempts  5\n"
        );
    }
}
