//! Starts: several nodes at once on an empty database, a schema from the future, one node after the other under load.

use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::history::{self, Answer};
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::server::Launch;
use outlast_tests::wait;
use serde_json::json;

use crate::accounting::Accounting;
use crate::api::{job, make_queue, publish};
use crate::cluster::{blocking, clients, three_nodes};

/// More than anybody starts at once.
const RACERS: usize = 6;
const DEADLINE: Duration = Duration::from_secs(30);
/// A number that no release has reached.
const FUTURE: u32 = 9999;

// The schema is made once, whichever node is first.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_started_at_once_on_an_empty_database_all_come_up() {
    for _ in 0..volume(3, 50) {
        let launch = Launch::on_database(Postgres::shared().database(), None, RACERS);

        let server = launch.start().await;

        let nodes = clients(&server);
        make_queue(&nodes[0], "work", json!({})).await;
        for (number, node) in nodes.iter().enumerate() {
            let id = publish(node, "work", json!(number)).await;
            assert_eq!(job(&nodes[(number + 1) % RACERS], &id).await["payload"], json!(number));
        }
    }
}

// However many nodes start at once without a key of the operator's, they make one, and one of them knows it.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_started_at_once_on_an_empty_database_make_one_admin_key() {
    const STARTS: usize = 8;
    for trial in 0..volume(4, 30) {
        let launch = Launch::on_database(Postgres::shared().database(), None, STARTS).with_env("OUTLAST_ADMIN_KEY", "");

        let server = launch.start().await;

        let database = launch.database().expect("a node has a database");
        let keys = blocking(|| database.psql("SELECT count(*) FROM api_key"));
        assert_eq!(keys.trim(), "1", "trial {trial}");
        let known: Vec<String> = (0..STARTS).filter_map(|node| launch.admin_key_file(node)).collect();
        assert_eq!(known.len(), 1, "trial {trial}: {known:?}");
        for node in &server.nodes {
            let client = Client::new(&node.base, &known[0]);
            wait::until("the key to be known here", DEADLINE, async || {
                (client.get("/v1/keys").await.unwrap().status == 200).then_some(())
            })
            .await;
        }
    }
}

// An older binary leaves a newer schema alone and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused_and_left_alone() {
    let launch = Launch::on_database(Postgres::shared().database(), None, 1);
    let mut server = launch.start().await;
    make_queue(&server.client(), "work", json!({})).await;
    assert!(server.terminate().await.success());
    let database = launch.database().expect("a node has a database");
    let raise = format!("INSERT INTO outlast_schema (number, name) VALUES ({FUTURE}, 'future')");
    blocking(|| database.psql(&raise));
    let before = blocking(|| database.dump());

    let refused = launch.try_start().await.err().expect("a newer schema is refused");

    assert!(!refused.status.success(), "{}", refused.status);
    assert!(refused.log.contains(&FUTURE.to_string()), "it names what it found: {}", refused.log);
    assert!(refused.log.contains("newer"), "it says what is wrong: {}", refused.log);
    assert_eq!(blocking(|| database.dump()), before, "nothing was touched");
    blocking(|| database.psql(&format!("DELETE FROM outlast_schema WHERE number = {FUTURE}")));
    launch.start().await;
}

// I-31, I-40: each node is stopped in order and started again under load. A client that repeats a call whose answer it
// lost notices nothing else, and no attempt is charged: the leases outlast the test, so the accounting would show a
// charge.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_is_not_noticed_by_clients_that_retry() {
    let mut accounting = Accounting::open_to_go_on(three_nodes(), seed("rolling")).await;
    let mut restarts = 0;
    accounting
        .during(async |server, _| {
            for _ in 0..volume(2, 50) {
                for number in 0..server.nodes.len() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    server.leave_out(number);
                    let status = server.nodes[number].terminate().await;
                    assert!(status.success(), "node {number} ended with {status}");
                    server.start_node_again(number).await;
                    restarts += 1;
                }
            }
        })
        .await;

    assert_eq!(restarts % 3, 0);
    accounting.assert_sound("rolling").await;
    let operations = accounting.history();
    assert_eq!(history::server_errors(&operations), Vec::<&str>::new());
    let mut refusals: Vec<String> = Vec::new();
    for operation in &operations {
        if let Answer::Refused { status, code } = &operation.answer
            && *status >= 429
        {
            refusals.push(format!("{status} {code}"));
        }
    }
    assert_eq!(refusals, Vec::<String>::new(), "of {} calls", operations.len());
}
