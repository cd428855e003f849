//! `outlast dead`: dead letters of a queue. Lists them, replays all, some or one, and discards all.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde_json::Value;

use super::settings::Fields;
use super::{Session, jobs, operations};
use crate::age;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::display::Display;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, cell, escape, show, show_pairs};
use crate::table::{Column, Table};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the dead letters of a queue
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Replay dead letters of a queue: all of them, or those named with --id
    #[command(after_help = EXIT_CODES)]
    Replay(Replay),
    /// Delete all dead letters of a queue
    #[command(after_help = EXIT_CODES)]
    Discard(Discard),
}

#[derive(Debug, clap::Args)]
struct List {
    queue: String,
    /// Number of dead letters
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Continue from a previous nextCursor
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Replay {
    queue: String,
    /// Only this job; may be repeated
    #[arg(long = "id", value_name = "ID", conflicts_with_all = ["limit", "rate", "dry_run", "no_wait"])]
    ids: Vec<String>,
    /// Replay at most this many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Replay at most this many per second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Only count the dead letters that would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until the operation ends
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
struct Discard {
    queue: String,
    /// Delete them; without it the command only says how many there are
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    match args.action {
        Action::List(args) => list(&session, &args).await,
        Action::Replay(args) => replay(&session, &args).await,
        Action::Discard(args) => discard(&session, &args).await,
    }
}

async fn list(session: &Session, args: &List) -> Result<(), Failure> {
    let path = ["v1", "queues", args.queue.as_str(), "dead"];
    let page = session.client.list(&path, &[], args.cursor.clone(), args.limit).await?;
    let empty = format!("no dead letters in queue \"{}\"", escape(&args.queue));
    session.print_page(&page, &empty, |page| table(&page.values(), session.display))
}

fn table(jobs: &[Value], display: Display) -> String {
    let mut table = Table::new(&[
        Column::fixed("id"),
        Column::text("reason").at_least(13).rank(1),
        Column::fixed("attempts").rank(2),
        Column::fixed("failed"),
        Column::text("last error").at_least(14),
        Column::text("tags").rank(4).optional(),
        Column::fixed("failed at").rank(5),
    ]);
    let now = age::now();
    for job in jobs {
        let finished = job.get("finishedAt").unwrap_or(&Value::Null);
        table.row([
            cell(job, "id").into(),
            show(job.pointer("/error/reason").unwrap_or(&Value::Null)).into(),
            jobs::attempts(job).into(),
            age::relative(finished, now).unwrap_or("-".to_owned()).into(),
            cell(job, "lastError").into(),
            show_pairs(job.get("tags")).into(),
            show(finished).into(),
        ]);
    }
    table.render(display)
}

async fn replay(session: &Session, args: &Replay) -> Result<(), Failure> {
    match args.ids.as_slice() {
        [] => replay_all(session, args).await,
        // A single call, so that the server can say why the job cannot be replayed.
        [id] => replay_one(session, &args.queue, id).await,
        ids => replay_some(session, &args.queue, ids).await,
    }
}

async fn replay_all(session: &Session, args: &Replay) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set_some("limit", args.limit.as_ref())?;
    fields.set_some("ratePerSecond", args.rate.as_ref())?;
    if args.dry_run {
        fields.set("dryRun", &true)?;
    }
    let path = ["v1", "queues", args.queue.as_str(), "dead", "replay"];
    let answer = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    if args.dry_run && !session.is_json {
        return output::print(&format!("{} dead letters would be replayed\n", escape(&cell(&answer.json, "matched"))));
    }
    if args.dry_run || args.no_wait {
        return match session.is_json {
            true => output::print_json(&answer.text),
            false => output::print(&format!("operation {} started\n", escape(&cell(&answer.json, "id")))),
        };
    }
    operations::follow(session, answer).await?;
    Ok(())
}

/// Fails when some of the jobs are not dead letters; the others are replayed.
async fn replay_some(session: &Session, queue: &str, ids: &[String]) -> Result<(), Failure> {
    let ids: BTreeSet<String> = ids.iter().map(|id| id.to_ascii_lowercase()).collect();
    let mut fields = Fields::default();
    fields.set("ids", &ids)?;
    let path = ["v1", "queues", queue, "dead", "replay"];
    let started = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    let done = operations::follow(session, started).await?;
    missed(queue, ids.len(), &done)
}

fn missed(queue: &str, wanted: usize, operation: &Value) -> Result<(), Failure> {
    let replayed = operation.get("processed").and_then(Value::as_u64).unwrap_or_default();
    let skipped = operation.get("skipped").and_then(Value::as_u64).unwrap_or_default();
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    if replayed >= wanted {
        return Ok(());
    }
    if replayed + skipped >= wanted {
        let message = format!("{skipped} of {wanted} jobs were skipped: another job has their idempotency key");
        return Err(Failure::new(Exit::Refused, message).printed());
    }
    let message = format!("{} of {wanted} jobs are not dead letters of queue \"{queue}\"", wanted - replayed - skipped);
    let hint = format!("`outlast dead list {queue}` shows them");
    Err(Failure::new(Exit::Refused, message).with_hint(hint).printed())
}

async fn replay_one(session: &Session, queue: &str, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], std::time::Duration::ZERO).await?;
    // A job never changes its queue, so checking first is safe.
    if job.json.get("queue").and_then(Value::as_str) != Some(queue) {
        let message = format!("job \"{id}\" is not in queue \"{queue}\" but in \"{}\"", cell(&job.json, "queue"));
        return Err(Failure::new(Exit::NotFound, message));
    }
    jobs::replay(session, id, &Fields::default()).await
}

async fn discard(session: &Session, args: &Discard) -> Result<(), Failure> {
    let queue = args.queue.as_str();
    if !args.force {
        let shown = session.client.send(Call::get(&["v1", "queues", queue])).await?;
        let count = shown.json.pointer("/counts/failed").map(show).unwrap_or_default();
        return Err(Failure::usage(format!(
            "this would delete the {count} dead letters of queue \"{queue}\" for ever"
        ))
        .with_hint("repeat the command with --force to delete them"));
    }
    let started = session.client.send(Call::delete(&["v1", "queues", queue, "dead"])).await?;
    operations::follow(session, started).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dead_letter_shows_reason_attempts_and_last_error() {
        let job = json!({
            "id": "0198", "status": "failed", "attempt": 5, "maxAttempts": 5, "finishedAt": "2026-01-01T00:00:00.000Z",
            "tags": {}, "error": {"reason": "attempts_exhausted", "message": "HTTP 500"}, "lastError": "HTTP 500",
            "startedAt": "2026-01-01T00:00:00.000Z",
        });

        let text = table(&[job], Display::PLAIN);

        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID    REASON              ATTEMPTS  FAILED"), "{text}");
        assert!(lines[1].starts_with("0198  attempts_exhausted  5/5       "), "{text}");
        assert!(lines[1].ends_with(" ago  HTTP 500    2026-01-01T00:00:00.000Z"), "{text}");
    }

    #[test]
    fn jobs_that_were_not_replayed_are_reported() {
        assert!(missed("mail", 2, &json!({"processed": 2})).is_ok());

        let failure = missed("mail", 3, &json!({"processed": 1})).unwrap_err();

        assert_eq!(failure.message, "2 of 3 jobs are not dead letters of queue \"mail\"");
        let failure = missed("mail", 3, &json!({"processed": 1, "skipped": 2})).unwrap_err();
        assert_eq!(failure.message, "2 of 3 jobs were skipped: another job has their idempotency key");
    }
}
