//! What the embedded store does when a row of its file no longer makes sense: that job is out, all others go on. Damage is
//! done to a closed file, as a bad disk or a careless hand would.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::state::Phase;
use outlast_core::{Clock, NamespaceId, QueueSettings, Spec};
use outlast_store::JobStore;
use outlast_store::jobs::{Claim, NewJob};
use outlast_store::queues::Expect;
use outlast_store::sqlite::{Options, SqliteStore};
use outlast_tests::ports::{SeededEntropy, VirtualClock};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    clock: VirtualClock,
}

impl Place {
    fn new() -> Place {
        Place { directory: TempDir::new().unwrap(), clock: VirtualClock::default() }
    }

    fn open(&self) -> SqliteStore {
        let options =
            Options::new(self.directory.path(), Arc::new(self.clock.clone()), Box::new(SeededEntropy::new(3)));
        SqliteStore::open(options).unwrap()
    }

    /// A reason that does not exist, in the row of the first job.
    fn damage_first_row(&self) {
        let connection = rusqlite::Connection::open(self.directory.path().join("outlast.db")).unwrap();
        let changed =
            connection.execute("UPDATE job SET lease = x'00', last_how = 99, detail = 77 WHERE seq = 1", []).unwrap();
        assert_eq!(changed, 1);
    }

    /// Three jobs, the first of which is damaged while the store is closed.
    async fn three_jobs(&self, delay: Duration) -> (SqliteStore, NamespaceId) {
        let store = self.open();
        let namespace = store.namespace("default").await.unwrap();
        store.save_queue(namespace, "mail", QueueSettings::default(), Expect::Absent).await.unwrap().unwrap();
        let not_before = (!delay.is_zero()).then(|| self.clock.now().plus(delay));
        let spec = Arc::new(Spec { payload: "1".into(), not_before, ..Spec::default() });
        let job = NewJob { namespace, queue: "mail".into(), spec };
        store.publish(vec![job.clone(), job.clone(), job]).await.unwrap();
        store.close().await;
        drop(store);
        self.damage_first_row();
        (self.open(), namespace)
    }
}

#[tokio::test]
async fn a_damaged_row_does_not_stop_the_alarms_of_others() {
    let place = Place::new();
    let (store, _) = place.three_jobs(Duration::from_secs(5)).await;
    place.clock.advance(Duration::from_secs(6));

    let due = store.due(10).await.unwrap();
    let again = store.due(10).await.unwrap();

    assert_eq!((due.jobs.len(), again.jobs.len()), (2, 2));
    store.close().await;
}

#[tokio::test]
async fn a_damaged_row_at_the_head_does_not_stop_its_queue() {
    let place = Place::new();
    let (store, namespace) = place.three_jobs(Duration::ZERO).await;
    let want =
        Claim { namespace, queue: "mail".into(), limit: 10, phase: Phase::Leased, visibility: None, worker: None };

    let claimed = store.claim(want).await.unwrap().unwrap();

    assert_eq!(claimed.jobs.len(), 2);
    store.close().await;
}
