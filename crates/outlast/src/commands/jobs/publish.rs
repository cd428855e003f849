//! `outlast jobs publish`: one job from an argument, a file or stdin. The payload goes out byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{is_terminal, verdict};
use crate::client::{Call, duration};
use crate::commands::settings::{Fields, pair};
use crate::commands::{Session, argument};
use crate::failure::Failure;
use crate::output::{self, cell, escape};

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
    /// Where to send the news of the job's end
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
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
