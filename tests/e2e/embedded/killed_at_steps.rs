//! Killed at the k-th write, sync, truncation, rename or removal of a start, of a run with checkpoints, and of a clean stop,
//! counted by strace: what is left is never taken for damage, and everything acknowledged is there.

use std::fs;
use std::process::Command;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::server::Launch;
use outlast_tests::trace::{Death, strace_is_installed};
use outlast_tests::workload::snapshot::read_jobs;
use serde_json::json;

use crate::api::text;

/// The calls, and about as many of them as a thread makes in a start, or under the load and in the stop.
const CALLS: [(&str, u64); 4] = [("pwrite64", 40), ("fdatasync,fsync", 7), ("ftruncate", 2), ("rename,unlink", 2)];
const EXIT_DEADLINE: Duration = Duration::from_secs(60);

// I-01, I-06: the state file is true behind every step, so a kill raises no false alarm.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_step_of_start_and_stop_the_next_start_has_everything() {
    assert!(strace_is_installed(), "strace is missing: `make test` installs it, or install the package strace");
    let launch = Launch::embedded();
    let mut chance = Chance::seeded(seed("killed at steps"));
    let mut acknowledged = Vec::new();
    let mut deaths = 0;
    for _ in 0..volume(40, 1500) {
        let (calls, last) = CALLS[usize::try_from(chance.below(4)).unwrap()];
        let death = Death { calls, ordinal: u32::try_from(chance.between(1, last)).unwrap() };
        let traced = launch.clone().wrapped_by(death.wrapper(&launch.scratch().join("strace.log")));
        match traced.try_start().await {
            Err(early) => {
                assert!(!early.log.contains("acknowledged data may be lost"), "after {deaths} deaths: {}", early.log);
                deaths += 1;
            }
            Ok(mut server) => {
                let client = server.client();
                let _ = client.put("/v1/queues/work", json!({})).await;
                for _ in 0..chance.below(6) {
                    if let Ok(reply) = client.post("/v1/queues/work/jobs", json!({"payload": 1})).await
                        && reply.status == 202
                    {
                        acknowledged.push(text(&reply.body["id"]));
                    }
                }
                ask_to_stop(server.nodes[0].process_id());
                let status = server.exit_within(EXIT_DEADLINE).await;
                deaths += usize::from(!status.success());
            }
        }
    }

    let server = launch.start().await;
    let found = read_jobs(&server.client(), acknowledged.clone()).await;
    println!("killed at steps: {deaths} deaths, {} jobs acknowledged", acknowledged.len());
    assert_eq!(found.len(), acknowledged.len());
    assert!(deaths > 0 && !acknowledged.is_empty(), "the rig proves nothing");
}

/// SIGTERM to the server alone: strace would let go of it and leave.
fn ask_to_stop(strace: u32) {
    let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap_or_default();
    for server in children.split_whitespace() {
        let _ = Command::new("kill").args(["-s", "TERM", server]).status();
    }
}
