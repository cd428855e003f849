//! Parses the lines of the progress pipe: one report per line, as words for shells or as a JSON object.
//! Invalid lines are errors, never guesses.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Number, Value};

/// Fields of a progress report, as the API names them.
pub(crate) type Progress = BTreeMap<String, Box<RawValue>>;

/// A report of the program about its work.
#[derive(Debug)]
pub(crate) enum Report {
    /// Latest wins: a newer one overrides the fields it has.
    Progress(Progress),
    Durable(Durable),
}

/// Reports that must reach the server, in order.
#[derive(Debug)]
pub(crate) enum Durable {
    Checkpoint { schema_version: Box<RawValue>, data: Box<RawValue>, progress: Progress },
    Section { name: String, value: Box<RawValue> },
    Output { text: String },
}

impl Report {
    /// For messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Report::Progress(_) => "progress".to_owned(),
            Report::Durable(Durable::Checkpoint { .. }) => "a checkpoint".to_owned(),
            Report::Durable(Durable::Section { name, .. }) => format!("section \"{name}\""),
            Report::Durable(Durable::Output { .. }) => "output".to_owned(),
        }
    }
}

/// `None` for an empty line; else the report, or why it is none.
pub(crate) fn read(line: &str) -> Option<Result<Report, String>> {
    let line = line.trim();
    match line.chars().next()? {
        '{' => Some(read_object(line)),
        _ => Some(read_words(line)),
    }
}

fn read_object(line: &str) -> Result<Report, String> {
    let mut fields: Progress = serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
    if let Some(data) = fields.remove("checkpoint") {
        let schema_version = fields.remove("schemaVersion").unwrap_or_else(first_version);
        return Ok(Report::Durable(Durable::Checkpoint { schema_version, data, progress: fields }));
    }
    if let Some(name) = fields.remove("section") {
        let name = text(&name).ok_or("the name of a section is a text")?;
        let value = fields.remove("value").ok_or_else(|| format!("section {name} has no value"))?;
        return Ok(Report::Durable(Durable::Section { name, value }));
    }
    if let Some(output) = fields.remove("output") {
        return Ok(Report::Durable(Durable::Output { text: text(&output).ok_or("output is a text")? }));
    }
    Ok(Report::Progress(fields))
}

fn read_words(line: &str) -> Result<Report, String> {
    let (verb, rest) = split(line);
    match verb {
        "progress" => progress(rest),
        "checkpoint" => {
            let (schema_version, progress) = (first_version(), Progress::new());
            Ok(Report::Durable(Durable::Checkpoint { schema_version, data: json(rest)?, progress }))
        }
        "section" => {
            let (name, value) = split(rest);
            Ok(Report::Durable(Durable::Section { name: name.to_owned(), value: json(value)? }))
        }
        "output" => Ok(Report::Durable(Durable::Output { text: format!("{rest}\n") })),
        _ => Err("begins with neither progress, checkpoint, section, output nor {".to_owned()),
    }
}

/// `40 stage message…`, each but the first left out at will; `40%` is read as well.
fn progress(words: &str) -> Result<Report, String> {
    let (pct, rest) = split(words);
    let pct: Option<Number> = pct.trim_end_matches('%').parse::<f64>().ok().and_then(Number::from_f64);
    let pct = pct.ok_or("progress needs a number of percent")?;
    let (stage, message) = split(rest);
    let mut fields = Progress::new();
    for (name, value) in [("stage", stage), ("message", message)] {
        if !value.is_empty() {
            fields.insert(name.to_owned(), raw(&value));
        }
    }
    fields.insert("pct".to_owned(), raw(&pct));
    Ok(Report::Progress(fields))
}

/// The first word, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn text(raw: &RawValue) -> Option<String> {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Of a checkpoint that names none.
fn first_version() -> Box<RawValue> {
    raw(&1)
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("a text or a finite number can always be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report in one line.
    fn shown(line: &str) -> String {
        let fields = |progress: &Progress| serde_json::to_string(progress).unwrap();
        match read(line) {
            None => "nothing".to_owned(),
            Some(Err(why)) => format!("refused: {why}"),
            Some(Ok(Report::Progress(progress))) => format!("progress {}", fields(&progress)),
            Some(Ok(Report::Durable(Durable::Checkpoint { schema_version, data, progress }))) => {
                format!("checkpoint v{schema_version} {data} {}", fields(&progress))
            }
            Some(Ok(Report::Durable(Durable::Section { name, value }))) => format!("section {name} {value}"),
            Some(Ok(Report::Durable(Durable::Output { text }))) => format!("output {text:?}"),
        }
    }

    #[test]
    fn lines_in_words_and_in_json_are_read() {
        for (line, report) in [
            ("  \r", "nothing"),
            ("progress 40", r#"progress {"pct":40.0}"#),
            ("progress 40% render", r#"progress {"pct":40.0,"stage":"render"}"#),
            (
                "progress 7.5 render  page 3 of 40\r",
                r#"progress {"message":"page 3 of 40","pct":7.5,"stage":"render"}"#,
            ),
            (r#"{"itemsDone":3,"itemsTotal":40}"#, r#"progress {"itemsDone":3,"itemsTotal":40}"#),
            ("checkpoint {\"at\": 12345678901234567890}", "checkpoint v1 {\"at\": 12345678901234567890} {}"),
            (r#"{"checkpoint":{"a":1},"schemaVersion":2,"pct":10}"#, r#"checkpoint v2 {"a":1} {"pct":10}"#),
            ("section intro [1, 2]", "section intro [1, 2]"),
            (r#"{"section":"a b","value":null}"#, "section a b null"),
            ("output some  words", r#"output "some  words\n""#),
            (r#"{"output":"token"}"#, r#"output "token""#),
        ] {
            assert_eq!(shown(line), report, "{line:?}");
        }
    }

    #[test]
    fn an_invalid_line_is_an_error() {
        for line in [
            "hello",
            "progress",
            "progress many",
            "progress NaN",
            "section intro",
            "section intro {",
            r#"{"section":5,"value":1}"#,
            r#"{"section":"a"}"#,
            r#"{"output":5}"#,
            "{",
        ] {
            assert!(shown(line).starts_with("refused: "), "{line}: {}", shown(line));
        }
    }
}
