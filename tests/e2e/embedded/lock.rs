//! I-07: one data directory, one process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use outlast_tests::chance::volume;
use outlast_tests::server::Launch;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{job, make_queue, publish};

const RACERS: usize = 5;

// I-07, F10: a second start on a directory in use ends at once, and not one byte under it has moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_is_refused_and_touches_nothing() {
    let launch = Launch::embedded();
    let server = launch.start().await;
    make_queue(&server.client(), "work", json!({})).await;
    let id = publish(&server.client(), "work", json!(1)).await;
    let before = fingerprint(&launch.data);

    let second = launch.try_start().await;

    let refused = second.err().expect("the directory is in use");
    assert!(!refused.status.success(), "the exit status must tell, but is {}", refused.status);
    assert_eq!(changed(&before, &fingerprint(&launch.data)), Vec::<&PathBuf>::new());
    assert_eq!(job(&server.client(), &id).await["id"], id);
}

// I-07: a symbolic link is another name for the same directory, not a way around the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_through_a_link_is_refused() {
    let launch = Launch::embedded();
    let _server = launch.start().await;
    let link = launch.scratch().join("link");
    std::os::unix::fs::symlink(&launch.data, &link).unwrap();

    let second = launch.clone().on(&link).try_start().await;

    assert!(second.is_err_and(|refused| !refused.status.success()));
}

// I-07: of several starts at once exactly one lives, on a fresh directory and on one left by kill -9.
#[tokio::test(flavor = "multi_thread")]
async fn of_racing_starts_exactly_one_lives() {
    let launch = Launch::embedded();
    for round in 0..volume(4, 40) {
        let mut racing = JoinSet::new();
        for _ in 0..RACERS {
            let launch = launch.clone();
            racing.spawn(async move { launch.try_start().await });
        }

        let (mut winners, mut losers) = (Vec::new(), Vec::new());
        for result in racing.join_all().await {
            match result {
                Ok(server) => winners.push(server),
                Err(refused) => losers.push(refused),
            }
        }

        assert_eq!(winners.len(), 1, "round {round}: losers {losers:?}");
        assert!(losers.iter().all(|refused| !refused.status.success()), "round {round}: {losers:?}");
        let winner = &mut winners[0];
        let client = winner.client();
        make_queue(&client, "work", json!({})).await;
        publish(&client, "work", json!(round)).await;
        winner.kill9().await;
    }
}

type Fingerprint = BTreeMap<PathBuf, (SystemTime, Vec<u8>)>;

/// Names that are new, gone, or not the same.
fn changed<'a>(before: &'a Fingerprint, after: &'a Fingerprint) -> Vec<&'a PathBuf> {
    let names = before.keys().chain(after.keys());
    names.filter(|name| before.get(*name) != after.get(*name)).collect()
}

/// Time and content of every file below `root`.
fn fingerprint(root: &Path) -> Fingerprint {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                left.push(path);
                continue;
            }
            let content = fs::read(&path).unwrap();
            found.insert(path, (meta.modified().unwrap(), content));
        }
    }
    assert!(!found.is_empty(), "a data directory has files");
    found
}
