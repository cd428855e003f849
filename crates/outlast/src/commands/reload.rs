//! `outlast reload`: makes a running server read its configuration again, or shows why it cannot.

use serde_json::Value;

use super::Session;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, escape};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    // The server is a global flag.
}

pub(crate) async fn run(_args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
    let answer = session.client.send(Call::post(&["v1", "reload"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&summary(&answer.json))
}

fn summary(answer: &Value) -> String {
    let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!("configuration loaded: {} sources, {} queues\n", count("sources"), count("queues"));
    for option in answer.get("needsRestart").and_then(Value::as_array).into_iter().flatten() {
        let name = escape(option.as_str().unwrap_or_default());
        text.push_str(&format!("{name} has changed; restart the server to apply it\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_and_options_that_need_a_restart_are_shown() {
        let answer = json!({"sources": 2, "queues": 3, "needsRestart": ["listen"]});

        let text = summary(&answer);

        assert_eq!(
            text,
            "configuration loaded: 2 sources, 3 queues\nlisten has changed; restart the server to apply it\n"
        );
    }
}
