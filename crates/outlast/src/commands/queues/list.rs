//! `outlast queues list`: one line per queue with its waiting, running and dead jobs, its hold, and how long the oldest
//! waiting job has been waiting.

use jiff::Timestamp;
use serde_json::Value;

use super::count;
use crate::age;
use crate::commands::Session;
use crate::display::{Display, Style};
use crate::failure::Failure;
use crate::output::{cell, show};
use crate::table::{Cell, Column, Table};

/// More queues than a list is good for; reached only with a queue per customer.
const QUEUES_MAX: usize = 10_000;
/// Waiting jobs that are read per queue to find the oldest: the API lists the newest first.
const WAITING_MAX: usize = 1_000;
/// Queues whose oldest job is looked up. In a longer list the others show `-`.
const LOOKUPS_MAX: usize = 100;

pub(crate) async fn run(session: &Session) -> Result<(), Failure> {
    let page = session.client.list(&["v1", "queues"], &[], None, QUEUES_MAX).await?;
    let mut rows = Vec::new();
    if !session.is_json {
        let mut lookups = 0;
        for queue in page.values() {
            let is_waiting = queue.pointer("/counts/queued").and_then(Value::as_u64).is_some_and(|count| count > 0);
            let oldest = match is_waiting && lookups < LOOKUPS_MAX {
                true => oldest(session, &cell(&queue, "name")).await?,
                false => None,
            };
            lookups += usize::from(is_waiting);
            rows.push((queue, oldest));
        }
    }
    session.print_page(&page, "no queues", |_| table(&rows, session.display))
}

/// Since when the oldest waiting job has been waiting. Only a lower bound where more wait than are read.
struct Oldest {
    queued_at: Value,
    is_bound: bool,
}

async fn oldest(session: &Session, queue: &str) -> Result<Option<Oldest>, Failure> {
    let query = [("queue", queue.to_owned()), ("status", "queued".to_owned())];
    let waiting = session.client.list(&["v1", "jobs"], &query, None, WAITING_MAX).await?;
    let times = waiting.values().into_iter().filter_map(|job| job.get("queuedAt").cloned());
    // Timestamps have one length and one zone, so their texts are in their order.
    let first = times.filter(Value::is_string).min_by_key(show);
    Ok(first.map(|queued_at| Oldest { queued_at, is_bound: waiting.next_cursor.is_some() }))
}

fn table(queues: &[(Value, Option<Oldest>)], display: Display) -> String {
    let mut table = Table::new(&[
        Column::text("name").at_least(12),
        Column::fixed("mode").rank(2),
        Column::number("queued"),
        Column::number("oldest"),
        Column::number("pending").rank(1),
        Column::number("running"),
        Column::number("dead"),
        Column::text("state").at_least(6),
        Column::text("source").rank(3).optional(),
    ]);
    let now = age::now();
    for (queue, oldest) in queues {
        let source = show(queue.pointer("/declared/source").unwrap_or(&Value::Null));
        let dead = count(queue, "failed");
        let dead_style = if matches!(dead.as_str(), "0" | "-") { Style::Plain } else { Style::Bad };
        table.row([
            cell(queue, "name").into(),
            cell(queue, "mode").into(),
            count(queue, "queued").into(),
            waiting_for(oldest.as_ref(), now).into(),
            count(queue, "pending").into(),
            count(queue, "running").into(),
            Cell::styled(dead, dead_style),
            state(queue, now),
            source.into(),
        ]);
    }
    table.render(display)
}

fn waiting_for(oldest: Option<&Oldest>, now: Timestamp) -> String {
    match oldest {
        None => "-".to_owned(),
        Some(Oldest { queued_at, is_bound: false }) => age::age(queued_at, now),
        Some(Oldest { queued_at, is_bound: true }) => format!(">{}", age::age(queued_at, now)),
    }
}

/// `paused`, or why and how long deliveries are held, or `ok`.
fn state(queue: &Value, now: Timestamp) -> Cell {
    let mut parts = Vec::new();
    if queue.get("paused") == Some(&Value::Bool(true)) {
        parts.push("paused".to_owned());
    }
    if let Some(hold) = queue.get("hold").filter(|hold| hold.is_object()) {
        let is_probing = hold.get("probing") == Some(&Value::Bool(true));
        let end = hold.get("until").and_then(|until| age::relative(until, now)).unwrap_or_default();
        let end = if is_probing { "probing".to_owned() } else { end };
        parts.push(format!("held {end}: {}", cell(hold, "reason")));
    }
    match parts.is_empty() {
        true => Cell::from("ok"),
        false => Cell::styled(parts.join(", "), Style::Waiting),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queues() -> Vec<(Value, Option<Oldest>)> {
        let counts = json!({"pending": 4, "queued": 1200, "running": 2, "succeeded": 9, "failed": 3});
        let oldest = Oldest { queued_at: json!("2126-01-01T00:00:00.000Z"), is_bound: true };
        vec![
            (
                json!({"name": "billing", "mode": "pull", "paused": true, "counts": counts, "declared": {"source": "stripe"}}),
                Some(oldest),
            ),
            (json!({"name": "mail", "mode": "standard", "paused": false, "counts": {}}), None),
        ]
    }

    #[test]
    fn a_list_has_the_counts_of_waiting_running_and_dead_jobs() {
        assert_eq!(
            table(&queues(), Display::PLAIN),
            "NAME     MODE      QUEUED  OLDEST  PENDING  RUNNING  DEAD  STATE   SOURCE\n\
             billing  pull        1200     >0s        4        2     3  paused  stripe\n\
             mail     standard       -       -        -        -     -  ok      -\n"
        );
    }

    #[test]
    fn a_hold_is_shown_with_its_reason_and_end() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let held = |probing: bool| {
            let hold = json!({"reason": "http_429", "until": "2026-01-01T00:00:45.000Z", "probing": probing});
            let mut table = Table::new(&[Column::fixed("state")]);
            table.row([state(&json!({"hold": hold, "paused": false}), now)]);
            table.render(Display::PLAIN)
        };

        assert_eq!(held(false), "STATE\nheld in 45s: http_429\n");
        assert_eq!(held(true), "STATE\nheld probing: http_429\n");
    }

    #[test]
    fn the_list_fits_80_columns() {
        let mut queues = queues();
        queues.push((
            json!({"name": "a-queue-with-a-name-of-many-words-and-letters", "mode": "standard", "paused": true,
                "hold": {"reason": "http_429", "until": "2126-01-01T00:00:45.000Z", "probing": false}, "counts": {}}),
            None,
        ));

        let text = table(&queues, Display { width: Some(80), has_colour: false });

        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("QUEUED") && text.contains("RUNNING") && text.contains("paused"), "{text}");
    }
}
