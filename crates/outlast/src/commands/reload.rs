//! `outlast reload`: a running server reads its configuration again, or says why not.

use serde_json::Value;

use super::Session;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, escape};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
}

pub(crate) async fn run(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(&args.remote, environment)?;
    let answer = session.client.send(Call::post(&["v1", "reload"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&told(&answer.json))
}

fn told(answer: &Value) -> String {
    let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!("in force: {} sources, {} queues\n", count("sources"), count("queues"));
    for option in answer.get("needsRestart").and_then(Value::as_array).into_iter().flatten() {
        let name = escape(option.as_str().unwrap_or_default());
        text.push_str(&format!("{name} has changed, too; restart the server for it\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_counts_and_what_needs_a_restart_is_told() {
        let answer = json!({"sources": 2, "queues": 3, "needsRestart": ["listen"]});

        let text = told(&answer);

        assert_eq!(text, "in force: 2 sources, 3 queues\nlisten has changed, too; restart the server for it\n");
    }
}
