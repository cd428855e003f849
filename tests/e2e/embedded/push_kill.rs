//! K9 with push: kill -9 of the real server while it delivers, again and again, and everything accounted for at the
//! sink.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::deliveries::Account;
use outlast_tests::server::Launch;

use crate::embedded::answer_first::unsafe_server;
use crate::push_load::{PushLoad, assert_sound, endings, pushing};

/// Kills on one directory before it is judged; a soak does many such blocks.
const CYCLES_PER_BLOCK: usize = 25;
/// A block with fewer jobs means nothing: on a slow machine the rig goes on until it has them, for so many times the kills.
const JOBS_PER_CYCLE: usize = 10;
const CYCLES_FACTOR_MAX: usize = 6;
const PUBLISHERS: u64 = 6;
const PAUSE: Duration = Duration::from_millis(40);
/// Within this many kills the rig must have noticed.
const CONTROL_CYCLES_MAX: usize = 60;

// I-01, I-17, I-19, I-27, I-28, F01, F27: every acknowledged job ends delivered or failed with evidence, whenever the
// server dies; no callback is missing or contradicts another; no request without an attempt that was charged or free.
#[tokio::test(flavor = "multi_thread")]
async fn every_job_ends_delivered_or_failed_with_evidence_under_kill_9() {
    let seed = seed("K9 push");
    for block in 0..volume(1, 400) {
        let account =
            kill_again_and_again(pushing(Launch::embedded()), seed.wrapping_add(block as u64), CYCLES_PER_BLOCK).await;

        assert_sound("K9 push", &account);
        let endings = endings(&account);
        for ending in ["acked", "nacked", "deferred", "unknown"] {
            assert!(endings.contains_key(ending), "no attempt ended as {ending}: {endings:?}");
        }
        assert!(account.jobs.len() >= JOBS_PER_CYCLE * CYCLES_PER_BLOCK, "too few jobs to mean anything");
        println!(
            "K9 push: {} delivered again after a 200, {} callbacks sent again",
            repeated(&account),
            retold(&account)
        );
    }
}

// I-17, negative control: a server that answers itself before it commits sends what it will not remember.
#[tokio::test(flavor = "multi_thread")]
async fn the_push_rig_finds_the_requests_of_a_server_that_sends_first() {
    let seed = seed("K9 push control");
    let mut cycles = 0;
    while cycles < CONTROL_CYCLES_MAX {
        cycles += 10;
        let launch = pushing(Launch::of(unsafe_server())).with_env("OUTLAST_TEST_DURABILITY", "answer-first");
        let account = kill_again_and_again(launch, seed.wrapping_add(cycles as u64), 10).await;
        let violations = account.violations();
        if let Some(first) = violations.first() {
            return println!("K9 push control: {} found within {cycles} kills: {first:.120}", violations.len());
        }
    }
    panic!("{CONTROL_CYCLES_MAX} kills of a server that sends first, and the rig saw nothing: the rig is blind");
}

async fn kill_again_and_again(launch: Launch, seed: u64, cycles: usize) -> Account {
    let mut chance = Chance::seeded(!seed);
    let mut server = launch.start().await;
    let mut load = PushLoad::open(server.client(), seed).await;
    load.publish(PUBLISHERS, PAUSE);
    let jobs = cycles * JOBS_PER_CYCLE;
    for cycle in 0..cycles * CYCLES_FACTOR_MAX {
        if cycle >= cycles && load.published() >= jobs {
            break;
        }
        // Not a wait for anything: the moment of the crash is the random input of the rig.
        tokio::time::sleep(Duration::from_millis(chance.between(5, 500))).await;
        server.kill9().await;
        assert!(!server.is_running());
        server = launch.start().await;
        load.speak_to(server.client());
    }
    load.finish(&server.client()).await
}

/// F27: requests for a job that the sink had said 200 to already.
fn repeated(account: &Account) -> usize {
    let mut done = BTreeSet::new();
    let again = account.deliveries.iter().filter(|arrival| match arrival.answered {
        Some(200) => !done.insert(arrival.job.as_str()),
        _ => done.contains(arrival.job.as_str()),
    });
    again.count()
}

fn retold(account: &Account) -> usize {
    let jobs: BTreeSet<&str> = account.callbacks.iter().map(|arrival| arrival.job.as_str()).collect();
    account.callbacks.len() - jobs.len()
}
