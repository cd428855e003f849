//! `outlast jobs publish`: one job from an argument, a file or stdin. The payload goes out byte for byte.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};

use super::{is_terminal, verdict};
use crate::client::{Call, duration};
use crate::commands::Session;
use crate::commands::settings::{Fields, pair};
use crate::failure::{Exit, Failure};
use crate::output::{self, cell, escape};

/// Above the largest payload a server can be set to take; stops reading an endless stdin.
const PAYLOAD_BYTES_MAX: u64 = 2 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    queue: String,
    /// JSON, - for stdin, or @file; none publishes a job without a payload
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// Take the payload as a text, not as JSON
    #[arg(long)]
    text: bool,
    /// One job per key: publishing again with the same key gives the first job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Start after this time
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "run_at")]
    delay: Option<Duration>,
    /// Start at this time, as in 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIMESTAMP")]
    run_at: Option<String>,
    /// From -100 to 100, higher first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Fair-share key, a tenant for instance
    #[arg(long, value_name = "KEY")]
    job_key: Option<String>,
    /// A tag to find the job by; may be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Attempts before the job becomes a dead letter
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Any other field by its API name; the value is JSON, or a text; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Wait this long for the job to finish; fails when the job does
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

pub(crate) async fn run(session: &Session, args: &Args) -> Result<(), Failure> {
    let path = ["v1", "queues", args.queue.as_str(), "jobs"];
    let mut call = Call::post(&path).body(fields(args)?.to_json()?);
    if let Some(wait) = args.wait {
        // The header counts whole seconds; a part of one waits a whole one.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        call = call.header("prefer", format!("wait={seconds}")).wait(wait);
    }
    let answer = session.client.send(call).await?;
    if session.is_json {
        output::print_json(&answer.text)?;
    } else {
        let id = cell(&answer.json, "id");
        output::print(&format!("{}\n", escape(&id)))?;
        output::note(&remark(&answer.json, args));
    }
    if args.wait.is_some() { verdict(&answer.json) } else { Ok(()) }
}

/// Beside the id, for people.
fn remark(job: &serde_json::Value, args: &Args) -> String {
    let status = cell(job, "status");
    let is_true = |field: &str| job.get(field).and_then(serde_json::Value::as_bool) == Some(true);
    let mut text = match is_true("duplicate") {
        true => format!("this key has a job already; it is {status}"),
        false => format!("job is {status}"),
    };
    if is_true("payloadMismatch") {
        text.push_str(", and its payload is another one");
    }
    if args.wait.is_some() && !is_terminal(job) {
        text.push_str("; the wait is over, `outlast jobs watch` follows it");
    }
    text
}

fn fields(args: &Args) -> Result<Fields, Failure> {
    let mut fields = Fields::default();
    for assignment in &args.set {
        fields.assign(assignment)?;
    }
    if let Some(payload) = &args.payload {
        let payload = if args.text { text_payload(payload)? } else { read_payload(payload)? };
        fields.set("payload", &payload)?;
    }
    fields.set_some("idempotencyKey", args.idempotency_key.as_ref())?;
    fields.set_duration("delay", args.delay)?;
    fields.set_some("runAt", args.run_at.as_ref())?;
    fields.set_some("priority", args.priority.as_ref())?;
    fields.set_some("key", args.job_key.as_ref())?;
    fields.set_some("maxAttempts", args.max_attempts.as_ref())?;
    if !args.tags.is_empty() {
        let tags: BTreeMap<&str, &str> =
            args.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fields.set("tags", &tags)?;
    }
    Ok(fields)
}

/// JSON from an argument, from stdin (`-`) or from a file (`@path`).
pub(crate) fn read_payload(argument: &str) -> Result<Box<RawValue>, Failure> {
    let text = read_argument(argument)?;
    serde_json::from_str(text.trim()).map_err(|error| {
        Failure::usage(format!("the payload is not JSON: {error}"))
            .with_hint("quote it for the shell, as in '{\"to\":\"ada\"}', or publish a text with --text")
    })
}

fn text_payload(argument: &str) -> Result<Box<RawValue>, Failure> {
    let text = read_argument(argument)?;
    to_raw_value(&text).map_err(|error| Failure::new(Exit::Refused, format!("cannot write JSON: {error}")))
}

fn read_argument(argument: &str) -> Result<String, Failure> {
    if argument == "-" {
        return read_all(std::io::stdin().lock(), "stdin");
    }
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.to_owned()) };
    let file = std::fs::File::open(path).map_err(|error| Failure::usage(format!("cannot open {path}: {error}")))?;
    read_all(file, path)
}

fn read_all(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = source.take(PAYLOAD_BYTES_MAX + 1).read_to_string(&mut text);
    let length = read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if u64::try_from(length).is_ok_and(|length| length > PAYLOAD_BYTES_MAX) {
        return Err(Failure::usage(format!("{name} holds more than {PAYLOAD_BYTES_MAX} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_its_bytes() {
        let payload = read_payload(r#" {"b": 1.10, "a": 12345678901234567890123} "#).unwrap();

        assert_eq!(payload.get(), r#"{"b": 1.10, "a": 12345678901234567890123}"#);
    }

    #[test]
    fn a_payload_that_is_not_json_is_a_usage_error() {
        let failure = read_payload("hello there").unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.hint.is_some());
    }

    #[test]
    fn a_text_becomes_a_json_string() {
        assert_eq!(text_payload("say \"hi\"").unwrap().get(), r#""say \"hi\"""#);
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        let failure = read_all(std::io::repeat(b'a'), "stdin").unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
    }
}
