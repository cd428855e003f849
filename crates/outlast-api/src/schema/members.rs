//! The first look at a body: is its shape one that may be read at all, and which members does it have, their values still
//! unread.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr2;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::DEPTH_MAX;

/// The members of an object in order, values unread.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(4);
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// A member's name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Looks at brackets and escapes only: nothing recursive ever sees deep JSON, and half a character, which strict parsers
/// refuse together with everything around it, is never passed on.
pub(super) fn fault_of_shape(body: &[u8]) -> Option<String> {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'"' => match text_length(body.get(at..).unwrap_or_default()) {
                Some(length) => at += length,
                None => return Some("has half of a surrogate pair in a text".to_owned()),
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(format!("is nested deeper than {DEPTH_MAX} levels"));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The length of a text behind its opening quote, the closing one included; `None` when half of a surrogate pair is in it.
fn text_length(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let left = rest.get(at..).unwrap_or_default();
        let Some(found) = memchr2(b'"', b'\\', left) else {
            return Some(rest.len());
        };
        at += found + 1;
        if left.get(found) == Some(&b'"') {
            return Some(at);
        }
        at += escape_length(rest.get(at..).unwrap_or_default())?;
    }
}

/// The length of an escape behind its backslash; `None` when it is half of a surrogate pair.
fn escape_length(rest: &[u8]) -> Option<usize> {
    let unit = |start: usize| {
        let digits = rest.get(start..start + 5)?.strip_prefix(b"u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(0) {
        Some(0xdc00..=0xdfff) => None,
        Some(0xd800..=0xdbff) => {
            let paired = rest.get(5) == Some(&b'\\') && matches!(unit(6), Some(0xdc00..=0xdfff));
            paired.then_some(11)
        }
        Some(_) => Some(5),
        // One character, or no escape at all, which the parser will say.
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_surrogate_pair_is_a_fault_and_a_whole_one_is_not() {
        for (body, faulty) in [
            (r#"{"a":"\ud83e\udd80"}"#, false),
            (r#"{"a":"\\ud800"}"#, false),
            (r#"{"a":"\u0041\n\""}"#, false),
            (r#"{"a":"\ud83e"}"#, true),
            (r#"{"a":"\ud83e\u0041"}"#, true),
            (r#"{"a":"\udd80\ud83e"}"#, true),
            (r#"{"\uD83E":1}"#, true),
            (r#"{"a":"\ud83e\"#, true),
            (r#"{"a":"\u"#, false),
        ] {
            assert_eq!(fault_of_shape(body.as_bytes()).is_some(), faulty, "{body}");
        }
    }

    #[test]
    fn brackets_count_outside_of_texts_only() {
        let deep = |levels: usize| "[".repeat(levels);

        assert!(fault_of_shape(deep(DEPTH_MAX).as_bytes()).is_none());
        assert!(fault_of_shape(deep(DEPTH_MAX + 1).as_bytes()).is_some());
        assert!(fault_of_shape(format!("\"{}\"", deep(1000)).as_bytes()).is_none());
        assert!(fault_of_shape(format!("\"\\\"{}\"", deep(1000)).as_bytes()).is_none());
        assert!(fault_of_shape("[]".repeat(1000).as_bytes()).is_none());
    }
}
