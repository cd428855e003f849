//! Queues: conditions on saving, versions, pages, deletion, counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::queue::{DeferScope, Mode, RateLimit, StallAction, Template};
use outlast_core::retry::{Backoff, Seconds};
use outlast_core::state::CancelReason;
use outlast_core::{Command, Outcome, QueueSettings, Spec, Status};
use outlast_store::queues::{DeleteRefusal, ExpectedVersion, QueueDraft, SaveRefusal};

use crate::fixture::{Fixture, QUEUE, SECOND, ack, created, payload};

fn attempts(max_attempts: u32) -> QueueSettings {
    QueueSettings { max_attempts, ..QueueSettings::default() }
}

/// A value for every setting that differs from its default.
fn unusual() -> QueueSettings {
    let millis = Duration::from_millis;
    QueueSettings {
        template: Some(Template::Report),
        mode: Mode::Ack,
        allow_pull: true,
        webhook_url: Some("https://example.com/ö".to_owned()),
        headers: BTreeMap::from([("x-a".to_owned(), "b".to_owned())]),
        webhook_timeout: millis(1001),
        max_attempts: 7,
        backoff: Backoff::Schedule { delays: vec![Seconds(millis(100)), Seconds(SECOND)], jitter: 0.35 },
        ack_timeout: millis(333_333),
        ack_timeout_action: outlast_core::queue::AckTimeoutAction::Dead,
        visibility_timeout: millis(1234),
        heartbeat_timeout: Some(millis(2345)),
        stall_timeout: millis(3456),
        stall_action: StallAction::Retry,
        soft_time_limit: Some(millis(4567)),
        hard_time_limit: Some(millis(5678)),
        job_timeout: Some(millis(6789)),
        extend_while_progressing: true,
        keep_checkpoints: true,
        drain_timeout: millis(7),
        max_deferrals: 0,
        max_age: millis(8888),
        backpressure_scope: DeferScope::Job,
        backpressure_delay: millis(1),
        rate_limit: Some(RateLimit { limit: 3, per: millis(700) }),
        concurrency: Some(9),
        result_ttl: millis(99_999),
        retention: millis(123_456_789),
        dedupe: outlast_core::queue::Dedupe::UnlessFailed,
        dedupe_window: Some(millis(1111)),
        dedupe_by: outlast_core::queue::DedupeBy::Payload,
        fencing: outlast_core::queue::Fencing::Required,
        signature_header: "x-other".to_owned(),
    }
}

pub async fn every_setting_survives(fixture: &mut Fixture) {
    fixture.save("strange", unusual()).await;
    fixture.reopen().await;

    let (queue, _) = fixture.store.queue(fixture.ours, "strange").await.unwrap().unwrap();

    assert_eq!(queue.settings, unusual());
}

pub async fn a_queue_is_saved_only_under_its_condition(fixture: &mut Fixture) {
    let save = async |name: &str, settings: QueueSettings, expect| {
        fixture.store.save_queue(fixture.ours, name, settings.into(), expect).await.unwrap()
    };

    assert_eq!(save(QUEUE, attempts(2), ExpectedVersion::Absent).await, Err(SaveRefusal::Exists));
    assert_eq!(save("new", attempts(2), ExpectedVersion::Version(1)).await, Err(SaveRefusal::NotFound));
    let made = save("new", attempts(2), ExpectedVersion::Absent).await.unwrap();
    assert_eq!((made.created, made.queue.version, made.queue.created_at), (true, 1, fixture.now()));

    fixture.pass(SECOND);
    let refused = SaveRefusal::VersionMismatch { present: 1 };
    assert_eq!(save("new", attempts(3), ExpectedVersion::Version(2)).await, Err(refused));
    let changed = save("new", attempts(3), ExpectedVersion::Version(1)).await.unwrap();
    assert_eq!((changed.created, changed.queue.version, changed.queue.updated_at), (false, 2, fixture.now()));
    assert_eq!((changed.queue.id, changed.queue.created_at), (made.queue.id, made.queue.created_at));
    assert_eq!(changed.queue.settings.max_attempts, 3);

    fixture.pass(SECOND);
    let same = save("new", attempts(3), ExpectedVersion::Anything).await.unwrap();
    assert_eq!(same.queue, changed.queue, "the same settings again change nothing");
}

pub async fn a_pause_is_a_change_and_a_repeated_one_is_not(fixture: &mut Fixture) {
    let pause = async |paused| fixture.store.set_paused(fixture.ours, QUEUE, paused).await.unwrap().unwrap();

    let first = pause(true).await;
    assert_eq!((first.paused, first.version), (true, 2));
    assert_eq!(pause(true).await, first);
    assert_eq!(pause(false).await.version, 3);
    assert!(fixture.store.set_paused(fixture.ours, "nowhere", true).await.unwrap().is_none());
    assert!(fixture.store.set_paused(fixture.theirs, QUEUE, true).await.unwrap().is_none());
}

pub async fn secrets_stay_until_they_are_replaced(fixture: &mut Fixture) {
    let save = async |settings: QueueSettings, secrets: Option<&[u8]>| {
        let draft = QueueDraft { settings, secrets: secrets.map(Arc::from) };
        let queue = fixture
            .store
            .save_queue(fixture.ours, "new", draft, ExpectedVersion::Anything)
            .await
            .unwrap()
            .unwrap()
            .queue;
        (queue.version, queue.secrets.clone())
    };
    let (first, second) = (Some(Arc::from(&b"first"[..])), Some(Arc::from(&b"\0\xff"[..])));

    assert_eq!(save(attempts(2), Some(b"first")).await, (1, first.clone()));
    assert_eq!(save(attempts(2), None).await, (1, first.clone()), "nothing changes");
    assert_eq!(save(attempts(2), Some(b"first")).await, (1, first.clone()), "nothing changes");
    assert_eq!(save(attempts(3), None).await, (2, first.clone()));
    let paused = fixture.store.set_paused(fixture.ours, "new", true).await.unwrap().unwrap();
    assert_eq!((paused.version, paused.secrets.clone()), (3, first));
    assert_eq!(save(attempts(3), Some(b"\0\xff")).await, (4, second.clone()));

    fixture.reopen().await;
    let (queue, _) = fixture.store.queue(fixture.ours, "new").await.unwrap().unwrap();
    assert_eq!((queue.version, queue.secrets.clone()), (4, second));
    assert_eq!(fixture.queue().await.secrets, None);
}

pub async fn queues_are_listed_by_name_and_namespace(fixture: &mut Fixture) {
    for name in ["b", "a", "c", "Z"] {
        fixture.save(name, QueueSettings::default()).await;
    }
    fixture.store.save_queue(fixture.theirs, "bb", attempts(1).into(), ExpectedVersion::Absent).await.unwrap().unwrap();

    let page = async |after: Option<&str>, limit| {
        let found = fixture.store.queues(fixture.ours, after, limit).await.unwrap();
        found.into_iter().map(|(queue, _)| queue.name.clone()).collect::<Vec<_>>()
    };

    assert_eq!(page(None, 99).await, ["Z", "a", "b", "c", QUEUE]);
    assert_eq!(page(None, 2).await, ["Z", "a"]);
    assert_eq!(page(Some("a"), 2).await, ["b", "c"]);
    assert_eq!(page(Some("bb"), 9).await, ["c", QUEUE]);
    assert_eq!(page(Some(QUEUE), 9).await, Vec::<String>::new());
    assert_eq!(fixture.store.census().await.unwrap().len(), 6);
    assert!(fixture.store.queue(fixture.ours, "bb").await.unwrap().is_none());
}

pub async fn only_an_empty_queue_is_deleted(fixture: &mut Fixture) {
    let delete = async |name: &str| fixture.store.delete_queue(fixture.ours, name).await.unwrap();
    let id = fixture.queue().await.id;
    let job = fixture.running(payload("1")).await;
    fixture.report(&job, ack()).await.unwrap();

    assert_eq!(delete("nowhere").await, Err(DeleteRefusal::NotFound));
    assert_eq!(delete(QUEUE).await, Err(DeleteRefusal::NotEmpty));
    fixture.pass(30 * 86_400 * SECOND);
    fixture.sweep().await;
    assert_eq!(delete(QUEUE).await, Ok(()));
    assert_eq!(delete(QUEUE).await, Err(DeleteRefusal::NotFound));
    assert!(fixture.store.queue(fixture.ours, QUEUE).await.unwrap().is_none());

    let again = fixture.save_queue(QueueSettings::default()).await;
    assert_ne!(again.id, id, "a number is never used twice");
    assert_eq!(again.version, 1);
}

pub async fn a_queue_counts_its_jobs_by_status(fixture: &mut Fixture) {
    let later = Some(fixture.now().plus(90 * 86_400 * SECOND));
    fixture.save_queue(QueueSettings { result_ttl: SECOND, ..QueueSettings::default() }).await;
    let expiring = fixture.running(payload("1")).await;
    fixture.report(&expiring, Outcome::Ack { result: Some("1".into()) }).await.unwrap();
    fixture.pass(SECOND);
    fixture.sweep().await;
    let done = fixture.running(payload("1")).await;
    fixture.report(&done, ack()).await.unwrap();
    let failed = fixture.running(payload("1")).await;
    fixture.fail(&failed).await;
    fixture.running(payload("1")).await;
    let cancelled = fixture.publish(payload("1")).await;
    fixture.apply(cancelled.id, Command::Cancel { reason: CancelReason::User }).await.unwrap();
    created(fixture.try_publish(Spec { not_before: later, ..payload("1") }).await);
    fixture.publish(payload("1")).await;

    for _ in 0..2 {
        let counts = fixture.counts().await;
        assert!(Status::ALL.iter().all(|status| counts.get(*status) == 1), "{counts:?}");
        fixture.reopen().await;
    }
}
