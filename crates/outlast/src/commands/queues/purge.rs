//! `outlast queues purge`: cancels every waiting job, or says how many that would be.

use serde_json::Value;

use crate::client::Call;
use crate::commands::{Session, operations};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Purge {
    name: String,
    /// Cancel them; without it the command only says how many there are
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(session: &Session, args: &Purge) -> Result<(), Failure> {
    let name = args.name.as_str();
    if !args.force {
        let queue = session.client.send(Call::get(&["v1", "queues", name])).await?;
        return Err(refusal(name, &queue.json));
    }
    let started = session.client.send(Call::post(&["v1", "queues", name, "purge"])).await?;
    operations::follow(session, started).await?;
    Ok(())
}

fn refusal(name: &str, queue: &Value) -> Failure {
    let count = |status: &str| queue.pointer(&format!("/counts/{status}")).and_then(Value::as_u64).unwrap_or_default();
    let jobs = match count("queued").saturating_add(count("pending")) {
        0 => "no job: none is waiting".to_owned(),
        1 => "1 waiting job".to_owned(),
        many => format!("{many} waiting jobs"),
    };
    Failure::usage(format!("purging queue \"{name}\" would cancel {jobs}"))
        .with_hint("repeat the command with --force to cancel them")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::Exit;

    #[test]
    fn without_force_it_says_how_many_jobs_would_be_cancelled() {
        for (counts, said) in [
            (json!({"queued": 2, "pending": 3, "running": 9}), "would cancel 5 waiting jobs"),
            (json!({"queued": 1, "pending": 0}), "would cancel 1 waiting job"),
            (json!({}), "would cancel no job: none is waiting"),
        ] {
            let failure = refusal("mail", &json!({"counts": counts}));

            assert_eq!(failure.exit, Exit::Usage);
            assert_eq!(failure.message, format!("purging queue \"mail\" {said}"));
        }
    }
}
