//! Operations over many jobs: what they touch, in which steps, and that a restart in the middle loses and repeats
//! nothing.

use outlast_core::queue::Dedupe;
use outlast_core::{JobId, Outcome, QueueSettings, Spec, Status};
use outlast_store::operations::{
    NewOperation, Operation, OperationFilter, OperationId, OperationKind, OperationStatus,
};

use crate::fixture::{Fixture, QUEUE, SECOND, ack, keyed, payload};

pub fn whole() -> OperationFilter {
    OperationFilter::default()
}

fn new(fixture: &Fixture, kind: OperationKind, filter: OperationFilter) -> NewOperation {
    NewOperation { namespace: fixture.ours, queue: QUEUE.to_owned(), kind, filter, limit: None, rate_per_second: None }
}

pub async fn start(fixture: &Fixture, kind: OperationKind, filter: OperationFilter) -> Operation {
    fixture.store.start_operation(new(fixture, kind, filter)).await.unwrap().expect("the queue exists")
}

/// Steps of `limit` jobs until it is done.
pub async fn finish(fixture: &Fixture, id: OperationId, limit: usize) -> Operation {
    for _ in 0..1000 {
        let operation = fixture.store.advance_operation(id, limit).await.unwrap().expect("the operation exists");
        if operation.status != OperationStatus::Running {
            return operation;
        }
    }
    panic!("the operation never ends");
}

/// Deletes dead letters: all, or those with these ids.
pub async fn discard(fixture: &Fixture, ids: Option<Vec<JobId>>) {
    let ids = ids.map(|ids| ids.iter().map(JobId::to_string).collect());
    let operation = start(fixture, OperationKind::Discard, OperationFilter { ids, ..OperationFilter::default() }).await;
    finish(fixture, operation.id, 99).await;
}

async fn dead_letter(fixture: &Fixture, spec: Spec) -> JobId {
    let job = fixture.running(spec).await;
    fixture.fail(&job).await;
    job.id
}

/// I-24: each job once, however small the steps and however often the store is reopened.
pub async fn a_bulk_replay_opens_each_run_once_across_restarts(fixture: &mut Fixture) {
    let mut dead = Vec::new();
    for _ in 0..7 {
        dead.push(dead_letter(fixture, payload("1")).await);
    }
    let alive = fixture.running(payload("1")).await;
    let operation = start(fixture, OperationKind::Replay, whole()).await;
    assert_eq!(
        (operation.status, operation.processed, operation.created_at),
        (OperationStatus::Running, 0, fixture.now())
    );

    for processed in [2, 4, 6] {
        let step = fixture.store.advance_operation(operation.id, 2).await.unwrap().unwrap();
        assert_eq!((step.processed, step.status), (processed, OperationStatus::Running));
        fixture.reopen().await;
        assert_eq!(fixture.store.open_operations().await.unwrap(), [step]);
        // A replayed job may fail again: the operation must not replay it twice.
        fixture.pass(SECOND);
        for job in fixture.claim(9).await {
            fixture.fail(&job).await;
        }
    }
    let done = finish(fixture, operation.id, 2).await;

    assert_eq!((done.processed, done.status, done.finished_at), (7, OperationStatus::Done, Some(fixture.now())));
    for id in dead {
        assert_eq!(fixture.job(id).await.replays, 1);
    }
    assert_eq!(fixture.job(alive.id).await, alive);
    assert!(fixture.store.open_operations().await.unwrap().is_empty());
}

pub async fn a_replay_takes_what_fits_its_filter(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { max_attempts: 1, ..QueueSettings::default() }).await;
    let start_time = fixture.now();
    let tags = vec![("kind".into(), "x".into()), ("size".into(), "s".into())];
    let tagged = dead_letter(fixture, Spec { tags, key: Some("t1".into()), ..payload("1") }).await;
    fixture.pass(SECOND);
    let keyed = dead_letter(fixture, Spec { key: Some("t2".into()), ..payload("1") }).await;
    fixture.pass(SECOND);
    let exhausted = fixture.running(payload("1")).await;
    fixture.report(&exhausted, Outcome::Nack { retryable: true, delay: None }).await.unwrap();
    let plain = exhausted.id;

    let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for (filter, expected) in [
        (OperationFilter { tags: vec![tag("kind", "x")], ..whole() }, vec![tagged]),
        (OperationFilter { tags: vec![tag("kind", "x"), tag("size", "l")], ..whole() }, vec![]),
        (OperationFilter { key: Some("t2".to_owned()), ..whole() }, vec![keyed]),
        (OperationFilter { reason: Some("attempts_exhausted".to_owned()), ..whole() }, vec![plain]),
        (OperationFilter { reason: Some("not_retryable".to_owned()), ..whole() }, vec![tagged, keyed]),
        (OperationFilter { ids: Some(vec![plain.to_string(), tagged.to_string()]), ..whole() }, vec![tagged, plain]),
        (OperationFilter { ids: Some(Vec::new()), ..whole() }, vec![]),
        (OperationFilter { finished_after: Some(start_time.plus(SECOND)), ..whole() }, vec![keyed, plain]),
        (OperationFilter { finished_before: Some(start_time.plus(SECOND)), ..whole() }, vec![tagged]),
        (whole(), vec![tagged, keyed, plain]),
    ] {
        let wanted = new(fixture, OperationKind::Replay, filter.clone());
        assert_eq!(fixture.store.count_operation(&wanted, 99).await.unwrap(), expected.len() as u64, "{filter:?}");
        assert_eq!(fixture.store.count_operation(&wanted, 1).await.unwrap(), expected.len().min(1) as u64);
    }
    let operation =
        start(fixture, OperationKind::Replay, OperationFilter { key: Some("t2".to_owned()), ..whole() }).await;
    assert_eq!(finish(fixture, operation.id, 9).await.processed, 1);
    let replays =
        [fixture.job(tagged).await.replays, fixture.job(keyed).await.replays, fixture.job(plain).await.replays];
    assert_eq!(replays, [0, 1, 0]);
}

/// I-09: one key has one live job. The operation says how many jobs it passed over, and two failed jobs of one key are
/// not both replayed.
pub async fn a_replay_skips_jobs_whose_key_another_job_has(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { dedupe: Dedupe::UnlessFailed, ..QueueSettings::default() }).await;
    let plain = dead_letter(fixture, payload("1")).await;
    let passed_on = dead_letter(fixture, keyed("a")).await;
    let twins = [dead_letter(fixture, keyed("b")).await, dead_letter(fixture, keyed("b")).await];
    let holder = fixture.publish(keyed("a")).await;
    let operation = start(fixture, OperationKind::Replay, whole()).await;

    let first = fixture.store.advance_operation(operation.id, 1).await.unwrap().unwrap();
    assert_eq!((first.processed, first.skipped), (1, 0));
    fixture.reopen().await;
    let done = finish(fixture, operation.id, 9).await;

    assert_eq!((done.status, done.processed, done.skipped), (OperationStatus::Done, 2, 2));
    let statuses = async |ids: &[JobId]| {
        let mut statuses = Vec::new();
        for id in ids {
            statuses.push(fixture.job(*id).await.status());
        }
        statuses
    };
    assert_eq!(statuses(&[plain, passed_on, holder.id]).await, [Status::Queued, Status::Failed, Status::Queued]);
    assert_eq!(statuses(&twins).await, [Status::Queued, Status::Failed]);
}

pub async fn an_operation_stops_at_its_limit(fixture: &mut Fixture) {
    for _ in 0..5 {
        dead_letter(fixture, payload("1")).await;
    }
    let limited =
        NewOperation { limit: Some(3), rate_per_second: Some(11), ..new(fixture, OperationKind::Replay, whole()) };
    let operation = fixture.store.start_operation(limited).await.unwrap().unwrap();
    assert_eq!((operation.limit, operation.rate_per_second), (Some(3), Some(11)));

    let done = finish(fixture, operation.id, 2).await;

    assert_eq!((done.processed, done.status), (3, OperationStatus::Done));
    assert_eq!(fixture.counts().await.get(Status::Failed), 2);
}

pub async fn a_stopped_operation_does_nothing_more(fixture: &mut Fixture) {
    for _ in 0..5 {
        dead_letter(fixture, payload("1")).await;
    }
    let operation = start(fixture, OperationKind::Discard, whole()).await;
    fixture.store.advance_operation(operation.id, 2).await.unwrap();

    assert!(fixture.store.stop_operation(fixture.theirs, operation.id).await.unwrap().is_none());
    let stopped = fixture.store.stop_operation(fixture.ours, operation.id).await.unwrap().unwrap();
    fixture.reopen().await;
    let later = fixture.store.advance_operation(operation.id, 9).await.unwrap().unwrap();

    assert_eq!((stopped.status, stopped.processed), (OperationStatus::Stopped, 2));
    assert_eq!(later, stopped);
    assert_eq!(fixture.store.stop_operation(fixture.ours, operation.id).await.unwrap().unwrap(), stopped);
    assert_eq!(fixture.counts().await.get(Status::Failed), 3);
}

pub async fn a_purge_cancels_what_waits_and_nothing_else(fixture: &mut Fixture) {
    let done = fixture.running(payload("1")).await;
    fixture.report(&done, ack()).await.unwrap();
    let running = fixture.running(payload("1")).await;
    fixture.publish_many(3).await;
    fixture.publish(Spec { not_before: Some(fixture.now().plus(SECOND)), ..payload("1") }).await;

    let operation = start(fixture, OperationKind::Purge, whole()).await;
    let finished = finish(fixture, operation.id, 2).await;

    assert_eq!(finished.processed, 4);
    let counts = fixture.counts().await;
    let found = [Status::Cancelled, Status::Running, Status::Succeeded].map(|status| counts.get(status));
    assert_eq!((found, counts.waiting()), ([4, 1, 1], 0));
    assert_eq!(fixture.job(running.id).await, running);
}

pub async fn a_discard_deletes_dead_letters_and_nothing_else(fixture: &mut Fixture) {
    let dead = dead_letter(fixture, payload("1")).await;
    let alive = fixture.publish(payload("1")).await;

    discard(fixture, None).await;

    assert_eq!(fixture.find(dead).await, None);
    assert_eq!(fixture.job(alive.id).await, alive);
    assert_eq!(fixture.counts().await.total(), 1);
}

pub async fn a_deletion_takes_all_jobs_and_then_the_queue(fixture: &mut Fixture) {
    dead_letter(fixture, payload("1")).await;
    let running = fixture.running(payload("1")).await;
    fixture.publish_many(3).await;

    let operation = start(fixture, OperationKind::Delete, whole()).await;
    let step = fixture.store.advance_operation(operation.id, 3).await.unwrap().unwrap();
    assert_eq!((step.processed, step.status), (3, OperationStatus::Running));
    fixture.publish(payload("late")).await;
    fixture.reopen().await;
    let done = finish(fixture, operation.id, 3).await;

    assert_eq!((done.processed, done.queue_name.as_str()), (6, QUEUE));
    assert!(fixture.store.queue(fixture.ours, QUEUE).await.unwrap().is_none());
    assert_eq!(fixture.find(running.id).await, None);
    assert!(fixture.list(crate::dump::every_job()).await.is_empty());
    fixture.reopen().await;
}

/// Jobs that are not deleted need their queue.
pub async fn a_deletion_that_ends_at_its_limit_leaves_the_queue(fixture: &mut Fixture) {
    let published = fixture.publish_many(3).await;
    let limited = NewOperation { limit: Some(2), ..new(fixture, OperationKind::Delete, whole()) };
    let operation = fixture.store.start_operation(limited).await.unwrap().unwrap();

    assert_eq!(finish(fixture, operation.id, 9).await.processed, 2);

    fixture.reopen().await;
    assert_eq!(fixture.list(fixture.ours()).await, [published[2]]);
}

/// A job that is published after a restart is in front of a running operation, never behind it.
pub async fn a_deletion_also_takes_what_is_published_after_a_restart(fixture: &mut Fixture) {
    fixture.publish_many(2).await;
    let running = fixture.claim(9).await;
    let dead = dead_letter(fixture, payload("1")).await;
    let operation = start(fixture, OperationKind::Delete, whole()).await;
    fixture.store.advance_operation(operation.id, running.len()).await.unwrap();
    discard(fixture, Some(vec![dead])).await;
    assert_eq!(fixture.counts().await.total(), 0);
    fixture.reopen().await;

    fixture.publish(payload("late")).await;
    assert_eq!(finish(fixture, operation.id, 9).await.processed, 3);

    assert!(fixture.list(crate::dump::every_job()).await.is_empty());
}

pub async fn an_operation_belongs_to_its_namespace(fixture: &mut Fixture) {
    let first = start(fixture, OperationKind::Purge, whole()).await;
    let second = start(fixture, OperationKind::Replay, whole()).await;

    assert_eq!(fixture.store.operation(fixture.ours, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(fixture.store.operation(fixture.theirs, first.id).await.unwrap(), None);
    assert_eq!(fixture.store.operations(fixture.ours, 9).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(fixture.store.operations(fixture.ours, 1).await.unwrap(), [second]);
    assert!(fixture.store.operations(fixture.theirs, 9).await.unwrap().is_empty());
    assert!(fixture.store.advance_operation(OperationId(999), 1).await.unwrap().is_none());
    let elsewhere = NewOperation { queue: "nowhere".to_owned(), ..new(fixture, OperationKind::Purge, whole()) };
    assert!(fixture.store.start_operation(elsewhere.clone()).await.unwrap().is_none());
    assert_eq!(fixture.store.count_operation(&elsewhere, 9).await.unwrap(), 0);
}

pub async fn an_operation_whose_queue_is_gone_is_done(fixture: &mut Fixture) {
    let operation = start(fixture, OperationKind::Purge, whole()).await;
    fixture.store.delete_queue(fixture.ours, QUEUE).await.unwrap().unwrap();

    assert_eq!(finish(fixture, operation.id, 9).await.processed, 0);
}
