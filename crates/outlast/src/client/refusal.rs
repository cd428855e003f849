//! From a refusing answer to a failure with an exit code: the server's own words, the code, and a hint by code.

use reqwest::StatusCode;
use serde_json::Value;

use super::Answer;
use super::find::KeySource;
use crate::failure::{Exit, Failure};

/// `path` names what was asked for: its third segment is the queue, job or key.
pub(crate) fn failure(answer: &Answer, path: &[String], key_source: &KeySource) -> Failure {
    let code = answer.json.get("code").and_then(Value::as_str).unwrap_or_default();
    let message = message(answer, code, path);
    let is_temporary = matches!(answer.status.as_u16(), 408 | 429 | 502 | 503 | 504);
    let hint = hint(answer.status, code, key_source);
    let problem = answer.json.is_object().then(|| Box::new(answer.json.clone()));
    let details = field_errors(&answer.json);
    Failure { details, hint, is_temporary, problem, ..Failure::new(exit(answer.status), message) }
}

fn exit(status: StatusCode) -> Exit {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Unauthorised,
        StatusCode::NOT_FOUND => Exit::NotFound,
        _ => Exit::Refused,
    }
}

fn message(answer: &Answer, code: &str, path: &[String]) -> String {
    if code.is_empty() {
        return format!("the server answered {} without an explanation", answer.status);
    }
    let noun = match code {
        "queue_not_found" => Some("queue"),
        "job_not_found" => Some("job"),
        "key_not_found" => Some("key"),
        "operation_not_found" => Some("operation"),
        "event_not_found" => Some("event"),
        _ => None,
    };
    if let (Some(noun), Some(name)) = (noun, path.get(2)) {
        return format!("{noun} \"{name}\" not found ({code})");
    }
    let said = |field: &str| answer.json.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let text = said("detail").or_else(|| said("title")).unwrap_or("the server refused");
    format!("{text} ({code})")
}

fn field_errors(problem: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for error in problem.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        lines.push(format!("{}: {}", part("field"), part("message")));
    }
    lines
}

fn hint(status: StatusCode, code: &str, key_source: &KeySource) -> Option<String> {
    let text = match code {
        "queue_not_found" => {
            "`outlast queues list` shows the queues of this key's namespace; `outlast queues create` creates one"
        }
        "job_not_found" => {
            "`outlast jobs list` shows the jobs of this key's namespace; old ones are purged after their retention"
        }
        "key_not_found" => "`outlast keys list` shows the keys and their ids",
        "operation_not_found" => "`outlast operations list` shows the newest operations",
        "event_not_found" => "`outlast events list` shows the stored events",
        "queue_not_empty" => "`outlast queues delete --force` deletes its jobs too",
        "route_not_found" => "does --url point to an Outlast server of this version?",
        "queue_exists" => "`outlast queues create --replace` replaces the settings of a queue",
        "forbidden" => "use a key with the scope this needs; `outlast keys list` shows the scopes of each key",
        "checkpoint_not_found" => "a job has a checkpoint once its worker has saved one; it is removed after success",
        "key_taken" => "one idempotency key has one live job",
        "not_replayable" => "only failed and cancelled jobs can be replayed",
        "draining" | "overloaded" | "unavailable" | "too_many_requests" => "try again in a moment",
        _ if status == StatusCode::UNAUTHORIZED => return Some(key_hint(key_source)),
        _ if status.is_redirection() => "redirects are not followed; give the final address with --url",
        _ if code.is_empty() => "does --url point to an Outlast server?",
        _ => return None,
    };
    Some(text.to_owned())
}

fn key_hint(key_source: &KeySource) -> String {
    match key_source {
        KeySource::Flag => "the key given with --key is not valid for this server".to_owned(),
        KeySource::Environment => "the key in OUTLAST_KEY is not valid for this server".to_owned(),
        KeySource::File(path) => {
            format!("the key in {} is not valid for this server; give one with --key or OUTLAST_KEY", path.display())
        }
        KeySource::Missing(path) => format!(
            "no key was given and {} does not exist; use --key, OUTLAST_KEY, or --data with the server's data directory",
            path.display()
        ),
        KeySource::Unreadable(path, error) => {
            format!("{} cannot be read ({error}); use --key or OUTLAST_KEY", path.display())
        }
    }
}
