//! Puts a value into a JSON text and leaves the rest as it is: the order of the members, and numbers with all their digits.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Sets what a JSON pointer (RFC 6901) leads to, making the objects on the way. Fails where the way leads through something
/// that is no object.
pub(crate) fn set(json: &str, pointer: &str, value: &Value) -> Result<String, serde_json::Error> {
    let Some(path) = pointer.strip_prefix('/') else { return Ok(value.to_string()) };
    let (name, rest) = path.find('/').map_or((path, ""), |at| path.split_at(at));
    let name = name.replace("~1", "/").replace("~0", "~");
    let mut members: Members = serde_json::from_str(json)?;
    match members.0.iter_mut().find(|(present, _)| *present == name) {
        Some((_, present)) => *present = RawValue::from_string(set(present.get(), rest, value)?)?,
        None => members.0.push((name, RawValue::from_string(set("{}", rest, value)?)?)),
    }
    serde_json::to_string(&members)
}

/// An object as it was written.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_put_where_the_pointer_leads_and_the_rest_stays() {
        for (json, pointer, changed) in [
            ("{}", "/type", r#"{"type":"x"}"#),
            (
                r#"{"z": 1.10, "a": 12345678901234567890123}"#,
                "/type",
                r#"{"z":1.10,"a":12345678901234567890123,"type":"x"}"#,
            ),
            (r#"{"type":"old","b":[ 1 ]}"#, "/type", r#"{"type":"x","b":[ 1 ]}"#),
            (r#"{"event":{"id":7}}"#, "/event/type", r#"{"event":{"id":7,"type":"x"}}"#),
            (r#"{"a":1}"#, "/data/event/type", r#"{"a":1,"data":{"event":{"type":"x"}}}"#),
            (r#"{"a/b":{"~":1}}"#, "/a~1b/~0", r#"{"a/b":{"~":"x"}}"#),
        ] {
            assert_eq!(set(json, pointer, &json!("x")).unwrap(), changed, "{json} {pointer}");
        }
    }

    #[test]
    fn the_way_cannot_lead_through_anything_else() {
        for (json, pointer) in [("[1]", "/type"), (r#"{"event":"text"}"#, "/event/type"), ("7", "/type")] {
            assert!(set(json, pointer, &json!("x")).is_err(), "{json} {pointer}");
        }
    }
}
