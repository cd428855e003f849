//! SQLite writes the ids of providers to its index thousands at a time: they are known before, after, and over
//! restarts.

use std::sync::Arc;

use outlast_store::inbound_events::{Ingested, NewInboundEvent};

use crate::backend::Sqlite;
use crate::fixture::{Fixture, SECOND, run};

/// More than are held in memory, and some that are.
const ARRIVALS: usize = 70_000;
const AT_ONCE: usize = 100;

#[test]
fn ids_are_known_whether_they_are_in_memory_or_on_disk() {
    run::<Sqlite>(async |fixture: &mut Fixture| {
        for first in (0..ARRIVALS).step_by(AT_ONCE) {
            for answer in ingest(fixture, first..first + AT_ONCE).await {
                assert!(matches!(answer, Ingested::Created { .. }), "{answer:?}");
            }
        }
        all_are_duplicates(fixture, 0..ARRIVALS).await;
        fixture.reopen().await;
        all_are_duplicates(fixture, 0..ARRIVALS).await;

        fixture.pass(SECOND);
        let younger = ingest(fixture, ARRIVALS..ARRIVALS + 1).await;
        assert!(matches!(younger[..], [Ingested::Created { .. }]), "{younger:?}");
        while fixture.store.prune_inbound_events(fixture.now(), AT_ONCE).await.unwrap() > 0 {}
        fixture.reopen().await;

        all_are_duplicates(fixture, ARRIVALS..ARRIVALS + 1).await;
        for place in [0, ARRIVALS - 1] {
            let forgotten = ingest(fixture, place..place + 1).await;
            assert!(matches!(forgotten[..], [Ingested::Created { .. }]), "{forgotten:?}");
        }
    });
}

async fn all_are_duplicates(fixture: &Fixture, places: std::ops::Range<usize>) {
    for first in places.clone().step_by(AT_ONCE) {
        for answer in ingest(fixture, first..(first + AT_ONCE).min(places.end)).await {
            assert!(matches!(answer, Ingested::Existing { .. }), "{answer:?}");
        }
    }
}

async fn ingest(fixture: &Fixture, places: std::ops::Range<usize>) -> Vec<Ingested> {
    let body: Arc<str> = "{}".into();
    let new = |place| NewInboundEvent {
        namespace: fixture.ours,
        source: "stripe".into(),
        kind: "invoice.paid".into(),
        key: Some(format!("evt_{place}").into()),
        headers: [].into(),
        body: Arc::clone(&body),
        jobs: Vec::new(),
    };
    fixture.store.ingest(places.map(new).collect()).await.unwrap()
}
