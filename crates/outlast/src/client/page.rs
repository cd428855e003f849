//! Lists that come in pages: follows the cursor until there are enough items or no more. A page may be short or even
//! empty while more follow.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Call, Client};
use crate::failure::{Exit, Failure};

/// The most the server gives at once.
pub(crate) const PAGE_ITEMS_MAX: usize = 200;

/// Items in the order of the server, and the cursor behind the last one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub items: Vec<Item>,
    pub next_cursor: Option<String>,
}

/// One item, kept as the server wrote it: numbers in it keep all their digits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Item(Box<RawValue>);

impl Item {
    /// The item as the server wrote it.
    pub(crate) fn text(&self) -> &str {
        self.0.get()
    }

    /// The item for reading.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or(Value::Null)
    }
}

impl Page {
    pub(crate) fn values(&self) -> Vec<Value> {
        self.items.iter().map(Item::json).collect()
    }

    /// The whole list as one document.
    pub(crate) fn to_json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|error| Failure::new(Exit::Refused, format!("cannot write JSON: {error}")))
    }
}

impl Client {
    /// One page, as the server gives it.
    pub(crate) async fn page(&self, call: Call<'_>) -> Result<Page, Failure> {
        parse(&self.send(call).await?.text)
    }

    /// Up to `limit` items, starting behind `cursor`.
    pub(crate) async fn list(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        cursor: Option<String>,
        limit: usize,
    ) -> Result<Page, Failure> {
        let mut list = Page { items: Vec::new(), next_cursor: cursor };
        loop {
            let wanted = limit.saturating_sub(list.items.len()).min(PAGE_ITEMS_MAX);
            let mut call = Call { query: query.to_vec(), ..Call::get(path) }.query("limit", wanted.to_string());
            if let Some(cursor) = &list.next_cursor {
                call = call.query("cursor", cursor.clone());
            }
            let page = self.page(call).await?;
            list.items.extend(page.items);
            if page.next_cursor.is_some() && page.next_cursor == list.next_cursor {
                return Err(Failure::new(Exit::Refused, "the server gave the same page twice"));
            }
            list.next_cursor = page.next_cursor;
            if list.next_cursor.is_none() || list.items.len() >= limit {
                return Ok(list);
            }
        }
    }
}

fn parse(text: &str) -> Result<Page, Failure> {
    serde_json::from_str(text).map_err(|_| {
        Failure::new(Exit::Refused, "the answer is not a list of items")
            .with_hint("does --url point to an Outlast server?")
    })
}
