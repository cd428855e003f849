//! The programs under examples/, run as a user would run them, against a real server.

use std::path::PathBuf;
use std::process::{Command, Output};

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use serde_json::json;

use crate::api::{dead, job, make_queue, publish};

// The simple form, with plain Python `requests`.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_consumer_works_through_a_queue() {
    let python = std::env::var("OUTLAST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    check_consumer(&python, "consumer-python/consumer.py").await;
}

// The simple form, with the `fetch` that is built into Node.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_consumer_works_through_a_queue() {
    check_consumer("node", "consumer-node/consumer.mjs").await;
}

/// Three good messages and one that always fails: the good ones succeed, the bad one is tried twice and dies.
async fn check_consumer(interpreter: &str, program: &str) {
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

async fn run(interpreter: &str, program: &str, client: &Client) -> Output {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(program);
    let mut command = Command::new(interpreter);
    command.arg(path).args(["mail", "--max", "5"]).env("OUTLAST_URL", &client.base).env("OUTLAST_KEY", &client.key);
    let interpreter = interpreter.to_owned();
    let running = tokio::task::spawn_blocking(move || command.output());
    let output = running.await.unwrap();
    output.unwrap_or_else(|error| panic!("cannot run {interpreter}: {error}"))
}
