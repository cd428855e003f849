//! Calls that come in at the same time and share a transaction, where the engine lets them: each must see what those
//! before it have done, though nothing of it is committed yet.

use outlast_core::gate::HoldCause;
use outlast_core::queue::DeferScope;
use outlast_core::state::CancelReason;
use outlast_core::{Command, Job, Outcome, QueueSettings, Status};
use outlast_store::jobs::{ClaimRequest, Declined};
use tokio::join;

use crate::fixture::{Fixture, SECOND, ack, created, ids, payload, report};

const OTHER: &str = "other";

/// A queue beside `mail` with one job. A claim of it that is sent last shows by what it wrote that all calls before it
/// were in the same transaction.
async fn other_queue(fixture: &Fixture) -> Job {
    fixture.save(OTHER, QueueSettings::default()).await;
    created(fixture.publish_to(fixture.ours, OTHER, payload("other")).await)
}

fn want_other(fixture: &Fixture) -> ClaimRequest {
    ClaimRequest { queue: OTHER.into(), ..fixture.want(1) }
}

/// The hold that a neighbour has just put on the queue shuts it for the claim, which is no probe.
pub async fn a_claim_beside_a_deferral_finds_the_queue_held(fixture: &mut Fixture) {
    fixture.publish_many(3).await;
    let first = fixture.claim(1).await.pop().unwrap();
    let elsewhere = other_queue(fixture).await;
    let defer = Outcome::Defer {
        retry_after: Some(10 * SECOND),
        scope: Some(DeferScope::Queue),
        cause: HoldCause::Backpressure,
    };

    let (deferred, claimed, last) = join!(
        fixture.report(&first, defer),
        fixture.claim_with(fixture.want(9)),
        fixture.claim_with(want_other(fixture))
    );

    fixture.check_that_one_transaction_wrote(2);
    assert_eq!(ids(&last.jobs), [elsewhere.id]);
    assert!(deferred.unwrap().changed);
    assert_eq!((ids(&claimed.jobs), claimed.held_until), (vec![], Some(fixture.now().plus(10 * SECOND))));
    assert_eq!(fixture.queue().await.hold.expect("the queue is held").probe, None);
}

/// A job that was cancelled a moment before does not go out, and is not in the way of the next.
pub async fn a_claim_beside_a_cancel_gets_the_job_behind_it(fixture: &mut Fixture) {
    let published = fixture.publish_many(2).await;
    let elsewhere = other_queue(fixture).await;
    let cancel = Command::Cancel { reason: CancelReason::User };

    let (cancelled, claimed, last) = join!(
        fixture.apply(published[0], cancel),
        fixture.claim_with(fixture.want(1)),
        fixture.claim_with(want_other(fixture))
    );

    fixture.check_that_one_transaction_wrote(3);
    assert_eq!(ids(&last.jobs), [elsewhere.id]);
    assert_eq!(cancelled.unwrap().status, Status::Cancelled);
    assert_eq!(ids(&claimed.jobs), [published[1]]);
    assert!(fixture.claim(9).await.is_empty());
    assert_eq!(fixture.job(published[0]).await.status(), Status::Cancelled);
}

/// A refused command needs no payload; a claim does.
pub async fn a_job_handed_out_beside_a_refused_command_has_its_payload(fixture: &mut Fixture) {
    let job = fixture.publish(payload("\"hello\"")).await;
    let elsewhere = other_queue(fixture).await;

    let (refused, claimed, last) = join!(
        fixture.apply(job.id, report(None, ack())),
        fixture.claim_with(fixture.want(9)),
        fixture.claim_with(want_other(fixture))
    );

    fixture.check_that_one_transaction_wrote(2);
    assert_eq!(ids(&last.jobs), [elsewhere.id]);
    assert!(matches!(refused, Err(Declined::Refused(_))), "{refused:?}");
    let payloads: Vec<&str> = claimed.jobs.iter().map(|job| &*job.spec.payload).collect();
    assert_eq!(payloads, ["\"hello\""]);
}

/// Jobs that their neighbours got will not be free soon.
pub async fn claims_that_come_too_late_need_not_look_again(fixture: &mut Fixture) {
    let published = fixture.publish_many(2).await;

    let (first, second, third, fourth) = join!(
        fixture.claim_with(fixture.want(1)),
        fixture.claim_with(fixture.want(1)),
        fixture.claim_with(fixture.want(1)),
        fixture.claim_with(fixture.want(5))
    );

    fixture.check_that_one_transaction_wrote(2);
    assert_eq!([ids(&first.jobs), ids(&second.jobs)].concat(), published);
    for late in [third, fourth] {
        assert_eq!((ids(&late.jobs), late.look_again), (vec![], None));
    }
}
