//! Somebody else holds the write lock of an embedded store: a shell on its file, say. Calls are refused meanwhile, and
//! that is all.

use std::sync::Arc;

use outlast_core::{QueueSettings, Spec};
use outlast_store::Error;
use outlast_store::jobs::NewJob;
use outlast_store::queues::ExpectedVersion;

use crate::backend::{Backend, Ground, Sqlite};

#[tokio::test]
async fn a_busy_file_refuses_writes_and_the_rows_are_not_read_again() {
    let ground = Ground::new(3);
    let backend = Sqlite::on(&ground);
    let store = backend.open().await;
    let namespace = store.namespace("default").await.unwrap();
    store
        .save_queue(namespace, "mail", QueueSettings::default().into(), ExpectedVersion::Absent)
        .await
        .unwrap()
        .unwrap();
    let spec = Arc::new(Spec { payload: "1".into(), ..Spec::default() });
    let job = || vec![NewJob { namespace, queue: "mail".into(), spec: Arc::clone(&spec) }];
    store.publish(job()).await.unwrap();
    // A call that reads all rows again meets this one.
    let stranger = backend.connect();
    stranger.execute_batch("UPDATE job SET detail = 77").unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();

    let refused = store.publish(job()).await;

    assert!(matches!(refused, Err(Error::Overloaded)), "{refused:?}");
    assert_eq!(store.damage().list(), [] as [&str; 0]);
    stranger.execute_batch("ROLLBACK").unwrap();
    store.publish(job()).await.unwrap();
    store.close().await;
}
