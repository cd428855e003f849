//! A configuration layer as a tree whose values know where they were written, and the merging of layers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Spanned, options};

use super::problem::{Origin, Problem};

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub value: Value,
    pub origin: Origin,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    /// Marks a value that was refused already, so that the same mistake is not reported twice.
    Refused,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text {
        value: String,
        /// The text of the file before variables were put in; shown instead of the value, which may be secret.
        written: Option<String>,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub name: String,
    pub origin: Origin,
}

impl Node {
    pub(crate) fn empty_map(origin: Origin) -> Node {
        Node { value: Value::Map(Vec::new()), origin }
    }

    /// A map in which all these options are unset, as if that had been written at `origin`.
    pub(crate) fn unset(options: &[&str], origin: &Origin) -> Node {
        let mut entries = Vec::with_capacity(options.len());
        for option in options {
            let key = Key { name: (*option).to_owned(), origin: origin.clone() };
            entries.push((key, Node { value: Value::Null, origin: origin.clone() }));
        }
        Node { value: Value::Map(entries), origin: origin.clone() }
    }

    /// Puts a text at `path` (one or more names) of a map, making the maps on the way.
    pub(crate) fn set(&mut self, path: &[&str], value: String, origin: &Origin) {
        let Some((name, rest)) = path.split_first() else {
            self.value = Value::Text { value, written: None };
            self.origin = origin.clone();
            return;
        };
        if !matches!(self.value, Value::Map(_)) {
            self.value = Value::Map(Vec::new());
        }
        let Value::Map(entries) = &mut self.value else { return };
        let mut child = Node::empty_map(origin.clone());
        child.set(rest, value, origin);
        entries.push((Key { name: (*name).to_owned(), origin: origin.clone() }, child));
    }
}

/// Reads YAML. An empty document is an empty map.
pub(crate) fn parse(yaml: &str, source: &Origin) -> Result<Node, Problem> {
    // Snippets would repeat lines of the file, which may hold secrets.
    let options = options! { with_snippet: false };
    let parsed: Spanned<Parsed> = serde_saphyr::from_str_with_options(yaml, options).map_err(|error| {
        let origin = error.location().map_or(source.clone(), |at| source.at(at.line(), at.column()));
        Problem::new(origin, format!("is not valid YAML: {}", error.without_snippet()))
    })?;
    let node = locate(parsed, source);
    match node.value {
        Value::Map(_) => Ok(node),
        Value::Null => Ok(Node::empty_map(source.clone())),
        _ => Err(Problem::new(node.origin, "must be a mapping of options")),
    }
}

/// Lays `top` over `base`. Null in `top` means "not set" and leaves what is below.
pub(crate) fn overlay(base: &mut Node, top: Node, path: &str, problems: &mut Vec<Problem>) {
    match (&mut base.value, top.value) {
        (_, Value::Null) => {}
        (Value::Null, Value::Refused) => *base = Node { value: Value::Refused, origin: top.origin },
        // The lower layer is used instead.
        (_, Value::Refused) => {}
        (Value::Map(below), Value::Map(above)) => {
            for (key, node) in above {
                match below.iter_mut().find(|(present, _)| present.name == key.name) {
                    Some((_, present)) => overlay(present, node, &join(path, &key.name), problems),
                    None => below.push((key, node)),
                }
            }
        }
        (Value::Map(_), _) => {
            problems.push(Problem::new(top.origin, format!("{path} must be a section with options below it")));
        }
        (_, value) => *base = Node { value, origin: top.origin },
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A node of the YAML parser, before positions are turned into origins.
enum Parsed {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Parsed>>),
    Map(Vec<(Spanned<String>, Spanned<Parsed>)>),
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_any(ParsedVisitor)
    }
}

struct ParsedVisitor;

impl<'de> Visitor<'de> for ParsedVisitor {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Null)
    }

    fn visit_none<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parsed, E> {
        Ok(Parsed::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parsed, E> {
        Ok(Parsed::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parsed, E> {
        Ok(Parsed::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Parsed, E> {
        Ok(Parsed::Integer(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parsed, E> {
        Ok(Parsed::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parsed, E> {
        Ok(Parsed::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Parsed, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Parsed::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Parsed, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Parsed::Map(entries))
    }
}

fn locate(parsed: Spanned<Parsed>, source: &Origin) -> Node {
    let origin = source.at(parsed.referenced.line(), parsed.referenced.column());
    let value = match parsed.value {
        Parsed::Null => Value::Null,
        Parsed::Bool(value) => Value::Bool(value),
        Parsed::Integer(value) => Value::Integer(value),
        Parsed::Float(value) => Value::Float(value),
        Parsed::Text(value) => Value::Text { value, written: None },
        Parsed::List(items) => Value::List(items.into_iter().map(|item| locate(item, source)).collect()),
        Parsed::Map(entries) => {
            let mut located = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let origin = source.at(key.referenced.line(), key.referenced.column());
                located.push((Key { name: key.value, origin }, locate(value, source)));
            }
            Value::Map(located)
        }
    };
    Node { value, origin }
}
