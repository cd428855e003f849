//! schemathesis against the running server: requests made up from its own OpenAPI document, right and wrong ones, and
//! every answer held against that document. No server error, no undocumented status, type or shape. (T22)
//! Two things are not asked of it: that every request the document allows is taken (rules between fields cannot be
//! written down there), and that a batch with a wrong entry is refused as a whole (it is not).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outlast_tests::chance::{seed, volume};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::api::{publish, text};
use crate::programs::python_with;
use crate::scene::Scene;

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,allow_header_conformance,\
    missing_required_header,ignored_auth";

/// Revokes keys by number, the fuzzer's own among them: last, and on its own.
const REVOKE: &str = "revokeKey";
/// Where a wrong entry does not spoil the whole.
const BATCHES: [&str; 4] = ["reportOutcomes", "publishJobs", "heartbeatJobs", "reportProgressBatch"];

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_no_server_error_and_nothing_undocumented() {
    let Some(python) = python_with("schemathesis") else { return };
    let scene = Scene::set().await;
    let config = scene.server.launch().scratch().join("schemathesis.toml");
    fs::write(&config, configuration(&scene).await).unwrap();
    let strict = format!("{CHECKS},negative_data_rejection");
    let without = |ids: &[&str], flag: &str| -> Vec<String> {
        ids.iter().flat_map(|id| [format!("--{flag}-operation-id"), (*id).to_owned()]).collect()
    };
    let apart = [&BATCHES[..], &[REVOKE]].concat();

    let mut cases = 0;
    for (checks, selection) in [
        (strict.as_str(), without(&apart, "exclude")),
        (CHECKS, without(&BATCHES, "include")),
        (strict.as_str(), without(&[REVOKE], "include")),
    ] {
        let run = Run { python: python.clone(), config: config.clone(), base: scene.client.base.clone() };
        cases += run.expect_clean(&scene.client.key, checks, &selection).await;
    }

    println!("{cases} requests");
    assert!(cases > 2500, "only {cases} requests were made");
    assert!(!scene.server.log().contains("panicked"), "a panic is in the log");
    let alive = scene.client.keyless(reqwest::Method::GET, "/readyz");
    scene.client.send(alive).await.unwrap().expect(200);
}

// The control: a server that breaks is found out, by the same command and the same checks.
#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_a_server_error_where_there_is_one() {
    let Some(python) = python_with("schemathesis") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("schemathesis.toml");
    fs::write(&config, "").unwrap();
    let base = broken_server().await;

    let output = Run { python, config, base }.run("ol_x", CHECKS, &[]).await;

    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("Server error"), "{printed}");
}

/// Values of the variable parts of the paths, beside those that the fuzzer makes up.
async fn configuration(scene: &Scene) -> String {
    let things = &scene.things;
    let mut jobs = vec![things.queued.clone(), things.running.clone(), things.dead.clone()];
    for number in 0..20 {
        jobs.push(publish(&scene.client, "mail", json!(number)).await);
    }
    // A stream of a job that is not finished has no end, and of all ends only success is for good.
    let mut finished = Vec::new();
    let done = scene.client.post("/v1/queues/mail/receive", json!({"batch": 5})).await.unwrap().expect(200);
    for job in done["jobs"].as_array().unwrap() {
        let id = text(&job["id"]);
        scene.client.post(&format!("/v1/jobs/{id}/ack"), json!({"result": {"a": 1}})).await.unwrap().expect(200);
        finished.push(id.clone());
        jobs.push(id);
    }
    format!(
        r#"
        [dictionaries]
        queues.values = ["mail"]
        jobs.values = {jobs:?}
        finished.values = {finished:?}
        numbers.values = ["1", "2", "3"]

        # A refusal is a refusal, for whatever reason it comes first.
        [checks.negative_data_rejection]
        expected-statuses = ["400", "401", "404", "405", "409", "412", "413", "414", "415", "431"]

        [[operations]]
        include-path-regex = "/queues/[{{]queue[}}]"
        exclude-operation-id = "deleteQueue"
        parameters = {{ "path.queue" = {{ dictionary = "queues", probability = 0.8 }} }}

        [[operations]]
        include-path-regex = "^/v1/jobs/"
        exclude-operation-id = "streamJob"
        parameters = {{ "path.id" = {{ dictionary = "jobs", probability = 0.8 }} }}

        [[operations]]
        include-operation-id = "streamJob"
        parameters = {{ "path.id" = {{ dictionary = "finished", probability = 0.8 }} }}

        # Has no end.
        [[operations]]
        include-operation-id = "streamQueue"
        enabled = false

        # Needs a client that speaks WebSocket.
        [[operations]]
        include-operation-id = "openJobSocket"
        enabled = false

        [[operations]]
        include-path-regex = "^/v1/(operations|keys)/"
        parameters = {{ "path.id" = {{ dictionary = "numbers", probability = 0.8 }} }}
        "#
    )
}

/// One start of the fuzzer.
struct Run {
    python: PathBuf,
    config: PathBuf,
    base: String,
}

impl Run {
    /// Runs, expects no finding, and tells how many requests were made.
    async fn expect_clean(&self, key: &str, checks: &str, selection: &[String]) -> usize {
        let output = self.run(key, checks, selection).await;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}{complaint}");
        let count = printed.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse().ok());
        count.unwrap_or_else(|| panic!("the number of requests is not printed: {printed}"))
    }

    async fn run(&self, key: &str, checks: &str, selection: &[String]) -> Output {
        let is_soak = volume(0, 1) == 1;
        let seed = if is_soak { seed("fuzz") } else { 1 };
        let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
        let mut command = Command::new(&self.python);
        command
            .args(["-m", "schemathesis.cli", "--config-file"])
            .arg(&self.config)
            .arg("run")
            .arg(format!("{}/openapi.json", self.base))
            .args(["--header", &format!("Authorization: Bearer {key}")])
            .args(["--checks", checks, "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color"])
            .args(["--max-examples", &volume(12, 6000).to_string(), "--seed", &seed.to_string()])
            // Each seed is hypothesis' business; its own clock and heap are not the server's fault.
            .args(["--suppress-health-check", "all", "--request-timeout", "30"])
            .args(selection)
            .env("PYTHONPATH", &hooks)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SCHEMATHESIS_HOOKS", "fuzz_hooks")
            .current_dir(self.config.parent().expect("the file is in a directory"));
        let running = tokio::task::spawn_blocking(move || command.output());
        running.await.unwrap().expect("the interpreter can be started")
    }
}

/// Serves a document with one route, and answers 500 on it.
async fn broken_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let responses = json!({"200": {"description": "never"}, "500": {"description": "always"}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "broken", "version": "1"},
        "paths": {"/x": {"get": {"operationId": "x", "responses": responses}}},
    })
    .to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let is_document = request[..length].starts_with(b"GET /openapi.json");
            let (status, body) = if is_document { ("200 OK", document.as_str()) } else { ("500 Broken", "{}") };
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}")
}
