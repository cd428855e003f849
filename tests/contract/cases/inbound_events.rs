//! Events that providers send: stored with all their jobs or not at all, once for each id.

use std::sync::Arc;

use futures_util::future::join_all;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::state::CancelReason;
use outlast_core::{Command, QueueSettings, Spec, Status};
use outlast_store::Error;
use outlast_store::inbound_events::{Ingested, ListInboundEvents, NewInboundEvent};
use outlast_store::jobs::{NewJob, Published};

use crate::fixture::{Fixture, QUEUE, SECOND, created, keyed, payload};

fn inbound_event(fixture: &Fixture, key: Option<&str>, queues: &[&str]) -> NewInboundEvent {
    let job = |queue: &&str| NewJob { namespace: fixture.ours, queue: (*queue).into(), spec: Arc::new(payload("1")) };
    NewInboundEvent {
        namespace: fixture.ours,
        source: "stripe".into(),
        kind: "invoice.paid".into(),
        key: key.map(Into::into),
        headers: [("user-agent".into(), "a \0 b".into())].into(),
        body: r#"{"type":"invoice.paid","\u0000": 1}"#.into(),
        jobs: queues.iter().map(job).collect(),
    }
}

async fn ingest(fixture: &Fixture, new: NewInboundEvent) -> (InboundEventId, Vec<Published>) {
    match fixture.store.ingest(vec![new]).await.unwrap().pop() {
        Some(Ingested::Created { id, jobs }) => (id, jobs),
        other => panic!("not new: {other:?}"),
    }
}

async fn all(fixture: &Fixture) -> Vec<InboundEvent> {
    let list = ListInboundEvents { namespace: fixture.ours, source: None, kind: None, before: None, limit: 1000 };
    fixture.store.inbound_events(list).await.unwrap().inbound_events
}

pub async fn an_event_is_stored_with_a_job_in_each_queue(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    let new = inbound_event(fixture, Some("evt_1"), &[QUEUE, "nowhere", "other"]);

    let (id, jobs) = ingest(fixture, new.clone()).await;

    assert_eq!(jobs.len(), 3);
    assert_eq!(jobs[1], Published::QueueNotFound);
    for place in [0, 2] {
        let Published::Created { job, .. } = &jobs[place] else { panic!("{jobs:?}") };
        assert_eq!(job.spec.origin.as_deref(), Some(&new.origin(id)));
        assert_eq!(fixture.job(job.id).await.spec, job.spec);
    }
    let stored = new.stored(id, fixture.now(), 2);
    fixture.reopen().await;
    assert_eq!(fixture.store.inbound_event(fixture.ours, id).await.unwrap(), Some(stored));
    assert_eq!(fixture.store.inbound_event(fixture.theirs, id).await.unwrap(), None);
}

/// A store may keep the origin once for both: a job that outlives its event still has it.
pub async fn a_job_keeps_its_origin_when_its_event_is_forgotten(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    let mut jobs = Vec::new();
    for queues in [&[QUEUE, "other"][..], &[], &[QUEUE], &["nowhere", "other"]] {
        let new = inbound_event(fixture, None, queues);
        let (id, published) = ingest(fixture, new.clone()).await;
        let made = published.iter().filter(|job| matches!(job, Published::Created { .. }));
        jobs.extend(made.map(|job| (created(job.clone()).id, new.origin(id))));
        fixture.pass(SECOND);
    }
    assert_eq!(jobs.len(), 4);

    // Some of them, then all.
    for (limit, left) in [(1, 3), (100, 0)] {
        fixture.store.prune_inbound_events(fixture.now(), limit).await.unwrap();
        assert_eq!(all(fixture).await.len(), left);
        fixture.reopen().await;
        for (id, origin) in &jobs {
            assert_eq!(fixture.job(*id).await.spec.origin.as_deref(), Some(origin));
        }
    }
}

/// A store may keep the text once for both: what happens to the jobs must not be seen on the event.
pub async fn an_event_keeps_its_body_whatever_becomes_of_its_jobs(fixture: &mut Fixture) {
    let retention = 10 * SECOND;
    fixture.save_queue(QueueSettings { retention, result_ttl: SECOND, ..QueueSettings::default() }).await;
    let mut new = inbound_event(fixture, None, &[QUEUE, QUEUE]);
    let spec = Arc::new(Spec { payload: Arc::clone(&new.body), ..payload("1") });
    for job in &mut new.jobs {
        job.spec = Arc::clone(&spec);
    }
    let cancel = Command::Cancel { reason: CancelReason::User };
    let mut events = Vec::new();
    for is_changed in [true, false] {
        let (id, jobs) = ingest(fixture, new.clone()).await;
        let stored = new.stored(id, fixture.now(), 2);
        events.push((id, stored.clone()));
        for job in jobs.into_iter().map(created) {
            assert_eq!(fixture.job(job.id).await.spec.payload, new.body);
            fixture.apply(job.id, cancel.clone()).await.unwrap();
            if is_changed {
                fixture.apply(job.id, Command::Replay { fresh: true, payload: Some("[2]".into()) }).await.unwrap();
                assert_eq!(fixture.store.inbound_event(fixture.ours, id).await.unwrap().as_ref(), Some(&stored));
                fixture.apply(job.id, cancel.clone()).await.unwrap();
            }
        }
    }

    fixture.pass(2 * retention);
    fixture.sweep().await;
    fixture.reopen().await;

    assert_eq!(fixture.list(fixture.ours()).await, []);
    for (id, stored) in events {
        assert_eq!(fixture.store.inbound_event(fixture.ours, id).await.unwrap(), Some(stored));
    }
}

pub async fn a_duplicate_event_changes_nothing(fixture: &mut Fixture) {
    let (id, _) = ingest(fixture, inbound_event(fixture, Some("evt_1"), &[QUEUE])).await;
    fixture.reopen().await;

    let again = fixture.store.ingest(vec![inbound_event(fixture, Some("evt_1"), &[QUEUE])]).await.unwrap();
    assert_eq!(again, [Ingested::Existing { id }]);
    assert_eq!(fixture.counts().await.get(Status::Queued), 1);

    // Another source's, another namespace's, and those without an id are others.
    let other_source = NewInboundEvent { source: "github".into(), ..inbound_event(fixture, Some("evt_1"), &[]) };
    let theirs = NewInboundEvent { namespace: fixture.theirs, ..inbound_event(fixture, Some("evt_1"), &[]) };
    for new in [other_source, theirs, inbound_event(fixture, None, &[]), inbound_event(fixture, None, &[])] {
        assert_ne!(ingest(fixture, new).await.0, id);
    }
    assert_eq!(all(fixture).await.len(), 4);
}

pub async fn the_key_of_a_queue_finds_the_job_of_an_earlier_event(fixture: &mut Fixture) {
    let mut first = inbound_event(fixture, Some("evt_1"), &[QUEUE]);
    first.jobs[0].spec = Arc::new(keyed("order-1"));
    let mut second = first.clone();
    second.key = Some("evt_2".into());

    let (id, _) = ingest(fixture, first).await;
    let (_, jobs) = ingest(fixture, second).await;

    let Published::Existing { job, .. } = &jobs[0] else { panic!("{jobs:?}") };
    assert_eq!(job.spec.origin.as_ref().map(|origin| origin.event), Some(id));
    assert_eq!(all(fixture).await.iter().map(|inbound_event| inbound_event.jobs).collect::<Vec<_>>(), [0, 1]);
}

pub async fn an_event_whose_jobs_do_not_fit_is_not_stored_at_all(fixture: &mut Fixture) {
    for _ in 0..24 {
        fixture.publish(payload("1")).await;
    }

    let refused = fixture.store.ingest(vec![inbound_event(fixture, Some("evt_1"), &[QUEUE, QUEUE])]).await;

    assert!(matches!(refused, Err(Error::QuotaReached { waiting_max: 25 })), "{refused:?}");
    assert_eq!(all(fixture).await, []);
    assert_eq!(fixture.counts().await.get(Status::Queued), 24);
    // The same event is new when there is room, and known afterwards, when there is none.
    let (id, _) = ingest(fixture, inbound_event(fixture, Some("evt_1"), &[QUEUE])).await;
    let again = fixture.store.ingest(vec![inbound_event(fixture, Some("evt_1"), &[QUEUE, QUEUE])]).await.unwrap();
    assert_eq!(again, [Ingested::Existing { id }]);
}

/// They may share a transaction.
pub async fn events_that_come_together_are_stored_once_each(fixture: &mut Fixture) {
    let keys = |number: usize| format!("evt_{}", number % 6);
    let racing = (0..24).map(|number| {
        let (store, new) = (Arc::clone(&fixture.store), inbound_event(fixture, Some(&keys(number)), &[QUEUE]));
        async move { store.ingest(vec![new]).await.unwrap().remove(0) }
    });

    let answers = join_all(racing).await;

    let is_new = |answer: &&Ingested| matches!(answer, Ingested::Created { .. });
    assert_eq!(answers.iter().filter(is_new).count(), 6);
    for (number, answer) in answers.iter().enumerate() {
        let (Ingested::Created { id, .. } | Ingested::Existing { id }) = answer;
        let stored = fixture.store.inbound_event(fixture.ours, *id).await.unwrap().expect("the event is stored");
        assert_eq!(stored.key.as_deref(), Some(&*keys(number)));
        assert_eq!(stored.jobs, 1);
    }
    assert_eq!(fixture.counts().await.get(Status::Queued), 6);
}

/// One that is refused for want of room does not take those along that came at the same time.
pub async fn events_that_do_not_fit_are_refused_alone(fixture: &mut Fixture) {
    let racing = (0..20).map(|number| {
        let queues: &[&str] = if number % 2 == 0 { &[] } else { &[QUEUE, QUEUE, QUEUE] };
        let (store, new) = (Arc::clone(&fixture.store), inbound_event(fixture, Some(&format!("evt_{number}")), queues));
        async move { store.ingest(vec![new]).await }
    });

    let answers = join_all(racing).await;

    assert!(answers.iter().step_by(2).all(Result::is_ok), "these need no room: {answers:?}");
    let stored = answers.iter().skip(1).step_by(2).filter(|answer| answer.is_ok()).count();
    assert_eq!(stored, 8, "as many as fit: {answers:?}");
    let mut refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.all(|error| matches!(error, Error::QuotaReached { .. })), "{answers:?}");
    assert_eq!(fixture.counts().await.get(Status::Queued), 24);
    assert_eq!(all(fixture).await.len(), 18);
}

pub async fn events_are_listed_newest_first_and_pruned_oldest_first(fixture: &mut Fixture) {
    let mut ids = Vec::new();
    for number in 0..6 {
        let mut new = inbound_event(fixture, None, &[]);
        new.source = if number % 2 == 0 { "even".into() } else { "odd".into() };
        new.kind = format!("kind-{number}").into();
        ids.push(ingest(fixture, new).await.0);
        fixture.pass(SECOND);
    }
    let list = |source: Option<&str>, kind: Option<&str>| ListInboundEvents {
        namespace: fixture.ours,
        source: source.map(Into::into),
        kind: kind.map(Into::into),
        before: None,
        limit: 2,
    };
    let mut page = fixture.store.inbound_events(list(Some("even"), None)).await.unwrap();
    let mut seen: Vec<InboundEventId> = page.inbound_events.iter().map(|inbound_event| inbound_event.id).collect();
    while let Some(before) = page.next {
        page = fixture
            .store
            .inbound_events(ListInboundEvents { before: Some(before), ..list(Some("even"), None) })
            .await
            .unwrap();
        seen.extend(page.inbound_events.iter().map(|inbound_event| inbound_event.id));
    }
    assert_eq!(seen, [ids[4], ids[2], ids[0]]);
    let by_kind = fixture.store.inbound_events(list(None, Some("kind-3"))).await.unwrap();
    assert_eq!(by_kind.inbound_events.iter().map(|inbound_event| inbound_event.id).collect::<Vec<_>>(), [ids[3]]);

    let third = fixture.store.inbound_event(fixture.ours, ids[2]).await.unwrap().unwrap();
    assert_eq!(fixture.store.prune_inbound_events(third.at, 1).await.unwrap(), 1);
    assert_eq!(fixture.store.prune_inbound_events(third.at, 100).await.unwrap(), 1);
    assert_eq!(fixture.store.prune_inbound_events(third.at, 100).await.unwrap(), 0);
    assert_eq!(all(fixture).await.last().map(|inbound_event| inbound_event.id), Some(ids[2]));
    let late = fixture.now().plus(SECOND);
    assert_eq!(fixture.store.prune_inbound_events(late, 100).await.unwrap(), 4);
    // Numbers of those that are gone are not given out again.
    fixture.reopen().await;
    assert!(!ids.contains(&ingest(fixture, inbound_event(fixture, None, &[])).await.0));
}
