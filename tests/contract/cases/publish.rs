//! Publishing and idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::queue::{Dedupe, DedupeBy};
use outlast_core::state::CancelReason;
use outlast_core::{Command, Job, Outcome, Overrides, QueueSettings, Refusal, Spec, Status};
use outlast_store::jobs::{Declined, JobCommand, NewJob, Published, Reach};

use crate::fixture::{Fixture, QUEUE, SECOND, ack, created, existing, keyed, payload};

pub async fn a_job_is_stored_as_it_was_asked_for(fixture: &mut Fixture) {
    let spec = Spec {
        payload: r#"{"big": 123456789012345678901234567890, "a":[1,  2]}"#.into(),
        priority: -100,
        not_before: Some(fixture.now().plus(60 * SECOND)),
        start_by: Some(fixture.now().plus(90 * SECOND)),
        idempotency_key: Some("order-17".into()),
        key: Some("tenant".into()),
        tags: vec![("kind".into(), "mail".into()), ("ä".into(), "".into())],
        callback_url: Some("https://example.com/done".into()),
        notify_email: Some("a@example.com".into()),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        overrides: Overrides {
            max_attempts: Some(3),
            visibility_timeout: Some(Duration::from_millis(1500)),
            ack_timeout: Some(2 * SECOND),
            heartbeat_timeout: Some(3 * SECOND),
            soft_time_limit: Some(4 * SECOND),
            hard_time_limit: Some(5 * SECOND),
            job_timeout: Some(6 * SECOND),
            max_deferrals: Some(0),
            max_age: Some(7 * SECOND),
            result_ttl: Some(Duration::ZERO),
        },
        origin: None,
    };

    let job = fixture.publish(spec.clone()).await;

    assert_eq!(*job.spec, spec);
    assert_eq!((job.created_at, job.version, job.replays, job.attempt, job.epoch), (fixture.now(), 1, 0, 1, 0));
    assert_eq!(fixture.job(job.id).await, job);
    fixture.reopen().await;
    assert_eq!(fixture.job(job.id).await, job);
}

pub async fn a_batch_is_answered_in_order_each_for_itself(fixture: &mut Fixture) {
    let new = |queue: &str, spec: Spec| NewJob { namespace: fixture.ours, queue: queue.into(), spec: Arc::new(spec) };
    let batch =
        vec![new(QUEUE, keyed("a")), new("nowhere", payload("1")), new(QUEUE, keyed("a")), new(QUEUE, payload("2"))];

    let answers = fixture.store.publish(batch).await.unwrap();

    let first = created(answers[0].clone());
    assert_eq!(answers[1], Published::QueueNotFound);
    assert_eq!(existing(answers[2].clone()), (first.id, false));
    assert_ne!(created(answers[3].clone()).id, first.id);
    assert_eq!(fixture.counts().await.get(Status::Queued), 2);
}

pub async fn a_delayed_job_waits_and_one_that_is_due_does_not(fixture: &mut Fixture) {
    let later = Spec { not_before: Some(fixture.now().plus(SECOND)), ..payload("1") };
    let earlier = Spec { not_before: Some(fixture.now()), ..payload("2") };

    let (later, earlier) = (fixture.publish(later).await, fixture.publish(earlier).await);

    assert_eq!((later.status(), earlier.status()), (Status::Pending, Status::Queued));
    assert_eq!(fixture.claim(9).await.len(), 1);
    fixture.pass(SECOND);
    fixture.sweep().await;
    assert_eq!(fixture.claim(9).await[0].id, later.id);
}

/// I-09, I-10.
pub async fn a_key_seen_before_finds_its_job(fixture: &mut Fixture) {
    let first = fixture.publish(Spec { payload: r#"{"a":1,"b":[2]}"#.into(), ..keyed("k") }).await;

    for (body, mismatch) in [(r#"{"a":1,"b":[2]}"#, false), (r#"{ "b":[2], "a":1 }"#, false), (r#"{"a":2}"#, true)] {
        let again = fixture.try_publish(Spec { payload: body.into(), ..keyed("k") }).await;
        assert_eq!(existing(again), (first.id, mismatch), "{body}");
    }
    fixture.reopen().await;
    assert_eq!(existing(fixture.try_publish(keyed("k")).await), (first.id, true));
    assert_eq!(fixture.counts().await.total(), 1);
}

/// I-09.
pub async fn a_key_belongs_to_one_queue_of_one_namespace(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    let anything = outlast_store::queues::ExpectedVersion::Anything;
    fixture.store.save_queue(fixture.theirs, QUEUE, QueueSettings::default().into(), anything).await.unwrap().unwrap();

    let first = fixture.publish(keyed("k")).await;
    let elsewhere = created(fixture.publish_to(fixture.ours, "other", keyed("k")).await);
    let abroad = created(fixture.publish_to(fixture.theirs, QUEUE, keyed("k")).await);

    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);
    assert_eq!(existing(fixture.publish_to(fixture.ours, "other", keyed("k")).await).0, elsewhere.id);
    assert_eq!(existing(fixture.publish_to(fixture.theirs, QUEUE, keyed("k")).await).0, abroad.id);
}

/// I-09: the window counts from the publish, and an unfinished job holds its key for as long as it lives.
pub async fn a_key_is_free_when_its_window_has_ended_and_its_job_finished(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { dedupe_window: Some(10 * SECOND), ..QueueSettings::default() }).await;
    let first = fixture.running(keyed("k")).await;

    fixture.pass(11 * SECOND);
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);
    fixture.report(&first, ack()).await.unwrap();
    let second = fixture.publish(keyed("k")).await;

    fixture.pass(10 * SECOND - Duration::from_millis(1));
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, second.id);
    fixture.reopen().await;
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, second.id);
}

pub async fn a_key_of_a_failed_job_is_free_only_where_the_queue_says_so(fixture: &mut Fixture) {
    let first = fixture.running(keyed("k")).await;
    fixture.fail(&first).await;
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);

    fixture.save_queue(QueueSettings { dedupe: Dedupe::UnlessFailed, ..QueueSettings::default() }).await;
    let second = fixture.publish(keyed("k")).await;
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, second.id);

    fixture.apply(second.id, Command::Cancel { reason: CancelReason::User }).await.unwrap();
    let third = fixture.running(keyed("k")).await;
    fixture.report(&third, ack()).await.unwrap();
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, third.id, "a success holds its key");
}

/// Two jobs of one key, both failed, and then the older one replayed.
async fn an_older_job_replayed(fixture: &mut Fixture) -> (Job, Job) {
    fixture.save_queue(QueueSettings { dedupe: Dedupe::UnlessFailed, ..QueueSettings::default() }).await;
    let first = fixture.running(keyed("k")).await;
    fixture.fail(&first).await;
    let second = fixture.running(keyed("k")).await;
    fixture.fail(&second).await;
    fixture.apply(first.id, Command::Replay { fresh: false, payload: None }).await.unwrap();
    (first, second)
}

/// An older job with the same key takes over when the newest one is gone.
pub async fn a_key_whose_newest_job_is_deleted_falls_back_to_the_one_before(fixture: &mut Fixture) {
    let (first, second) = an_older_job_replayed(fixture).await;

    super::operations::discard(fixture, Some(vec![second.id])).await;

    assert_eq!(fixture.find(second.id).await, None);
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);
}

/// I-09: a replayed older job holds its key again, although a newer one had it since.
pub async fn a_replayed_job_holds_its_key_again(fixture: &mut Fixture) {
    let (first, _) = an_older_job_replayed(fixture).await;

    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);
}

/// I-09: one key has one live job, so a job whose key has passed on cannot be replayed.
pub async fn a_job_whose_key_another_job_has_is_not_replayed(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { dedupe: Dedupe::UnlessFailed, ..QueueSettings::default() }).await;
    let first = fixture.running(keyed("k")).await;
    fixture.fail(&first).await;
    let second = fixture.publish(keyed("k")).await;
    let stranger = fixture.publish_to(fixture.theirs, QUEUE, keyed("k")).await;
    assert_eq!(stranger, Published::QueueNotFound);
    let taken = Err(Declined::Refused(Refusal::KeyTaken { holder: second.id }));
    let replay = || fixture.apply(first.id, Command::Replay { fresh: false, payload: Some("[7]".into()) });

    assert_eq!(replay().await, taken, "while the other one waits");
    let claimed = fixture.claim(1).await.pop().unwrap();
    assert_eq!(replay().await, taken, "while the other one runs");
    let not_replayable = Refusal::NotReplayable { status: Status::Running };
    let replayed = fixture.apply(second.id, Command::Replay { fresh: false, payload: None }).await;
    assert_eq!(replayed, Err(Declined::Refused(not_replayable)));
    fixture.report(&claimed, ack()).await.unwrap();
    assert_eq!(replay().await, taken, "after the other one has succeeded");
    assert_eq!(fixture.job(first.id).await.status(), Status::Failed);

    fixture.reopen().await;
    assert_eq!(fixture.apply(first.id, Command::Replay { fresh: true, payload: None }).await, taken);
    fixture.pass(QueueSettings::default().dedupe_window());
    fixture.apply(first.id, Command::Replay { fresh: true, payload: None }).await.unwrap();
}

/// I-09: of two failed jobs of one key either may be replayed, and then the other may not.
pub async fn of_two_failed_jobs_of_one_key_one_is_replayed(fixture: &mut Fixture) {
    let (first, second) = an_older_job_replayed(fixture).await;
    let replay = || Command::Replay { fresh: false, payload: None };

    let taken = Err(Declined::Refused(Refusal::KeyTaken { holder: first.id }));
    assert_eq!(fixture.apply(second.id, replay()).await, taken);
    fixture.apply(first.id, Command::Cancel { reason: CancelReason::User }).await.unwrap();
    let orders = [second.id, first.id].map(|id| JobCommand { id, reach: Reach::Everything, command: replay() });
    let answers = fixture.store.apply(orders.to_vec()).await.unwrap();

    assert!(answers[0].as_ref().is_ok_and(|applied| applied.status == Status::Queued));
    assert_eq!(answers[1], Err(Declined::Refused(Refusal::KeyTaken { holder: second.id })));
}

/// I-09: a replay and a publish of its key that come in together make one live job, whichever is first.
pub async fn a_replay_racing_a_publish_of_its_key_makes_one_live_job(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { dedupe: Dedupe::UnlessFailed, ..QueueSettings::default() }).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let first = fixture.running(keyed(&key)).await;
        fixture.fail(&first).await;
        let replay = fixture.apply(first.id, Command::Replay { fresh: false, payload: None });
        let publish = fixture.try_publish(keyed(&key));
        let (replayed, published) = match round % 2 {
            0 => tokio::join!(replay, publish),
            _ => {
                let (published, replayed) = tokio::join!(publish, replay);
                (replayed, published)
            }
        };

        let live = match (replayed, published) {
            (Ok(_), Published::Existing { job, payload_mismatch: false, .. }) => {
                assert_eq!(job.id, first.id);
                first.id
            }
            (Err(Declined::Refused(Refusal::KeyTaken { holder })), Published::Created { job, .. }) => {
                assert_eq!(holder, job.id);
                job.id
            }
            other => panic!("two live jobs or none: {other:?}"),
        };
        assert_eq!(fixture.claim(9).await.iter().map(|job| job.id).collect::<Vec<_>>(), [live]);
    }
}

pub async fn a_payload_is_its_own_key_where_the_queue_says_so(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { dedupe_by: DedupeBy::Payload, ..QueueSettings::default() }).await;

    let first = fixture.publish(payload("[1]")).await;
    let other = fixture.publish(payload("[2]")).await;
    let named = fixture.publish(Spec { idempotency_key: Some("k".into()), ..payload("[1]") }).await;

    assert_eq!(existing(fixture.try_publish(payload("[1]")).await), (first.id, false));
    assert_eq!(existing(fixture.try_publish(payload("[2]")).await), (other.id, false));
    assert_eq!(
        existing(fixture.try_publish(Spec { idempotency_key: Some("k".into()), ..payload("[3]") }).await),
        (named.id, true)
    );
}

pub async fn a_namespace_takes_as_many_waiting_jobs_as_it_may(fixture: &mut Fixture) {
    let most = fixture.ground.waiting_max;
    let first = fixture.publish(keyed("k")).await;
    for _ in 1..most {
        fixture.publish(payload("1")).await;
    }

    assert_eq!(fixture.try_publish(payload("1")).await, Published::QuotaReached { waiting_max: most });
    assert_eq!(existing(fixture.try_publish(keyed("k")).await).0, first.id);
    fixture.reopen().await;
    assert_eq!(fixture.try_publish(payload("1")).await, Published::QuotaReached { waiting_max: most });

    let taken = fixture.claim(1).await;
    fixture.publish(payload("1")).await;
    fixture.report(&taken[0], Outcome::Release).await.unwrap();
    assert_eq!(fixture.try_publish(payload("1")).await, Published::QuotaReached { waiting_max: most });
}

pub async fn a_publish_to_an_unknown_queue_is_refused(fixture: &mut Fixture) {
    assert_eq!(fixture.publish_to(fixture.ours, "nowhere", payload("1")).await, Published::QueueNotFound);
    assert_eq!(fixture.publish_to(fixture.theirs, QUEUE, payload("1")).await, Published::QueueNotFound);
}

/// Ids are unique for ever: one that was deleted does not come back for another job, also after a restart.
pub async fn an_id_is_never_given_twice(fixture: &mut Fixture) {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        for _ in 0..3 {
            let job = fixture.running(payload("1")).await;
            assert!(seen.insert(job.id), "an id came back");
            fixture.fail(&job).await;
        }
        super::operations::discard(fixture, None).await;
        fixture.reopen().await;
    }
}
