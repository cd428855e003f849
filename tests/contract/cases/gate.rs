//! When a queue hands out nothing: pause, concurrency, hold and probe. Rates are in `rate.rs`.

use outlast_core::breaker::cool_down;
use outlast_core::gate::{Hold, HoldCause};
use outlast_core::queue::{DeferScope, Mode};
use outlast_core::state::Phase;
use outlast_core::{Command, Outcome, QueueSettings, Status};
use outlast_store::jobs::ClaimRequest;
use outlast_store::operations::OperationKind;

use super::operations::{start, whole};
use crate::fixture::{Fixture, QUEUE, SECOND, ack, lease, payload};

fn defer(seconds: u32) -> Outcome {
    Outcome::Defer { retry_after: Some(seconds * SECOND), scope: None, cause: HoldCause::Backpressure }
}

/// Three jobs, one of them deferred for ten seconds: the queue is held, and all of it is due when the hold ends.
async fn held(fixture: &Fixture) {
    fixture.publish_many(3).await;
    let first = fixture.claim(1).await.pop().unwrap();
    fixture.report(&first, defer(10)).await.unwrap();
}

pub async fn a_paused_queue_takes_jobs_and_hands_out_none(fixture: &mut Fixture) {
    fixture.publish_many(2).await;
    let paused = fixture.store.set_paused(fixture.ours, QUEUE, true).await.unwrap().unwrap();
    assert!(paused.paused);

    fixture.publish(payload("1")).await;
    assert!(fixture.claim(9).await.is_empty());
    fixture.reopen().await;
    assert!(fixture.claim(9).await.is_empty());

    fixture.store.set_paused(fixture.ours, QUEUE, false).await.unwrap().unwrap();
    assert_eq!(fixture.claim(9).await.len(), 3);
}

pub async fn a_push_queue_gives_pullers_nothing_unless_it_allows_them(fixture: &mut Fixture) {
    let push = QueueSettings {
        mode: Mode::Ack,
        webhook_url: Some("https://example.com".to_owned()),
        ..QueueSettings::default()
    };
    fixture.save_queue(push.clone()).await;
    fixture.publish_many(3).await;

    let pulled = fixture.claim_with(fixture.want(9)).await;
    assert!(pulled.push_only && pulled.jobs.is_empty());
    let delivered = fixture.claim_with(ClaimRequest { phase: Phase::Delivering, ..fixture.want(1) }).await;
    assert!(!delivered.push_only && delivered.jobs.len() == 1);

    fixture.save_queue(QueueSettings { allow_pull: true, ..push }).await;
    let pulled = fixture.claim_with(fixture.want(9)).await;
    assert!(!pulled.push_only && pulled.jobs.len() == 2);
}

pub async fn no_more_jobs_run_than_the_queue_allows(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { concurrency: Some(2), ..QueueSettings::default() }).await;
    fixture.publish_many(5).await;

    let first = fixture.claim(9).await;
    assert_eq!(first.len(), 2);
    assert!(fixture.claim(9).await.is_empty());
    fixture.reopen().await;
    assert!(fixture.claim(9).await.is_empty());

    assert!(fixture.report(&first[0], ack()).await.unwrap().frees);
    assert_eq!(fixture.claim(9).await.len(), 1);
    assert_eq!(fixture.counts().await.get(Status::Running), 2);
}

pub async fn a_defer_by_a_worker_holds_its_job_and_no_other(fixture: &mut Fixture) {
    let [first, second] = fixture.publish_many(3).await[..2] else { panic!("three were published") };
    let held = fixture.claim(1).await.pop().unwrap();
    assert_eq!(held.id, first);
    let unsaid = Outcome::Defer { retry_after: Some(10 * SECOND), scope: None, cause: HoldCause::Deferred };
    fixture.report(&held, unsaid).await.unwrap();

    let others = fixture.claim(9).await;
    assert_eq!(others.len(), 2);
    assert_eq!(others[0].id, second);

    let whole =
        Outcome::Defer { retry_after: Some(10 * SECOND), scope: Some(DeferScope::Queue), cause: HoldCause::Deferred };
    fixture.report(&others[0], whole).await.unwrap();
    fixture.publish(payload("1")).await;
    assert!(fixture.claim(9).await.is_empty());
}

pub async fn a_held_queue_sends_one_probe_when_the_hold_ends(fixture: &mut Fixture) {
    held(fixture).await;
    let until = fixture.now().plus(10 * SECOND);

    let early = fixture.claim_with(fixture.want(9)).await;
    assert!(early.jobs.is_empty());
    assert_eq!(early.held_until, Some(until));

    fixture.pass(10 * SECOND);
    fixture.reopen().await;
    fixture.sweep().await;
    let probe = fixture.claim(9).await;
    assert_eq!(probe.len(), 1);
    assert_eq!(
        fixture.queue().await.hold,
        Some(Hold { probe: Some(probe[0].id), ..Hold::new(until, HoldCause::Backpressure) })
    );
    fixture.reopen().await;
    assert_eq!(
        fixture.queue().await.hold,
        Some(Hold { probe: Some(probe[0].id), ..Hold::new(until, HoldCause::Backpressure) })
    );
    assert!(fixture.claim(9).await.is_empty(), "the probe is not back");

    fixture.report(&probe[0], ack()).await.unwrap();
    assert_eq!(fixture.queue().await.hold, None);
    assert_eq!(fixture.claim(9).await.len(), 2);
}

pub async fn a_probe_that_is_deferred_holds_the_queue_again(fixture: &mut Fixture) {
    held(fixture).await;
    fixture.pass(10 * SECOND);
    let probe = fixture.claim(9).await.pop().unwrap();
    fixture.report(&probe, defer(5)).await.unwrap();

    let hold = Hold { round: 1, ..Hold::new(fixture.now().plus(5 * SECOND), HoldCause::Backpressure) };
    assert_eq!(fixture.queue().await.hold, Some(hold));
    assert!(fixture.claim(9).await.is_empty());
}

pub async fn a_probe_that_is_released_leaves_its_place_to_another(fixture: &mut Fixture) {
    held(fixture).await;
    fixture.pass(10 * SECOND);
    let probe = fixture.claim(9).await.pop().unwrap();
    fixture.report(&probe, Outcome::Release).await.unwrap();

    assert_eq!(fixture.claim(9).await.len(), 1);
}

pub async fn a_probe_whose_lease_runs_out_is_not_waited_for(fixture: &mut Fixture) {
    held(fixture).await;
    fixture.pass(10 * SECOND);
    fixture.claim(9).await;
    fixture.pass(30 * SECOND);
    fixture.sweep().await;

    assert!(!fixture.claim(9).await.is_empty());
}

/// The cause and the round are kept with the hold, so that a restart does not make an endpoint look healthier than it
/// is.
pub async fn an_open_circuit_is_tried_again_after_ever_longer_waits(fixture: &mut Fixture) {
    let opens = Outcome::Defer { retry_after: None, scope: Some(DeferScope::Queue), cause: HoldCause::Circuit };
    fixture.publish_many(2).await;
    let first = fixture.claim(1).await.pop().unwrap();
    fixture.report(&first, opens.clone()).await.unwrap();

    for round in 0..3 {
        let until = fixture.now().plus(cool_down(round));
        fixture.reopen().await;
        assert_eq!(fixture.queue().await.hold, Some(Hold { round, ..Hold::new(until, HoldCause::Circuit) }));
        assert_eq!(fixture.claim_with(fixture.want(9)).await.held_until, Some(until));
        fixture.pass(cool_down(round));
        fixture.sweep().await;
        let probe = fixture.claim(9).await.pop().expect("a probe");
        fixture.report(&probe, opens.clone()).await.unwrap();
    }
    fixture.pass(cool_down(3));
    fixture.sweep().await;
    let probe = fixture.claim(9).await.pop().expect("a probe");
    fixture.report(&probe, ack()).await.unwrap();
    assert_eq!(fixture.queue().await.hold, None);

    fixture.sweep().await;
    let next = fixture.claim(1).await.pop().unwrap();
    fixture.report(&next, opens).await.unwrap();
    let anew = Hold::new(fixture.now().plus(cool_down(0)), HoldCause::Circuit);
    assert_eq!(fixture.queue().await.hold, Some(anew), "a new trouble starts from the beginning");
}

/// A deletion that was stopped half way may have taken the probe with it.
pub async fn a_probe_that_is_deleted_leaves_its_place_to_another(fixture: &mut Fixture) {
    held(fixture).await;
    fixture.pass(10 * SECOND);
    fixture.sweep().await;
    let probe = fixture.claim(9).await.pop().unwrap();
    let operation = start(fixture, OperationKind::Delete, whole()).await;
    while fixture.find(probe.id).await.is_some() {
        fixture.store.advance_operation(operation.id, 1).await.unwrap();
    }
    fixture.store.stop_operation(fixture.ours, operation.id).await.unwrap().unwrap();

    assert_eq!(fixture.claim(9).await.len(), 1, "the queue waits for a probe that is gone");
}

/// I-25: a probe is no exception to the limit.
pub async fn a_probe_counts_as_running(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { concurrency: Some(3), ..QueueSettings::default() }).await;
    fixture.publish_many(6).await;
    let running = fixture.claim(9).await;
    fixture.report(&running[0], defer(1)).await.unwrap();
    fixture.save_queue(QueueSettings { concurrency: Some(2), ..QueueSettings::default() }).await;
    fixture.pass(SECOND);

    assert!(fixture.claim(9).await.is_empty());
    fixture.report(&running[1], ack()).await.unwrap();
    assert_eq!(fixture.claim(9).await.len(), 1);
}

/// The receipt of a probe ends the hold while the job runs on. Waiters of the queue must be woken.
pub async fn a_receipt_that_ends_a_hold_says_that_waiters_may_try_again(fixture: &mut Fixture) {
    let push = QueueSettings {
        mode: Mode::Ack,
        webhook_url: Some("https://example.com".to_owned()),
        ..QueueSettings::default()
    };
    fixture.save_queue(push).await;
    fixture.publish_many(3).await;
    let deliver = |limit| ClaimRequest { phase: Phase::Delivering, ..fixture.want(limit) };
    let wanted = (deliver(1), deliver(9));
    let first = fixture.claim_with(wanted.0).await.jobs.pop().unwrap();
    fixture.report(&first, defer(5)).await.unwrap();
    fixture.pass(5 * SECOND);
    let probe = fixture.claim_with(wanted.1.clone()).await.jobs;
    assert_eq!(probe.len(), 1);

    let received = fixture.apply(probe[0].id, Command::Receipt { lease: lease(&probe[0]) }).await.unwrap();

    assert!(received.frees && received.changed, "{received:?}");
    assert_eq!(fixture.queue().await.hold, None);
    let others = fixture.claim_with(wanted.1).await.jobs;
    assert!(!others.is_empty());
    let again = fixture.apply(others[0].id, Command::Receipt { lease: lease(&others[0]) }).await.unwrap();
    assert!(!again.frees, "there is no hold to end");
}
