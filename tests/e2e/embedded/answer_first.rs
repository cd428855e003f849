//! The negative control of the kill rig: a server that answers before it commits, which only the embedded store can be
//! made to do.

use std::path::PathBuf;

use outlast_tests::chance::seed;
use outlast_tests::server::{Launch, Server};

use crate::accounting::{Accounting, lines};

/// Within this many kills the rig must have noticed.
const CONTROL_CYCLES_MAX: usize = 60;

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
