//! Backup and restore of a store on PostgreSQL, by the commands of docs/how-to/back-up-and-restore.md.

use std::fs;
use std::time::Duration;

use outlast_tests::postgres::Postgres;
use outlast_tests::receiver::Receiver;
use outlast_tests::server::Launch;
use serde_json::json;

use crate::api::{publish, text};
use crate::cli::Cli;
use crate::embedded::backup::{recipe, shell};
use crate::results::{Place, Rig};

async fn rig(launch: &Launch) -> Rig {
    let folder = launch.scratch().join("objects");
    Rig::start(launch.clone(), Place::Folder(folder)).await
}

// DEFECTS B1: a dump, the objects and the secret key are a whole backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_with_its_objects_restores_results_and_push_secrets() {
    let receiver = Receiver::start().await;
    let launch = Launch::on_database(Postgres::shared().database(), None, 1);
    let url = launch.database().unwrap().url.clone();
    let before = rig(&launch).await;
    let made = before.client.put("/v1/queues/mail", json!({"webhookUrl": receiver.url("/mail")})).await.unwrap();
    let secret = text(&made.expect(201)["signingSecret"]);
    receiver.trust("/mail", &secret);
    let done = before.succeeded("work", "the result").await;
    let backups = launch.scratch().join("backups");
    fs::create_dir(&backups).unwrap();

    let paths = [("/srv/outlast/objects", &*launch.scratch().join("objects")), ("/backup", &*backups)];
    shell(&launch, &recipe("flock", &paths), &[("OUTLAST_DATABASE_URL", &url)]);
    drop(before);
    let other = Launch::on_database(Postgres::shared().database(), None, 1);
    let url = other.database().unwrap().url.clone();
    let paths = [("/srv/outlast/objects", &*other.scratch().join("objects")), ("/backup", &*backups)];
    shell(&other, &recipe("pg_restore", &paths), &[("OUTLAST_DATABASE_URL", &url)]);

    let after = rig(&other).await;
    assert_eq!(&after.open(&after.link(&done.id).await).await.body[..], b"the result");
    publish(&after.client, "mail", json!(1)).await;
    let delivery = receiver.arrivals("/mail", 1, Duration::from_secs(20)).await.remove(0);
    assert!(delivery.is_signed_with(&secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backup_command_names_pg_dump_for_a_database() {
    let launch = Launch::on_database(Postgres::shared().database(), None, 1);
    let config = launch.scratch().join("outlast.yaml");
    fs::write(&config, "database_url: postgres://db/outlast\nblobs_url: file:///srv/objects\n").unwrap();
    let cli = Cli::without_server(&launch);

    for command in ["backup", "restore"] {
        let refused = cli.fails(2, &[command, "-c", config.to_str().unwrap(), "somewhere"]);
        assert!(refused.contains("PostgreSQL") && refused.contains("pg_dump"), "{refused}");
    }
}
