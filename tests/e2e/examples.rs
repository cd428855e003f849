//! The programs under examples/, run as a user would run them, against a real server.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::nginx::Nginx;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{dead, job, make_queue, publish, text};
use crate::programs::{DEADLINE, Running, browser, clean_command, example, python, script};

/// The longest of the scenes below takes some seconds; this is many times as much.
const FINISHED: Duration = Duration::from_secs(60);

// The simple form, with plain Python `requests`.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_consumer_works_through_a_queue() {
    check_consumer(python(), "consumer-python/consumer.py").await;
}

// The simple form, with the `fetch` that is built into Node.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_consumer_works_through_a_queue() {
    check_consumer(PathBuf::from("node"), "consumer-node/consumer.mjs").await;
}

/// Three good messages and one that always fails: the good ones succeed, the bad one is tried twice and dies.
async fn check_consumer(interpreter: PathBuf, program: &str) {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({"maxAttempts": 2})).await;
    let mut good = Vec::new();
    for number in 0..3 {
        good.push(publish(&client, "mail", json!({"number": number})).await);
    }
    let bad = publish(&client, "mail", json!({"fail": true})).await;

    let output = run(interpreter, program, &client).await;

    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {printed}{complaint}");
    assert_eq!(printed.lines().count(), 5, "one line per message: {printed}");
    for id in good {
        assert!(printed.contains(&id), "{printed}");
        assert_eq!(job(&client, &id).await["status"], "succeeded");
    }
    assert_eq!(printed.lines().filter(|line| line.contains(&bad)).count(), 2, "{printed}");
    assert_eq!(dead(&client, "mail").await, [bad]);
}

async fn run(interpreter: PathBuf, program: &str, client: &Client) -> Output {
    let mut command = Command::new(&interpreter);
    command
        .arg(example(program))
        .args(["mail", "--max", "5"])
        .env("OUTLAST_URL", &client.base)
        .env("OUTLAST_KEY", &client.key);
    let running = tokio::task::spawn_blocking(move || command.output());
    let output = running.await.unwrap();
    output.unwrap_or_else(|error| panic!("cannot run {}: {error}", interpreter.display()))
}

// Python's own HTTP server, in ack mode.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_does_each_job_once() {
    check_worker(python(), "worker-python/worker.py").await;
}

// Node's own HTTP server, in ack mode.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_does_each_job_once() {
    check_worker(PathBuf::from("node"), "worker-node/worker.mjs").await;
}

/// A worker under every kind of delivery: jobs that go well, fail, are busy, and two that are delivered again although
/// their work is under way or done.
async fn check_worker(interpreter: PathBuf, program: &str) {
    let server = Launch::fresh().start().await;
    let client = server.client();
    let secret = "one-secret-for-all-queues";
    let mut command = clean_command(&interpreter);
    command.arg(example(program)).args(["--listen", "127.0.0.1:0"]).env("OUTLAST_SIGNING_SECRET", secret);
    let worker = Running::start(command.env("OUTLAST_URL", &client.base).env("OUTLAST_KEY", &client.key));
    let webhook_url = format!("{}/", worker.address().await);
    // The outcome comes within the time; while the work is under way; and in the pause between two deliveries.
    for (queue, ack_timeout, pause) in [("calm", 60.0, 0.1), ("working", 1.0, 0.1), ("done", 1.0, 3.0)] {
        let settings = json!({
            "mode": "ack", "webhookUrl": webhook_url, "signingSecret": secret, "ackTimeout": ack_timeout,
            "backoff": {"type": "fixed", "delay": pause, "jitter": 0}, "maxAttempts": 20, "concurrency": 10,
        });
        make_queue(&client, queue, settings).await;
    }

    let calm = publish(&client, "calm", json!({"n": 1})).await;
    let busy = publish(&client, "calm", json!({"busy": 1})).await;
    let bad = client.post("/v1/queues/calm/jobs", json!({"payload": {"fail": true}, "maxAttempts": 2})).await;
    let bad = text(&bad.unwrap().expect(202)["id"]);
    let working = publish(&client, "working", json!({"seconds": 3})).await;
    let done = publish(&client, "done", json!({"seconds": 2})).await;

    for (id, did) in [(&calm, 1), (&busy, 1), (&bad, 2), (&working, 1), (&done, 1)] {
        let finished = finished(&client, id).await;
        let is_good = *id != bad;
        assert_eq!(finished["status"], json!(if is_good { "succeeded" } else { "failed" }), "{finished}");
        assert_eq!(worker.count(&format!("did {id}")), did, "{finished}\n{:#?}", worker.lines());
    }
    // The faults have struck: both were delivered again, one while it was worked on and one when it was done.
    for id in [&working, &done] {
        assert!(job(&client, id).await["attempt"].as_u64() > Some(1), "{id} was delivered once");
        assert!(worker.count(&format!("again {id}")) > 0, "{:#?}", worker.lines());
    }
    assert!(worker.count(&format!("ack {done} refused")) > 0, "the lease was alive: {:#?}", worker.lines());
    assert_eq!(job(&client, &busy).await["deferCount"], json!(1));
    assert_eq!(job(&client, &busy).await["attempt"], json!(1), "a defer is free");
    let result = client.get(&format!("/v1/jobs/{calm}/result")).await.unwrap().expect(200);
    assert!(result["length"].as_u64() > Some(0), "{result}");
    check_forgeries(&webhook_url, &worker).await;
}

/// Nothing that is not signed is worked on.
async fn check_forgeries(url: &str, worker: &Running) {
    let http = Client::new(url.trim_end_matches('/'), "");
    let body = json!({"id": "forged", "lease": "x", "attempt": 1, "deferCount": 0, "payload": {}}).to_string();
    for signature in ["", "v1,", "v1,AAAA", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] {
        let request = http.keyless(reqwest::Method::POST, "/").body(body.clone()).header("webhook-id", "forged");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let request = request.header("webhook-timestamp", now).header("webhook-signature", signature);
        assert_eq!(http.send(request).await.unwrap().status, 401, "{signature:?}");
    }
    assert_eq!(worker.count("did forged"), 0);
}

// A worker killed at section 140 of 161: the next one gets 140 sections and does 21.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_where_its_worker_was_killed() {
    check_report(async |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_after_a_crash_of_worker_and_server() {
    check_report(async |server: &mut Server| server.crash_and_restart().await).await;
}

// The same with the worker behind a reverse proxy, which also sees its long polls, heartbeats and sections.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_behind_a_reverse_proxy() {
    let server = Server::fresh().await;
    make_queue(&server.client(), "reports", json!({})).await;
    let id = publish(&server.client(), "reports", json!({"title": "Tides", "sections": 161})).await;
    let nginx = Nginx::before(&server.base, "");

    let (killed, _) = reporter_at(&server, &nginx.base, &["--once", "--crash-after", "140"]).end().await;
    let (ended, second) = reporter_at(&server, &nginx.base, &["--once"]).end().await;

    assert_eq!((killed.signal(), ended.code()), (Some(9), Some(0)), "{second:#?}");
    assert_eq!(second.iter().filter(|line| line.starts_with("did ")).count(), 21, "{second:#?}");
    assert_eq!(job(&server.client(), &id).await["status"], "succeeded");
}

// A bug in the work costs its job an attempt, not the worker its life: the next job is done by the same process.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_raises_is_nacked_and_its_worker_goes_on() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "reports", json!({"maxAttempts": 1})).await;
    let without_title = publish(&client, "reports", json!({"sections": 1})).await;
    let good = publish(&client, "reports", json!({"title": "Tides", "sections": 1})).await;

    let _reporter = reporter(&server, &["--lease", "60"]);
    let (failed, done) = (finished(&client, &without_title).await, finished(&client, &good).await);

    assert_eq!((&failed["status"], &done["status"]), (&json!("failed"), &json!("succeeded")), "{failed} {done}");
    assert_eq!(failed["lastError"], "KeyError: 'title'");
}

async fn check_report(meanwhile: impl AsyncFn(&mut Server)) {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "reports", json!({})).await;
    let id = publish(&server.client(), "reports", json!({"title": "Tides", "sections": 161})).await;

    // A lease that a killed worker does not hold for long, and a worker that pauses for a moment does not lose.
    let (killed, first) = reporter(&server, &["--lease", "10", "--once", "--crash-after", "140"]).end().await;
    meanwhile(&mut server).await;
    let (ended, second) = reporter(&server, &["--lease", "10", "--once"]).end().await;

    let client = server.client();
    let did = |lines: &[String]| lines.iter().filter(|line| line.starts_with("did ")).count();
    assert_eq!((killed.signal(), did(&first)), (Some(9), 140), "{first:#?}");
    assert_eq!((ended.code(), did(&second)), (Some(0), 21), "{second:#?}");
    assert!(second.contains(&format!("job {id}: 140 of 161 sections are there")), "{second:#?}");
    let job = job(&client, &id).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("succeeded"), &json!(2)), "{job}");
    let report = client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    let headings = report["sections"].as_array().unwrap().iter().map(|section| text(&section["heading"]));
    assert!(headings.eq((1..=161).map(|number| format!("Section {number}"))), "{report}");
}

/// The report writer.
fn reporter(server: &Server, words: &[&str]) -> Running {
    reporter_at(server, &server.base, words)
}

fn reporter_at(server: &Server, base: &str, words: &[&str]) -> Running {
    let mut command = clean_command(&python());
    command.arg(example("report-161/report.py")).arg("reports").args(words);
    Running::start(command.env("OUTLAST_URL", base).env("OUTLAST_KEY", &server.launch().key))
}

/// The actions and view of a user of the page: the text it has shown, and every address it has requested.
const USE_THE_PAGE: &str = r#"(async () => {
    const find = (id) => document.getElementById(id);
    const shown = [];
    // The browser lists a stream among what was asked for only if the server ended it first.
    const streams = [];
    const Stream = window.EventSource;
    window.EventSource = class extends Stream { constructor(url) { super(url); streams.push(url); } };
    new MutationObserver(() => shown.push([find("bar").value, find("detail").textContent]))
        .observe(find("detail"), { childList: true });
    find("start").click();
    const isOver = () => document.body.dataset.ended || find("status").textContent.startsWith("not started:");
    while (!isOver()) await new Promise((resolve) => setTimeout(resolve, 20));
    const asked = performance.getEntriesByType("resource").map((entry) => entry.name);
    return { status: find("status").textContent, bar: find("bar").value, shown, streams, asked };
})()"#;

// The page in a real browser, with nothing but a token for its job.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_progress_in_a_browser_without_a_key() {
    let Some(browser) = browser() else { return };
    let server = Server::fresh().await;
    make_queue(&server.client(), "reports", json!({})).await;
    let mut command = clean_command(Path::new("node"));
    command.arg(example("progress-page/server.mjs")).args(["reports", "0"]);
    let application = Running::start(command.env("OUTLAST_URL", &server.base).env("OUTLAST_KEY", &server.launch().key));
    let address = application.address().await;
    let mut command = clean_command(Path::new("node"));
    command.arg(script("browser.mjs")).arg(&browser).args([&address, USE_THE_PAGE]);

    let mut page = Running::start(&mut command);
    // A viewer from the beginning misses nothing, however slow the browser is.
    wait::until("the page to watch, or to have given up", DEADLINE, async || {
        (page.has_ended() || is_watched(&server).await).then_some(())
    })
    .await;
    let _reporter = reporter(&server, &["--lease", "60"]);
    let (status, lines) = page.end().await;

    assert!(status.success(), "{lines:#?} {:#?}", application.lines());
    let seen: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&seen["status"], &seen["bar"]), (&json!("succeeded"), &json!(100)), "{seen}");
    let shown = seen["shown"].as_array().unwrap();
    assert!(shown.iter().any(|both| text(&both[1]).contains(" of 20")), "no progress was shown: {seen}");
    let moments: Vec<f64> = shown.iter().map(|both| both[0].as_f64().unwrap()).collect();
    assert!(moments.is_sorted(), "the bar went back: {seen}");
    assert!(text(&seen["streams"][0]).contains("/stream?"), "{seen}");
    assert!(!seen.to_string().contains(&server.launch().key), "the page has the key: {seen}");
}

/// Whether a stream is open, by the server's own count, on any node.
async fn is_watched(server: &Server) -> bool {
    for node in &server.nodes {
        let metrics = node.client().get("/metrics").await.unwrap().expect(200);
        if metrics.as_str().unwrap().contains("outlast_streams_open 1\n") {
            return true;
        }
    }
    false
}

async fn finished(client: &Client, id: &str) -> Value {
    wait::until("a finished job", FINISHED, async || {
        let job = job(client, id).await;
        matches!(job["status"].as_str(), Some("succeeded" | "failed")).then_some(job)
    })
    .await
}
