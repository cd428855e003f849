//! `outlast tail`: follows new events of sources by polling for the newest ones. Earlier events are not shown.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use outlast_core::inbound_event::pattern_matches;
use serde_json::Value;

use super::{Session, stop};
use crate::client::page::{Item, PAGE_ITEMS_MAX};
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, cell, escape, escape_json};

/// Between two looks.
const POLL: Duration = Duration::from_secs(1);
/// Of events that came between two looks, no more than so many pages are fetched; the older ones are left out.
const PAGES_MAX: usize = 25;
/// Ids that are remembered: a few pages, since events of other nodes may come into the list a little late.
const SEEN_MAX: usize = 5 * PAGE_ITEMS_MAX;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Only events of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only events of this type, as in invoice.paid or invoice.*
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
}

pub(crate) async fn run(args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    let stop = stop::signal()?;
    tokio::select! {
        () = stop => Ok(()),
        ended = follow(&session, args) => ended,
    }
}

/// Ends when stdout is closed, or with a permanent failure.
async fn follow(session: &Session, args: &Args) -> Result<(), Failure> {
    let mut seen = Seen::default();
    let present = session.client.page(newest(None)).await?;
    seen.new_ones(present.items);
    output::note("following the events of sources, Ctrl-C ends");
    let mut is_away = false;
    loop {
        tokio::time::sleep(POLL).await;
        let events = match fetch(session, &mut seen).await {
            Ok(events) => events,
            Err(failure) if failure.is_temporary => {
                if !is_away {
                    output::note(&format!("{}; retrying", failure.message));
                }
                is_away = true;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        is_away = false;
        for event in events.iter().filter(|event| is_wanted(args, &event.json())) {
            if !output::print_on(&line(session, event))? {
                return Ok(());
            }
        }
    }
}

/// The events since the last poll, the oldest first. A poll that fails half-way remembers nothing.
async fn fetch(session: &Session, seen: &mut Seen) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let mut cursor = None;
    let mut pages = 0;
    loop {
        let page = session.client.page(newest(cursor)).await?;
        let reaches_back = page.items.iter().any(|item| seen.has(item));
        items.extend(page.items);
        pages += 1;
        cursor = page.next_cursor;
        if reaches_back || cursor.is_none() {
            break;
        }
        if pages == PAGES_MAX {
            output::note(&format!("more than {} events came at once; older ones are not shown", items.len()));
            break;
        }
    }
    Ok(seen.new_ones(items))
}

/// All sources and types: a page that is searched for a rare type would be looked for in the whole history, every time.
fn newest(cursor: Option<String>) -> Call<'static> {
    let call = Call::get(&["v1", "events"]).query("limit", PAGE_ITEMS_MAX.to_string());
    match cursor {
        Some(cursor) => call.query("cursor", cursor),
        None => call,
    }
}

/// Events that were shown, or were there before the start.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl Seen {
    fn has(&self, item: &Item) -> bool {
        self.ids.contains(&cell(&item.json(), "id"))
    }

    /// Of a list with the newest first, those that are new, the oldest first.
    fn new_ones(&mut self, items: Vec<Item>) -> Vec<Item> {
        let mut new_ones = Vec::new();
        for item in items.into_iter().rev() {
            let id = cell(&item.json(), "id");
            if self.ids.insert(id.clone()) {
                self.order.push_back(id);
                new_ones.push(item);
            }
        }
        while self.order.len() > SEEN_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
        new_ones
    }
}

fn is_wanted(args: &Args, event: &Value) -> bool {
    let is_source = args.source.as_ref().is_none_or(|source| *source == cell(event, "source"));
    is_source && args.kind.as_ref().is_none_or(|pattern| pattern_matches(pattern, &cell(event, "type")))
}

fn line(session: &Session, event: &Item) -> String {
    if session.is_json {
        return format!("{}\n", escape_json(&event.text().replace(['\n', '\r'], " ")));
    }
    format!("{}\n", escape(&describe(&event.json())))
}

fn describe(event: &Value) -> String {
    let jobs = match cell(event, "jobsCreated").as_str() {
        "1" => "1 job".to_owned(),
        count => format!("{count} jobs"),
    };
    let parts = ["receivedAt", "source", "type", "id"].map(|field| cell(event, field));
    format!("{}  {jobs}", parts.join("  "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn items(ids: &[usize]) -> Vec<Item> {
        let list: Vec<Value> = ids.iter().map(|id| json!({"id": format!("e{id}")})).collect();
        serde_json::from_str(&Value::Array(list).to_string()).unwrap()
    }

    fn new_ones(seen: &mut Seen, ids: &[usize]) -> Vec<String> {
        seen.new_ones(items(ids)).iter().map(|item| cell(&item.json(), "id")).collect()
    }

    #[test]
    fn each_event_is_new_once_and_the_oldest_comes_first() {
        let mut seen = Seen::default();
        assert_eq!(new_ones(&mut seen, &[2, 1]), ["e1", "e2"]);

        assert_eq!(new_ones(&mut seen, &[2, 1]), [""; 0]);
        assert_eq!(new_ones(&mut seen, &[5, 4, 2, 1]), ["e4", "e5"]);
        assert_eq!(new_ones(&mut seen, &[6, 5, 4, 3, 2]), ["e3", "e6"], "one that came into the list late");
    }

    #[test]
    fn only_the_latest_are_remembered() {
        let mut seen = Seen::default();
        let ids: Vec<usize> = (0..2 * SEEN_MAX).rev().collect();

        new_ones(&mut seen, &ids);

        assert_eq!((seen.ids.len(), seen.order.len()), (SEEN_MAX, SEEN_MAX));
        assert!(seen.ids.contains(&format!("e{}", 2 * SEEN_MAX - 1)));
    }

    #[test]
    fn source_and_type_select_events() {
        let event = json!({"source": "stripe", "type": "invoice.paid"});
        for (words, wanted) in [
            (&[][..], true),
            (&["--source", "stripe"], true),
            (&["--source", "github"], false),
            (&["--type", "invoice.paid"], true),
            (&["--type", "invoice.*"], true),
            (&["--type", "invoice"], false),
            (&["--source", "github", "--type", "*"], false),
        ] {
            let line = Line::try_parse_from([&["tail"], words].concat()).unwrap();
            assert_eq!(is_wanted(&line.args, &event), wanted, "{words:?}");
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "id": "0198", "source": "stripe", "type": "invoice.paid", "receivedAt": "2026-01-01T00:00:00.000Z",
            "jobsCreated": 1,
        });

        assert_eq!(describe(&event), "2026-01-01T00:00:00.000Z  stripe  invoice.paid  0198  1 job");
    }
}
