//! The database itself fails: stopped without a word and started again, or all its connections ended, under load.

use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};

use crate::accounting::{Accounting, lines};
use crate::cluster::{blocking, clients, until_it_publishes};

/// From the moment the database takes connections to an acknowledged publish on every node. (F17)
const RECOVERY_DEADLINE: Duration = Duration::from_secs(30);
/// Ends of all connections, one after the other.
const TERMINATIONS: usize = 20;
/// With commits that are not waited for, a stop loses some nearly always; within this many the rig must have noticed.
const CONTROL_STOPS_MAX: usize = 10;

// I-01, I-03, F17: nothing acknowledged is lost when the database stops at once and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_when_the_database_stops_at_once() {
    let mut postgres = blocking(Postgres::start);
    let mut accounting = Accounting::open_to_go_on(cluster_on(&postgres), seed("database stops")).await;
    let stops = volume(3, 100);
    accounting
        .during(async |server, chance| {
            for stop in 0..stops {
                // Not waits for anything: the moment and the length of the outage are the random input of the rig.
                tokio::time::sleep(Duration::from_millis(chance.between(200, 800))).await;
                blocking(|| postgres.stop_immediate());
                assert!(!postgres.is_running());
                tokio::time::sleep(Duration::from_millis(chance.between(0, 2500))).await;
                blocking(|| postgres.start_again());
                let slowest = recover(server).await;
                println!("database stops: {stop}: all nodes publish {slowest:?} after it is back");
            }
        })
        .await;

    assert_eq!(postgres.log().matches("automatic recovery in progress").count(), stops);
    accounting.assert_sound("database stops").await;
}

// I-01, F17, negative control: the same rig on a database that answers before its log is on disk must report losses.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_rig_finds_the_losses_of_commits_that_were_not_waited_for() {
    let mut postgres = blocking(|| Postgres::start_with("wal_writer_delay = 10s\n"));
    let launch = cluster_on(&postgres);
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("database control")).await;
    // Behind the back of the nodes, which looked when they started.
    let database = launch.database().expect("nodes share a database");
    blocking(|| database.psql(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name)));
    blocking(|| database.terminate_connections());
    for stop in 1..=CONTROL_STOPS_MAX {
        accounting
            .during(async |server, _| {
                tokio::time::sleep(Duration::from_millis(700)).await;
                blocking(|| postgres.stop_immediate());
                blocking(|| postgres.start_again());
                recover(server).await;
            })
            .await;
        let violations = accounting.violations().await;
        if !violations.is_empty() {
            println!("database control: {} found after {stop} stops:\n{}", violations.len(), lines(&violations));
            return;
        }
    }
    panic!("{CONTROL_STOPS_MAX} stops of a database that forgets, and the rig saw no loss: the rig is blind");
}

// I-01, I-03, F19: the same when all connections are ended again and again.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_when_all_connections_are_ended() {
    let launch = Launch::on_database(Postgres::shared().database(), Some(Redis::shared()), CLUSTER_NODES);
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("connections ended")).await;
    let database = launch.database().expect("nodes share a database");
    let mut ended = 0;
    accounting
        .during(async |server, chance| {
            for _ in 0..volume(TERMINATIONS, 1000) {
                tokio::time::sleep(Duration::from_millis(chance.between(50, 200))).await;
                ended += blocking(|| database.terminate_connections());
            }
            recover(server).await;
        })
        .await;

    assert!(ended >= TERMINATIONS, "only {ended} connections were ended");
    println!("connections ended: {ended}");
    accounting.assert_sound("connections ended").await;
}

fn cluster_on(postgres: &Postgres) -> Launch {
    Launch::on_database(blocking(|| postgres.database()), Some(Redis::shared()), CLUSTER_NODES)
}

/// Waits until every node publishes; the time of the slowest.
async fn recover(server: &Server) -> Duration {
    let mut slowest = Duration::ZERO;
    for client in clients(server) {
        slowest = slowest.max(until_it_publishes(&client, "probe", RECOVERY_DEADLINE).await);
    }
    slowest
}
