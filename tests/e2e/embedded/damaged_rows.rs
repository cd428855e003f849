//! Damage inside the database: a start without flags, a start with `--accept-loss`, and what the
//! doctor says about it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use rusqlite::Connection;
use serde_json::json;

use crate::api::{make_queue, publish, receive, text};
use crate::cli::Cli;

const JOBS: usize = 40;

/// A store that was stopped: two queues with jobs, and a key that may read.
struct Stopped {
    launch: Launch,
    key: String,
    jobs: Vec<String>,
}

impl Stopped {
    async fn make() -> Stopped {
        let launch = Launch::embedded();
        let mut server = launch.start().await;
        let client = server.client();
        let mut jobs = Vec::new();
        for queue in ["mail", "other"] {
            make_queue(&client, queue, json!({})).await;
            for number in 0..JOBS {
                jobs.push(publish(&client, queue, json!({"number": number, "text": "word ".repeat(100)})).await);
            }
        }
        let request = json!({"name": "reader", "scopes": ["read"]});
        let key = text(&client.post("/v1/keys", request).await.unwrap().expect(201)["key"]);
        assert!(server.terminate().await.success());
        Stopped { launch, key, jobs }
    }

    /// As a careless hand would: past the checksum.
    fn change(&self, sql: &str) {
        let connection = Connection::open(self.launch.data.join("outlast.db")).unwrap();
        assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }

    /// Overwrites the page of the table that has the most rows in it, and gives its number.
    fn break_leaf(&self, table: &str) -> i64 {
        let path = self.launch.data.join("outlast.db");
        let connection = Connection::open(&path).unwrap();
        let root = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{table}'");
        let root: i64 = connection.query_row(&root, [], |row| row.get(0)).unwrap();
        drop(connection);
        overwrite_page(&path, root);
        root
    }

    fn doctor(&self) -> String {
        Cli::without_server(&self.launch).run(&["doctor", "--data", self.launch.data.to_str().unwrap()]).out
    }
}

fn overwrite_page(path: &Path, number: i64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0x5a; 4096], (number as u64 - 1) * 4096).unwrap();
}

fn kept(launch: &Launch) -> Vec<String> {
    let names = fs::read_dir(&launch.data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("outlast.db.lost-")).collect()
}

// I-06: one key is damaged: that one does not work, everything else does, and the doctor names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_key_does_not_work_and_nothing_else_is_affected() {
    let stopped = Stopped::make().await;
    stopped.change("UPDATE api_key SET scopes = '[\"admin\"]' WHERE name = 'reader'");

    assert!(stopped.doctor().contains("api_key row"), "{}", stopped.doctor());
    let server = stopped.launch.start().await;
    let refused = Client::new(&server.base, &stopped.key).get("/v1/queues").await.unwrap();

    assert_eq!(refused.status, 401, "{}", refused.body);
    assert_eq!(receive(&server.client(), "mail", json!({"batch": 3})).await.len(), 3);
    let metrics = text(&server.client().get("/metrics").await.unwrap().expect(200));
    assert!(metrics.lines().any(|line| line == "outlast_damaged_rows 1"), "{metrics}");
    assert!(server.log().contains("api_key row"), "{}", server.log());
}

// I-06: nothing can be decided about the jobs of a damaged queue: a start says so, and goes on without it only on
// request.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_queue_is_refused_and_left_out_on_request() {
    let stopped = Stopped::make().await;
    stopped.change("UPDATE queue SET paused = 1 WHERE name = 'mail'");

    let refused = stopped.launch.try_start().await.err().expect("the start is refused");
    assert!(refused.log.contains("queue row") && refused.log.contains("--accept-loss"), "{}", refused.log);
    assert!(stopped.doctor().contains("queue row"), "{}", stopped.doctor());
    assert!(kept(&stopped.launch).is_empty());
    let mut server = stopped.launch.clone().with_flag("--accept-loss").start().await;
    let client = server.client();

    assert_eq!(client.get("/v1/queues/mail").await.unwrap().status, 404);
    assert_eq!(receive(&client, "other", json!({"batch": 3})).await.len(), 3);
    let log = server.log();
    assert!(log.contains("going on with what can be read") && log.contains("outlast.db.lost-"), "{log}");
    make_queue(&client, "mail", json!({})).await;
    assert!(receive(&client, "mail", json!({"batch": 3})).await.is_empty(), "a new queue has no jobs of an old one");
    publish(&client, "mail", json!("new")).await;
    assert!(server.terminate().await.success());
    assert_eq!(kept(&stopped.launch).len(), 1);
    let server = stopped.launch.start().await;
    assert_eq!(receive(&server.client(), "mail", json!({"batch": 3})).await.len(), 1, "without the flag");
}

// I-06: the way to all jobs is gone. A start says so; on request it goes on with what is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_read_is_refused_and_left_out_on_request() {
    let stopped = Stopped::make().await;
    stopped.break_leaf("spec");

    let refused = stopped.launch.try_start().await.err().expect("the start is refused");
    assert!(refused.log.contains("spec") && refused.log.contains("--accept-loss"), "{}", refused.log);
    assert!(stopped.doctor().contains("spec"), "{}", stopped.doctor());
    let mut server = stopped.launch.clone().with_flag("--accept-loss").start().await;
    let client = server.client();

    for id in &stopped.jobs {
        client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect_problem(500, "data_damaged");
    }
    let id = publish(&client, "mail", json!("new")).await;
    assert!(!stopped.jobs.contains(&id), "the id of a lost job names another one");
    assert_eq!(text(&receive(&client, "mail", json!({"batch": 3})).await[0]["id"]), id);
    assert!(server.terminate().await.success());
    stopped.launch.start().await.client().get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
}

// I-06: the end of the file is gone. On request the server goes on with the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_cut_is_refused_and_its_beginning_goes_on_on_request() {
    let stopped = Stopped::make().await;
    let file = OpenOptions::new().write(true).open(stopped.launch.data.join("outlast.db")).unwrap();
    file.set_len(file.metadata().unwrap().len() * 7 / 8).unwrap();

    let refused = stopped.launch.try_start().await.err().expect("the start is refused");
    assert!(refused.log.contains("damaged") && refused.log.contains("--accept-loss"), "{}", refused.log);
    let mut server = stopped.launch.clone().with_flag("--accept-loss").start().await;
    let client = server.client();

    for id in &stopped.jobs {
        let reply = client.get(&format!("/v1/jobs/{id}")).await.unwrap();
        assert!(reply.status == 200 || reply.code() == "data_damaged", "{}", reply.body);
    }
    // The queues stand at the beginning of the file.
    publish(&client, "mail", json!("new")).await;
    assert!(server.terminate().await.success());
    stopped.launch.start().await;
}

// The page that names all tables is damaged: only a backup helps, and the start says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_its_first_page_is_beyond_help() {
    let stopped = Stopped::make().await;
    overwrite_page(&stopped.launch.data.join("outlast.db"), 1);

    let launch = stopped.launch.clone().with_flag("--accept-loss");
    let refused = launch.try_start().await.err().expect("the start is refused");

    assert!(refused.log.contains("restore a backup"), "{}", refused.log);
    let doctor = stopped.doctor();
    assert!(doctor.contains("fail"), "{doctor}");
}
