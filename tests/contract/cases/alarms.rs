//! Timers: due jobs, lost leases, expired results, purged jobs.

use std::time::Duration;

use outlast_core::state::Ending;
use outlast_core::{Command, Outage, Outcome, QueueSettings, Spec, Status};
use outlast_store::jobs::Reach;

use crate::fixture::{Fixture, SECOND, ack, created, keyed, payload};

pub async fn an_idle_store_has_no_alarm(fixture: &mut Fixture) {
    fixture.publish_many(2).await;

    let due = fixture.store.due(9).await.unwrap();

    assert!(due.jobs.is_empty());
    assert_eq!(due.next, None);
}

pub async fn alarms_ring_in_order_and_not_before_their_time(fixture: &mut Fixture) {
    let start = fixture.now();
    let mut jobs = Vec::new();
    for seconds in [3, 1, 2] {
        jobs.push(fixture.publish(Spec { not_before: Some(start.plus(seconds * SECOND)), ..payload("1") }).await.id);
    }

    fixture.pass(SECOND - Duration::from_millis(1));
    let early = fixture.store.due(9).await.unwrap();
    assert_eq!((early.jobs.len(), early.next), (0, Some(start.plus(SECOND))));

    fixture.pass(Duration::from_millis(1001));
    fixture.reopen().await;
    let two = fixture.store.due(9).await.unwrap();
    assert_eq!((two.jobs, two.next), (vec![jobs[1], jobs[2]], Some(start.plus(3 * SECOND))));
    let one = fixture.store.due(1).await.unwrap();
    assert_eq!((one.jobs, one.next), (vec![jobs[1]], Some(start.plus(2 * SECOND))));
}

pub async fn naming_due_jobs_changes_nothing_and_waking_early_neither(fixture: &mut Fixture) {
    let job = fixture.publish(Spec { not_before: Some(fixture.now().plus(SECOND)), ..payload("1") }).await;

    let early = fixture.apply(job.id, Command::WAKE).await.unwrap();
    fixture.pass(SECOND);
    fixture.store.due(9).await.unwrap();

    assert_eq!((early.changed, early.status, early.wake_at), (false, Status::Pending, Some(fixture.now())));
    assert_eq!(fixture.job(job.id).await, job);
}

pub async fn a_lease_that_runs_out_charges_the_attempt_and_frees_the_job(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.pass(30 * SECOND);
    fixture.reopen().await;
    let rung = fixture.store.due(9).await.unwrap().jobs;
    let woken = fixture.apply(rung[0], Command::WAKE).await.unwrap();

    let stored = fixture.job(job.id).await;
    assert_eq!((woken.status, woken.frees, stored.attempt), (Status::Queued, true, 2));
    assert_eq!(stored.last.map(|last| last.how), Some(Ending::LeaseExpired));
    assert_eq!(stored.last_error.as_deref(), Some("lease_expired"));
}

pub async fn a_nacked_job_waits_for_its_backoff(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let delay = Duration::from_millis(2500);
    let nacked = fixture.report(&job, Outcome::Nack { retryable: true, delay: Some(delay) }).await.unwrap();
    assert_eq!((nacked.status, nacked.wake_at), (Status::Pending, Some(fixture.now().plus(delay))));

    fixture.pass(delay - Duration::from_millis(1));
    fixture.sweep().await;
    assert!(fixture.claim(1).await.is_empty());
    fixture.pass(Duration::from_millis(1));
    fixture.sweep().await;
    assert_eq!(fixture.claim(1).await[0].attempt, 2);
}

pub async fn a_result_expires_and_its_job_stays(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { result_ttl: 5 * SECOND, ..QueueSettings::default() }).await;
    let job = fixture.running(payload("1")).await;
    fixture.report(&job, Outcome::Ack { result: Some("{}".into()) }).await.unwrap();
    let finished_at = fixture.now();
    fixture.pass(5 * SECOND);
    fixture.sweep().await;

    let stored = fixture.job(job.id).await;
    assert_eq!((stored.status(), stored.finished_at()), (Status::Expired, Some(finished_at)));
    assert_eq!(fixture.store.result(&Reach::Everything, job.id).await.unwrap(), None);
}

pub async fn a_finished_job_is_purged_with_all_that_belongs_to_it(fixture: &mut Fixture) {
    let retention = 10 * SECOND;
    fixture.save_queue(QueueSettings { retention, result_ttl: SECOND, ..QueueSettings::default() }).await;
    let with_result = fixture.running(Spec { tags: vec![("a".into(), "b".into())], ..keyed("k") }).await;
    fixture.report(&with_result, Outcome::Ack { result: Some("1".into()) }).await.unwrap();
    let failed = fixture.running(payload("1")).await;
    fixture.fail(&failed).await;

    fixture.pass(retention - Duration::from_millis(1));
    fixture.sweep().await;
    assert_eq!(fixture.counts().await.total(), 2);

    fixture.pass(2 * retention);
    fixture.sweep().await;
    for id in [with_result.id, failed.id] {
        assert_eq!(fixture.find(id).await, None);
        assert!(fixture.store.events(&Reach::Everything, id, 0, 9).await.unwrap().is_none());
    }
    assert_eq!(fixture.counts().await.total(), 0);
    assert_eq!(fixture.store.due(9).await.unwrap().next, None);
    created(fixture.try_publish(keyed("k")).await);
}

/// Else a sweep would find it again and again and never come to an end.
pub async fn an_alarm_that_a_changed_setting_has_moved_is_set_again(fixture: &mut Fixture) {
    let short = QueueSettings { retention: 10 * SECOND, ..QueueSettings::default() };
    let long = QueueSettings { retention: 100 * SECOND, ..QueueSettings::default() };
    fixture.save_queue(short).await;
    let job = fixture.running(payload("1")).await;
    fixture.report(&job, ack()).await.unwrap();
    fixture.save_queue(long).await;
    fixture.pass(50 * SECOND);

    let rung = fixture.store.due(9).await.unwrap().jobs;
    assert_eq!(rung, [job.id]);
    let woken = fixture.apply(job.id, Command::WAKE).await.unwrap();

    assert!(!woken.changed);
    assert_eq!(woken.wake_at, Some(fixture.now().plus(50 * SECOND)));
    let due = fixture.store.due(9).await.unwrap();
    assert_eq!((due.jobs.len(), due.next), (0, woken.wake_at));
    fixture.reopen().await;
    assert_eq!(fixture.store.due(9).await.unwrap().next, woken.wake_at);
}

// I-20: where nodes share a store, it knows when none of them looked.
pub async fn a_store_whose_alarms_were_not_read_reports_an_outage(fixture: &mut Fixture) {
    if !fixture.is_shared() {
        return;
    }
    assert_eq!(fixture.store.record_attendance().await.unwrap(), None);
    let from = fixture.now();

    fixture.pass(SECOND);
    fixture.reopen().await;
    assert_eq!(fixture.store.record_attendance().await.unwrap(), None, "somebody looked a moment ago");
    let last_look = fixture.now();
    assert!(last_look > from);

    fixture.pass(60 * SECOND);
    fixture.reopen().await;
    let outage = Some(Outage { from: last_look, to: fixture.now() });
    assert_eq!(fixture.store.record_attendance().await.unwrap(), outage);

    fixture.pass(SECOND);
    fixture.reopen().await;
    assert_eq!(fixture.store.record_attendance().await.unwrap(), outage, "the last one is remembered for all");

    fixture.pass(3 * SECOND);
    fixture.reopen().await;
    let continued = Some(Outage { from: last_look, to: fixture.now() });
    assert_eq!(fixture.store.record_attendance().await.unwrap(), continued, "one that follows shortly is the same");

    let quiet = async |fixture: &mut Fixture| {
        fixture.pass(SECOND);
        fixture.reopen().await;
        fixture.store.record_attendance().await.unwrap()
    };
    for _ in 0..15 {
        assert_eq!(quiet(fixture).await, continued);
    }
    let last_look = fixture.now();
    fixture.pass(2 * SECOND);
    fixture.reopen().await;
    let short = Some(Outage { from: last_look, to: fixture.now() });
    assert_eq!(fixture.store.record_attendance().await.unwrap(), short, "a short one counts as well");
}
