//! A job as the server handed it out. The payload and the checkpoint keep the server's bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::time::duration_from_seconds;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Answer;
use crate::output::cell;

#[derive(Debug)]
pub(crate) struct Handout {
    pub id: String,
    pub lease: String,
    /// When the lease ends, by the server's clock.
    pub lease_expires_at: Option<jiff::Timestamp>,
    pub attempt: u64,
    pub replays: String,
    pub payload: Box<RawValue>,
    pub checkpoint: Option<Checkpoint>,
    /// There is a checkpoint, of a schema that was not asked for.
    pub is_checkpoint_incompatible: bool,
    /// Names of the sections that are there.
    pub sections: Vec<String>,
    pub hard_time_limit: Option<Duration>,
    pub traceparent: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub schema_version: String,
    /// `None` when it is a blob.
    pub data: Option<Box<RawValue>>,
}

/// The jobs in the response to a receive.
pub(crate) fn read(answer: &Answer) -> Result<Vec<Handout>, String> {
    let jobs = answer.raw("jobs").ok_or("the answer has no jobs")?;
    let jobs: Vec<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(&jobs).map_err(|error| error.to_string())?;
    jobs.into_iter().map(read_one).collect()
}

fn read_one(mut fields: BTreeMap<String, Box<RawValue>>) -> Result<Handout, String> {
    let mut take = |name: &str| fields.remove(name).filter(|raw| raw.get() != "null");
    let payload = take("payload");
    let checkpoint = take("checkpoint").map(|raw| read_checkpoint(&raw)).transpose()?;
    let mut value = |name: &str| take(name).map_or(Value::Null, |raw| parse(&raw));
    let text = |value: Value| value.as_str().map(str::to_owned);
    Ok(Handout {
        id: text(value("id")).ok_or("a job has no id")?,
        lease: text(value("lease")).ok_or("a job has no lease")?,
        lease_expires_at: text(value("leaseExpiresAt")).and_then(|time| time.parse().ok()),
        attempt: value("attempt").as_u64().ok_or("a job has no attempt")?,
        replays: value("replays").to_string(),
        payload: payload.unwrap_or_else(|| RawValue::NULL.to_owned()),
        checkpoint,
        is_checkpoint_incompatible: value("checkpointIncompatible") == Value::Bool(true),
        sections: names(&value("sections")),
        hard_time_limit: value("hardTimeLimit").as_f64().and_then(duration_from_seconds),
        traceparent: text(value("traceparent")),
    })
}

fn read_checkpoint(raw: &RawValue) -> Result<Checkpoint, String> {
    let mut fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    let is_blob = fields.get("blobUrl").is_some_and(|url| url.get() != "null");
    Ok(Checkpoint {
        schema_version: cell(&parse(raw), "schemaVersion"),
        data: fields.remove("data").filter(|_| !is_blob),
    })
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    fn answer(text: &str) -> Answer {
        Answer { status: StatusCode::OK, text: text.to_owned(), json: serde_json::from_str(text).unwrap() }
    }

    #[test]
    fn a_job_is_read_with_its_payload_as_it_was_written() {
        let jobs = read(&answer(
            r#"{"jobs":[{"id":"j","lease":"l","leaseExpiresAt":"2026-01-01T00:00:30.000Z","attempt":2,"replays":0,
                "payload":{"n": 12345678901234567890},"hardTimeLimit":90,"sections":["a","b"],
                "checkpoint":{"schemaVersion":3,"data":{"x":1.10},"blobUrl":null}}]}"#,
        ))
        .unwrap();

        let job = jobs.first().unwrap();
        assert_eq!(job.payload.get(), r#"{"n": 12345678901234567890}"#);
        assert_eq!((job.attempt, job.hard_time_limit), (2, Some(Duration::from_secs(90))));
        assert_eq!(job.sections, ["a", "b"]);
        let checkpoint = job.checkpoint.as_ref().unwrap();
        assert_eq!(checkpoint.schema_version, "3");
        assert_eq!(checkpoint.data.as_ref().unwrap().get(), r#"{"x":1.10}"#);
    }

    #[test]
    fn missing_and_null_members_are_left_out() {
        let jobs =
            read(&answer(r#"{"jobs":[{"id":"j","lease":"l","attempt":1,"payload":null,"checkpoint":null}]}"#)).unwrap();

        let job = jobs.first().unwrap();
        assert_eq!(job.payload.get(), "null");
        assert!(job.checkpoint.is_none() && job.sections.is_empty() && !job.is_checkpoint_incompatible);
        assert!(read(&answer(r#"{"jobs":[{"id":"j"}]}"#)).is_err());
    }
}
