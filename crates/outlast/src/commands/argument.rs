//! A value that is given on the command line, on stdin (`-`) or in a file (`@path`).

use std::io::Read;

use serde_json::value::RawValue;

use crate::failure::Failure;

/// Above the largest payload a server can be set to take; stops reading an endless stdin.
const BYTES_MAX: u64 = 2 * 1024 * 1024;

/// JSON as it was written. `name` says what it is for, as in "the body".
pub(crate) fn json(argument: &str, name: &str) -> Result<Box<RawValue>, Failure> {
    let text = text(argument)?;
    serde_json::from_str(text.trim()).map_err(|error| {
        Failure::usage(format!("{name} is not JSON: {error}"))
            .with_hint("quote it for the shell, as in '{\"to\":\"ada\"}'")
    })
}

/// The payload of a job.
pub(crate) fn payload(argument: &str) -> Result<Box<RawValue>, Failure> {
    json(argument, "the payload").map_err(|failure| match failure.hint.clone() {
        Some(hint) => failure.with_hint(format!("{hint}, or publish a text with --text")),
        None => failure,
    })
}

/// Any text.
pub(crate) fn text(argument: &str) -> Result<String, Failure> {
    if argument == "-" {
        return read_all(std::io::stdin().lock(), "stdin");
    }
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.to_owned()) };
    let file = std::fs::File::open(path).map_err(|error| Failure::usage(format!("cannot open {path}: {error}")))?;
    read_all(file, path)
}

fn read_all(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = source.take(BYTES_MAX + 1).read_to_string(&mut text);
    let length = read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if u64::try_from(length).is_ok_and(|length| length > BYTES_MAX) {
        return Err(Failure::usage(format!("{name} holds more than {BYTES_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn json_keeps_its_bytes() {
        let payload = payload(r#" {"b": 1.10, "a": 12345678901234567890123} "#).unwrap();

        assert_eq!(payload.get(), r#"{"b": 1.10, "a": 12345678901234567890123}"#);
    }

    #[test]
    fn a_value_that_is_not_json_is_a_usage_error() {
        let failure = payload("hello there").unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.hint.is_some_and(|hint| hint.ends_with("--text")));
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        let failure = read_all(std::io::repeat(b'a'), "stdin").unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
    }
}
