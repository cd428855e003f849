//! Many requests with a known ending each, run side by side; every one that went wrong is reported, not only the first.

use std::sync::Arc;

use outlast_tests::http::{Client, Reply};
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::scene::Scene;

/// Requests in flight at once; more would not be faster on two cores.
const PARALLEL: usize = 8;
/// Enough to see what is wrong, few enough to read.
const FAILURES_SHOWN: usize = 30;

/// One request and what must come of it.
pub(crate) struct Case {
    pub name: String,
    /// The values of the header `Authorization`; `None` sends the admin key.
    pub authorization: Option<Vec<String>>,
    pub method: Method,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub expect: Expect,
}

pub(crate) enum Expect {
    /// 400 `invalid_request` with this field among the errors.
    Field(String),
    /// This status and code.
    Problem(u16, &'static str),
    /// The request was understood: done, or refused for what the job is, not for what was sent.
    Taken,
    /// This status, and none of these texts in the answer.
    Without(u16, Arc<[String]>),
    /// This status, and this JSON at a place of the answer.
    Holds(u16, &'static str, Value),
}

impl Default for Case {
    fn default() -> Case {
        Case {
            name: String::new(),
            authorization: None,
            method: Method::GET,
            path: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
            expect: Expect::Taken,
        }
    }
}

/// Runs all cases and reports every one that went wrong, then looks whether the server is well.
pub(crate) async fn check(scene: &Scene, cases: Vec<Case>) {
    let total = cases.len();
    let cases = Arc::new(cases);
    let mut running = JoinSet::new();
    for lane in 0..PARALLEL {
        let (cases, client) = (Arc::clone(&cases), scene.client.clone());
        running.spawn(async move {
            let mut failures = Vec::new();
            for case in cases.iter().skip(lane).step_by(PARALLEL) {
                failures.extend(run(&client, case).await.map(|fault| format!("{}: {fault}", case.name)));
            }
            failures
        });
    }
    let failures: Vec<String> = running.join_all().await.into_iter().flatten().collect();
    println!("{total} cases, {} failures", failures.len());
    let shown = failures.iter().take(FAILURES_SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {total} cases failed:\n{shown}", failures.len());
    scene.assert_unharmed().await;
}

/// The failure, if any.
async fn run(client: &Client, case: &Case) -> Option<String> {
    let mut request = match &case.authorization {
        None => client.request(case.method.clone(), &case.path),
        Some(values) => {
            let bare = client.keyless(case.method.clone(), &case.path);
            values.iter().fold(bare, |request, value| request.header("authorization", value))
        }
    };
    for (name, value) in &case.headers {
        request = request.header(*name, value);
    }
    match client.send(request.body(case.body.clone())).await {
        Ok(reply) => fault(&reply, &case.expect),
        Err(lost) => Some(format!("no answer: {lost:?}")),
    }
}

fn fault(reply: &Reply, expect: &Expect) -> Option<String> {
    let status = reply.status;
    let kind = reply.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = reply.body.to_string();
    let shown = format!("{status} {}", shortened(&text));
    if status >= 400 && kind != "application/problem+json" {
        return Some(format!("a problem as {kind:?}: {shown}"));
    }
    let named = reply.body["errors"].as_array().cloned().unwrap_or_default();
    let (right, wanted) = match expect {
        Expect::Field(field) => {
            let names_it = named.iter().any(|error| error["field"] == field.as_str());
            ((status, reply.code()) == (400, "invalid_request") && names_it, format!("400 naming {field:?}"))
        }
        Expect::Problem(wanted, code) => ((status, reply.code()) == (*wanted, *code), format!("{wanted} {code}")),
        Expect::Taken => ((200..300).contains(&status) || status == 409, "taken".to_owned()),
        Expect::Without(wanted, texts) => {
            let clean = !texts.iter().any(|forbidden| text.contains(forbidden));
            (status == *wanted && clean, format!("{wanted} without a foreign thing"))
        }
        Expect::Holds(wanted, place, value) => {
            let holds = reply.body.pointer(place) == Some(value);
            (status == *wanted && holds, format!("{wanted} with {value} at {place}"))
        }
    };
    (!right).then(|| format!("wanted {wanted}, got {shown}"))
}

pub(crate) fn shortened(text: &str) -> String {
    let cut: String = text.chars().take(160).collect();
    if cut.len() < text.len() { format!("{cut}… ({} bytes)", text.len()) } else { cut }
}
