//! Reads typed options out of a section of the merged tree and remembers every problem, so that one run reports them
//! all. A reading method returns a stand-in value after a problem; the caller discards the whole configuration then.

use std::ops::RangeInclusive;
use std::time::Duration;

use outlast_core::time::{duration_from_seconds, parse_duration};

use super::problem::{Origin, Problem};
use super::tree::{Key, Node, Value, join};
use super::units::{parse_bytes, show_bytes};

pub(crate) struct Section {
    path: String,
    entries: Vec<(Key, Node)>,
    /// The names this section has, learnt from what was read; the rest of the entries are unknown keys.
    known: Vec<&'static str>,
    origins: Vec<(&'static str, Origin)>,
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
        Section { path, entries, known: Vec::new(), origins: Vec::new(), problems: Vec::new() }
    }

    /// Reads the section `name` below this one.
    pub(crate) fn nested<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section) -> T) -> T {
        let node = self.take(name);
        let mut section = Section::at(join(&self.path, name), node);
        let value = read(&mut section);
        self.problems.extend(section.finish());
        value
    }

    /// What is wrong with everything read, and with every key that was not read.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        for (key, _) in &self.entries {
            let mut problem =
                Problem::new(key.origin.clone(), format!("unknown key \"{}\"", join(&self.path, &key.name)));
            if let Some(near) = nearest(&key.name, &self.known) {
                problem = problem.with_hint(format!("did you mean \"{near}\"?"));
            }
            self.problems.push(problem);
        }
        self.problems
    }

    /// Adds a problem about an option that was read before.
    pub(crate) fn complain(&mut self, name: &'static str, message: &str) {
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
        let is_unset = self.entries.iter().any(|(key, node)| key.name == name && matches!(node.value, Value::Null));
        if is_unset {
            self.take(name);
            return None;
        }
        Some(self.count(name, range))
    }

    /// A list, or one text with commas, since the environment has no lists. `wants` says what each entry is.
    pub(crate) fn list<T>(&mut self, name: &'static str, wants: &str, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let node = self.take(name);
        let entries = match &node.value {
            Value::Null => Vec::new(),
            Value::List(items) => items.iter().map(|item| (text_of(&item.value), describe(&item.value))).collect(),
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

    fn take(&mut self, name: &'static str) -> Node {
        self.known.push(name);
        let Some(at) = self.entries.iter().position(|(key, _)| key.name == name) else {
            let missing = Node { value: Value::Null, origin: Origin::Defaults };
            self.problems.push(Problem::new(Origin::Defaults, format!("{} is missing", join(&self.path, name))));
            return missing;
        };
        let (_, node) = self.entries.swap_remove(at);
        self.origins.push((name, node.origin.clone()));
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
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text { value, written } => format!("{:?}", written.as_ref().unwrap_or(value)),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

/// The known name that a typing mistake most likely meant: at most a third of its letters differ.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let away = distance(name, candidate);
        if away <= (candidate.len() / 3).max(1) && best.is_none_or(|(least, _)| away < least) {
            best = Some((away, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Levenshtein distance, row by row.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, left_char) in left.chars().enumerate() {
        let mut next = vec![at + 1];
        let mut last = at + 1;
        for ((right_char, diagonal), above) in right.iter().zip(&row).zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(left_char != *right_char);
            last = replaced.min(above + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
