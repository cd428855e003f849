//! Dead letters of a queue: list them, and replay all, some or one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client::Call;
use crate::commands::settings::Fields;
use crate::commands::{Session, jobs, operation};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, cell, escape, show, show_pairs};

#[derive(Debug, clap::Args)]
pub(crate) struct Dlq {
    name: String,
    /// How many dead letters
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Go on behind the nextCursor of an earlier list
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    name: String,
    /// Only this job; may be repeated
    #[arg(long = "id", value_name = "ID", conflicts_with_all = ["limit", "rate", "dry_run", "no_wait"])]
    ids: Vec<String>,
    /// At most so many
    #[arg(long)]
    limit: Option<u64>,
    /// At most so many each second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Only count what would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
}

pub(crate) async fn list(session: &Session, args: &Dlq) -> Result<(), Failure> {
    let path = ["v1", "queues", args.name.as_str(), "dead"];
    let page = session.client.list(&path, &[], args.cursor.clone(), args.limit).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    if page.items.is_empty() {
        return output::print(&format!("no dead letters in queue \"{}\"\n", escape(&args.name)));
    }
    output::print(&table(&page.values()))?;
    if let Some(cursor) = &page.next_cursor {
        output::note(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

fn table(jobs: &[Value]) -> String {
    let mut table = Table::new(&["id", "reason", "attempts", "finished", "tags", "last error"]);
    for job in jobs {
        table.row(&[
            cell(job, "id"),
            show(job.pointer("/error/reason").unwrap_or(&Value::Null)),
            jobs::attempts(job),
            cell(job, "finishedAt"),
            show_pairs(job.get("tags")),
            cell(job, "lastError"),
        ]);
    }
    table.render()
}

pub(crate) async fn retry(session: &Session, args: &Retry) -> Result<(), Failure> {
    match args.ids.as_slice() {
        [] => retry_all(session, args).await,
        // Looked at by itself, so that it can be said why it cannot be replayed.
        [id] => retry_one(session, &args.name, id).await,
        ids => retry_some(session, &args.name, ids).await,
    }
}

async fn retry_all(session: &Session, args: &Retry) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set_some("limit", args.limit.as_ref())?;
    fields.set_some("ratePerSecond", args.rate.as_ref())?;
    if args.dry_run {
        fields.set("dryRun", &true)?;
    }
    let path = ["v1", "queues", args.name.as_str(), "dead", "replay"];
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
    operation::follow(session, answer).await?;
    Ok(())
}

/// Fails when some of the jobs are no dead letters; the others are replayed all the same.
async fn retry_some(session: &Session, name: &str, ids: &[String]) -> Result<(), Failure> {
    let ids: BTreeSet<String> = ids.iter().map(|id| id.to_ascii_lowercase()).collect();
    let mut fields = Fields::default();
    fields.set("ids", &ids)?;
    let path = ["v1", "queues", name, "dead", "replay"];
    let started = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    let done = operation::follow(session, started).await?;
    missed(name, ids.len(), &done)
}

fn missed(name: &str, wanted: usize, operation: &Value) -> Result<(), Failure> {
    let replayed = operation.get("processed").and_then(Value::as_u64).unwrap_or_default();
    let skipped = operation.get("skipped").and_then(Value::as_u64).unwrap_or_default();
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    if replayed >= wanted {
        return Ok(());
    }
    if replayed + skipped >= wanted {
        let message = format!("{skipped} of {wanted} jobs were skipped: another job has their idempotency key");
        return Err(Failure::new(Exit::Refused, message));
    }
    let replayed = replayed + skipped;
    let message = format!("{} of {wanted} jobs are no dead letters of queue \"{name}\"", wanted - replayed);
    Err(Failure::new(Exit::Refused, message).with_hint(format!("`outlast queues dlq {name}` shows which there are")))
}

async fn retry_one(session: &Session, name: &str, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], std::time::Duration::ZERO).await?;
    // A job never changes its queue, so looking first is safe.
    if job.json.get("queue").and_then(Value::as_str) != Some(name) {
        let message = format!("job \"{id}\" is not in queue \"{name}\" but in \"{}\"", cell(&job.json, "queue"));
        return Err(Failure::new(Exit::NotFound, message));
    }
    jobs::replay(session, id, &Fields::default()).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dead_letter_shows_reason_attempts_and_last_error() {
        let job = json!({
            "id": "0198", "attempt": 5, "maxAttempts": 5, "finishedAt": "2026-01-01T00:00:00.000Z", "tags": {},
            "error": {"reason": "attempts_exhausted", "message": "HTTP 500"}, "lastError": "HTTP 500",
        });

        assert_eq!(
            table(&[job]),
            "ID    REASON              ATTEMPTS  FINISHED                  TAGS  LAST ERROR\n\
             0198  attempts_exhausted  5/5       2026-01-01T00:00:00.000Z  -     HTTP 500\n"
        );
    }

    #[test]
    fn jobs_that_were_not_replayed_are_told() {
        assert!(missed("mail", 2, &json!({"processed": 2})).is_ok());

        let failure = missed("mail", 3, &json!({"processed": 1})).unwrap_err();

        assert_eq!(failure.message, "2 of 3 jobs are no dead letters of queue \"mail\"");
        let failure = missed("mail", 3, &json!({"processed": 1, "skipped": 2})).unwrap_err();
        assert_eq!(failure.message, "2 of 3 jobs were skipped: another job has their idempotency key");
    }
}
