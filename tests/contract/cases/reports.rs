//! Commands on single jobs: what they change, and who may give them.

use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::queue::{DeferScope, Fencing, Mode};
use outlast_core::state::{CancelReason, Ending, Phase};
use outlast_core::{Command, EventKind, Evidence, JobId, Lease, Outcome, OutcomeKind, QueueSettings, Refusal, Status};
use outlast_store::jobs::{ClaimRequest, Declined, JobCommand, Reach};
use outlast_tests::objects;

use crate::fixture::{Fixture, QUEUE, SECOND, ack, lease, nack, payload, report};

fn user_cancel() -> Command {
    Command::Cancel { reason: CancelReason::User }
}

pub async fn each_outcome_leads_to_its_state(fixture: &mut Fixture) {
    let deferred =
        Outcome::Defer { retry_after: Some(SECOND), scope: Some(DeferScope::Job), cause: HoldCause::Backpressure };
    for (outcome, status, ending) in [
        (ack(), Status::Succeeded, Ending::Acked),
        (Outcome::Nack { retryable: true, delay: None }, Status::Pending, Ending::Nacked),
        (Outcome::Nack { retryable: false, delay: None }, Status::Failed, Ending::Nacked),
        (deferred, Status::Pending, Ending::Deferred),
        (Outcome::Release, Status::Queued, Ending::Released),
    ] {
        let job = fixture.running(payload("1")).await;
        let applied = fixture.report(&job, outcome.clone()).await.unwrap();

        let stored = fixture.job(job.id).await;
        assert_eq!((applied.status, applied.version, applied.changed), (status, job.version + 1, true), "{outcome:?}");
        assert_eq!((stored.status(), stored.version), (status, applied.version));
        assert_eq!(stored.last.map(|last| (last.lease, last.how)), Some((lease(&job), ending)));
        assert!(applied.frees && !applied.deleted);
        if !stored.status().is_terminal() {
            fixture.apply(job.id, user_cancel()).await.unwrap();
        }
    }
}

/// I-15.
pub async fn a_lease_that_is_not_the_present_one_changes_nothing(fixture: &mut Fixture) {
    let old = fixture.running(payload("1")).await;
    fixture.pass(30 * SECOND);
    fixture.sweep().await;
    let new = fixture.claim(1).await.pop().unwrap();
    fixture.reopen().await;

    for lease in [lease(&old), Lease::from_u128(4)] {
        for command in [
            report(Some(lease), ack()),
            report(Some(lease), nack()),
            Command::beat(Some(lease), None),
            Command::Finalize { lease: Some(lease), object: objects::result(1, 1) },
            Command::Receipt { lease },
        ] {
            assert_eq!(fixture.apply(new.id, command).await, Err(Declined::Refused(Refusal::LeaseLost)));
        }
    }
    assert_eq!(fixture.job(new.id).await, new);
}

pub async fn a_repeated_report_is_recognised_and_a_different_one_refused(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let first = fixture.report(&job, ack()).await.unwrap();
    fixture.reopen().await;

    let again = fixture.report(&job, ack()).await.unwrap();
    assert_eq!((again.changed, again.version, again.frees), (false, first.version, false));
    let conflict = Refusal::OutcomeConflict { status: Status::Succeeded, recorded: OutcomeKind::Ack };
    assert_eq!(fixture.report(&job, Outcome::Release).await, Err(Declined::Refused(conflict)));
}

/// I-16: the result that was acknowledged is the one that is stored. Compared as JSON, also after a restart and after
/// the result has expired.
pub async fn a_repeated_report_with_another_result_is_a_conflict(fixture: &mut Fixture) {
    let with = |result: &str| Outcome::Ack { result: Some(result.into()) };
    let conflict = |status| Err(Declined::Refused(Refusal::OutcomeConflict { status, recorded: OutcomeKind::Ack }));
    let first = r#"{"rows": 3, "list": [1, 2]}"#;
    let job = fixture.running(payload("1")).await;
    fixture.report(&job, with(first)).await.unwrap();

    for _ in 0..2 {
        for same in [first, r#"{"list":[1,2],"rows":3}"#] {
            assert!(!fixture.report(&job, with(same)).await.unwrap().changed, "{same}");
        }
        for other in [r#"{"rows": 4, "list": [1, 2]}"#, r#"{"rows": 3, "list": [2, 1]}"#, "{}", "null"] {
            assert_eq!(fixture.report(&job, with(other)).await, conflict(Status::Succeeded), "{other}");
        }
        assert_eq!(fixture.report(&job, ack()).await, conflict(Status::Succeeded));
        fixture.reopen().await;
    }
    fixture.pass(QueueSettings::default().result_ttl);
    fixture.sweep().await;
    assert_eq!(fixture.job(job.id).await.status(), Status::Expired);
    assert!(!fixture.report(&job, with(first)).await.unwrap().changed);
    assert_eq!(fixture.report(&job, with("[]")).await, conflict(Status::Expired));

    let plain = fixture.running(payload("2")).await;
    fixture.report(&plain, ack()).await.unwrap();
    assert_eq!(fixture.report(&plain, with("1")).await, conflict(Status::Succeeded));
    assert!(!fixture.report(&plain, ack()).await.unwrap().changed);
    let uploaded = fixture.running(payload("3")).await;
    let finalize = Command::Finalize { lease: Some(lease(&uploaded)), object: objects::result(1, 1) };
    fixture.apply(uploaded.id, finalize).await.unwrap();
    fixture.report(&uploaded, ack()).await.unwrap();
    assert_eq!(fixture.report(&uploaded, with("1")).await, conflict(Status::Succeeded));
    assert!(!fixture.report(&uploaded, ack()).await.unwrap().changed);
}

pub async fn a_repeated_report_is_compared_by_what_it_asks_for(fixture: &mut Fixture) {
    let nack = |retryable, delay| Outcome::Nack { retryable, delay };
    let defer = |retry_after, scope| Outcome::Defer { retry_after, scope, cause: HoldCause::Deferred };
    let seconds = |count: u32| Some(count * SECOND);
    for (first, others) in [
        (nack(true, seconds(5)), vec![nack(true, seconds(6)), nack(true, None), nack(false, seconds(5))]),
        (nack(false, None), vec![nack(true, None), nack(false, seconds(0))]),
        (
            defer(seconds(5), Some(DeferScope::Job)),
            vec![defer(seconds(6), Some(DeferScope::Job)), defer(None, Some(DeferScope::Job))],
        ),
    ] {
        let job = fixture.running(payload("1")).await;
        fixture.report(&job, first.clone()).await.unwrap();
        fixture.reopen().await;

        assert!(!fixture.report(&job, first.clone()).await.unwrap().changed);
        let evidence = Evidence { error: Some("another reason".into()), ..Evidence::default() };
        let retold = Command::Report { lease: Some(lease(&job)), outcome: first.clone(), evidence };
        assert!(!fixture.apply(job.id, retold).await.unwrap().changed, "a reason is no part of the outcome");
        for other in others {
            let answer = fixture.report(&job, other.clone()).await;
            assert!(
                matches!(answer, Err(Declined::Refused(Refusal::OutcomeConflict { .. }))),
                "{other:?} after {first:?}: {answer:?}"
            );
        }
        fixture.apply(job.id, user_cancel()).await.unwrap();
    }
}

pub async fn a_report_without_a_lease_needs_a_running_job_and_a_queue_that_allows_it(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.save_queue(QueueSettings { fencing: Fencing::Required, ..QueueSettings::default() }).await;
    assert_eq!(fixture.apply(job.id, report(None, ack())).await, Err(Declined::Refused(Refusal::LeaseRequired)));

    fixture.save_queue(QueueSettings::default()).await;
    assert_eq!(fixture.apply(job.id, report(None, ack())).await.unwrap().status, Status::Succeeded);
    let not_running = Refusal::NotRunning { status: Status::Succeeded };
    assert_eq!(fixture.apply(job.id, report(None, ack())).await, Err(Declined::Refused(not_running)));
}

/// T13.
pub async fn a_job_out_of_reach_does_not_exist(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let foreign = [
        Reach::Namespace(fixture.theirs),
        Reach::Queues(fixture.ours, vec!["other".to_owned()].into()),
        Reach::Queues(fixture.theirs, vec![QUEUE.to_owned()].into()),
    ];

    for reach in foreign {
        for command in [report(Some(lease(&job)), ack()), user_cancel(), Command::WAKE] {
            assert_eq!(fixture.apply_as(reach.clone(), job.id, command).await, Err(Declined::NotFound));
        }
        assert!(fixture.store.job(&reach, job.id).await.unwrap().is_none());
        assert!(fixture.store.events(&reach, job.id, 0, 9).await.unwrap().is_none());
        assert!(fixture.store.result(&reach, job.id).await.unwrap().is_none());
    }
    assert_eq!(fixture.job(job.id).await, job);
    let bound = Reach::Queues(fixture.ours, vec!["other".to_owned(), QUEUE.to_owned()].into());
    assert!(fixture.apply_as(bound, job.id, report(None, ack())).await.is_ok());
}

pub async fn an_id_that_was_never_given_is_not_found(fixture: &mut Fixture) {
    let job = fixture.publish(payload("1")).await;
    let strangers = [
        JobId::new(job.created_at, job.id.variable() ^ 1),
        JobId::new(job.created_at, job.id.variable() ^ (1 << 70)),
        JobId::new(job.created_at.plus(SECOND), job.id.variable()),
        JobId::new(fixture.now(), 0),
        JobId::new(fixture.now(), u128::MAX),
    ];
    for id in strangers {
        assert_eq!(fixture.apply(id, user_cancel()).await, Err(Declined::NotFound));
        assert_eq!(fixture.find(id).await, None);
    }
}

pub async fn a_batch_of_commands_is_carried_out_one_by_one(fixture: &mut Fixture) {
    fixture.publish_many(2).await;
    let jobs = fixture.claim(9).await;
    let order = |id, command| JobCommand { id, reach: Reach::Namespace(fixture.ours), command };
    let stranger = JobId::new(fixture.now(), 5);

    let answers = fixture
        .store
        .apply(vec![
            order(jobs[0].id, report(Some(lease(&jobs[0])), nack())),
            order(stranger, user_cancel()),
            order(jobs[0].id, report(Some(lease(&jobs[0])), ack())),
            order(jobs[1].id, report(Some(lease(&jobs[1])), ack())),
            order(jobs[0].id, user_cancel()),
        ])
        .await
        .unwrap();

    let statuses: Vec<_> = answers.iter().map(|answer| answer.as_ref().map(|applied| applied.status).ok()).collect();
    assert_eq!(statuses, [Some(Status::Queued), None, None, Some(Status::Succeeded), Some(Status::Cancelled)]);
    assert_eq!(answers[1], Err(Declined::NotFound));
    assert!(matches!(answers[2], Err(Declined::Refused(Refusal::OutcomeConflict { .. }))));
}

pub async fn a_waiting_job_is_cancelled_at_once_and_a_running_one_is_asked(fixture: &mut Fixture) {
    let waiting = fixture.publish(payload("1")).await;
    assert_eq!(fixture.apply(waiting.id, user_cancel()).await.unwrap().status, Status::Cancelled);
    assert!(!fixture.apply(waiting.id, user_cancel()).await.unwrap().changed);

    let running = fixture.running(payload("2")).await;
    fixture.pass(SECOND);
    let asked = fixture.apply(running.id, user_cancel()).await.unwrap();
    assert_eq!((asked.status, asked.changed), (Status::Running, true));
    fixture.reopen().await;
    let confirmed = fixture.report(&running, Outcome::Cancelled).await.unwrap();
    assert_eq!(confirmed.status, Status::Cancelled);
}

pub async fn a_delivery_that_is_received_waits_for_its_ack(fixture: &mut Fixture) {
    fixture.publish(payload("1")).await;
    let claimed = fixture.claim_with(ClaimRequest { phase: Phase::Delivering, ..fixture.want(1) }).await;
    let job = &claimed.jobs[0];

    let received = fixture.apply(job.id, Command::Receipt { lease: lease(job) }).await.unwrap();

    let timeout = fixture.queue().await.settings.ack_timeout;
    assert_eq!((received.status, received.wake_at), (Status::Running, Some(fixture.now().plus(timeout))));
    fixture.reopen().await;
    assert_eq!(fixture.report(job, ack()).await.unwrap().status, Status::Succeeded);
}

pub async fn a_heartbeat_moves_the_alarm(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.pass(20 * SECOND);
    let beat = Command::beat(Some(lease(&job)), Some(Duration::from_millis(90_500)));

    let applied = fixture.apply(job.id, beat).await.unwrap();

    assert_eq!(applied.wake_at, Some(fixture.now().plus(Duration::from_millis(90_500))));
    assert_eq!(fixture.store.due(9).await.unwrap().next, applied.wake_at);
    assert_eq!(fixture.job(job.id).await.version, job.version + 1);
}

pub async fn an_uploaded_result_survives_the_loss_of_its_lease(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let object = objects::result(1, 1 << 40);
    fixture.apply(job.id, Command::Finalize { lease: Some(lease(&job)), object }).await.unwrap();
    fixture.reopen().await;
    fixture.pass(30 * SECOND);
    fixture.sweep().await;

    assert_eq!(fixture.job(job.id).await.status(), Status::Succeeded);
}

/// I-17: the last expiry makes a dead letter.
pub async fn a_job_that_is_never_answered_ends_as_a_dead_letter(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { max_attempts: 3, ..QueueSettings::default() }).await;
    let id = fixture.publish(payload("1")).await.id;

    for attempt in 1..=3 {
        assert_eq!(fixture.claim(1).await[0].attempt, attempt);
        fixture.reopen().await;
        fixture.pass(30 * SECOND);
        fixture.sweep().await;
    }

    assert_eq!(fixture.job(id).await.status(), Status::Failed);
    assert!(fixture.claim(1).await.is_empty());
}

/// I-19.
pub async fn a_delivery_that_died_with_its_server_is_charged(fixture: &mut Fixture) {
    fixture.publish(payload("1")).await;
    let claimed = fixture.claim_with(ClaimRequest { phase: Phase::Delivering, ..fixture.want(1) }).await;
    fixture.reopen().await;

    let applied = fixture.apply_as(Reach::Everything, claimed.jobs[0].id, Command::Abandon).await.unwrap();

    assert_eq!(applied.status, Status::Pending);
    assert_eq!(fixture.job(applied.id).await.attempt, 2);
}

/// I-19: after a start a single process knows that no delivery is in progress; with several nodes the lease decides.
pub async fn deliveries_under_way_are_named_to_the_next_process_unless_others_may_make_them(fixture: &mut Fixture) {
    let webhook_url = Some("https://example.com".to_owned());
    fixture
        .save_queue(QueueSettings { mode: Mode::Ack, allow_pull: true, webhook_url, ..QueueSettings::default() })
        .await;
    fixture.publish_many(6).await;
    let delivering = fixture.claim_with(ClaimRequest { phase: Phase::Delivering, ..fixture.want(4) }).await.jobs;
    fixture.claim(1).await;
    let [bare, uploaded, received, acked] = &delivering[..] else { panic!("{delivering:?}") };
    let object = objects::result(1, 10);
    fixture.apply(uploaded.id, Command::Finalize { lease: Some(lease(uploaded)), object }).await.unwrap();
    fixture.apply(received.id, Command::Receipt { lease: lease(received) }).await.unwrap();
    fixture.report(acked, ack()).await.unwrap();
    assert_eq!(fixture.store.interrupted().await.unwrap(), [], "it is this process that delivers");

    fixture.reopen().await;
    let expected = if fixture.is_shared() { vec![] } else { vec![bare.id, uploaded.id] };
    assert_eq!(fixture.store.interrupted().await.unwrap(), expected);

    for job in [bare, uploaded] {
        fixture.apply(job.id, Command::Abandon).await.unwrap();
    }
    fixture.reopen().await;
    assert_eq!(fixture.store.interrupted().await.unwrap(), [], "the ones that were given up are not under way");
}

pub async fn a_replay_starts_the_job_again(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.fail(&job).await;
    fixture.pass(SECOND);

    let replay = Command::Replay { fresh: true, payload: Some("[2]".into()) };
    let applied = fixture.apply(job.id, replay.clone()).await.unwrap();
    fixture.reopen().await;

    let stored = fixture.job(job.id).await;
    assert_eq!((applied.status, stored.replays, stored.attempt, stored.epoch), (Status::Queued, 1, 1, 1));
    assert_eq!(&*stored.spec.payload, "[2]");
    assert_eq!(stored.last_error, None);
    let log = fixture.store.events(&Reach::Namespace(fixture.ours), job.id, 0, 99).await.unwrap().unwrap();
    let moves = log.iter().filter_map(|event| match event.kind {
        EventKind::State { to, replays, .. } => Some((to, replays)),
        _ => None,
    });
    let expected = [(Status::Queued, 0), (Status::Running, 0), (Status::Failed, 0), (Status::Queued, 1)];
    assert_eq!(moves.collect::<Vec<_>>(), expected, "each move says after how many replays it was");
    let refused = Refusal::NotReplayable { status: Status::Queued };
    assert_eq!(fixture.apply(job.id, replay).await, Err(Declined::Refused(refused)));
    assert_eq!(
        fixture.report(&job, ack()).await,
        Err(Declined::Refused(Refusal::LeaseLost)),
        "a lease from before the replay"
    );
}
