//! Writes to stdout and stderr: text for people, or the server's JSON as it came. Everything that another program or user
//! has written goes through [`escape`], so that no text can steer the terminal.

use std::io::{self, Write};

use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Replaces control characters, and characters that reorder or hide text, by visible escapes such as `\u{1b}`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            _ if is_unsafe(character) => escaped.extend(character.escape_unicode()),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// JSON with the same meaning in which no character can steer a terminal. Only a string can hold such a character (JSON
/// forbids raw control characters below U+0020 in strings, and outside they are white space), so `\u` escapes are right.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_unsafe(character) && !matches!(character, '\n' | '\r' | '\t') {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_unsafe(character: char) -> bool {
    let reorders =
        matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = matches!(character, '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    character.is_control() || reorders || hides
}

/// A field of a JSON object as one table cell; `-` where there is nothing.
pub(crate) fn cell(object: &Value, field: &str) -> String {
    show(object.get(field).unwrap_or(&Value::Null))
}

/// A JSON value as people read it: texts without quotes, `-` for null.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `{"a":"1","b":"2"}` as `a=1 b=2`.
pub(crate) fn show_pairs(value: Option<&Value>) -> String {
    let Some(Value::Object(pairs)) = value else { return "-".to_owned() };
    if pairs.is_empty() {
        return "-".to_owned();
    }
    let shown: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", show(value))).collect();
    shown.join(" ")
}

/// Writes to stdout. A reader that went away (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(|_| ())
}

/// The same for output without an end. Returns whether the reader is still there.
pub(crate) fn print_on(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Refused, format!("cannot write to stdout: {error}"))),
    }
}

/// One JSON document on stdout, as the server wrote it.
pub(crate) fn print_json(json: &str) -> Result<(), Failure> {
    print(&format!("{}\n", escape_json(json.trim_end())))
}

/// One JSON document on one line. Valid JSON has line breaks only between its parts.
pub(crate) fn print_json_line(json: &str) -> Result<(), Failure> {
    print_json(&json.replace(['\n', '\r'], " "))
}

/// A remark beside the output, on stderr.
pub(crate) fn note(text: &str) {
    // A closed stderr loses the remark and nothing else.
    let _ = writeln!(io::stderr(), "{}", escape(text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        for (text, shown) in [
            ("plain Ünïcode ✓", "plain Ünïcode ✓"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("two\r\nlines\t", "two\\r\\nlines\\t"),
            ("\u{0}\u{7f}\u{9b}", "\\u{0}\\u{7f}\\u{9b}"),
            ("abc\u{202e}fed", "abc\\u{202e}fed"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        let original = "{\n\t\"a\": \"x\u{9b}31m\u{202e}\u{7f}\u{e0041}\", \"b\": 12345678901234567890123\n}";

        let escaped = escape_json(original);

        assert!(!escaped.chars().any(|c| is_unsafe(c) && !matches!(c, '\n' | '\t')));
        assert!(escaped.contains("12345678901234567890123"));
        let (before, after): (Value, Value) =
            (serde_json::from_str(original).unwrap(), serde_json::from_str(&escaped).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn json_values_are_shown_without_quotes() {
        let object = json!({"text": "x", "number": 5, "nothing": null, "tags": {"a": "1", "b": "2"}});

        assert_eq!(cell(&object, "text"), "x");
        assert_eq!(cell(&object, "number"), "5");
        assert_eq!(cell(&object, "nothing"), "-");
        assert_eq!(cell(&object, "missing"), "-");
        assert_eq!(show_pairs(object.get("tags")), "a=1 b=2");
        assert_eq!(show_pairs(None), "-");
    }
}
