//! Answers are bounded in bytes as they are written: every page ends early, goes on where it ended, and a reader that does
//! not read holds no more than its share, for no longer than `timeouts.write_idle`.

mod pages;
mod readers;

use outlast_tests::http::{Client, Reply};
use serde_json::{Value, json};

use crate::api::{publish, receive_one, settle, text};

/// The bound of a page, and the largest entry that may cross it.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
const ENTRY_BYTES: usize = 512 << 10;

/// As it was sent.
fn length(reply: &Reply) -> usize {
    reply.headers["content-length"].to_str().unwrap().parse().unwrap()
}

#[track_caller]
fn assert_bounded(reply: &Reply) {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let length = length(reply);
    assert!(length < PAGE_BYTES + ENTRY_BYTES, "a page of {length} bytes");
}

/// All pages of a list. Each is bounded, and the first one is cut.
async fn all_pages(client: &Client, path: &str) -> Vec<Value> {
    let (mut items, mut cursor): (Vec<Value>, Option<String>) = (Vec::new(), None);
    loop {
        let at = cursor.as_ref().map_or(path.to_owned(), |cursor| format!("{path}&cursor={cursor}"));
        let reply = client.get(&at).await.unwrap();
        assert_bounded(&reply);
        let is_first = cursor.is_none();
        items.extend(reply.body["items"].as_array().unwrap().iter().cloned());
        match reply.body["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => {
                assert!(!is_first, "{path} is not cut");
                return items;
            }
        }
    }
}

/// A running job whose log has so many outputs of the text that takes most room as JSON.
async fn job_with_output(client: &Client, queue: &str, outputs: usize) -> (String, Value) {
    publish(client, queue, json!(1)).await;
    let held = receive_one(client, queue).await;
    let id = text(&held["id"]);
    for _ in 0..outputs {
        let output = json!({"lease": held["lease"], "text": "\u{1}".repeat(16 << 10)});
        settle(client, &id, "output", output).await;
    }
    (id, held)
}
