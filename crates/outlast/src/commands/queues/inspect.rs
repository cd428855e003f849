//! `outlast queues inspect`: settings, counts and the newest jobs of a queue.

use serde_json::Value;

use super::count;
use crate::age;
use crate::client::Call;
use crate::commands::{Session, jobs};
use crate::display::Display;
use crate::failure::Failure;
use crate::output::{self, show, show_pairs};
use crate::table::{Cell, Column, Pairs, Table};

const STATUSES: [&str; 7] = ["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"];

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    name: String,
    /// Number of recent jobs
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
    output::print(&settings_table(&queue.json, session.display))?;
    output::print(&format!("\n{}", counts_table(&queue.json, session.display)))?;
    if recent.items.is_empty() {
        return output::print("\nno jobs\n");
    }
    output::print(&format!("\n{}", jobs::table(&recent.values(), session.display)))
}

/// Shown first; the rest follows in the server's order.
const FIRST: [&str; 6] = ["name", "mode", "webhookUrl", "paused", "hold", "pace"];

/// Everything that is set, names as in the API.
fn settings_table(queue: &Value, display: Display) -> String {
    let (mut pairs, now) = (Pairs::default(), age::now());
    let fields: Vec<(&str, &Value)> =
        queue.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)).collect();
    let first = FIRST.iter().filter_map(|name| queue.get(name).map(|value| (*name, value)));
    let rest = fields.into_iter().filter(|(name, _)| !FIRST.contains(name) && *name != "counts");
    for (name, value) in first.chain(rest) {
        let shown = match value {
            Value::Object(_) => show_pairs(Some(value)),
            value if name.ends_with("At") => age::stamp(value, now),
            value => show(value),
        };
        if shown != "-" {
            pairs.row(name, shown);
        }
    }
    pairs.render(display)
}

fn counts_table(queue: &Value, display: Display) -> String {
    let mut table = Table::new(&STATUSES.map(Column::number));
    table.row(STATUSES.map(|status| Cell::from(count(queue, status))));
    table.render(display)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_settings_with_a_value_are_shown() {
        let queue = json!({
            "maxAttempts": 5, "jobTimeout": null, "headers": {}, "counts": {"queued": 1}, "name": "mail",
            "webhookUrl": "https://example.com/", "hold": {"reason": "http_429", "probing": false},
        });

        assert_eq!(
            settings_table(&queue, Display::PLAIN),
            "name         mail\nwebhookUrl   https://example.com/\nhold         reason=http_429 probing=false\nmaxAttempts  5\n"
        );
    }
}
