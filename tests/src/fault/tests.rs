//! The faults strike as they say, on a real PostgreSQL where that matters.

use std::time::Instant;

use tokio_postgres::{Client, NoTls};

use super::*;
use crate::postgres::{Database, Postgres};

async fn connect(database: &Database, proxy: &FaultProxy) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&database.url_through(&proxy.address), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_was_carried_out() {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    database.psql("CREATE TABLE kept (n int)");
    let client = connect(&database, &proxy).await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO kept VALUES (1); COMMIT").await.unwrap();

    proxy.lose_one_commit_in(1);
    let lost = client.batch_execute("BEGIN; INSERT INTO kept VALUES (2); COMMIT").await;
    let another = connect(&database, &proxy).await.unwrap();
    let statement = another.execute("BEGIN", &[]).await.and(another.execute("INSERT INTO kept VALUES (3)", &[]).await);
    let lost_too = another.execute("COMMIT", &[]).await;

    statement.unwrap();
    assert!(lost.is_err() && lost_too.is_err());
    assert_eq!((proxy.commits(), proxy.commits_lost()), (3, 2));
    assert_eq!(database.psql("SELECT n FROM kept ORDER BY n"), "1\n2\n3");
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_end_and_new_ones_are_refused_until_it_is_healed() {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let client = connect(&database, &proxy).await.unwrap();
    client.execute("SELECT 1", &[]).await.unwrap();

    proxy.cut_off();
    let cut = client.execute("SELECT 1", &[]).await;
    let refused = connect(&database, &proxy).await;

    assert!(cut.is_err() && refused.is_err());
    assert_eq!((proxy.connections_cut(), proxy.refused()), (1, 1));
    proxy.heal();
    connect(&database, &proxy).await.unwrap().execute("SELECT 1", &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn held_bytes_come_later_and_delayed_bytes_come_late() {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let client = connect(&database, &proxy).await.unwrap();

    proxy.hold();
    let mut held = Box::pin(client.execute("SELECT 1", &[]));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut held).await;
    assert!(early.is_err() && proxy.pieces_held() > 0);
    proxy.heal();
    held.await.unwrap();

    proxy.delay(Duration::from_millis(50));
    let started = Instant::now();
    client.execute("SELECT 1", &[]).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(100), "there and back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reset_after_k_more_bytes() {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let client = connect(&database, &proxy).await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();

    proxy.reset_after(40);
    client.batch_execute("SELECT 1").await.unwrap();
    let cut = client.batch_execute("SELECT 'more than there is room for'").await;

    assert!(cut.is_err());
    assert_eq!(proxy.connections_cut(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_commit_is_not_carried_out() {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    database.psql("CREATE TABLE kept (n int)");
    let client = connect(&database, &proxy).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("INSERT INTO kept VALUES (1)").await.unwrap();

    proxy.hold_commits();
    let committing = tokio::time::timeout(Duration::from_millis(100), client.batch_execute("COMMIT")).await;
    assert!(committing.is_err() && proxy.commits_held() == 1);
    proxy.cut();

    assert_eq!(database.psql("SELECT count(*) FROM kept"), "0");
}
