//! The frame of the crash rigs: a mixed load runs, the server is struck at a random moment and started again, and in
//! the end every acknowledged operation is accounted for.

use std::time::Duration;

use outlast_tests::chance::Chance;
use outlast_tests::history::{self, Operation, Violation};
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::workload::Workload;

/// Sixteen publishers as the promise asks, and enough workers to end what they publish.
const PUBLISHERS: u64 = 16;
const WORKERS: u64 = 12;
/// No call of the load waits longer than a fraction of a second; beyond this the server is as good as gone.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Each kind of operation makes up at least this share of all, or the rig proves less than it says.
const SHARE_PERCENT_MIN: usize = 5;
/// Below this many operations chance alone may miss the share; then each kind must only have occurred.
const SHARE_SAMPLE_MIN: usize = 2_000;

const KINDS: [&str; 7] = ["publish", "ack", "nack", "defer", "cancel", "replay", "queue change"];

pub(crate) struct Accounting {
    launch: Launch,
    server: Server,
    workload: Workload,
    chance: Chance,
}

impl Accounting {
    pub(crate) async fn open(launch: Launch, seed: u64) -> Accounting {
        Accounting::with(Workload::new(seed, PUBLISHERS, WORKERS), launch, seed).await
    }

    /// For faults that leave a node to serve: actors that lose an answer continue.
    pub(crate) async fn open_to_go_on(launch: Launch, seed: u64) -> Accounting {
        Accounting::with(Workload::new(seed, PUBLISHERS, WORKERS).going_on(), launch, seed).await
    }

    async fn with(mut workload: Workload, launch: Launch, seed: u64) -> Accounting {
        let server = launch.start().await;
        workload.prepare(&server.client()).await;
        let chance = Chance::seeded(!seed);
        Accounting { launch, server, workload, chance }
    }

    /// One cycle: load, `crash` after 5 to 500 ms, start again on the same directory.
    pub(crate) async fn cycle<Crash: AsyncFnOnce(&mut Server)>(&mut self, crash: Crash) {
        let client = Client::with_timeout(&self.server.base, &self.launch.key, CALL_TIMEOUT);
        // Not a wait for anything: the moment of the crash is the random input of the rig.
        let moment = Duration::from_millis(self.chance.between(5, 500));
        let server = &mut self.server;
        let fault = async {
            tokio::time::sleep(moment).await;
            crash(server).await;
        };
        self.workload.run_until(&client, fault).await;
        self.server = self.launch.start().await;
    }

    /// Load while `fault` takes its course.
    pub(crate) async fn during<Fault: AsyncFnOnce(&mut Server, &mut Chance)>(&mut self, fault: Fault) {
        let client = Client::with_timeout(&self.server.base, &self.launch.key, CALL_TIMEOUT);
        let (server, chance) = (&mut self.server, &mut self.chance);
        self.workload.run_until(&client, fault(server, chance)).await;
    }

    /// Stops and starts the server in good order.
    pub(crate) async fn restart(&mut self) {
        self.server.terminate().await;
        self.server = self.launch.start().await;
    }

    /// Holds the whole history against what the server shows at this moment.
    pub(crate) async fn violations(&self) -> Vec<Violation> {
        let snapshot = self.workload.snapshot(&self.server.client()).await;
        history::check(&self.workload.history(), &snapshot)
    }

    /// So many publishes and some of every other kind were acknowledged.
    pub(crate) fn has_done(&self, publishes: usize) -> bool {
        let counts = history::acknowledged(&self.workload.history());
        KINDS.iter().all(|kind| counts.contains_key(kind))
            && counts.get("publish").is_some_and(|count| *count >= publishes)
    }

    /// The end of a rig: nothing broken, and enough of everything done to say so.
    pub(crate) async fn assert_nothing_lost(&self, rig: &str) {
        self.assert_sound(rig).await;
        assert_shares(&self.workload.history());
    }

    /// The same where the fault itself decides how often each kind gets through: some of each must have.
    pub(crate) async fn assert_sound(&self, rig: &str) {
        let counts = history::acknowledged(&self.workload.history());
        println!("{rig}: acknowledged {counts:?}");

        let violations = self.violations().await;
        let first = violations.first().map(|violation| history::about(&self.workload.history(), &violation.subject));
        let first = first.unwrap_or_default();
        assert!(violations.is_empty(), "{} violations:\n{}\n{first}", violations.len(), lines(&violations));
        for kind in KINDS {
            assert!(counts.contains_key(kind), "no {kind}: {counts:?}");
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn history(&self) -> Vec<Operation> {
        self.workload.history()
    }
}

fn assert_shares(operations: &[Operation]) {
    let counts = history::acknowledged(operations);
    let total: usize = KINDS.iter().filter_map(|kind| counts.get(kind)).sum();
    for kind in KINDS {
        let count = counts.get(kind).copied().unwrap_or(0);
        let least = if total < SHARE_SAMPLE_MIN { 1 } else { total * SHARE_PERCENT_MIN / 100 };
        assert!(count >= least, "only {count} of {total} are {kind}: {counts:?}");
    }
}

pub(crate) fn lines(violations: &[Violation]) -> String {
    let shown: Vec<String> = violations.iter().take(20).map(Violation::to_string).collect();
    shown.join("\n")
}
