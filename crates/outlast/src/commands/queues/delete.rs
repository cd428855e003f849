//! `outlast queues delete`: deletes an empty queue, or with `--force` a queue and all its jobs.

use reqwest::StatusCode;

use crate::client::Call;
use crate::commands::{Session, operations};
use crate::failure::Failure;
use crate::output::{self, escape};

#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    name: String,
    /// Delete its jobs too
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(session: &Session, args: &Delete) -> Result<(), Failure> {
    let path = ["v1", "queues", args.name.as_str()];
    let mut call = Call::delete(&path);
    if args.force {
        call = call.query("force", "true");
    }
    let answer = session.client.send(call).await?;
    if answer.status == StatusCode::ACCEPTED {
        operations::follow(session, answer).await?;
        return Ok(());
    }
    if session.is_json {
        // The server answers without a body.
        return output::print_json(&serde_json::json!({"name": args.name, "deleted": true}).to_string());
    }
    output::print(&format!("queue \"{}\" deleted\n", escape(&args.name)))
}
