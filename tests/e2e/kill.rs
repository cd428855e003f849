//! K9: kill -9 of the real server under a mixed load, again and again, with client-side accounting.

use std::path::PathBuf;

use outlast_tests::chance::{seed, volume};
use outlast_tests::history;
use outlast_tests::server::{Launch, Server};

use crate::accounting::{Accounting, lines};

/// Cycles on one directory before it is judged; a soak does many such blocks.
const CYCLES_PER_BLOCK: usize = 25;
/// The control server answers before it commits; within this many kills the rig must have noticed.
const CONTROL_CYCLES_MAX: usize = 60;

// I-01, I-03, F01: nothing acknowledged is lost by kill -9, be it a publish or any other write.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_by_kill_9() {
    let seed = seed("K9");
    for block in 0..volume(1, 400) {
        let mut accounting = Accounting::open(Launch::fresh(), seed.wrapping_add(block as u64)).await;
        for _ in 0..CYCLES_PER_BLOCK {
            accounting.cycle(Server::kill9).await;
        }

        accounting.assert_nothing_lost("K9").await;
        let operations = accounting.history();
        assert_eq!(history::server_errors(&operations), Vec::<&str>::new());
        let published = history::acknowledged(&operations)["publish"];
        assert!(published >= 10 * CYCLES_PER_BLOCK, "only {published} publishes: too few to mean anything");
    }
}

// I-01, negative control: the same rig on a server that answers before it commits must report losses.
#[tokio::test(flavor = "multi_thread")]
async fn the_kill_rig_finds_the_losses_of_a_server_that_answers_first() {
    let launch = Launch::of(unsafe_server()).with_env("OUTLAST_TEST_DURABILITY", "answer-first");
    let mut accounting = Accounting::open(launch, seed("K9 control")).await;
    for cycle in 1..=CONTROL_CYCLES_MAX {
        accounting.cycle(Server::kill9).await;
        let violations = accounting.violations().await;
        if !violations.is_empty() {
            println!("K9 control: {} found after {cycle} kills:\n{}", violations.len(), lines(&violations));
            return;
        }
    }
    panic!("{CONTROL_CYCLES_MAX} kills of a server that answers first, and the rig saw no loss: the rig is blind");
}

/// The server with its promise broken on purpose, built with these tests.
pub(crate) fn unsafe_server() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_outlast-unsafe"))
}
