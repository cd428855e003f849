//! Rate limits: I-25. How many go out together and how far apart is decided in core; here, that every hand-out counts,
//! once, independent of the receiver and of events in between.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gcra::{Gcra, Permit};
use outlast_core::queue::RateLimit;
use outlast_core::{Outcome, QueueSettings, Spec};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, SECOND, ack, payload};

const HOUR: Duration = Duration::from_secs(3600);

async fn limit(fixture: &Fixture, limit: u32, per: Duration) -> RateLimit {
    let rate = RateLimit { limit, per };
    fixture.save_queue(QueueSettings { rate_limit: Some(rate), ..QueueSettings::default() }).await;
    rate
}

/// How many a rate that was never used lets through at once.
fn burst(rate: RateLimit, fixture: &Fixture) -> usize {
    match Gcra::default().permit(rate, fixture.now()) {
        Permit::Now(count) => count as usize,
        Permit::At(at) => panic!("an unused rate holds back until {at:?}"),
    }
}

pub async fn a_claim_gets_the_jobs_within_the_rate_and_the_time_of_the_next(fixture: &mut Fixture) {
    let rate = limit(fixture, 100, HOUR).await;
    fixture.publish_many(12).await;
    let burst = burst(rate, fixture);
    assert!((3..9).contains(&burst), "the case needs a few at once: {burst}");

    let few = fixture.claim_with(fixture.want(2)).await;
    assert_eq!((few.jobs.len(), few.held_until), (2, None), "the rate was not in the way");
    let rest = fixture.claim_with(fixture.want(9)).await;
    assert_eq!(rest.jobs.len(), burst - 2);
    let more_at = rest.held_until.expect("it says when there is more");
    assert!(more_at > fixture.now());
    let none = fixture.claim_with(fixture.want(9)).await;
    assert_eq!((none.jobs.len(), none.held_until), (0, Some(more_at)));

    // The time is rounded up, so that a claim at that time succeeds.
    let rounded = Duration::from_millis(2);
    fixture.pass(more_at.since(fixture.now()) - rounded);
    fixture.reopen().await;
    let early = fixture.claim_with(fixture.want(9)).await;
    assert_eq!((early.jobs.len(), early.held_until), (0, Some(more_at)));
    fixture.pass(rounded);
    assert_eq!(fixture.claim(9).await.len(), 1);
}

/// A claim that emptied the queue waits for the next job, not for the rate: an idle queue is not polled.
pub async fn a_claim_that_emptied_the_queue_gets_no_time_to_return(fixture: &mut Fixture) {
    limit(fixture, 100, HOUR).await;

    let nothing = fixture.claim_with(fixture.want(9)).await;
    assert_eq!((nothing.jobs.len(), nothing.held_until), (0, None));

    fixture.publish_many(2).await;
    let all = fixture.claim_with(fixture.want(9)).await;
    assert_eq!((all.jobs.len(), all.held_until), (2, None));
}

/// Slow, and one used up; then fast: the next one need not wait for what the slow one would have.
pub async fn another_rate_is_not_held_back_by_the_one_before(fixture: &mut Fixture) {
    limit(fixture, 1, 24 * HOUR).await;
    fixture.publish_many(2).await;
    assert_eq!(fixture.claim(2).await.len(), 1);
    let held_until = fixture.claim_with(fixture.want(1)).await.held_until.unwrap();
    assert!(held_until.since(fixture.now()) > HOUR);

    limit(fixture, 10, SECOND).await;

    fixture.pass(SECOND);
    assert_eq!(fixture.claim(2).await.len(), 1);
}

/// Greedy callers over a long time, with restarts: the limit holds in every window, and it is nearly used.
pub async fn no_window_holds_more_hand_outs_than_the_rate_allows(fixture: &mut Fixture) {
    let rate = limit(fixture, 5, SECOND).await;
    let mut taken = Vec::new();
    while taken.len() < 40 {
        if fixture.counts().await.waiting() == 0 {
            fixture.publish_many(10).await;
        }
        let claimed = fixture.claim_with(fixture.want(3)).await;
        for job in &claimed.jobs {
            taken.push(fixture.now());
            fixture.report(job, ack()).await.unwrap();
        }
        if let Some(more_at) = claimed.held_until {
            fixture.pass(more_at.since(fixture.now()));
        }
        if taken.len().is_multiple_of(8) {
            fixture.reopen().await;
        }
    }

    for (at, first) in taken.iter().enumerate() {
        let within = taken[at..].iter().take_while(|later| later.since(*first) < rate.per).count();
        assert!(within <= rate.limit as usize, "{within} hand-outs in one window: {taken:?}");
    }
    let spent = taken[39].since(taken[0]);
    assert!(spent < 10 * SECOND, "forty at five a second took {spent:?}");
}

pub async fn racing_claims_together_get_what_the_rate_lets_through(fixture: &mut Fixture) {
    let rate = limit(fixture, 100, HOUR).await;
    fixture.publish_many(20).await;

    let mut racers = JoinSet::new();
    for _ in 0..8 {
        let (store, want) = (Arc::clone(&fixture.store), fixture.want(3));
        racers.spawn(async move { store.claim(want).await.unwrap().expect("the queue exists").jobs.len() });
    }
    let together: usize = racers.join_all().await.into_iter().sum();

    // A racer may have met another one at the same job and gone away with less than it could have had.
    let left = fixture.claim(9).await.len();
    assert_eq!(together + left, burst(rate, fixture));
}

pub async fn a_job_that_comes_back_has_used_the_rate(fixture: &mut Fixture) {
    limit(fixture, 1, HOUR).await;
    let job = fixture.running(payload("1")).await;
    fixture.report(&job, Outcome::Release).await.unwrap();

    let claimed = fixture.claim_with(fixture.want(1)).await;
    assert!(claimed.jobs.is_empty() && claimed.held_until >= Some(fixture.now().plus(HOUR)));
}

pub async fn a_job_past_its_start_by_does_not_use_the_rate(fixture: &mut Fixture) {
    limit(fixture, 1, HOUR).await;
    let late = fixture.publish(Spec { start_by: Some(fixture.now().plus(SECOND)), ..payload("1") }).await;
    let next = fixture.publish(payload("2")).await;
    fixture.pass(2 * SECOND);

    let claimed = fixture.claim(1).await;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [next.id]);
    assert!(fixture.job(late.id).await.status().is_terminal());
    assert!(fixture.claim(1).await.is_empty());
}

pub async fn a_rate_that_is_lifted_holds_nothing_back(fixture: &mut Fixture) {
    limit(fixture, 1, HOUR).await;
    fixture.publish_many(5).await;
    assert_eq!(fixture.claim(9).await.len(), 1);

    fixture.save_queue(QueueSettings::default()).await;
    let claimed = fixture.claim_with(fixture.want(2)).await;
    assert_eq!((claimed.jobs.len(), claimed.held_until), (2, None));

    limit(fixture, 1, HOUR).await;
    assert!(fixture.claim(9).await.is_empty(), "what was used before is remembered");
}
