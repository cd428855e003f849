//! A queue's subscription to a source: which events it takes, and which of them count as duplicates.

use serde_json::Value;

use crate::filter::{Exhausted, Filter, Path, Projection};
use crate::inbound_event::pattern_matches;

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
        if !self.events.iter().any(|pattern| pattern_matches(pattern, kind)) {
            return Ok(false);
        }
        self.filter.as_ref().map_or(Ok(true), |filter| filter.matches(event))
    }

    /// Adds the paths that it reads.
    pub fn add_to_projection(&self, projection: &mut Projection) {
        if let Some(filter) = &self.filter {
            filter.add_to_projection(projection);
        }
        if let Some(key) = &self.key {
            projection.add(key);
        }
    }

    /// The dedupe key of an event: the first text or number at the path. An event without one has no duplicates.
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
