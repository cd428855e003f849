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
use jiff::Timestamp;
use serde_json::Value;

use super::settings::{Fields, pair};
use super::{Session, argument};
use crate::age;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::display::Display;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, cell, escape, show_pairs};
use crate::progress_bar;
use crate::table::{Cell, Column, Table};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Publish a job
    #[command(after_help = EXIT_CODES)]
    Publish(publish::Args),
    /// Show a job: state, worker, lease, progress, payload, attempts and last events
    #[command(after_help = EXIT_CODES)]
    Show {
        id: String,
        /// All events, and the webhook responses that were stored
        #[arg(long)]
        full: bool,
    },
    /// List jobs, the newest first
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Follow a job until it is finished; fails if the job fails
    #[command(after_help = EXIT_CODES)]
    Watch { id: String },
    /// Download the result of a job and verify its length and hash
    #[command(after_help = EXIT_CODES)]
    Result(result::Args),
    /// Show the checkpoint of a job, or write it to a file
    #[command(after_help = EXIT_CODES)]
    Checkpoint {
        id: String,
        /// Write the checkpoint's data to this file
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List the finished sections of a job, or show one
    #[command(after_help = EXIT_CODES)]
    Sections {
        id: String,
        /// Print the value of this section
        #[arg(long)]
        name: Option<String>,
    },
    /// Create a token that lets a browser follow this job
    #[command(after_help = EXIT_CODES)]
    Token(token::Args),
    /// Cancel a job
    #[command(after_help = EXIT_CODES)]
    Cancel { id: String },
    /// Replay a failed or cancelled job
    #[command(after_help = EXIT_CODES)]
    Replay {
        id: String,
        /// Delete the checkpoint and the sections first
        #[arg(long)]
        fresh: bool,
        /// New payload: JSON, - for stdin, or @file
        #[arg(long, value_name = "PAYLOAD")]
        payload: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs with this status
    #[arg(long)]
    status: Option<String>,
    /// Only jobs with this tag; may be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Only jobs with this fair-share key
    #[arg(long)]
    job_key: Option<String>,
    /// Number of jobs
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Continue from a previous nextCursor
    #[arg(long)]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
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
    session.print_page(&page, "no jobs", |page| table(&page.values(), session.display))
}

async fn cancel(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::post(&["v1", "jobs", id, "cancel"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let status = cell(&answer.json, "status");
    let text = match status.as_str() {
        "running" => format!("job {id} is running; its worker is asked to stop"),
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
pub(crate) fn table(jobs: &[Value], display: Display) -> String {
    let mut table = Table::new(&[
        Column::fixed("id"),
        Column::text("queue").at_least(6),
        Column::fixed("status"),
        Column::fixed("attempts").rank(3),
        Column::fixed("age"),
        Column::text("detail").at_least(12).rank(1).optional(),
        Column::fixed("finished").rank(4).optional(),
        Column::text("tags").rank(5).optional(),
        Column::fixed("created").rank(6),
    ]);
    let now = age::now();
    for job in jobs {
        let created = job.get("createdAt").unwrap_or(&Value::Null);
        let finished = job.get("finishedAt").and_then(|at| age::relative(at, now));
        table.row([
            cell(job, "id").into(),
            cell(job, "queue").into(),
            Cell::status(cell(job, "status")),
            attempts(job).into(),
            age::age(created, now).into(),
            detail(job, now).into(),
            finished.unwrap_or("-".to_owned()).into(),
            show_pairs(job.get("tags")).into(),
            output::show(created).into(),
        ]);
    }
    table.render(display)
}

/// The most useful fact beside the status: the progress of a running job, the retry time of a pending one, the error of a
/// failed one.
fn detail(job: &Value, now: Timestamp) -> String {
    let status = cell(job, "status");
    let mut parts = Vec::new();
    if status == "running" {
        let liveness = cell(job, "liveness");
        parts.extend(matches!(liveness.as_str(), "slow" | "stuck" | "dead").then_some(liveness));
        let progress = job.get("progress").filter(|progress| progress.is_object());
        parts.extend(progress.map(|progress| progress_bar::describe(progress, now)));
    }
    if status == "pending" {
        parts.extend(job.get("scheduledFor").and_then(|at| age::relative(at, now)));
        parts.extend(Some(cell(job, "pendingReason")).filter(|reason| reason != "-"));
    }
    // The message says more than the code, and there is little room.
    let message = job.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
    parts.extend(message.or_else(|| error(job)).or_else(|| last_error(job)));
    if parts.is_empty() { "-".to_owned() } else { parts.join("  ") }
}

/// `2/5`: attempts made so far and how many there may be. The API counts the attempt that a waiting job is going to have.
pub(crate) fn attempts(job: &Value) -> String {
    let number = |field: &str| job.get(field).and_then(Value::as_u64);
    let status = job.get("status").and_then(Value::as_str).unwrap_or_default();
    let (Some(attempt), Some(max)) = (number("attempt"), number("maxAttempts")) else { return "-".to_owned() };
    let never_started = job.get("startedAt").is_none_or(Value::is_null);
    let made = match status {
        "queued" | "pending" => attempt.saturating_sub(1),
        "cancelled" | "failed" if never_started => 0,
        _ => attempt,
    };
    format!("{made}/{max}")
}

/// Why a job ended without success, in one line.
pub(crate) fn error(job: &Value) -> Option<String> {
    let error = job.get("error").filter(|error| !error.is_null())?;
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    Some(match (part("code").or_else(|| part("reason")), part("message").or_else(|| part("detail"))) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => output::show(error),
    })
}

/// The error of the last attempt of a job that may still succeed. It says nothing about one that has.
pub(crate) fn last_error(job: &Value) -> Option<String> {
    if matches!(job.get("status").and_then(Value::as_str), Some("succeeded" | "expired")) {
        return None;
    }
    job.get("lastError").filter(|error| !error.is_null()).map(output::show)
}

/// Whether the job is finished.
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
    let message = match error(job) {
        None => format!("job {} is {status}", cell(job, "id")),
        Some(error) => format!("job {} is {status}: {error}", cell(job, "id")),
    };
    Err(Failure::new(Exit::Refused, message).printed())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_read_in_every_shape() {
        for (job, shown) in [
            (json!({}), None),
            (json!({"error": null}), None),
            (json!({"error": "boom"}), Some("boom")),
            (json!({"error": {"reason": "max_age_exceeded"}}), Some("max_age_exceeded")),
            (json!({"error": {"code": "x", "message": "why"}}), Some("x: why")),
            (json!({"error": {"odd": 1}}), Some("{\"odd\":1}")),
        ] {
            assert_eq!(error(&job).as_deref(), shown);
        }
    }

    #[test]
    fn the_last_error_is_none_of_a_job_that_succeeded() {
        for (status, shown) in
            [("succeeded", None), ("expired", None), ("running", Some("late")), ("pending", Some("late"))]
        {
            let job = json!({"status": status, "error": null, "lastError": "late"});
            assert_eq!(last_error(&job).as_deref(), shown, "{status}");
            assert_eq!(detail(&job, age::now()).contains("late"), shown.is_some(), "{status}");
        }
    }

    #[test]
    fn attempts_are_those_that_were_made() {
        let at = "2026-01-01T00:00:00.000Z";
        for (status, attempt, started, shown) in [
            ("queued", 1, None, "0/5"),
            ("pending", 1, None, "0/5"),
            ("running", 1, Some(at), "1/5"),
            ("pending", 2, Some(at), "1/5"),
            ("cancelled", 1, None, "0/5"),
            ("failed", 1, None, "0/5"),
            ("failed", 5, Some(at), "5/5"),
            ("succeeded", 2, Some(at), "2/5"),
        ] {
            let job = json!({"status": status, "attempt": attempt, "maxAttempts": 5, "startedAt": started});
            assert_eq!(attempts(&job), shown, "{job}");
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
    fn a_job_table_has_one_line_per_job_and_fits_the_terminal() {
        let job = json!({
            "id": "01890a5d-ac96-774b-bcce-b302099a8057", "queue": "a-queue-with-a-long-name", "status": "failed",
            "attempt": 5, "maxAttempts": 5, "createdAt": "2026-01-01T00:00:00.000Z",
            "startedAt": "2026-01-01T00:00:00.000Z", "finishedAt": null, "tags": {"tenant": "a\u{1b}[1m"},
            "error": {"reason": "attempts_exhausted", "message": "timed\nout"},
        });

        let whole = table(std::slice::from_ref(&job), Display::PLAIN);
        for width in [80, 100, 120, 200] {
            let text = table(std::slice::from_ref(&job), Display { width: Some(width), has_colour: false });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.contains("01890a5d-ac96-774b-bcce-b302099a8057") && text.contains("failed"), "{text}");
            assert!(text.contains("DETAIL"), "{text}");
        }

        assert_eq!(whole.lines().count(), 2);
        assert!(whole.contains("  5/5  "), "{whole}");
        assert!(whole.contains("tenant=a\\u{1b}[1m"), "{whole}");
        assert!(whole.contains("  timed\\nout  "), "{whole}");
    }
}
