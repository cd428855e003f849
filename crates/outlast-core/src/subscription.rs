//! What a queue takes of a source: which events, and which of them count as the same.

use serde_json::Value;

use crate::arrival::names;
use crate::filter::{Exhausted, Filter, Glance, Path};

#[derive(Clone, Default)]
pub struct Subscription {
    /// Patterns of kinds, see [`names`].
    pub events: Vec<String>,
    pub filter: Option<Filter>,
    pub key: Option<Path>,
}

impl Subscription {
    /// Judged by its kind first: a filter is not asked about events that are none of its business.
    pub fn takes(&self, kind: &str, event: &Value) -> Result<bool, Exhausted> {
        if !self.events.iter().any(|pattern| names(pattern, kind)) {
            return Ok(false);
        }
        self.filter.as_ref().map_or(Ok(true), |filter| filter.matches(event))
    }

    /// What it asks events about is kept.
    pub fn looked_at(&self, glance: &mut Glance) {
        if let Some(filter) = &self.filter {
            filter.looked_at(glance);
        }
        if let Some(key) = &self.key {
            glance.add(key);
        }
    }

    /// What makes a job of this event the same as another one: a text or a number that the path finds first. An event without
    /// one is like no other.
    pub fn key_of(&self, event: &Value) -> Option<String> {
        let found = self.key.as_ref()?.nodes(event).ok()?;
        let text = match found.first()? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn billing() -> Subscription {
        Subscription {
            events: vec!["invoice.paid".into(), "charge.*".into()],
            filter: Some(Filter::parse("$.amount >= 1000").unwrap()),
            key: Some(Path::parse("$.id").unwrap()),
        }
    }

    #[test]
    fn kind_and_filter_both_decide() {
        for (kind, amount, taken) in [
            ("invoice.paid", 1000, true),
            ("charge.failed", 2000, true),
            ("invoice.paid", 999, false),
            ("invoice.sent", 1000, false),
        ] {
            assert_eq!(billing().takes(kind, &json!({"amount": amount})).unwrap(), taken, "{kind} {amount}");
        }
        assert!(!Subscription::default().takes("invoice.paid", &json!({})).unwrap(), "nothing was asked for");
    }

    #[test]
    fn texts_and_numbers_are_keys() {
        for (id, key) in [
            (json!("evt_1"), Some("evt_1")),
            (json!(17), Some("17")),
            (json!(""), None),
            (json!(null), None),
            (json!(true), None),
            (json!(["evt_1"]), None),
        ] {
            assert_eq!(billing().key_of(&json!({"id": id})).as_deref(), key, "{id}");
        }
        assert_eq!(billing().key_of(&json!({})), None);
        assert_eq!(Subscription::default().key_of(&json!({"id": 1})), None);
    }
}
