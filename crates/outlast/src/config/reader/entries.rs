//! The entries of a section before they are read: names that are the user's own, what is set, what others read.

use std::borrow::Cow;

use super::super::problem::Problem;
use super::super::tree::{Key, Node, Value, join, overlay};
use super::Section;

impl Section {
    /// Reads a section whose names are the user's own. Each is a section with these options, all unset at first.
    pub(crate) fn each<T>(
        &mut self,
        name: &'static str,
        options: &[&str],
        mut read: impl FnMut(&Key, &mut Section) -> T,
    ) -> Vec<T> {
        let path = join(&self.path, name);
        let Value::Map(entries) = self.take(name).value else { return Vec::new() };
        let mut values = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            let path = join(&path, &key.name);
            match node.value {
                Value::Map(_) | Value::Null => {
                    let mut options = Node::unset(options, &key.origin);
                    overlay(&mut options, node, &path, &mut self.problems);
                    let mut section = Section::at(path, options);
                    values.push(read(&key, &mut section));
                    self.problems.extend(section.finish());
                }
                Value::Refused => {}
                _ => {
                    let message = format!("{path} must be a section with options below it");
                    self.problems.push(Problem::new(node.origin, message));
                }
            }
        }
        values
    }

    /// The names in a section of the user's own names, those with problems included.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        match self.waiting(name) {
            Some(Value::Map(entries)) => entries.iter().map(|(key, _)| key.name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// Takes out what is written of these options, to be read elsewhere.
    pub(crate) fn take_known(&mut self, names: Vec<String>) -> Vec<(Key, Node)> {
        let entries = std::mem::take(&mut self.entries);
        let (taken, left) = entries.into_iter().partition(|(key, _)| names.contains(&key.name));
        self.entries = left;
        self.known.extend(names.into_iter().map(Cow::Owned));
        taken
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Adds a problem about something below this section.
    pub(crate) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Whether an option that was not read yet has a value.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        !matches!(self.waiting(name), None | Some(Value::Null | Value::Refused))
    }

    /// Whether a list that was not read yet is there and has no entries.
    pub(crate) fn is_empty_list(&self, name: &str) -> bool {
        match self.waiting(name) {
            Some(Value::List(items)) => items.is_empty(),
            Some(Value::Text { value, .. }) => value.split(',').all(|part| part.trim().is_empty()),
            _ => false,
        }
    }

    /// Whether an option that was read has no value because it was refused, which is neither set nor unset.
    pub(crate) fn is_refused(&self, name: &str) -> bool {
        self.refused.contains(&name)
    }

    /// The value of an option that was not read yet.
    fn waiting(&self, name: &str) -> Option<&Value> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| &node.value)
    }
}
