//! Values of the file as JSON.

use serde_json::{Number, Value as Json};

use super::tree::Value;

/// The same value. Numbers that JSON cannot express become strings.
pub(crate) fn to_json(value: Value) -> Json {
    match value {
        Value::Null | Value::Refused => Json::Null,
        Value::Bool(value) => Json::Bool(value),
        Value::Integer(value) => Number::from_i128(value).map_or_else(|| Json::String(value.to_string()), Json::Number),
        Value::Float(value) => Number::from_f64(value).map_or_else(|| Json::String(value.to_string()), Json::Number),
        Value::Text { value, .. } => Json::String(value),
        Value::List(items) => Json::Array(items.into_iter().map(|item| to_json(item.value)).collect()),
        Value::Map(entries) => {
            Json::Object(entries.into_iter().map(|(key, node)| (key.name, to_json(node.value))).collect())
        }
    }
}
