//! `outlast receive`, `outlast ack` and `outlast nack`: a pull queue by hand and from shell scripts. `outlast worker run`
//! does the same with heartbeats.

use std::time::Duration;

use serde_json::Value;

use super::settings::Fields;
use super::{Session, argument};
use crate::age;
use crate::client::{Answer, Call, Remote, duration};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, cell, escape};
use crate::table::Pairs;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Receive {
    /// A pull queue
    queue: String,
    /// Receive at most this many jobs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    batch: u16,
    /// Wait this long for a job, at most 30s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    wait: Duration,
    /// Lease time [default: the queue's visibilityTimeout]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility: Option<Duration>,
    /// Name of this worker; `jobs show` displays it
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Ack {
    id: String,
    /// The lease that `receive` printed
    #[arg(long)]
    lease: Option<String>,
    /// Result of the job: JSON, - for stdin, or @file
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Nack {
    id: String,
    /// The lease that `receive` printed
    #[arg(long)]
    lease: Option<String>,
    /// Why it failed
    #[arg(long)]
    reason: Option<String>,
    /// Do not retry: the job becomes a dead letter
    #[arg(long, conflicts_with = "delay")]
    no_retry: bool,
    /// Retry after this time [default: the queue's backoff]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Duration>,
}

pub(crate) async fn receive(args: &Receive, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    let mut fields = Fields::default();
    fields.put("batch", args.batch);
    fields.set_duration("wait", Some(args.wait))?;
    fields.set_duration("visibilityTimeout", args.visibility)?;
    fields.set_some("worker", args.worker.as_ref())?;
    let path = ["v1", "queues", args.queue.as_str(), "receive"];
    let answer = session.client.send(Call::post(&path).body(fields.to_json()?).wait(args.wait)).await?;
    let jobs = answer.json.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
    if session.is_json {
        output::print_json(&answer.text)?;
    } else {
        output::print(&leases(&session, &jobs))?;
    }
    match jobs.is_empty() {
        true => Err(Failure::new(Exit::WaitOver, format!("no job came from queue \"{}\"", args.queue)).printed()),
        false => Ok(()),
    }
}

/// One block per job: a lease and a payload are too long for a column.
fn leases(session: &Session, jobs: &[Value]) -> String {
    let now = age::now();
    let mut blocks = Vec::new();
    for job in jobs {
        let mut pairs = Pairs::default();
        pairs.row("id", cell(job, "id"));
        pairs.row("lease", cell(job, "lease"));
        pairs.row("leaseExpiresAt", age::stamp(job.get("leaseExpiresAt").unwrap_or(&Value::Null), now));
        pairs.row("attempt", format!("{} of {}", cell(job, "attempt"), cell(job, "maxAttempts")));
        pairs.row("payload", job.get("payload").map(ToString::to_string).unwrap_or_default());
        blocks.push(pairs.render(session.display));
    }
    blocks.join("\n")
}

pub(crate) async fn ack(args: &Ack, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    let mut fields = Fields::default();
    fields.set_some("lease", args.lease.as_ref())?;
    if let Some(result) = &args.result {
        fields.set("result", &argument::json(result, "the result")?)?;
    }
    report(&session, &args.id, "ack", &fields).await
}

pub(crate) async fn nack(args: &Nack, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    let mut fields = Fields::default();
    fields.set_some("lease", args.lease.as_ref())?;
    fields.set_some("reason", args.reason.as_ref())?;
    fields.set_duration("delay", args.delay)?;
    if args.no_retry {
        fields.set("retryable", &false)?;
    }
    report(&session, &args.id, "nack", &fields).await
}

async fn report(session: &Session, id: &str, verb: &str, fields: &Fields) -> Result<(), Failure> {
    let answer: Answer = session.client.send(Call::post(&["v1", "jobs", id, verb]).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("job {} is {}\n", escape(id), escape(&cell(&answer.json, "status"))))
}
