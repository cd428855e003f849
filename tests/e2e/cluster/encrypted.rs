//! TLS to a PostgreSQL that takes nothing else, with a password. (T37)

use outlast_tests::postgres::Postgres;
use outlast_tests::server::Launch;
use serde_json::json;

use crate::api::{job, make_queue, publish, receive_one, settle};
use crate::cluster::blocking;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_wants_tls_gets_it() {
    let postgres = blocking(Postgres::start_encrypted);
    let database = blocking(|| postgres.database());
    let url = database.url.clone();
    let launch = Launch::on_database(database, None, 1);
    let with = |mode: &str| launch.clone().with_env("OUTLAST_DATABASE_URL", &format!("{url}?{mode}"));

    let plain = with("sslmode=disable").try_start().await;
    assert!(plain.is_err(), "the control: without TLS there is no way in");

    let server = with("sslmode=require").start().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    assert_eq!(job(&client, &id).await["status"], "succeeded");

    let open = "SELECT count(*) FILTER (WHERE NOT ssl), count(*) FILTER (WHERE ssl) > 0 FROM pg_stat_ssl \
                JOIN pg_stat_activity USING (pid) WHERE datname = current_database()";
    assert_eq!(blocking(|| launch.database().expect("there is one").psql(open)), "0|t");
    assert!(!server.log().contains("correct-horse"), "the password is in the log");
}

// The name and the signer of the certificate count where the operator asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_somebody_else_is_refused_where_it_is_checked() {
    let (postgres, stranger) = blocking(|| (Postgres::start_encrypted(), Postgres::start_encrypted()));
    let database = blocking(|| postgres.database());
    let url = database.url.clone();
    let launch = Launch::on_database(database, None, 1);
    let trusting = |root: &Postgres| {
        let url = format!("{url}?sslmode=verify-full&sslrootcert={}", root.root_certificate().display());
        launch.clone().with_env("OUTLAST_DATABASE_URL", &url)
    };

    let refused = trusting(&stranger).try_start().await.err().expect("another root");
    assert!(!refused.log.contains("correct-horse"), "the password is in the log");

    let server = trusting(&postgres).start().await;
    make_queue(&server.client(), "work", json!({})).await;
    publish(&server.client(), "work", json!(1)).await;
}
