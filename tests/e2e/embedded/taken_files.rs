//! Files that are removed or replaced under the running server; a server that is killed very often; and whose directory it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use outlast_tests::wait::within;
use outlast_tests::workload::snapshot::read_jobs;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, text};

/// Noticed within a second; the rest is for a busy machine.
const NOTICE_DEADLINE: Duration = Duration::from_secs(10);
const PUBLISHERS: usize = 4;

fn removed(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn replaced(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    fs::rename(copy, path).unwrap();
}

// I-06, F08: a server whose files are gone takes no more jobs: it ends, and the next start is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_files_are_taken_away_ends() {
    let injuries = [removed as fn(&Path), replaced];
    for (name, injure) in ["outlast.db", "outlast.db-wal", "outlast.state", "lock"]
        .into_iter()
        .flat_map(|name| injuries.map(|injure| (name, injure)))
    {
        let launch = Launch::embedded();
        let mut server = launch.start().await;
        make_queue(&server.client(), "work", json!({})).await;
        publish(&server.client(), "work", json!(1)).await;

        injure(&launch.data.join(name));

        let status = server.exit_within(NOTICE_DEADLINE).await;
        assert_eq!(status.code(), Some(1), "{name}");
        assert!(server.log().contains("removed or replaced under the running server"), "{name}: {}", server.log());
        if name != "lock" && !launch.data.join(name).exists() {
            assert!(
                launch.try_start().await.is_err_and(|early| early.log.contains("acknowledged data may be lost")),
                "{name}"
            );
        }
    }
}

// I-01, I-06: kills at any moment, also around checkpoints, are no damage: every next start has everything.
#[tokio::test(flavor = "multi_thread")]
async fn many_kills_raise_no_false_alarm() {
    let launch = Launch::embedded();
    let mut chance = Chance::seeded(seed("kills"));
    let payload = chance.text(200_000);
    let mut acknowledged = Vec::new();
    for _ in 0..volume(14, 400) {
        let mut server = launch.start().await;
        make_queue(&server.client(), "work", json!({})).await;
        let mut publishers = JoinSet::new();
        for _ in 0..PUBLISHERS {
            publishers.spawn(publish_until_killed(server.client(), payload.clone()));
        }
        let load = Duration::from_millis(chance.between(0, 3000));
        assert!(within(load, publishers.join_next()).await.is_none(), "publishers go on until the kill");
        server.kill9().await;
        acknowledged.extend(publishers.join_all().await.into_iter().flatten());
    }

    let server = launch.start().await;
    let found = read_jobs(&server.client(), acknowledged.clone()).await;
    println!("kills: {} jobs acknowledged", acknowledged.len());
    assert_eq!(found.len(), acknowledged.len());
}

async fn publish_until_killed(client: Client, payload: String) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while let Ok(reply) = client.post("/v1/queues/work/jobs", json!({ "payload": payload })).await {
        if reply.status == 202 {
            acknowledged.push(text(&reply.body["id"]));
        }
    }
    acknowledged
}

// T33: a directory that others may write, or that belongs to another user, is refused and stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_others_is_refused() {
    let launch = Launch::embedded();
    fs::create_dir(&launch.data).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&launch.data, Permissions::from_mode(mode)).unwrap();
        let refused = launch.try_start().await.err().expect("others may write it");
        assert!(refused.log.contains("can be written by other users"), "{}", refused.log);
        assert_eq!(fs::read_dir(&launch.data).unwrap().count(), 0, "nothing is made in it");
    }
    fs::set_permissions(&launch.data, Permissions::from_mode(0o700)).unwrap();
    let is_root = std::os::unix::fs::chown(&launch.data, Some(65_534), None).is_ok();
    if is_root {
        let refused = launch.try_start().await.err().expect("it belongs to another user");
        assert!(refused.log.contains("belongs to user 65534"), "{}", refused.log);
        std::os::unix::fs::chown(&launch.data, Some(0), None).unwrap();
    }

    let server = launch.start().await;
    make_queue(&server.client(), "work", json!({})).await;
    for entry in fs::read_dir(&launch.data).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_file()) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}
