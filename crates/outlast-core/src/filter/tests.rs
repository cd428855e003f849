//! The language by tables, by chance and by force.

mod bombs;
mod errors;
mod grammar;
mod operators;
mod paths;
mod random;

use serde_json::Value;

use super::Filter;

#[track_caller]
fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check(text: &str, event: &Value, expected: bool) {
    assert_eq!(filter(text).matches(event), Ok(expected), "{text} on {event}");
}
