//! The section `queues`: queues that exist because the file says so, with any setting that HTTP knows, and which events of
//! which source become their jobs. Must never show a secret; the headers of a delivery may hold some, too.

use std::fmt;

use outlast_core::filter::{Filter, Path};
use outlast_engine::queues::QueueChange;

use super::Secret;
use super::expressions;
use super::reader::Section;
use super::sections::secret;
use super::settings;
use super::suggest::suggest;
use super::tree::Key;

/// The options of a queue beside its settings.
pub(crate) const OPTIONS: &[&str] = &["source", "events", "filter", "idempotency_key", "api_key"];

const EVENTS_MAX: usize = 100;
const EVENT_TYPE_BYTES_MAX: usize = 256;

#[derive(Clone)]
pub(crate) struct QueueConfig {
    pub name: String,
    /// The queue as a request for it would ask, signing secret included. Where its URL leads was not looked at.
    pub change: QueueChange,
    /// The settings that the file has, as they are called on the wire.
    pub settings: Vec<String>,
    /// A key that opens this queue only.
    pub api_key: Option<Secret>,
    pub subscription: Option<Subscription>,
}

impl fmt::Debug for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("QueueConfig");
        shown.field("name", &self.name).field("subscription", &self.subscription).finish_non_exhaustive()
    }
}

/// Which events become jobs of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    /// A source of the same file.
    pub source: String,
    /// At least one.
    pub events: Vec<EventPattern>,
    pub filter: Option<Filter>,
    /// A JSONPath to what makes an event the same as another one.
    pub idempotency_key: Option<Path>,
}

/// Which types of events are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventPattern {
    /// `*`
    All,
    /// `invoice.*`, kept with its dot.
    Prefix(String),
    Exact(String),
}

impl EventPattern {
    fn parse(text: &str) -> Option<EventPattern> {
        if text == "*" {
            return Some(EventPattern::All);
        }
        let (kind, name): (fn(String) -> EventPattern, &str) = match text.strip_suffix('*') {
            Some(prefix) => (EventPattern::Prefix, prefix),
            None => (EventPattern::Exact, text),
        };
        let has_name = !matches!(name, "" | "." | "/") && (name.len() == text.len() || name.ends_with(['.', '/']));
        // Some providers have types with spaces inside, such as "Push Hook".
        let is_plain = name.trim() == name && name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'*');
        (has_name && is_plain && text.len() <= EVENT_TYPE_BYTES_MAX).then(|| kind(name.to_owned()))
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventPattern::All => f.write_str("*"),
            EventPattern::Prefix(prefix) => write!(f, "{prefix}*"),
            EventPattern::Exact(name) => f.write_str(name),
        }
    }
}

/// Reads all queues; `sources` are the names of the sources in the file.
pub(crate) fn read(root: &mut Section, sources: &[String]) -> Vec<QueueConfig> {
    root.each("queues", OPTIONS, |key, section| read_one(key, section, sources))
}

fn read_one(key: &Key, section: &mut Section, sources: &[String]) -> QueueConfig {
    let (change, settings) = settings::read(key, section);
    QueueConfig {
        name: key.name.clone(),
        change,
        settings,
        api_key: api_key(section),
        subscription: subscription(section, sources),
    }
}

/// A shorter key could be guessed. `openssl rand -hex 16` prints 32 characters.
const API_KEY_LENGTH_MIN: usize = 20;

/// Keys travel in a header, so they are visible ASCII without spaces.
fn api_key(section: &mut Section) -> Option<Secret> {
    let key = secret(section, "api_key")?;
    let text = key.expose();
    if !(API_KEY_LENGTH_MIN..=255).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!("must be {API_KEY_LENGTH_MIN} to 255 visible ASCII characters without spaces");
        section.complain("api_key", &message);
    }
    Some(key)
}

fn subscription(section: &mut Section, sources: &[String]) -> Option<Subscription> {
    let needing = ["events", "filter", "idempotency_key"].into_iter().filter(|name| section.is_set(name));
    let needing: Vec<&str> = needing.collect();
    let source = section.optional_text("source");
    let (events, filter, idempotency_key) = (events(section), filter(section), idempotency_key(section));
    let Some(source) = source else {
        if !section.is_refused("source") {
            for name in needing {
                section.complain(name, "needs source, the name of a source of this file");
            }
        }
        return None;
    };
    if !sources.contains(&source) {
        let meant = suggest(&source, sources.iter().map(String::as_str));
        let hint = meant.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
        section.complain("source", &format!("must name a source of this file{hint}"));
    }
    Some(Subscription { source, events, filter, idempotency_key })
}

fn events(section: &mut Section) -> Vec<EventPattern> {
    if !section.is_set("events") {
        section.take("events");
        return vec![EventPattern::All];
    }
    let wants = "event types: a whole one such as invoice.paid, a beginning such as invoice.*, or * for all";
    let is_empty = section.is_empty_list("events");
    let events = section.list("events", wants, EventPattern::parse);
    if is_empty || events.len() > EVENTS_MAX {
        section.complain("events", &format!("must have 1 to {EVENTS_MAX} entries; left out, it means all events"));
    }
    events
}

fn filter(section: &mut Section) -> Option<Filter> {
    let text = section.optional_text("filter")?;
    let read = expressions::filter(&text);
    read.map_err(|message| section.complain("filter", &format!("is not a filter: {message}"))).ok()
}

fn idempotency_key(section: &mut Section) -> Option<Path> {
    let text = section.optional_text("idempotency_key")?;
    expressions::path(&text).map_err(|message| section.complain("idempotency_key", &message)).ok()
}
