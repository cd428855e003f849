//! K9 on nodes: kill -9 of one node after another under a mixed load through the balancer, with client-side accounting.

use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::history::{self, Rule};

use crate::accounting::Accounting;
use crate::cluster::{blocking, three_nodes};

/// Kills on one database before it is judged; a soak does many such blocks.
const KILLS_PER_BLOCK: usize = 25;

// I-01, I-03, I-14, I-40: nothing acknowledged is lost and nothing is leased twice, whichever node dies and when.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_by_kill_9_of_nodes() {
    let seed = seed("K9 nodes");
    for block in 0..volume(1, 40) {
        let mut accounting = Accounting::open_to_go_on(three_nodes(), seed.wrapping_add(block as u64)).await;
        let mut kills = 0;
        accounting
            .during(async |server, chance| {
                for _ in 0..KILLS_PER_BLOCK {
                    // Not a wait for anything: the moment of the crash is the random input of the rig.
                    tokio::time::sleep(Duration::from_millis(chance.between(5, 300))).await;
                    let victim = chance.below(server.nodes.len() as u64) as usize;
                    server.kill_node(victim).await;
                    kills += usize::from(!server.nodes[victim].is_running());
                    server.start_node_again(victim).await;
                }
            })
            .await;

        assert_eq!(kills, KILLS_PER_BLOCK);
        accounting.assert_nothing_lost("K9 nodes").await;
        let operations = accounting.history();
        assert_eq!(history::server_errors(&operations), Vec::<&str>::new());
        let published = history::acknowledged(&operations)["publish"];
        assert!(published >= 10 * KILLS_PER_BLOCK, "only {published} publishes: too few to mean anything");
    }
}

// Negative control: the same rig on a database from which somebody takes a few jobs away must report them.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_rig_finds_jobs_that_the_database_has_lost() {
    let launch = three_nodes();
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("K9 nodes control")).await;
    accounting.during(async |_, _| tokio::time::sleep(Duration::from_millis(500)).await).await;

    let database = launch.database().expect("nodes share a database");
    blocking(|| {
        database.psql(
            "DELETE FROM job WHERE seq IN (SELECT job.seq FROM job JOIN queue ON queue.id = job.queue \
             WHERE queue.name = 'work' ORDER BY seq DESC LIMIT 5)",
        )
    });

    let violations = accounting.violations().await;
    assert!(violations.iter().any(|violation| violation.rule == Rule::PublishLost), "{violations:?}");
}
