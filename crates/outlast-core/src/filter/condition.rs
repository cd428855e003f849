//! The condition of a term on the values at its path. It holds when one of them fulfils it; `!=` alone holds when none
//! is equal, so it is always the opposite of `==`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::budget::{Overrun, StepBudget};
use super::pattern::Pattern;
use super::value::{is_equal, order, size};

#[derive(Debug, Clone)]
pub(super) enum Condition {
    Exists,
    Equal(Value),
    NotEqual(Value),
    Less(Value),
    LessOrEqual(Value),
    Greater(Value),
    GreaterOrEqual(Value),
    In(Vec<Value>),
    Contains(Value),
    StartsWith(String),
    EndsWith(String),
    Matches(Pattern),
}

impl Condition {
    pub(super) fn holds<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a Value>,
        budget: &mut StepBudget,
    ) -> Result<bool, Overrun> {
        let mut found = false;
        for node in nodes {
            budget.spend(self.cost(node))?;
            if self.is_fulfilled_by(node) {
                found = true;
                break;
            }
        }
        Ok(found != matches!(self, Condition::NotEqual(_)))
    }

    /// For `!=`: is it equal?
    fn is_fulfilled_by(&self, node: &Value) -> bool {
        match self {
            Condition::Exists => true,
            Condition::Equal(value) | Condition::NotEqual(value) => is_equal(node, value),
            Condition::Less(value) => order(node, value) == Some(Ordering::Less),
            Condition::LessOrEqual(value) => order(node, value).is_some_and(Ordering::is_le),
            Condition::Greater(value) => order(node, value) == Some(Ordering::Greater),
            Condition::GreaterOrEqual(value) => order(node, value).is_some_and(Ordering::is_ge),
            Condition::In(values) => values.iter().any(|value| is_equal(node, value)),
            Condition::Contains(value) => contains(node, value),
            Condition::StartsWith(text) => node.as_str().is_some_and(|node| node.starts_with(text.as_str())),
            Condition::EndsWith(text) => node.as_str().is_some_and(|node| node.ends_with(text.as_str())),
            Condition::Matches(pattern) => node.as_str().is_some_and(|node| pattern.is_match(node)),
        }
    }

    /// In the worst case. The right-hand side is part of the filter, so it is small; comparing a text costs at most its
    /// bytes.
    fn cost(&self, node: &Value) -> u64 {
        let cost = match (self, node) {
            (Condition::Matches(pattern), Value::String(text)) => return pattern.cost(text),
            (Condition::Contains(value), Value::Array(elements)) => elements.len().saturating_mul(size(value)),
            (Condition::Contains(_), Value::String(text)) => text.len(),
            (Condition::Equal(value) | Condition::NotEqual(value), _) => size(value),
            (Condition::In(values), _) => values.iter().map(size).sum(),
            _ => 1,
        };
        cost as u64 + 1
    }
}

/// A text contains a text, a list contains an element.
fn contains(node: &Value, value: &Value) -> bool {
    match (node, value) {
        (Value::String(node), Value::String(part)) => node.contains(part.as_str()),
        (Value::Array(elements), _) => elements.iter().any(|element| is_equal(element, value)),
        _ => false,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Exists => f.write_str("exists"),
            Condition::Equal(value) => write!(f, "== {value}"),
            Condition::NotEqual(value) => write!(f, "!= {value}"),
            Condition::Less(value) => write!(f, "< {value}"),
            Condition::LessOrEqual(value) => write!(f, "<= {value}"),
            Condition::Greater(value) => write!(f, "> {value}"),
            Condition::GreaterOrEqual(value) => write!(f, ">= {value}"),
            Condition::In(values) => {
                f.write_str("in [")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
            Condition::Contains(value) => write!(f, "contains {value}"),
            Condition::StartsWith(text) => write!(f, "starts_with {}", quoted(text)),
            Condition::EndsWith(text) => write!(f, "ends_with {}", quoted(text)),
            Condition::Matches(pattern) => write!(f, "matches {}", quoted(pattern.as_str())),
        }
    }
}

fn quoted(text: &str) -> Value {
    Value::String(text.to_owned())
}
