//! Dead letters of a queue: list them, and replay one or many.

use serde_json::Value;

use crate::client::Call;
use crate::commands::settings::Fields;
use crate::commands::{Session, jobs, operation};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, cell, escape, show_pairs};

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    name: String,
    /// Only this job
    #[arg(long, conflicts_with_all = ["limit", "rate", "dry_run", "no_wait"])]
    id: Option<String>,
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

pub(crate) async fn list(session: &Session, name: &str, limit: usize, cursor: Option<String>) -> Result<(), Failure> {
    let page = session.client.list(&["v1", "queues", name, "dead"], &[], cursor, limit).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    if page.items.is_empty() {
        return output::print(&format!("no dead letters in queue \"{}\"\n", escape(name)));
    }
    let mut table = Table::new(&["id", "attempts", "finished", "tags", "error"]);
    for job in page.values() {
        table.row(&[
            cell(&job, "id"),
            jobs::attempts(&job),
            cell(&job, "finishedAt"),
            show_pairs(job.get("tags")),
            jobs::error(&job),
        ]);
    }
    output::print(&table.render())?;
    if let Some(cursor) = &page.next_cursor {
        output::note(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

pub(crate) async fn retry(session: &Session, args: &Retry) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        return retry_one(session, &args.name, id).await;
    }
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
    operation::follow(session, answer).await
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
