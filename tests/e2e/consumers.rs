//! The consumers of docs/how-to/receive-webhooks.md, run as the page says, on the configuration that it shows: a signed webhook comes in,
//! the consumer prints and acks what came of it, and the queue is empty.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::Timestamp;
use outlast_engine::inbound::verify::{Outgoing, Scheme, TOLERANCE, Verifier};
use outlast_tests::chance::volume;
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{dead, text};
use crate::programs::{Running, clean_command, example, printed_by, python};

const CONFIG: &str = include_str!("../../examples/receive-webhooks/outlast.yaml");
const EVENT: &str = include_str!("../../examples/receive-webhooks/event.json");
const SECRET: &str = "whsec_what_stripe_would_have_told";
const QUEUE_KEY: &str = "key-of-the-billing-queue";
/// As the configuration has it.
const MAX_ATTEMPTS: usize = 5;
/// An interpreter starts and takes a handful of messages well within this on two busy cores.
const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_python_consumer_takes_what_a_webhook_brought() {
    check_consumer(async |_: &Server| program(&python(), "consumer.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_consumer_takes_what_a_webhook_brought() {
    check_consumer(async |server: &Server| {
        let built = server.launch().scratch().join("consumer-ts");
        // With everything that TypeScript can complain of: the page must not show types that are wrong.
        let mut compile = clean_command(&tests().join("node_modules/.bin/tsc"));
        compile
            .current_dir(tests())
            .args(["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]);
        compile.arg("--outDir").arg(&built).arg(receiver("consumer.mts"));
        tokio::task::spawn_blocking(move || printed_by(&mut compile, b"")).await.unwrap();
        let mut command = clean_command(Path::new("node"));
        command.arg(built.join("consumer.mjs"));
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ruby_consumer_takes_what_a_webhook_brought() {
    if is_soak("ruby") {
        check_consumer(async |_: &Server| program(Path::new("ruby"), "consumer.rb")).await;
    }
}

// Built first: `go run` would leave the consumer behind when it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn the_go_consumer_takes_what_a_webhook_brought() {
    if is_soak("go") {
        check_consumer(async |server: &Server| {
            let scratch = server.launch().scratch();
            let built = scratch.join("consumer");
            let mut build = clean_command(Path::new("go"));
            build
                .env("GOCACHE", scratch.join("go-cache"))
                .env("GOPATH", scratch.join("go"))
                .env("GOTOOLCHAIN", "local");
            build.args(["build", "-o"]).arg(&built).arg(receiver("consumer.go"));
            tokio::task::spawn_blocking(move || printed_by(&mut build, b"")).await.unwrap();
            clean_command(&built)
        })
        .await;
    }
}

/// Go and Ruby are installed by `make soak` only; there they must be.
fn is_soak(language: &str) -> bool {
    let is_soak = volume(0, 1) == 1;
    if !is_soak {
        println!("not run: the consumer in {language} is tried by `make soak`");
    }
    is_soak
}

/// Where the packages of npm are that `make test` installs.
fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn receiver(name: &str) -> PathBuf {
    example("receive-webhooks").join(name)
}

fn program(interpreter: &Path, name: &str) -> Command {
    let mut command = clean_command(interpreter);
    command.arg(receiver(name));
    command
}

/// One event that the consumer handles, one that the filter leaves out, and one that it fails on until it is dead.
async fn check_consumer(command: impl AsyncFn(&Server) -> Command) {
    let launch = Launch::fresh().with_config(CONFIG);
    let launch = launch.with_env("STRIPE_WEBHOOK_SECRET", SECRET).with_env("QUEUE_API_KEY", QUEUE_KEY);
    let server = launch.start().await;
    let client = server.client();
    let mut command = command(&server).await;
    let consumer =
        Running::start(command.arg("billing").env("OUTLAST_URL", &server.base).env("OUTLAST_KEY", QUEUE_KEY));

    let good = send(&client, "evt_good", |_| {}).await;
    let small = send(&client, "evt_small", |event| event["data"]["object"]["amount_due"] = json!(999)).await;
    let bad = send(&client, "evt_bad", |event| event["data"]["object"]["customer"] = json!(null)).await;

    assert_eq!(
        (&good["jobs_created"], &small["jobs_created"], &bad["jobs_created"]),
        (&json!(1), &json!(0), &json!(1))
    );
    consumer.line(&format!("done {} invoice.paid", text(&good["event_id"]))).await;
    let failed = format!("failed {}:", text(&bad["event_id"]));
    wait::until_now("the last attempt", DEADLINE, || (consumer.count(&failed) == MAX_ATTEMPTS).then_some(())).await;
    let queue = client.get("/v1/queues/billing").await.unwrap().expect(200);
    let counts = &queue["counts"];
    for (status, count) in [("queued", 0), ("pending", 0), ("running", 0), ("succeeded", 1), ("failed", 1)] {
        assert_eq!(counts[status], json!(count), "{status}: {queue}");
    }
    assert_eq!(dead(&client, "billing").await.len(), 1);
    assert_eq!(consumer.lines().len(), 1 + MAX_ATTEMPTS, "{:#?}", consumer.lines());
}

/// Posts the event of the page, changed and under an id of its own, as Stripe does. Gives the answer.
async fn send(client: &Client, id: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut event: Value = serde_json::from_str(EVENT).unwrap();
    event["id"] = json!(id);
    change(&mut event);
    let body = event.to_string();
    let verifier = Verifier::new(Scheme::Stripe, &[SECRET], TOLERANCE).unwrap();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Timestamp::from_millis(since.as_millis().try_into().unwrap());
    let content_type = "application/json";
    let outgoing = Outgoing { url: "", id: "", content_type, body: body.as_bytes(), now };
    let signed = verifier.sign(&outgoing).unwrap();

    let mut request = client.keyless(Method::POST, "/webhook/stripe").header("content-type", content_type);
    for (name, value) in &signed.headers {
        request = request.header(name, value);
    }
    client.send(request.body(body)).await.unwrap().expect(200)
}
