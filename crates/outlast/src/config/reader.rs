//! Reads typed options out of a section of the merged tree and remembers every problem, so that one run reports them
//! all. A reading method returns a stand-in value after a problem; the caller discards the whole configuration then.

mod entries;

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use outlast_core::time::{duration_from_seconds, parse_duration};

use super::problem::{Origin, Problem};
use super::suggest::unknown_key;
use super::tree::{Key, Node, Value, join};
use super::units::{parse_bytes, show_bytes};

pub(crate) struct Section {
    path: String,
    entries: Vec<(Key, Node)>,
    /// The names this section has, learnt from what was read; the rest of the entries are unknown keys.
    known: Vec<Cow<'static, str>>,
    origins: Vec<(&'static str, Origin)>,
    /// Options that have no value because it was refused; nothing more is said about them.
    refused: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl Section {
    pub(crate) fn new(root: Node) -> Section {
        Section::at(String::new(), root)
    }

    fn at(path: String, node: Node) -> Section {
        let entries = match node.value {
            Value::Map(entries) => entries,
            // The defaults have a map here and `overlay` keeps it one.
            _ => Vec::new(),
        };
        Section { path, entries, known: Vec::new(), origins: Vec::new(), refused: Vec::new(), problems: Vec::new() }
    }

    /// Reads the section `name` below this one.
    pub(crate) fn nested<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section) -> T) -> T {
        let node = self.take(name);
        let mut section = Section::at(join(&self.path, name), node);
        let value = read(&mut section);
        self.problems.extend(section.finish());
        value
    }

    /// The problems of everything read, and of every key that was not read.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        for (key, _) in &self.entries {
            self.problems.push(unknown_key(&self.path, key, self.known.iter().map(|name| &**name)));
        }
        self.problems
    }

    /// Adds a problem about an option that was read before.
    pub(crate) fn complain(&mut self, name: &'static str, message: &str) {
        if self.refused.contains(&name) {
            return;
        }
        let origin = self.origins.iter().find(|(known, _)| *known == name).map(|(_, origin)| origin.clone());
        let message = format!("{} {message}", join(&self.path, name));
        self.problems.push(Problem::new(origin.unwrap_or(Origin::Merged), message));
    }

    pub(crate) fn text(&mut self, name: &'static str) -> String {
        match self.optional_text(name) {
            Some(text) => text,
            None => {
                self.complain(name, "must not be empty");
                String::new()
            }
        }
    }

    /// `None` when unset or empty.
    pub(crate) fn optional_text(&mut self, name: &'static str) -> Option<String> {
        match self.take(name).value {
            Value::Null => None,
            Value::Text { value, .. } if value.is_empty() => None,
            Value::Text { value, .. } => Some(value),
            Value::Integer(value) => Some(value.to_string()),
            other => {
                self.complain(name, &format!("must be a text, not {}", describe(&other)));
                self.refused.push(name);
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)], fallback: T) -> T {
        let node = self.take(name);
        let written = match &node.value {
            Value::Text { value, .. } => Some(value.as_str()),
            // To some readers of YAML these words are truth values.
            Value::Bool(true) => Some("on"),
            Value::Bool(false) => Some("off"),
            _ => None,
        };
        if let Some((_, chosen)) = choices.iter().find(|(word, _)| Some(*word) == written) {
            return *chosen;
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.complain(name, &format!("must be one of {}, not {}", words.join(", "), describe(&node.value)));
        fallback
    }

    /// True or false; as a text, too, since the environment has nothing else.
    pub(crate) fn switch(&mut self, name: &'static str) -> bool {
        let node = self.take(name);
        match &node.value {
            Value::Bool(value) => return *value,
            Value::Text { value, .. } if value == "true" => return true,
            Value::Text { value, .. } if value == "false" => return false,
            _ => {}
        }
        self.complain(name, &format!("must be true or false, not {}", describe(&node.value)));
        false
    }

    pub(crate) fn count(&mut self, name: &'static str, range: RangeInclusive<usize>) -> usize {
        let node = self.take(name);
        let read = match &node.value {
            Value::Integer(value) => usize::try_from(*value).ok(),
            Value::Text { value, .. } => value.trim().parse().ok(),
            _ => None,
        };
        match read {
            Some(value) if range.contains(&value) => value,
            _ => {
                let (least, most) = (range.start(), range.end());
                let shown = describe(&node.value);
                self.complain(name, &format!("must be a whole number from {least} to {most}, not {shown}"));
                *least
            }
        }
    }

    /// `None` when unset.
    pub(crate) fn optional_count(&mut self, name: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        self.optional(name, |section| section.count(name, range))
    }

    /// `None` when unset; else as `read` reads this option.
    pub(crate) fn optional<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section) -> T) -> Option<T> {
        if self.is_set(name) {
            return Some(read(self));
        }
        self.take(name);
        None
    }

    /// A list, or one text with commas, since the environment has no lists. `wants` says what each entry is.
    pub(crate) fn list<T>(&mut self, name: &'static str, wants: &str, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let node = self.take(name);
        let entries = match &node.value {
            Value::Null => Vec::new(),
            Value::List(items) => {
                let items = items.iter().filter(|item| !matches!(item.value, Value::Refused));
                items.map(|item| (text_of(&item.value), describe(&item.value))).collect()
            }
            Value::Text { value, .. } => {
                let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(|part| (Some(part.to_owned()), describe(&node.value))).collect()
            }
            other => vec![(text_of(other), describe(other))],
        };
        let mut values = Vec::new();
        for (text, shown) in entries {
            match text.and_then(|text| read(&text)) {
                Some(value) => values.push(value),
                None => self.complain(name, &format!("must be a list of {wants}, not {shown}")),
            }
        }
        values
    }

    /// A size of something that is held in memory whole.
    pub(crate) fn size(&mut self, name: &'static str, range: RangeInclusive<u64>) -> usize {
        usize::try_from(self.bytes(name, range)).unwrap_or(usize::MAX)
    }

    pub(crate) fn bytes(&mut self, name: &'static str, range: RangeInclusive<u64>) -> u64 {
        let node = self.take(name);
        let read = match &node.value {
            Value::Integer(value) => u64::try_from(*value).ok(),
            Value::Text { value, .. } => parse_bytes(value),
            _ => None,
        };
        match read {
            Some(bytes) if range.contains(&bytes) => bytes,
            _ => {
                let (least, most) = (show_bytes(*range.start()), show_bytes(*range.end()));
                let shown = describe(&node.value);
                self.complain(name, &format!("must be a size from {least} to {most} such as 256KiB, not {shown}"));
                0
            }
        }
    }

    pub(crate) fn duration(&mut self, name: &'static str, range: RangeInclusive<Duration>) -> Duration {
        let node = self.take(name);
        let read = match &node.value {
            Value::Integer(value) => u64::try_from(*value).ok().map(Duration::from_secs),
            Value::Float(value) => duration_from_seconds(*value),
            Value::Text { value, .. } => parse_duration(value),
            _ => None,
        };
        match read {
            Some(value) if range.contains(&value) => value,
            _ => {
                let (least, most) = (range.start(), range.end());
                let shown = describe(&node.value);
                self.complain(name, &format!("must be a duration from {least:?} to {most:?} such as 30s, not {shown}"));
                *least
            }
        }
    }

    /// The option as it is; null when unset.
    pub(crate) fn take(&mut self, name: &'static str) -> Node {
        self.known.push(Cow::Borrowed(name));
        let Some(at) = self.entries.iter().position(|(key, _)| key.name == name) else {
            let missing = Node { value: Value::Null, origin: Origin::Defaults };
            self.problems.push(Problem::new(Origin::Defaults, format!("{} is missing", join(&self.path, name))));
            return missing;
        };
        let (_, mut node) = self.entries.swap_remove(at);
        self.origins.push((name, node.origin.clone()));
        if matches!(node.value, Value::Refused) {
            self.refused.push(name);
            node.value = Value::Null;
        }
        node
    }
}

/// A single value as text.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Text { value, .. } => Some(value.clone()),
        Value::Integer(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The value as it was written, for a message.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Refused => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text { value, written } => format!("{:?}", written.as_ref().unwrap_or(value)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}
