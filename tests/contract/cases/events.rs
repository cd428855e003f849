//! The log of a job and its result.

use std::time::Duration;

use outlast_core::event::Reason;
use outlast_core::{Command, Event, EventKind, Evidence, JobId, Outcome, QueueSettings, Status};
use outlast_store::jobs::Reach;

use crate::fixture::{Fixture, SECOND, ack, lease, payload};

async fn events(fixture: &Fixture, id: JobId, after: u64, limit: usize) -> Vec<Event> {
    fixture.store.events(&Reach::Namespace(fixture.ours), id, after, limit).await.unwrap().expect("the job exists")
}

fn moves(events: &[Event]) -> Vec<(Status, Reason)> {
    let moved = |event: &Event| match event.kind {
        EventKind::State { to, reason, .. } => Some((to, reason)),
        _ => None,
    };
    events.iter().filter_map(moved).collect()
}

pub async fn the_log_tells_the_life_of_a_job(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.pass(SECOND);
    let usage = vec![("tokens".into(), 1234.0), ("cost".into(), 0.25)];
    let evidence = Evidence { status_code: Some(500), error: Some("böse".into()), excerpt: Some("".into()), usage };
    let outcome = Outcome::Nack { retryable: true, delay: Some(Duration::ZERO) };
    fixture.apply(job.id, Command::Report { lease: Some(lease(&job)), outcome, evidence }).await.unwrap();
    let again = fixture.claim(1).await.pop().unwrap();
    fixture.report(&again, Outcome::Ack { result: Some("[]".into()) }).await.unwrap();

    let log = events(fixture, job.id, 0, 99).await;

    let expected = [
        (Status::Queued, Reason::Published),
        (Status::Running, Reason::Claimed),
        (Status::Queued, Reason::Nacked),
        (Status::Running, Reason::Claimed),
        (Status::Succeeded, Reason::Acked),
    ];
    assert_eq!(moves(&log), expected);
    let EventKind::Attempt(attempt) = &log[2].kind else { panic!("{log:?}") };
    assert_eq!((attempt.number, attempt.duration, attempt.status_code), (1, SECOND, Some(500)));
    assert_eq!((attempt.error.as_deref(), attempt.excerpt.as_deref()), (Some("böse"), Some("")));
    assert!(log.iter().any(|event| event.kind == EventKind::Result { length: 2 }));
    assert_eq!(fixture.job(job.id).await.events, log.len() as u64);
}

/// A log far longer than what an engine may keep beside the job.
pub async fn a_long_log_has_no_gaps_and_is_read_in_pages(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { max_deferrals: 1000, ..QueueSettings::default() }).await;
    let id = fixture.publish(payload("1")).await.id;
    for round in 0..40 {
        let job = fixture.claim(1).await.pop().unwrap();
        let evidence = Evidence {
            error: Some(format!("{round:03}").into()),
            excerpt: Some("x".repeat(50).into()),
            ..Evidence::default()
        };
        let command = Command::Report { lease: Some(lease(&job)), outcome: Outcome::Release, evidence };
        fixture.apply(id, command).await.unwrap();
        if round % 7 == 0 {
            fixture.reopen().await;
        }
    }

    let log = events(fixture, id, 0, 1000).await;

    assert_eq!(log.len(), 1 + 3 * 40);
    assert!(log.iter().zip(1..).all(|(event, seq)| event.seq == seq), "the log has gaps");
    let errors: Vec<_> = log
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Attempt(attempt) => attempt.error.as_deref(),
            _ => None,
        })
        .collect();
    assert_eq!(errors, (0..40).map(|round| format!("{round:03}")).collect::<Vec<_>>());
    for (after, limit) in [(0, 1), (1, 5), (60, 7), (120, 5), (121, 5), (500, 5)] {
        let expected: Vec<Event> = log.iter().skip(after as usize).take(limit).cloned().collect();
        assert_eq!(events(fixture, id, after, limit).await, expected, "after {after}");
    }
    fixture.claim(1).await;
    fixture.apply(id, crate::fixture::report(None, ack())).await.unwrap();
    assert_eq!(events(fixture, id, 0, 1000).await.len(), log.len() + 3);
}

/// As long as a log gets when a model writes its answer into it, read as a stream reads it.
pub async fn a_log_of_thousands_of_events_is_read_page_by_page(fixture: &mut Fixture) {
    const ROUNDS: u64 = 1700;
    const PAGE: usize = 48;
    fixture.save_queue(QueueSettings { max_deferrals: 1_000_000, ..QueueSettings::default() }).await;
    let id = fixture.publish(payload("1")).await.id;
    for round in 0..ROUNDS {
        let job = fixture.claim(1).await.pop().unwrap();
        // Some runs hold many events, some only one.
        let length = if round % 50 == 0 { 2000 } else { 20 };
        let evidence = Evidence { error: Some(format!("{round:0length$}").into()), ..Evidence::default() };
        let command = Command::Report { lease: Some(lease(&job)), outcome: Outcome::Release, evidence };
        fixture.apply(id, command).await.unwrap();
    }

    let (mut seq, mut round) = (0, 0);
    loop {
        let page = events(fixture, id, seq, PAGE).await;
        for event in &page {
            seq += 1;
            assert_eq!(event.seq, seq);
            if let EventKind::Attempt(attempt) = &event.kind {
                assert_eq!(attempt.error.as_deref().unwrap().trim_start_matches('0'), round_text(round));
                round += 1;
            }
        }
        if page.len() < PAGE {
            break;
        }
    }

    assert_eq!((seq, round), (1 + 3 * ROUNDS, ROUNDS));
}

fn round_text(round: u64) -> String {
    if round == 0 { String::new() } else { round.to_string() }
}

pub async fn a_result_is_kept_byte_for_byte(fixture: &mut Fixture) {
    let body = format!(r#"{{ "n": 1e999, "text": "{}" }}"#, "ü".repeat(5000));
    let job = fixture.running(payload("1")).await;
    let reach = Reach::Namespace(fixture.ours);
    assert_eq!(fixture.store.result(&reach, job.id).await.unwrap(), None);

    fixture.report(&job, Outcome::Ack { result: Some(body.as_str().into()) }).await.unwrap();
    fixture.reopen().await;

    assert_eq!(
        fixture.store.result(&reach, job.id).await.unwrap().map(|inline| inline.body),
        Some(body.as_str().into())
    );
    let unknown = JobId::new(fixture.now(), 3);
    assert_eq!(fixture.store.result(&reach, unknown).await.unwrap(), None);
    assert_eq!(fixture.store.events(&reach, unknown, 0, 9).await.unwrap(), None);
}
