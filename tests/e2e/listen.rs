//! `outlast listen`: what it shows, how it judges signatures, what it answers, and push from end to end in three commands.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::api::{job, text};
use crate::cli::Cli;
use crate::programs::{Running, clean_command};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// From a publish to a finished job, with a few retries, on two busy cores.
const FINISHED: Duration = Duration::from_secs(30);

/// The receiver on any free port, where the words do not name one.
fn listen(program: &Path, words: &[&str]) -> Command {
    let mut command = clean_command(program);
    command.arg("listen").args(words);
    if !words.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command
}

/// One delivery, signed by the independent implementation as it is now.
async fn deliver(base: &str, sent: &str, signed: &str) -> (u16, reqwest::header::HeaderMap, String) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let webhook = Webhook::new(SECRET).unwrap();
    let signature = webhook.sign("msg_1", i64::try_from(now).unwrap(), signed.as_bytes()).unwrap();
    let client = Client::new(base, "");
    let request = client.keyless(reqwest::Method::POST, "/hook").body(sent.to_owned());
    let request = request.header("webhook-id", "msg_1").header("webhook-timestamp", now.to_string());
    let answer = request.header("webhook-signature", signature).send().await.unwrap();
    (answer.status().as_u16(), answer.headers().clone(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_shown_verified_and_answered_as_configured() {
    let words = ["--secret", SECRET, "--sequence", "429,500,200", "--retry-after", "7", "--body", "{\"ok\": true}"];
    let receiver = Running::start(&mut listen(&Launch::embedded().program, &words));
    let base = receiver.address().await;
    let body = json!({"id": "j1", "queue": "demo", "attempt": 1, "maxAttempts": 5, "payload": {"a": "\u{1b}[2J"}});
    let body = body.to_string();

    let (held, headers, _) = deliver(&base, &body, &body).await;
    let (failed, ..) = deliver(&base, &body, "something else").await;
    let (taken, _, said) = deliver(&base, &body, &body).await;
    let (status, lines) = receiver.interrupt().await;

    assert_eq!((held, failed, taken, said.as_str()), (429, 500, 200, "{\"ok\": true}"));
    assert_eq!(headers["retry-after"], "7");
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let heads: Vec<&String> = lines.iter().filter(|line| line.contains("POST /hook")).collect();
    assert!(heads[0].ends_with("queue demo  job j1  attempt 1/5  signature ok"), "{lines:#?}");
    assert!(heads[1].ends_with("WRONG SIGNATURE: no signature matches"), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "    \"a\": \"\\u001b[2J\""), "{lines:#?}");
    assert!(lines.contains(&"  answered 429, retry-after: 7, with a body".to_owned()), "{lines:#?}");
    let summary = "3 deliveries: 1 answered 200, 1 answered 429, 1 answered 500; 1 with a wrong signature";
    assert!(lines.contains(&summary.to_owned()), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_json_there_is_one_line_for_each_delivery() {
    let receiver =
        Running::start(&mut listen(&Launch::embedded().program, &["--json", "--no-retry", "--status", "400"]));
    let base = receiver.address().await;

    let (_, headers, _) = deliver(&base, "not json", "x").await;
    let line = receiver.line("\"type\":\"delivery\"").await;

    assert_eq!(headers["x-outlast-retry"], "false");
    let shown: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&shown["body"], &shown["signature"]), (&json!("not json"), &json!("unchecked")));
    assert_eq!(shown["answer"]["status"], json!(400));
    assert_eq!(shown["headers"]["webhook-id"], json!("msg_1"));
}

#[test]
fn flags_that_cannot_work_are_refused_with_a_reason() {
    let program = Launch::embedded().program;
    for (words, said) in [
        (&["--secret", "short"][..], "--secret: a signing secret is"),
        (&["--secret", "whsec_AAAA"], "24 to 64 bytes"),
        (&["--retry-after", "5"], "--retry-after has no effect"),
        (&["--status", "99"], "99 is not in 200..=599"),
        (&["--sequence", "200", "--fail-first", "1"], "cannot be used with"),
        (&["--ack", "--nack", "x"], "cannot be used with"),
        (&["--body", "{"], "the body is not JSON"),
        (&["--force"], "--queue"),
    ] {
        let output = listen(&program, words).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {complaint}");
        assert!(complaint.starts_with("error: ") && complaint.contains(said), "{words:?}: {complaint}");
    }
    // The address is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = clean_command(&program).args(["listen", "--listen", &address]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("hint: choose another with --listen"));
}

/// A server that may call this machine.
async fn server() -> Server {
    Launch::fresh().start().await
}

/// The receiver with the server's address and key.
fn listening(server: &Server, words: &[&str]) -> Running {
    let mut command = listen(&server.launch().program, words);
    Running::start(command.env("OUTLAST_URL", &server.base).env("OUTLAST_KEY", &server.launch().key))
}

async fn finished(client: &Client, id: &str) -> Value {
    wait::until("a finished job", FINISHED, async || {
        let job = job(client, id).await;
        matches!(job["status"].as_str(), Some("succeeded" | "failed")).then_some(job)
    })
    .await
}

// The three commands of the README.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_pushed_in_three_commands() {
    let server = server().await;
    let cli = Cli::of(&server);
    let receiver = listening(&server, &["--queue", "demo", "--sequence", "500,200", "--body", "{\"seen\": 1}"]);
    receiver.address().await;

    let id = cli.out(&["jobs", "publish", "demo", "{\"hello\":\"world\"}"]).trim().to_owned();
    let done = finished(&server.client(), &id).await;

    assert_eq!((&done["status"], &done["attempt"]), (&json!("succeeded"), &json!(2)), "{done}");
    let shown = cli.out(&["jobs", "show", &id]);
    let first = shown.lines().find(|line| line.starts_with("      1  nacked ")).expect("the first attempt");
    assert!(first.contains("  500  ") && first.contains("  delivering  "), "{shown}");
    assert!(shown.contains("{\"seen\": 1}"), "{shown}");
    let result = server.client().get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    assert_eq!(result, json!({"seen": 1}));
    let (_, lines) = receiver.interrupt().await;
    assert_eq!(
        lines.iter().filter(|line| line.contains(&id) && line.ends_with("signature ok")).count(),
        2,
        "{lines:#?}"
    );
    assert!(lines.iter().any(|line| line.ends_with("no wrong signature")), "{lines:#?}");
}

// A second start cannot read the secret back; it is rotated, and signatures are right again.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_there_is_pointed_here_again() {
    let server = server().await;
    let cli = Cli::of(&server);
    let first = listening(&server, &["--queue", "demo"]);
    let address = first.address().await;
    first.interrupt().await;

    let port = address.strip_prefix("http://").unwrap();
    let again = listening(&server, &["--queue", "demo", "--listen", port]);
    let remark = again.line("delivers here").await;
    let id = cli.out(&["jobs", "publish", "demo", "1"]).trim().to_owned();
    finished(&server.client(), &id).await;

    assert!(remark.contains("its signing secret was rotated"), "{remark}");
    again.line(&id).await;
    assert_eq!(again.count("signature ok"), 1, "{:#?}", again.lines());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_somebody_else_is_not_taken_without_force() {
    let server = server().await;
    let client = server.client();
    for (name, settings) in [("pulled", json!({})), ("theirs", json!({"webhookUrl": "https://example.com/hook"}))] {
        client.put(&format!("/v1/queues/{name}"), settings).await.unwrap().expect(201);
        let mut command = listen(&server.launch().program, &["--queue", name]);
        command.env("OUTLAST_URL", &server.base).env("OUTLAST_KEY", &server.launch().key);

        let output = command.output().unwrap();

        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains("hint: repeat the command with --force"), "{complaint}");
    }
    let forced = listening(&server, &["--queue", "theirs", "--force"]);
    forced.address().await;
    let queue = client.get("/v1/queues/theirs").await.unwrap().expect(200);
    assert!(text(&queue["webhookUrl"]).starts_with("http://127.0.0.1:"), "{queue}");
}

// The receiver as a worker of an ack queue.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_reported_after_the_answer() {
    let server = server().await;
    let cli = Cli::of(&server);
    let acking = listening(&server, &["--queue", "good", "--ack", "--result", "{\"n\": 1}"]);
    let nacking = listening(&server, &["--queue", "bad", "--nack", "no such address", "--json"]);
    acking.address().await;
    nacking.address().await;

    let good = cli.out(&["jobs", "publish", "good", "1"]).trim().to_owned();
    let bad = cli.out(&["jobs", "publish", "bad", "1", "--max-attempts", "1"]).trim().to_owned();
    let (succeeded, failed) = (finished(&server.client(), &good).await, finished(&server.client(), &bad).await);

    assert_eq!((&succeeded["status"], &failed["status"]), (&json!("succeeded"), &json!("failed")));
    assert_eq!(failed["lastError"], json!("no such address"), "{failed}");
    acking.line(&format!("ack of job {good}: the job is succeeded")).await;
    let outcome: Value = serde_json::from_str(&nacking.line("\"type\":\"outcome\"").await).unwrap();
    assert_eq!((&outcome["outcome"], &outcome["status"]), (&json!("nack"), &json!("failed")));
}
