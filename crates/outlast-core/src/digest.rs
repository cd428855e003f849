//! Digests that distinguish one outcome from another in five bytes. Not cryptographic: only the holder of a lease could
//! profit from a collision, and all it would get is the answer to its own repeated report.

use std::num::NonZeroU64;

/// Digests have so many bits: two different outcomes look alike once in 10^12.
pub const BITS: u32 = 40;

/// Of JSON text. White space between tokens and the order of an object's members do not matter; numbers and strings are
/// compared as they are written. Never fails: text that is not JSON has a digest, too.
pub fn json(text: &str) -> NonZeroU64 {
    let mut open: Vec<Container> = Vec::new();
    let mut root = Container::new(false);
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let container = open.last_mut().unwrap_or(&mut root);
        match first {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {}
            b'{' | b'[' => open.push(Container::new(*first == b'{')),
            b'}' | b']' => {
                if let Some(closed) = open.pop() {
                    open.last_mut().unwrap_or(&mut root).add(closed.finish());
                }
            }
            b'"' => {
                let (token, behind) = rest.split_at_checked(string_length(rest)).unwrap_or((rest, &[]));
                rest = behind;
                container.add(hash(token, STRING));
            }
            _ => {
                let length = rest.iter().position(|byte| b" \t\n\r,:]}".contains(byte)).unwrap_or(rest.len());
                let (token, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                rest = behind;
                container.add(hash(token, u64::from(*first)));
            }
        }
    }
    while let Some(unclosed) = open.pop() {
        open.last_mut().unwrap_or(&mut root).add(unclosed.finish());
    }
    shorten(root.finish())
}

/// Of a few numbers.
pub fn numbers(numbers: &[u64]) -> NonZeroU64 {
    shorten(numbers.iter().fold(SEED, |sum, number| mix(sum, *number)))
}

/// An object or array whose members are added one by one.
struct Container {
    is_object: bool,
    /// Of an object: the name whose value comes next.
    name: Option<u64>,
    sum: u64,
    count: u64,
}

impl Container {
    fn new(is_object: bool) -> Container {
        Container { is_object, name: None, sum: SEED, count: 0 }
    }

    fn add(&mut self, value: u64) {
        match self.name.take() {
            // A sum is the same in any order.
            Some(name) => self.sum = self.sum.wrapping_add(mix(name, value)),
            None if self.is_object => self.name = Some(value),
            None => self.sum = mix(self.sum, value),
        }
        self.count += 1;
    }

    fn finish(self) -> u64 {
        mix(mix(self.sum, self.count), u64::from(self.is_object))
    }
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
/// Sets strings apart from other scalars.
const STRING: u64 = 0x100;

/// Bytes of a string behind its opening quote, closing quote included.
fn string_length(bytes: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// FNV-1a.
fn hash(token: &[u8], seed: u64) -> u64 {
    token.iter().fold(mix(SEED, seed), |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finaliser of SplitMix64.
fn mix(one: u64, other: u64) -> u64 {
    let mut sum = one.rotate_left(23).wrapping_add(other).wrapping_add(0x9e37_79b9_7f4a_7c15);
    sum = (sum ^ sum >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum = (sum ^ sum >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum ^ sum >> 31
}

fn shorten(sum: u64) -> NonZeroU64 {
    NonZeroU64::new(sum >> (u64::BITS - BITS)).unwrap_or(NonZeroU64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_equal_has_one_digest() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, " {\"b\" : [true ,\tnull],\n\"a\": 1}\r"),
            (r#"{"a":{"x":1,"y":{}},"b":""}"#, r#"{"b":"","a":{"y":{},"x":1}}"#),
            ("[1,2]", "[ 1 , 2 ]"),
            (r#""a \" b""#, r#" "a \" b" "#),
        ] {
            assert_eq!(json(one), json(other), "{one}");
        }
    }

    #[test]
    fn json_that_differs_has_another_digest() {
        let all = [
            "1",
            "2",
            "12",
            "1.0",
            "\"1\"",
            "null",
            "\"null\"",
            "true",
            "[]",
            "{}",
            "[[]]",
            "[{}]",
            "\"\"",
            "[1,2]",
            "[2,1]",
            "[12]",
            "[[1],2]",
            "[1,[2]]",
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#"{"b":1}"#,
            r#"{"1":"a"}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":2}}"#,
            r#"["a",1]"#,
            r#"" ""#,
            r#""  ""#,
            r#"{"a":[1,2]}"#,
            r#"{"a":[2,1]}"#,
            r#"{"a":{"x":1},"b":{"x":2}}"#,
            r#"{"a":{"x":2},"b":{"x":1}}"#,
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(json(one), json(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn text_that_is_not_json_has_a_digest_too() {
        for text in ["", "}", "]]", "{", "[\"", "\"\\", "{]", "{\"a\"}", "ö\u{0}", "::,"] {
            assert_eq!(json(text), json(text));
            assert!(json(text).get() < 1 << BITS);
        }
        assert!(json(&"[".repeat(1 << 20)).get() > 0);
    }
}
