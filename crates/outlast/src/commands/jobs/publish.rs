//! `outlast jobs publish`: one job from an argument, a file or stdin. The payload goes out byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{is_terminal, verdict};
use crate::client::{Answer, Call, duration};
use crate::commands::settings::{Fields, pair};
use crate::commands::{Session, argument};
use crate::failure::{Exit, Failure};
use crate::output::{self, cell, escape};

/// The server holds a response this long at most.
const HELD_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    queue: String,
    /// JSON, - for stdin, or @file; none publishes a job without a payload
    #[arg(allow_negative_numbers = true)]
    payload: Option<String>,
    /// Send the payload as a string instead of JSON
    #[arg(long)]
    text: bool,
    /// One job per key: publishing again with the same key returns the first job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Start after this time
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "run_at")]
    delay: Option<Duration>,
    /// Start at this time, as in 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIMESTAMP")]
    run_at: Option<String>,
    /// From -100 to 100; higher goes first
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Fair-share key, a tenant for instance
    #[arg(long, value_name = "KEY")]
    job_key: Option<String>,
    /// A tag to find the job by; may be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// URL that is called when the job is finished
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// Attempts before the job becomes a dead letter
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Any other field by its API name; the value is JSON or a string; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Wait this long for the job to finish; exit code 1 if it fails, 6 if the time runs out
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

pub(crate) async fn run(session: &Session, args: &Args) -> Result<(), Failure> {
    let path = ["v1", "queues", args.queue.as_str(), "jobs"];
    let mut call = Call::post(&path).body(fields(args)?.to_json()?);
    let first_wait = args.wait.map(|wait| wait.min(HELD_MAX));
    if let Some(wait) = first_wait {
        // The header counts whole seconds; a part of one waits a whole one.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        call = call.header("prefer", format!("wait={seconds}")).wait(wait);
    }
    let started = Instant::now();
    let answer = session.client.send(call).await?;
    if !session.is_json {
        output::print(&format!("{}\n", escape(&cell(&answer.json, "id"))))?;
        output::note(&remark(&answer.json));
    }
    let Some(wait) = args.wait else {
        return if session.is_json { output::print_json(&answer.text) } else { Ok(()) };
    };
    let job = finished(session, answer, started + wait).await?;
    if session.is_json {
        output::print_json(&job.text)?;
    }
    if is_terminal(&job.json) { verdict(&job.json) } else { Err(wait_over(&job.json, wait)) }
}

/// The job as soon as it is finished, or as it is at the deadline.
async fn finished(session: &Session, published: Answer, deadline: Instant) -> Result<Answer, Failure> {
    let id = cell(&published.json, "id");
    let mut job = published;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if is_terminal(&job.json) || left.is_zero() {
            return Ok(job);
        }
        let version = job.json.get("version").and_then(serde_json::Value::as_u64).unwrap_or_default();
        let wait = left.min(HELD_MAX);
        let query = [("wait", format!("{}ms", wait.as_millis())), ("version", version.to_string())];
        job = session.client.job(&id, &query, wait).await?;
    }
}

fn wait_over(job: &serde_json::Value, wait: Duration) -> Failure {
    let id = cell(job, "id");
    let message = format!("job {id} is not finished after {wait:?}; it is {}", cell(job, "status"));
    Failure::new(Exit::WaitOver, message).with_hint(format!("`outlast jobs watch {id}` follows it")).printed()
}

/// Beside the id, for people.
fn remark(job: &serde_json::Value) -> String {
    let status = cell(job, "status");
    let is_true = |field: &str| job.get(field).and_then(serde_json::Value::as_bool) == Some(true);
    let mut text = match is_true("duplicate") {
        true => format!("duplicate: this idempotency key has a job already; it is {status}"),
        false => format!("job is {status}"),
    };
    if is_true("payloadMismatch") {
        text.push_str(", and its payload differs");
    }
    text
}

fn fields(args: &Args) -> Result<Fields, Failure> {
    let mut fields = Fields::default();
    for assignment in &args.set {
        fields.assign(assignment)?;
    }
    if let Some(payload) = &args.payload {
        match args.text {
            true => fields.set("payload", &argument::text(payload)?)?,
            false => fields.set("payload", &argument::payload(payload)?)?,
        }
    }
    fields.set_some("idempotencyKey", args.idempotency_key.as_ref())?;
    fields.set_duration("delay", args.delay)?;
    fields.set_some("runAt", args.run_at.as_ref())?;
    fields.set_some("priority", args.priority.as_ref())?;
    fields.set_some("key", args.job_key.as_ref())?;
    fields.set_some("callbackUrl", args.callback_url.as_ref())?;
    fields.set_some("maxAttempts", args.max_attempts.as_ref())?;
    if !args.tags.is_empty() {
        let tags: BTreeMap<&str, &str> =
            args.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fields.set("tags", &tags)?;
    }
    Ok(fields)
}
