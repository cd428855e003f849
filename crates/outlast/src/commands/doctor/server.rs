//! Checks the server: whether it is reachable, ready, and accepts the key.

use reqwest::StatusCode;
use serde_json::Value;

use super::{Check, Verdict};
use crate::client::find::KeySource;
use crate::client::{Answer, Call, Client, Remote};
use crate::config::Environment;
use crate::failure::Failure;

pub(crate) async fn checks(remote: &Remote, environment: &Environment) -> Result<Vec<Check>, Failure> {
    let client = Client::new(remote, environment)?;
    let alive = match client.exchange(Call::get(&["healthz"])).await {
        Ok(answer) => answer,
        Err(failure) => {
            let mut checks = vec![Check::new("server", Verdict::Fail, failure.message)];
            for name in ["ready", "key"] {
                checks.push(Check::new(name, Verdict::Warn, "not checked: the server cannot be reached"));
            }
            return Ok(checks);
        }
    };
    if !alive.status.is_success() {
        let finding = format!("{} answers {} to /healthz; is it an Outlast server?", client.base(), alive.status);
        return Ok(vec![Check::new("server", Verdict::Fail, finding)]);
    }
    let mut checks = vec![Check::new("server", Verdict::Ok, format!("{} answers", client.base()))];
    checks.push(match client.exchange(Call::get(&["readyz"])).await {
        Ok(answer) if answer.status.is_success() => Check::new("ready", Verdict::Ok, "the store answers"),
        Ok(answer) => Check::new("ready", Verdict::Fail, format!("not ready: {}", reason(&answer))),
        Err(failure) => Check::new("ready", Verdict::Fail, failure.message),
    });
    checks.push(key(&client).await);
    Ok(checks)
}

async fn key(client: &Client) -> Check {
    let source = match &client.key_source {
        KeySource::Flag => "the key given with --key".to_owned(),
        KeySource::Environment => "the key in OUTLAST_KEY".to_owned(),
        KeySource::File(path) => format!("the key in {}", path.display()),
        KeySource::Missing(path) => {
            let finding = format!("no key: none was given and {} does not exist", path.display());
            return Check::new("key", Verdict::Warn, finding);
        }
        KeySource::Unreadable(path, error) => {
            return Check::new("key", Verdict::Fail, format!("{} cannot be read: {error}", path.display()));
        }
    };
    let call = Call::get(&["v1", "queues"]).query("limit", "1");
    match client.exchange(call).await {
        Ok(answer) if answer.status.is_success() => Check::new("key", Verdict::Ok, format!("{source} works")),
        Ok(answer) if answer.status == StatusCode::FORBIDDEN => {
            Check::new("key", Verdict::Warn, format!("{source} is known but may not read queues"))
        }
        Ok(answer) => Check::new("key", Verdict::Fail, format!("{source} does not work: {}", reason(&answer))),
        Err(failure) => Check::new("key", Verdict::Fail, failure.message),
    }
}

/// The server's words, or the bare status.
fn reason(answer: &Answer) -> String {
    match answer.json.get("detail").and_then(Value::as_str) {
        Some(detail) => detail.to_owned(),
        None => format!("it answers {}", answer.status),
    }
}
