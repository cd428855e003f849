//! Handing out: order, bounds, leases.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::decide::DELIVERY_GRACE;
use outlast_core::state::{CancelReason, Phase};
use outlast_core::{Job, Outcome, Overrides, Running, Spec, State, Status, Timestamp};
use outlast_store::jobs::ClaimRequest;

use crate::fixture::{Fixture, SECOND, ids, lease, nack, payload};

fn running(job: &Job) -> &Running {
    match &job.state {
        State::Running(running) => running,
        other => panic!("{other:?}"),
    }
}

fn expires_at(job: &Job) -> Timestamp {
    running(job).expires_at
}

pub async fn jobs_go_out_by_priority_then_age_then_order_of_publish(fixture: &mut Fixture) {
    let mut published = Vec::new();
    for (priority, pause) in [(0, 0), (0, 0), (5, 1), (-100, 0), (100, 1), (5, 0), (0, 3)] {
        published.push(fixture.publish(Spec { priority, ..payload("1") }).await.id);
        fixture.pass(Duration::from_millis(pause));
    }

    let order = [4, 2, 5, 0, 1, 6, 3].map(|place| published[place]);

    assert_eq!(ids(&fixture.claim(3).await), order[..3]);
    fixture.reopen().await;
    assert_eq!(ids(&fixture.claim(9).await), order[3..]);
    assert!(fixture.claim(9).await.is_empty());
}

pub async fn a_job_that_waited_takes_the_place_of_the_time_it_was_due(fixture: &mut Fixture) {
    let delayed = fixture.publish(Spec { not_before: Some(fixture.now().plus(2 * SECOND)), ..payload("1") }).await.id;
    fixture.pass(SECOND);
    let before = fixture.publish(payload("2")).await.id;
    fixture.pass(2 * SECOND);
    let after = fixture.publish(payload("3")).await.id;
    fixture.sweep().await;

    assert_eq!(ids(&fixture.claim(9).await), [before, delayed, after]);
}

pub async fn a_released_job_goes_out_before_younger_ones(fixture: &mut Fixture) {
    let published = fixture.publish_many(3).await;
    let first = fixture.claim(1).await.pop().unwrap();
    fixture.pass(SECOND);
    fixture.report(&first, Outcome::Release).await.unwrap();

    assert_eq!(ids(&fixture.claim(9).await), published);
}

/// I-14.
pub async fn each_hand_out_has_its_own_lease_and_epoch(fixture: &mut Fixture) {
    fixture.publish_many(3).await;
    let mut leases = BTreeSet::new();
    for epoch in 1..=4 {
        let jobs = fixture.claim(9).await;
        assert_eq!(jobs.len(), 3);
        for job in &jobs {
            assert_eq!((job.status(), job.epoch, u64::from(job.attempt)), (Status::Running, epoch, epoch));
            assert!(leases.insert(lease(job).as_u128()), "a lease was given twice");
            assert_eq!(fixture.job(job.id).await, *job, "what was handed out is what is stored");
            fixture.report(job, nack()).await.unwrap();
        }
    }
}

pub async fn a_claim_takes_no_more_than_its_limit(fixture: &mut Fixture) {
    fixture.publish_many(5).await;

    assert!(fixture.claim(0).await.is_empty());
    assert_eq!(fixture.claim(2).await.len(), 2);
    assert_eq!(fixture.counts().await.get(Status::Running), 2);
    assert_eq!(fixture.claim(100).await.len(), 3);
}

pub async fn the_lease_lasts_as_long_as_the_claim_or_the_job_or_the_queue_says(fixture: &mut Fixture) {
    let own = Overrides { visibility_timeout: Some(7 * SECOND), ..Overrides::default() };
    fixture.publish(payload("1")).await;
    fixture.publish(Spec { overrides: own, ..payload("2") }).await;
    fixture.publish(payload("3")).await;

    let by_queue = fixture.claim_with(fixture.want(1)).await;
    let by_job = fixture.claim_with(fixture.want(1)).await;
    let by_claim = fixture
        .claim_with(ClaimRequest { visibility: Some(3 * SECOND), worker: Some("w".into()), ..fixture.want(1) })
        .await;

    for (claimed, seconds) in [(&by_queue, 30), (&by_job, 7), (&by_claim, 3)] {
        assert_eq!(expires_at(&claimed.jobs[0]), fixture.now().plus(seconds * SECOND));
        assert_eq!(claimed.wake_at, Some(expires_at(&claimed.jobs[0])));
    }
    assert_eq!(running(&by_claim.jobs[0]).worker.as_deref(), Some("w"));
    fixture.reopen().await;
    assert_eq!(fixture.job(by_claim.jobs[0].id).await, by_claim.jobs[0]);
}

pub async fn a_delivery_is_leased_for_the_time_of_the_webhook(fixture: &mut Fixture) {
    fixture.publish(payload("1")).await;

    let claimed = fixture.claim_with(ClaimRequest { phase: Phase::Delivering, ..fixture.want(1) }).await;

    let timeout = fixture.queue().await.settings.webhook_timeout + DELIVERY_GRACE;
    assert_eq!(expires_at(&claimed.jobs[0]), fixture.now().plus(timeout));
    assert_eq!(running(&claimed.jobs[0]).phase, Phase::Delivering);
}

pub async fn a_job_past_its_start_by_is_not_handed_out(fixture: &mut Fixture) {
    let late = fixture.publish(Spec { start_by: Some(fixture.now().plus(SECOND)), priority: 9, ..payload("1") }).await;
    let good = fixture.publish(payload("2")).await;
    fixture.pass(SECOND);

    assert_eq!(ids(&fixture.claim(1).await), [good.id]);
    assert_eq!(fixture.job(late.id).await.state, State::Cancelled { at: fixture.now(), reason: CancelReason::Timeout });
}

pub async fn a_claim_of_an_unknown_queue_is_refused(fixture: &mut Fixture) {
    fixture.publish(payload("1")).await;
    let elsewhere = ClaimRequest { queue: "nowhere".into(), ..fixture.want(1) };
    let abroad = ClaimRequest { namespace: fixture.theirs, ..fixture.want(1) };

    assert!(fixture.store.claim(elsewhere).await.unwrap().is_none());
    assert!(fixture.store.claim(abroad).await.unwrap().is_none());
}
