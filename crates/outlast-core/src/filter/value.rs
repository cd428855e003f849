//! How a value of an event compares with one of a filter. Values of different types are neither equal nor ordered.

use std::cmp::Ordering;

use serde_json::Value;

use super::number;

/// Deep equality with exact numbers. Recurses no deeper than the shallower of the two.
pub(super) fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        // A filter has no way to write an object.
        (Value::Object(_), _) | (_, Value::Object(_)) => false,
        _ => one == other,
    }
}

/// Numbers by size, texts by code points; nothing else has an order.
pub(super) fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => number::compare(one, other),
        // The bytes of UTF-8 have the order of the code points.
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

/// How many values it is made of.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(size).sum::<usize>(),
        _ => 1,
    }
}
