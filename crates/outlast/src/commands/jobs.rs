//! `outlast jobs`: publish, inspect and operate jobs.

mod publish;
mod attempts;
mod show;
mod watch;
mod result;
mod artifacts;
mod token;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::Value;

use super::settings::{Fields, pair};
use super::{Session, argument};
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, Table, cell, escape, show_pairs};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Publish a job
    #[command(after_help = EXIT_CODES)]
    Publish(publish::Args),
    /// Show a job, its payload, its attempts and its last events
    #[command(after_help = EXIT_CODES)]
    Show {
        id: String,
        /// All events and attempts, and the answers of webhooks as far as they were kept
        #[arg(long)]
        full: bool,
    },
    /// List jobs, the newest first
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Follow a job until it is finished; fails when the job does
    #[command(after_help = EXIT_CODES)]
    Watch { id: String },
    /// Fetch the result of a job, checked against its length and hash
    #[command(after_help = EXIT_CODES)]
    Result(result::Args),
    /// Show the checkpoint of a job, or write it to a file
    #[command(after_help = EXIT_CODES)]
    Checkpoint {
        id: String,
        /// Write what was saved to this file
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List the sections of a job that are done, or show one
    #[command(after_help = EXIT_CODES)]
    Sections {
        id: String,
        /// Print the value of this section
        #[arg(long)]
        name: Option<String>,
    },
    /// Make a token with which a browser can follow this one job
    #[command(after_help = EXIT_CODES)]
    Token(token::Args),
    /// Cancel a job
    #[command(after_help = EXIT_CODES)]
    Cancel { id: String },
    /// Run a failed or cancelled job again
    #[command(after_help = EXIT_CODES)]
    Replay {
        id: String,
        /// Forget checkpoints
        #[arg(long)]
        fresh: bool,
        /// Another payload: JSON, - for stdin, or @file
        #[arg(long, value_name = "PAYLOAD")]
        payload: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs in this state
    #[arg(long)]
    status: Option<String>,
    /// Only jobs with this tag; may be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Only jobs with this fair-share key
    #[arg(long)]
    job_key: Option<String>,
    /// How many jobs
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Go on behind the nextCursor of an earlier list
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(&args.remote, environment)?;
    match args.action {
        Action::Publish(publish) => publish::run(&session, &publish).await,
        Action::Show { id, full: false } => show::run(&session, &id).await,
        Action::Show { id, full: true } => show::run_full(&session, &id).await,
        Action::List(filter) => list(&session, filter).await,
        Action::Watch { id } => watch::run(&session, &id).await,
        Action::Result(args) => result::run(&session, &args).await,
        Action::Checkpoint { id, output: None } => artifacts::show_checkpoint(&session, &id).await,
        Action::Checkpoint { id, output: Some(file) } => artifacts::write_checkpoint(&session, &id, &file).await,
        Action::Sections { id, name: None } => artifacts::list_sections(&session, &id).await,
        Action::Sections { id, name: Some(name) } => artifacts::show_section(&session, &id, &name).await,
        Action::Token(args) => token::run(&session, &args).await,
        Action::Cancel { id } => cancel(&session, &id).await,
        Action::Replay { id, fresh, payload } => {
            let mut fields = Fields::default();
            if fresh {
                fields.set("fresh", &true)?;
            }
            if let Some(payload) = payload {
                fields.set("payload", &argument::payload(&payload)?)?;
            }
            replay(&session, &id, &fields).await
        }
    }
}

async fn list(session: &Session, filter: List) -> Result<(), Failure> {
    let tag_names: Vec<String> = filter.tags.iter().map(|(name, _)| format!("tag.{name}")).collect();
    let mut query: Vec<(&str, String)> = Vec::new();
    for (name, value) in [("queue", filter.queue), ("status", filter.status), ("key", filter.job_key)] {
        query.extend(value.map(|value| (name, value)));
    }
    for (name, (_, value)) in tag_names.iter().zip(&filter.tags) {
        query.push((name, value.clone()));
    }
    let page = session.client.list(&["v1", "jobs"], &query, filter.cursor, filter.limit).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    if page.items.is_empty() {
        return output::print("no jobs\n");
    }
    output::print(&table(&page.values()))?;
    if let Some(cursor) = &page.next_cursor {
        output::note(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

async fn cancel(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::post(&["v1", "jobs", id, "cancel"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let status = cell(&answer.json, "status");
    let text = match status.as_str() {
        "running" => format!("job {id} is asked to stop"),
        _ => format!("job {id} is {status}"),
    };
    output::print(&format!("{}\n", escape(&text)))
}

pub(crate) async fn replay(session: &Session, id: &str, fields: &Fields) -> Result<(), Failure> {
    let answer = session.client.send(Call::post(&["v1", "jobs", id, "replay"]).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let text = format!("job {id} is {} again, replay {}", cell(&answer.json, "status"), cell(&answer.json, "replays"));
    output::print(&format!("{}\n", escape(&text)))
}

/// Jobs of a list, one per line.
pub(crate) fn table(jobs: &[Value]) -> String {
    let mut table = Table::new(&["id", "queue", "status", "attempt", "created", "finished", "tags", "error"]);
    for job in jobs {
        table.row(&[
            cell(job, "id"),
            cell(job, "queue"),
            cell(job, "status"),
            attempts(job),
            cell(job, "createdAt"),
            cell(job, "finishedAt"),
            show_pairs(job.get("tags")),
            error(job),
        ]);
    }
    table.render()
}

/// `2/5`: the present attempt and how many there are.
pub(crate) fn attempts(job: &Value) -> String {
    format!("{}/{}", cell(job, "attempt"), cell(job, "maxAttempts"))
}

/// What went wrong last, in one line.
pub(crate) fn error(job: &Value) -> String {
    let said = |field: &str| job.get(field).filter(|value| !value.is_null());
    let Some(error) = said("error").or_else(|| said("lastError")) else { return "-".to_owned() };
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    match (part("code").or_else(|| part("reason")), part("message").or_else(|| part("detail"))) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => output::show(error),
    }
}

/// Whether a job ends in this state.
pub(crate) fn is_terminal(job: &Value) -> bool {
    let status = job.get("status").and_then(Value::as_str);
    matches!(status, Some("succeeded" | "failed" | "cancelled" | "expired"))
}

/// A failure when the job ended in one, so that scripts can tell by the exit code.
pub(crate) fn verdict(job: &Value) -> Result<(), Failure> {
    let status = cell(job, "status");
    if !matches!(status.as_str(), "failed" | "cancelled") {
        return Ok(());
    }
    let message = match error(job).as_str() {
        "-" => format!("job {} is {status}", cell(job, "id")),
        error => format!("job {} is {status}: {error}", cell(job, "id")),
    };
    Err(Failure::new(Exit::Refused, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_read_in_every_shape() {
        for (job, shown) in [
            (json!({}), "-"),
            (json!({"error": null, "lastError": null}), "-"),
            (json!({"error": "boom"}), "boom"),
            (json!({"error": {"reason": "max_age_exceeded"}}), "max_age_exceeded"),
            (json!({"error": {"code": "x", "message": "why"}}), "x: why"),
            (json!({"error": null, "lastError": {"message": "late"}}), "late"),
            (json!({"error": {"odd": 1}}), "{\"odd\":1}"),
        ] {
            assert_eq!(error(&job), shown);
        }
    }

    #[test]
    fn only_failed_and_cancelled_jobs_make_a_command_fail() {
        for (status, fails) in
            [("queued", false), ("succeeded", false), ("expired", false), ("failed", true), ("cancelled", true)]
        {
            let verdict = verdict(&json!({"id": "j", "status": status}));
            assert_eq!(verdict.is_err(), fails, "{status}");
        }
    }

    #[test]
    fn a_job_table_has_one_line_per_job() {
        let job = json!({
            "id": "0198", "queue": "mail", "status": "failed", "attempt": 5, "maxAttempts": 5,
            "createdAt": "2026-01-01T00:00:00.000Z", "finishedAt": null, "tags": {"tenant": "a\u{1b}[1m"},
            "error": "timed\nout",
        });

        let text = table(&[job]);

        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("5/5"), "{text}");
        assert!(text.contains("tenant=a\\u{1b}[1m"), "{text}");
        assert!(text.contains("timed\\nout"), "{text}");
    }
}
