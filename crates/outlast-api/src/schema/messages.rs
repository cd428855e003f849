//! Messages for the sender of a bad request: the allowed values, and a suggestion.

use std::fmt;
use std::time::Duration;

use super::{Field, Kind};

/// The allowed values, as text for the sender.
pub fn wants(kind: &Kind) -> String {
    match kind {
        Kind::Any => "JSON".to_owned(),
        Kind::Bool => "true or false".to_owned(),
        Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Number { min, max } => format!("a number from {min} to {max}"),
        Kind::Text { min, max, wants, .. } => {
            let kind = if wants.is_empty() { "text" } else { wants };
            // Where only one length is right, the words have said so.
            if min == max { kind.to_owned() } else { format!("{kind} of {min} to {max} bytes") }
        }
        Kind::Word(words) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!("one of {}", quoted.join(", "))
        }
        Kind::Duration { min, max } => {
            format!("seconds, or a duration like \"30s\", from {} to {}", DurationText(*min), DurationText(*max))
        }
        Kind::Time => "a time like \"2026-11-15T20:37:00Z\"".to_owned(),
        Kind::Object(_) | Kind::Entry(_) => "an object".to_owned(),
        Kind::Map { entries, name_bytes, value_bytes } => {
            format!(
                "an object of at most {entries} texts, with names of 1 to {name_bytes} bytes and values of at most {value_bytes}"
            )
        }
        Kind::Amounts { entries, name_bytes, max } => {
            format!("an object of at most {entries} numbers from 0 to {max}, with names of 1 to {name_bytes} bytes")
        }
        Kind::List { max, .. } => format!("a list of at most {max} entries"),
    }
}

/// A duration in the largest unit that divides it.
struct DurationText(Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
            if millis != 0 && millis.is_multiple_of(size) {
                return write!(f, "{}{unit}", millis / size);
            }
        }
        if millis == 0 { f.write_str("0s") } else { write!(f, "{millis}ms") }
    }
}

const PAYLOAD: &str = "payload";

/// A body that is JSON and no object.
pub(super) fn no_object(fields: &[Field]) -> String {
    match fields.iter().any(|field| field.name == PAYLOAD) {
        true => "must be a JSON object; put your data under `payload`".to_owned(),
        false => "must be a JSON object".to_owned(),
    }
}

pub(super) fn unknown(name: &str, fields: &[Field]) -> String {
    let near = fields
        .iter()
        .map(|field| (distance(name, field.name), field.name))
        .filter(|(steps, known)| *steps <= 2 && *steps < known.len());
    match near.min() {
        Some((_, known)) => format!("is not a field here; did you mean \"{known}\"?"),
        // Most who send their data bare have not seen that it has a place.
        None if fields.iter().any(|field| field.name == PAYLOAD) => {
            "is not a field here; put your data under `payload`".to_owned()
        }
        None => "is not a field here".to_owned(),
    }
}

/// Edit distance, for suggestions only; long names are never near.
fn distance(one: &str, other: &str) -> usize {
    if one.len() > 64 {
        return usize::MAX;
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, left) in one.chars().enumerate() {
        let mut next = vec![at + 1];
        for (place, right) in other.iter().enumerate() {
            let substitute = row.get(place).copied().unwrap_or(0) + usize::from(left != *right);
            let insert = next.get(place).copied().unwrap_or(0) + 1;
            let delete = row.get(place + 1).copied().unwrap_or(0) + 1;
            next.push(substitute.min(insert).min(delete));
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}
