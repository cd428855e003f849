//! SYS: the k-th sync or write of the server fails with EIO, injected by strace, once or from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use outlast_tests::chance::volume;
use outlast_tests::http::{Client, Ending, ending};
use outlast_tests::server::{Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::trace::{Injection, first_injection, strace_is_installed};
use outlast_tests::wait::within;
use outlast_tests::workload::snapshot::read_jobs;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::text;

/// From the failed call to the end of the process.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a server may take to reach the k-th call under load, traced, on a busy machine.
const REACH_DEADLINE: Duration = Duration::from_secs(60);
const PUBLISHERS: usize = 4;

/// An acknowledged publish, with the time at which it was begun.
struct Acknowledged {
    job: String,
    begun: SystemTime,
}

// I-04, F04: after a failed sync no acknowledgement is given, the process ends, a restart has all that was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_ends_the_server_without_another_acknowledgement() {
    check_all("fdatasync,fsync", &[1, 2, 4, 9, 25]).await;
}

// I-04, F05: the same for a failed write.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_ends_the_server_without_another_acknowledgement() {
    check_all("pwrite64", &[1, 3, 12, 60, 200]).await;
}

async fn check_all(calls: &'static str, in_test: &[u32]) {
    assert!(strace_is_installed(), "strace is missing: `make test` installs it, or install the package strace");
    let in_soak: Vec<u32> = (1..=500).collect();
    let ordinals = if volume(0, 1) == 1 { &in_soak } else { in_test };
    let mut struck_under_load = 0;
    for &ordinal in ordinals {
        for sticky in [false, true] {
            let injection = Injection { calls, ordinal, sticky };
            let acknowledged = check(injection).await;
            println!("{injection:?}: {acknowledged} acknowledged before it");
            struck_under_load += usize::from(acknowledged > 0);
        }
    }
    assert!(struck_under_load > 0, "every error struck before the first publish: the rig proves nothing");
}

/// Runs one server into its error and judges it. Gives the number of publishes it had acknowledged.
async fn check(injection: Injection) -> usize {
    let launch = Launch::embedded();
    let log = launch.scratch().join("strace.log");
    let traced = launch.clone().wrapped_by(injection.wrapper(&log));
    let stopwatch = Stopwatch::start();

    let (acknowledged, status) = match traced.try_start().await {
        Err(early) => (Vec::new(), early.status),
        Ok(mut server) => {
            let acknowledged = publish_until_it_ends(&mut server).await;
            (acknowledged, server.exit_within(EXIT_DEADLINE).await)
        }
    };
    let (exited, withheld) = (SystemTime::now(), stopwatch.withheld());

    let struck = first_injection(&log).unwrap_or_else(|| panic!("{injection:?}: never reached, ended with {status}"));
    assert!(!status.success(), "{injection:?}: the exit status must tell, but is {status}");
    let taken = exited.duration_since(struck).unwrap_or_default();
    assert!(taken <= EXIT_DEADLINE + withheld, "{injection:?}: it took {taken:?} to end");
    for publish in &acknowledged {
        assert!(publish.begun <= struck, "{injection:?}: job {} was begun and acknowledged after it", publish.job);
    }

    let server = launch.start().await;
    let ids: Vec<String> = acknowledged.iter().map(|publish| publish.job.clone()).collect();
    let found = read_jobs(&server.client(), ids.clone()).await;
    let lost: Vec<&String> = ids.iter().filter(|id| !found.contains_key(*id)).collect();
    assert!(lost.is_empty(), "{injection:?}: acknowledged and gone after a restart: {lost:?}");
    acknowledged.len()
}

/// Publishes until the process is gone. A refusal does not stop a publisher: what comes after an error is the point.
async fn publish_until_it_ends(server: &mut Server) -> Vec<Acknowledged> {
    let client = Client::with_timeout(&server.base, &server.launch().key, EXIT_DEADLINE);
    let _ = client.put("/v1/queues/work", json!({})).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut publishers = JoinSet::new();
    for _ in 0..PUBLISHERS {
        publishers.spawn(publish_until(client.clone(), Arc::clone(&stop)));
    }

    let reached = within(REACH_DEADLINE, publishers.join_next()).await;
    stop.store(true, Ordering::SeqCst);
    let first = reached.expect("the server ends when its call fails").expect("there are publishers").unwrap();
    let others = publishers.join_all().await;
    others.into_iter().chain([first]).flatten().collect()
}

/// Ends with the first answer that is lost.
async fn publish_until(client: Client, stop: Arc<AtomicBool>) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let begun = SystemTime::now();
        let answer = client.post("/v1/queues/work/jobs", json!({"payload": "x".repeat(200)})).await;
        match (ending(&answer), answer) {
            (Ending::Acknowledged, Ok(reply)) => {
                let job = text(&reply.body["id"]);
                acknowledged.push(Acknowledged { job, begun });
            }
            (_, Err(_lost)) => return acknowledged,
            _ => {}
        }
    }
    acknowledged
}
