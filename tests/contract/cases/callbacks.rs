//! I-28: a job with a callback URL has a callback at its end, a job in the namespace's queue `_callbacks` that is made
//! in the same transaction.

use std::sync::Arc;

use outlast_core::queue::Mode;
use outlast_core::state::{CancelReason, Phase};
use outlast_core::system_queue::CALLBACKS;
use outlast_core::system_queue::JOB_TAG;
use outlast_core::{Command, EventKind, Job, JobId, NamespaceId, Outcome, Overrides, QueueSettings, Spec, Status};
use outlast_store::jobs::{Applied, ClaimRequest, JobCommand, ListJobs, Published, Reach};
use outlast_store::operations::OperationKind;
use outlast_tests::objects;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::operations::{finish, start, whole};
use crate::backend::TOLD_AS;
use crate::dump::{all_jobs, every_job};
use crate::fixture::{Fixture, SECOND, ack, created, lease, payload, report};

const URL: &str = "https://example.com/done";

/// A job with a callback URL.
fn asking() -> Spec {
    Spec { callback_url: Some(URL.into()), ..payload("1") }
}

/// The callbacks of a namespace, oldest first.
async fn callbacks_in(fixture: &Fixture, namespace: NamespaceId) -> Vec<Job> {
    let list = ListJobs { reach: Reach::Namespace(namespace), queue: Some(CALLBACKS.to_owned()), ..every_job() };
    let mut jobs: Vec<_> = all_jobs(&*fixture.store, list).await.into_iter().map(|found| found.job).collect();
    jobs.reverse();
    jobs
}

async fn callbacks(fixture: &Fixture) -> Vec<Job> {
    callbacks_in(fixture, fixture.ours).await
}

/// Did it put a callback into the queue for them?
fn tells(applied: &Applied) -> bool {
    applied.published.iter().any(|queue| **queue == *CALLBACKS)
}

fn body(job: &Job) -> Value {
    serde_json::from_str(&job.spec.payload).expect("a callback is JSON")
}

/// The job has just ended with `before` callbacks so far: now there is exactly one more, with its status.
async fn check_callback(fixture: &Fixture, id: JobId, status: Status, before: usize) {
    let job = fixture.job(id).await;
    assert_eq!(job.status(), status);
    let callbacks = callbacks(fixture).await;
    assert_eq!(callbacks.len(), before + 1, "{status} has one callback");
    let callback = callbacks.last().unwrap();
    assert_eq!(callback.status(), Status::Queued);
    assert_eq!(callback.spec.callback_url.as_deref(), Some(URL));
    assert_eq!(callback.spec.tags, [(JOB_TAG.into(), id.to_string().into())]);
    assert_eq!(body(callback)["id"], json!(id.to_string()));
    assert_eq!(body(callback)["status"], json!(status.as_str()));
    let events = fixture.store.events(&Reach::Everything, id, 0, 99).await.unwrap().unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::Callback).count(), 1);
}

pub async fn each_way_to_end_has_one_callback(fixture: &mut Fixture) {
    let nack = |retryable| Outcome::Nack { retryable, delay: None };
    let one_attempt = Spec { overrides: Overrides { max_attempts: Some(1), ..Overrides::default() }, ..asking() };
    let mut before = 0;
    for (outcome, status) in [(ack(), Status::Succeeded), (nack(false), Status::Failed), (nack(true), Status::Failed)] {
        let job = fixture.running(one_attempt.clone()).await;
        assert!(tells(&fixture.report(&job, outcome.clone()).await.unwrap()));
        check_callback(fixture, job.id, status, before).await;
        let again = fixture.report(&job, outcome).await.unwrap();
        assert!(!again.changed && !tells(&again), "a repeated report ends nothing");
        before += 1;
    }

    // Cancelled while it waits, and while it runs.
    let cancel = Command::Cancel { reason: CancelReason::User };
    let waiting = fixture.publish(asking()).await.id;
    assert!(tells(&fixture.apply(waiting, cancel.clone()).await.unwrap()));
    check_callback(fixture, waiting, Status::Cancelled, before).await;
    let running = fixture.running(asking()).await;
    assert!(!tells(&fixture.apply(running.id, cancel).await.unwrap()), "it is only asked to stop");
    assert!(tells(&fixture.report(&running, Outcome::Cancelled).await.unwrap()));
    check_callback(fixture, running.id, Status::Cancelled, before + 1).await;
    before += 2;

    // By the clock: the last attempt's lease, the job's own time, the start that came too late.
    let limited = Spec { overrides: Overrides { job_timeout: Some(SECOND), ..Overrides::default() }, ..asking() };
    let late = Spec { start_by: Some(fixture.now().plus(60 * SECOND)), ..asking() };
    for (spec, runs, status) in
        [(one_attempt, true, Status::Failed), (limited, true, Status::Cancelled), (late, false, Status::Cancelled)]
    {
        let id = fixture.publish(spec).await.id;
        assert_eq!(if runs { fixture.claim(1).await.len() } else { 1 }, 1);
        fixture.pass(61 * SECOND);
        fixture.sweep().await;
        check_callback(fixture, id, status, before).await;
        before += 1;
    }

    // By a claim that finds it too late, and by an operation.
    let late = fixture.publish(Spec { start_by: Some(fixture.now().plus(SECOND)), ..asking() }).await.id;
    fixture.pass(2 * SECOND);
    let claimed = fixture.claim_with(fixture.want(1)).await;
    assert!(claimed.jobs.is_empty() && claimed.published.contains(CALLBACKS));
    assert_eq!(claimed.ended, [late]);
    check_callback(fixture, late, Status::Cancelled, before).await;
    let purged = fixture.publish(asking()).await.id;
    let operation = start(fixture, OperationKind::Purge, whole()).await;
    finish(fixture, operation.id, 9).await;
    check_callback(fixture, purged, Status::Cancelled, before + 1).await;
}

pub async fn a_callback_says_how_its_job_ended(fixture: &mut Fixture) {
    let parent = Spec { traceparent: Some("00-1-2-3".into()), ..asking() };
    let acked = fixture.running(parent).await;
    fixture.report(&acked, Outcome::Ack { result: Some(r#"{"b": 1,  "a":[2]}"#.into()) }).await.unwrap();
    let uploaded = fixture.running(asking()).await;
    let object = objects::result(1, 10);
    fixture.apply(uploaded.id, Command::Finalize { lease: Some(lease(&uploaded)), object }).await.unwrap();
    fixture.pass(60 * SECOND);
    fixture.sweep().await;
    let failed = fixture.running(asking()).await;
    fixture.fail(&failed).await;

    let callbacks = callbacks(fixture).await;
    let finished = async |id| fixture.job(id).await.finished_at().expect("it has ended").to_string();
    let expected = json!({
        "id": acked.id.to_string(), "queue": "mail", "status": "succeeded", "replays": 0, "result": {"b": 1, "a": [2]},
        "error": null, "finishedAt": finished(acked.id).await,
    });
    assert_eq!(body(&callbacks[0]), expected);
    assert!(callbacks[0].spec.payload.contains(r#"{"b": 1,  "a":[2]}"#), "the result is byte for byte what was acked");
    assert_eq!(callbacks[0].spec.traceparent.as_deref(), Some("00-1-2-3"));
    let expected = json!({
        "id": uploaded.id.to_string(), "queue": "mail", "status": "succeeded", "replays": 0,
        "resultUrl": format!("/v1/jobs/{}/result", uploaded.id), "error": null,
        "finishedAt": finished(uploaded.id).await,
    });
    assert_eq!(body(&callbacks[1]), expected);
    let expected = json!({
        "id": failed.id.to_string(), "queue": "mail", "status": "failed", "replays": 0,
        "error": {"reason": "not_retryable", "message": "nacked"}, "finishedAt": finished(failed.id).await,
    });
    assert_eq!(body(&callbacks[2]), expected);
}

pub async fn each_end_after_a_replay_has_its_own_callback(fixture: &mut Fixture) {
    let job = fixture.running(asking()).await;
    fixture.fail(&job).await;
    let replayed = fixture.apply(job.id, Command::Replay { fresh: true, payload: None }).await.unwrap();
    assert!(!tells(&replayed));
    assert_eq!(callbacks(fixture).await.len(), 1);

    let again = fixture.claim(1).await.pop().unwrap();
    fixture.report(&again, ack()).await.unwrap();

    let callbacks: Vec<_> = callbacks(fixture).await.iter().map(body).collect();
    let replays: Vec<_> = callbacks.iter().map(|body| (&body["replays"], &body["status"])).collect();
    assert_eq!(replays, [(&json!(0), &json!("failed")), (&json!(1), &json!("succeeded"))]);
}

pub async fn only_an_end_has_a_callback_and_only_with_a_url(fixture: &mut Fixture) {
    let (retention, result_ttl) = (120 * SECOND, SECOND);
    fixture.save_queue(QueueSettings { retention, result_ttl, ..QueueSettings::default() }).await;
    let silent = fixture.running(payload("1")).await;
    let applied = fixture.report(&silent, ack()).await.unwrap();
    assert!(!tells(&applied));
    assert!(fixture.store.queue(fixture.ours, CALLBACKS).await.unwrap().is_none(), "the queue is made when needed");

    let job = fixture.running(asking()).await;
    for outcome in [Outcome::Release, Outcome::Nack { retryable: true, delay: Some(SECOND) }] {
        assert!(!tells(&fixture.report(&fixture.job(job.id).await, outcome).await.unwrap()));
        fixture.pass(SECOND);
        fixture.sweep().await;
        assert_eq!(fixture.claim(1).await.len(), 1);
    }
    assert!(callbacks(fixture).await.is_empty(), "it has not ended");
    let running = fixture.job(job.id).await;
    fixture.report(&running, Outcome::Ack { result: Some("1".into()) }).await.unwrap();
    assert_eq!(callbacks(fixture).await.len(), 1);

    for wait in [2, 200] {
        fixture.pass(wait * SECOND);
        fixture.sweep().await;
    }
    assert!(fixture.find(job.id).await.is_none(), "expired and purged");
    assert_eq!(callbacks(fixture).await.len(), 1, "neither of which is an end");
}

pub async fn a_callback_itself_has_no_callback(fixture: &mut Fixture) {
    for _ in 0..3 {
        let job = fixture.running(asking()).await;
        fixture.report(&job, ack()).await.unwrap();
    }
    let (queue, _) = fixture.store.queue(fixture.ours, CALLBACKS).await.unwrap().expect("it was made");
    assert_eq!((queue.settings.mode, queue.settings.max_attempts), (Mode::Callback, 4));

    let want = ClaimRequest { queue: CALLBACKS.into(), phase: Phase::Delivering, ..fixture.want(9) };
    assert!(
        fixture.claim_with(ClaimRequest { phase: Phase::Leased, ..want.clone() }).await.push_only,
        "users cannot take it"
    );
    let claimed = fixture.claim_with(want).await.jobs;
    let outcomes = [ack(), Outcome::Nack { retryable: false, delay: None }];
    for (job, outcome) in claimed.iter().zip(outcomes) {
        assert!(!tells(&fixture.report(job, outcome).await.unwrap()));
    }
    let cancel = Command::Cancel { reason: CancelReason::User };
    fixture.apply(claimed[2].id, cancel).await.unwrap();
    fixture.report(&claimed[2], Outcome::Cancelled).await.unwrap();

    let callbacks = callbacks(fixture).await;
    assert!(callbacks.len() == 3 && callbacks.iter().all(|job| job.status().is_terminal()), "{callbacks:?}");
}

pub async fn callbacks_stay_in_the_namespace_of_their_job(fixture: &mut Fixture) {
    let anything = outlast_store::queues::ExpectedVersion::Anything;
    fixture.store.save_queue(fixture.theirs, "mail", QueueSettings::default().into(), anything).await.unwrap().unwrap();
    let job = created(fixture.publish_to(fixture.theirs, "mail", asking()).await);
    let cancel = Command::Cancel { reason: CancelReason::User };
    fixture.apply_as(Reach::Everything, job.id, cancel).await.unwrap();

    assert_eq!(callbacks_in(fixture, fixture.theirs).await.len(), 1);
    assert!(callbacks(fixture).await.is_empty());
    assert!(fixture.store.queue(fixture.ours, CALLBACKS).await.unwrap().is_none());
}

/// The queue does not exist yet, and all calls need it at once.
pub async fn racing_ends_all_have_callbacks_in_one_queue(fixture: &mut Fixture) {
    for _ in 0..20 {
        fixture.publish(asking()).await;
    }
    let claimed = fixture.claim(20).await;
    let mut racers = JoinSet::new();
    for job in &claimed {
        let order = JobCommand { id: job.id, reach: Reach::Everything, command: report(Some(lease(job)), ack()) };
        let store = Arc::clone(&fixture.store);
        racers.spawn(async move { store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap() });
    }

    assert!(racers.join_all().await.iter().all(tells));
    let callbacks = callbacks(fixture).await;
    let mut expected: Vec<_> = claimed.iter().map(|job| job.id.to_string()).collect();
    let mut found: Vec<_> = callbacks.iter().map(|job| job.spec.tags[0].1.to_string()).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let (queue, counts) = fixture.store.queue(fixture.ours, CALLBACKS).await.unwrap().unwrap();
    assert!(counts.get(Status::Queued) == 20 && callbacks.iter().all(|job| job.queue == queue.id));
}

/// The limit is for publishers; what is due to a job that was taken is not held back by it.
pub async fn a_full_namespace_still_gets_callbacks(fixture: &mut Fixture) {
    let running = fixture.running(asking()).await;
    while let Published::Created { .. } = fixture.try_publish(payload("1")).await {}

    fixture.report(&running, ack()).await.unwrap();

    assert_eq!(callbacks(fixture).await.len(), 1);
    assert!(matches!(fixture.try_publish(payload("1")).await, Published::QuotaReached { .. }));
}

pub async fn a_notice_with_a_key_is_made_once(fixture: &mut Fixture) {
    let told_as = |key: &str| Spec { tags: vec![(TOLD_AS.into(), key.into())], ..asking() };
    for key in ["a", "b", "a"] {
        let job = fixture.running(told_as(key)).await;
        assert!(tells(&fixture.report(&job, ack()).await.unwrap()));
    }
    // Several ends in one transaction, too.
    let (first, second) = (fixture.running(told_as("c")).await, fixture.running(told_as("c")).await);
    let orders = [first, second].map(|job| {
        let command = report(Some(lease(&job)), ack());
        JobCommand { id: job.id, reach: Reach::Everything, command }
    });
    fixture.store.apply(orders.to_vec()).await.unwrap();

    let keys: Vec<_> = callbacks(fixture).await.into_iter().map(|job| job.spec.idempotency_key.clone()).collect();
    assert_eq!(keys, ["a", "b", "c"].map(|key| Some(key.into())));
}
