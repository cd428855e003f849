//! `outlast queues create`: common settings as flags, every other field with `--set`, or a whole file.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Method;

use crate::client::{Call, duration};
use crate::commands::Session;
use crate::commands::settings::{Fields, pair};
use crate::failure::Failure;
use crate::output::{self, cell, escape};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    name: String,
    /// Attempts before a job becomes a dead letter
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// How long a receiver holds a job before it is handed out again
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Duration>,
    /// How long to wait for an outcome after a receipt
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ack_timeout: Option<Duration>,
    /// A running job must heartbeat this often
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    heartbeat_timeout: Option<Duration>,
    /// Ends an attempt that takes longer
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    hard_time_limit: Option<Duration>,
    /// Cancels a job whose whole run takes longer
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    job_timeout: Option<Duration>,
    /// Fails a job that is older
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_age: Option<Duration>,
    /// Most jobs running at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// How long finished jobs and dead letters are kept
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retention: Option<Duration>,
    /// How long results are kept
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    result_ttl: Option<Duration>,
    /// Whether a key may make a new job once its first one failed
    #[arg(long, value_parser = ["always", "unless_failed"])]
    dedupe: Option<String>,
    /// How long an idempotency key is remembered
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    dedupe_window: Option<Duration>,
    /// Whether an outcome must name its lease
    #[arg(long, value_parser = ["optional", "required"])]
    fencing: Option<String>,
    /// Any field by its API name; the value is JSON, or a text; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// A JSON object of settings; flags win over it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace the settings when the queue exists
    #[arg(long)]
    replace: bool,
}

pub(crate) async fn run(session: &Session, args: &Args) -> Result<(), Failure> {
    let body = fields(args)?.to_json()?;
    let named = ["v1", "queues", args.name.as_str()];
    let call = match args.replace {
        true => Call::new(Method::PUT, &named),
        false => Call::post(&["v1", "queues"]),
    };
    let answer = session.client.send(call.body(body)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let verb = if answer.status == reqwest::StatusCode::CREATED { "created" } else { "replaced" };
    output::print(&format!("queue \"{}\" {verb}\n", escape(&cell(&answer.json, "name"))))
}

fn fields(args: &Args) -> Result<Fields, Failure> {
    let mut fields = match &args.file {
        Some(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
            Fields::parse(&text).map_err(|failure| Failure::usage(format!("{shown}: {}", failure.message)))?
        }
        None => Fields::default(),
    };
    for assignment in &args.set {
        fields.assign(assignment)?;
    }
    fields.set("name", &args.name)?;
    fields.set_some("maxAttempts", args.max_attempts.as_ref())?;
    fields.set_duration("visibilityTimeout", args.visibility_timeout)?;
    fields.set_duration("ackTimeout", args.ack_timeout)?;
    fields.set_duration("heartbeatTimeout", args.heartbeat_timeout)?;
    fields.set_duration("hardTimeLimit", args.hard_time_limit)?;
    fields.set_duration("jobTimeout", args.job_timeout)?;
    fields.set_duration("maxAge", args.max_age)?;
    fields.set_some("concurrency", args.concurrency.as_ref())?;
    fields.set_duration("retention", args.retention)?;
    fields.set_duration("resultTtl", args.result_ttl)?;
    fields.set_some("dedupe", args.dedupe.as_ref())?;
    fields.set_duration("dedupeWindow", args.dedupe_window)?;
    fields.set_some("fencing", args.fencing.as_ref())?;
    Ok(fields)
}
