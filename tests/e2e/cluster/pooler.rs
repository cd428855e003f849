//! A transaction pooler between the nodes and PostgreSQL, which hands a connection to somebody else after each
//! transaction and knows nothing of prepared statements.

use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::history;
use outlast_tests::pgbouncer::PgBouncer;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};

use crate::accounting::Accounting;
use crate::cluster::blocking;

/// Far fewer than the nodes have clients, so that they must share.
const POOL: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_through_a_transaction_pooler() {
    let postgres = Postgres::shared();
    let (database, pooler) = blocking(|| (postgres.database(), PgBouncer::before(postgres, POOL)));
    let (name, url) = (database.name.clone(), database.url_through(&pooler.address()));
    let launch = Launch::on_database(database, Some(Redis::shared()), CLUSTER_NODES);
    let launch = launch.with_env("OUTLAST_DATABASE_URL", &url);
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("pooler")).await;

    let milliseconds = volume(3_000, 600_000) as u64;
    accounting.during(async |_, _| tokio::time::sleep(Duration::from_millis(milliseconds)).await).await;

    let direct = launch.database().expect("nodes share a database");
    let connected = blocking(|| {
        direct.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
    });
    let clients = pooler.log().matches(&format!("login attempt: db={name}")).count();
    println!("pooler: {clients} clients on {connected} connections");
    assert!(connected.parse::<usize>().unwrap() <= POOL, "{connected} connections");
    assert!(clients > POOL, "only {clients} clients: no connection was shared");
    accounting.assert_sound("pooler").await;
    assert_eq!(history::server_errors(&accounting.history()), Vec::<&str>::new());
}
