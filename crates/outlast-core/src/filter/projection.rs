//! Projection push-down: parses only the parts of an event that filters read, since building all of it in memory would
//! take longer than everything else. The rest is validated all the same: a text is accepted if and only if it is valid
//! as a whole.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::path::Path;

/// The parts of events that are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection(Selection);

#[derive(Clone, Debug, PartialEq)]
enum Selection {
    Whole,
    /// Only these members, and no elements.
    Members(Vec<(Box<str>, Selection)>),
}

impl Projection {
    pub fn everything() -> Projection {
        Projection(Selection::Whole)
    }

    /// Of an object these members.
    pub fn members(names: &[&str]) -> Projection {
        Projection(Selection::Members(names.iter().map(|name| (Box::from(*name), Selection::Whole)).collect()))
    }

    /// Adds the values at this path.
    pub fn add(&mut self, path: &Path) {
        let mut part = &mut self.0;
        let Some(names) = path.leading_names() else {
            *part = Selection::Whole;
            return;
        };
        for name in names {
            let Selection::Members(members) = part else {
                return;
            };
            let place = members.iter().position(|(known, _)| &**known == name).unwrap_or_else(|| {
                members.push((name.into(), Selection::Members(Vec::new())));
                members.len() - 1
            });
            let Some((_, next)) = members.get_mut(place) else {
                return;
            };
            part = next;
        }
        *part = Selection::Whole;
    }

    /// A text that is JSON, as far as it is looked at.
    pub fn read(&self, text: &str) -> serde_json::Result<Value> {
        let mut source = serde_json::Deserializer::from_str(text);
        let value = SelectionSeed(&self.0).deserialize(&mut source)?;
        source.end()?;
        Ok(value)
    }
}

/// Keeps a part of what comes.
struct SelectionSeed<'a>(&'a Selection);

impl<'de> DeserializeSeed<'de> for SelectionSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        match self.0 {
            Selection::Whole => Value::deserialize(source),
            Selection::Members(_) => source.deserialize_any(self),
        }
    }
}

/// Scalars are kept unchanged.
macro_rules! scalars {
    ($of:ident) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($of(|| Value::Null))
        }

        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            Ok($of(|| Value::Bool(value)))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok($of(|| Value::from(value)))
        }

        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok($of(|| Value::from(value)))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok($of(|| Number::from_f64(value).map_or(Value::Null, Value::Number)))
        }

        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok($of(|| Value::from(value)))
        }
    };
}

fn kept(value: impl FnOnce() -> Value) -> Value {
    value()
}

impl<'de> Visitor<'de> for SelectionSeed<'_> {
    type Value = Value;

    scalars!(kept);

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        while elements.next_element_seed(Skip)?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Selection::Members(wanted) = self.0 else {
            return Ok(Value::Null);
        };
        let mut object = Map::with_capacity(wanted.len());
        while let Some(name) = members.next_key_seed(Among(wanted))? {
            match name {
                Some((name, part)) => {
                    _ = object.insert(name.to_string(), members.next_value_seed(SelectionSeed(part))?)
                }
                None => members.next_value_seed(Skip)?,
            }
        }
        Ok(Value::Object(object))
    }
}

/// Which of these members a name is.
struct Among<'a>(&'a [(Box<str>, Selection)]);

impl<'de, 'a> DeserializeSeed<'de> for Among<'a> {
    type Value = Option<&'a (Box<str>, Selection)>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Among<'a> {
    type Value = Option<&'a (Box<str>, Selection)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(wanted, _)| &**wanted == name))
    }
}

/// Reads, and keeps nothing. Not `IgnoredAny`: that takes texts that are no JSON, and any depth.
struct Skip;

fn skipped(_: impl FnOnce() -> Value) {}

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = ();

    scalars!(skipped);

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(Skip)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key_seed(Skip)?.is_some() {
            members.next_value_seed(Skip)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn projection(paths: &[&str]) -> Projection {
        let mut projection = Projection::members(&["id"]);
        for path in paths {
            projection.add(&Path::parse(path).unwrap());
        }
        projection
    }

    #[test]
    fn only_what_is_looked_at_is_kept() {
        let event = json!({
            "id": "evt_1", "live": true, "api": null, "at": 17, "share": 0.1,
            "data": {"object": {"amount_due": 1000, "lines": [{"a": 1}], "customer": {"id": 3, "name": "x"}}, "previous": {}},
            "list": [1, 2],
        });
        let text = event.to_string();

        let known = json!({"id": "evt_1"});
        assert_eq!(projection(&[]).read(&text).unwrap(), known);
        let scalars = json!({"id": "evt_1", "live": true, "api": null, "at": 17, "share": 0.1});
        assert_eq!(projection(&["$.live", "$.api", "$.at.x", "$.share", "$.none"]).read(&text).unwrap(), scalars);
        let mut expected = known.clone();
        expected["data"] = json!({"object": {"amount_due": 1000, "customer": {"id": 3, "name": "x"}}});
        assert_eq!(projection(&["$.data.object.amount_due", "$.data.object.customer"]).read(&text).unwrap(), expected);
        // An index ends what is known beforehand: the list is kept whole.
        let mut expected = known.clone();
        expected["data"] = json!({"object": {"lines": [{"a": 1}]}});
        assert_eq!(projection(&["$.data.object.lines[-1].a"]).read(&text).unwrap(), expected);
        for everything in ["$", "$..id", "$.data[?@.amount_due > 1]", "$.*"] {
            assert_eq!(projection(&["$.id", everything, "$.data.object"]).read(&text).unwrap(), event, "{everything}");
        }
    }

    #[test]
    fn a_path_leads_where_it_leads_in_the_whole_event() {
        let paths = ["$.a", "$.a.b", "$.a.b.c", "$['a']['b']", "$.a[0]", "$.a[0].b", "$.b.a", "$.c"];
        let events = [
            json!({"a": {"b": {"c": 1}}, "b": {"a": [1]}, "c": "x"}),
            json!({"a": [{"b": 1}], "b": null}),
            json!({"a": {"b": [1, {"c": 2}]}}),
            json!([{"a": 1}]),
            json!("a"),
            json!(null),
        ];
        for event in &events {
            for path in paths.map(|path| Path::parse(path).unwrap()) {
                let mut one = Projection::members(&[]);
                one.add(&path);
                let seen = one.read(&event.to_string()).unwrap();
                assert_eq!(path.nodes(&seen).unwrap(), path.nodes(event).unwrap(), "{path:?} in {event}");
                let seen = projection(&paths).read(&event.to_string()).unwrap();
                assert_eq!(path.nodes(&seen).unwrap(), path.nodes(event).unwrap(), "{path:?} of many in {event}");
            }
        }
    }

    #[test]
    fn of_two_members_with_one_name_the_last_one_counts() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"a":{"b":2}}"#,
            r#"{"a":{"b":2},"a":1}"#,
            r#"{"d":{"e":1,"e":2},"d":{"e":3}}"#,
            r#"{"d":{"e":1},"d":[]}"#,
        ] {
            let whole: Value = serde_json::from_str(text).unwrap();
            let seen = projection(&["$.a.b", "$.d.e"]).read(text).unwrap();
            for path in ["$.a", "$.a.b", "$.d.e"].map(|path| Path::parse(path).unwrap()) {
                let scalars = |value| path.nodes(value).unwrap().into_iter().filter(|node| !node.is_object()).count();
                assert_eq!(scalars(&seen), scalars(&whole), "{path:?} in {text}");
            }
        }
        assert_eq!(projection(&[]).read(r#"{"id":1,"id":{}}"#).unwrap(), json!({"id": {}}));
    }

    #[test]
    fn what_is_no_json_is_refused_wherever_it_stands() {
        let deep = format!(r#"{{"skipped":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for text in [
            "",
            "{",
            "{}x",
            "{\"a\":}",
            "[1,]",
            r#"{"skipped":"\ud800"}"#,
            r#"{"skipped":{"b":1e999}}"#,
            r#"{"skipped":[01]}"#,
            r#"{"skipped":"a	b"}"#,
            &deep,
        ] {
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
            for projection in [projection(&[]), projection(&["$.a.b"]), Projection::everything()] {
                assert!(projection.read(text).is_err(), "{text}");
            }
        }
    }
}
