//! K9: kill -9 of the real server under a mixed load, again and again, with client-side accounting.

use outlast_tests::chance::{seed, volume};
use outlast_tests::history;
use outlast_tests::server::{Launch, Server};

use crate::accounting::Accounting;

/// Cycles on one directory before it is judged; a soak does many such blocks.
const CYCLES_PER_BLOCK: usize = 25;
const CYCLES_MAX: usize = 10 * CYCLES_PER_BLOCK;
const PUBLISHES_PER_BLOCK: usize = 10 * CYCLES_PER_BLOCK;

// I-01, I-03, F01: nothing acknowledged is lost by kill -9, be it a publish or any other write.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_by_kill_9() {
    let seed = seed("K9");
    for block in 0..volume(1, 400) {
        let mut accounting = Accounting::open(Launch::fresh(), seed.wrapping_add(block as u64)).await;
        let mut cycles = 0;
        // On a slow machine a cycle gets less done, so there are more of them.
        while cycles < CYCLES_PER_BLOCK || !accounting.has_done(PUBLISHES_PER_BLOCK) && cycles < CYCLES_MAX {
            accounting.cycle(Server::kill9).await;
            cycles += 1;
        }

        accounting.assert_nothing_lost("K9").await;
        let operations = accounting.history();
        assert_eq!(history::server_errors(&operations), Vec::<&str>::new());
        let published = history::acknowledged(&operations)["publish"];
        assert!(published >= PUBLISHES_PER_BLOCK, "only {published} publishes: too few to mean anything");
    }
}
