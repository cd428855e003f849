//! The page of a job: everything that is shown with it, read in one snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_core::checkpoint::Section;
use outlast_core::retry::Backoff;
use outlast_core::{Command, EventKind, Outcome, QueueSettings, Spec, State, Timestamp};
use outlast_store::job_detail::{JobDetail, ResultDetail};
use outlast_store::jobs::{JobCommand, Reach};

use crate::fixture::{Fixture, lease, payload, report};

/// Changes during which the page is read again and again.
const CHANGES: usize = 60;

fn calling_back(text: &str) -> Spec {
    Spec { callback_url: Some("https://example.com/done".into()), ..payload(text) }
}

async fn detail(fixture: &Fixture, id: outlast_core::JobId) -> JobDetail {
    fixture.store.job_detail(&Reach::Namespace(fixture.ours), id).await.unwrap().expect("the job exists")
}

pub async fn the_page_of_a_job_has_all_its_parts(fixture: &mut Fixture) {
    let job = fixture.running(calling_back("1")).await;
    let section = Section { name: "one".into(), body: "1".into(), at: Timestamp::EPOCH };
    let command = Command::Section { lease: Some(lease(&job)), section: Arc::new(section) };
    fixture.apply(job.id, command).await.unwrap();
    for number in 0..60 {
        let text = format!("line {number}").into();
        fixture.apply(job.id, Command::Output { lease: Some(lease(&job)), part: None, text }).await.unwrap();
    }

    let running = detail(fixture, job.id).await;
    assert_eq!(running.found.job.id, job.id);
    assert_eq!(&*running.found.job.spec.payload, "1");
    assert_eq!(running.events.len(), 50, "the newest ones");
    assert_eq!(running.events.last().map(|event| event.seq), Some(running.found.job.events));
    let moves: Vec<u64> = running.moves.iter().map(|event| event.seq).collect();
    assert_eq!(moves, [1, 2], "moves are shown however much work has been saved since");
    assert_eq!(running.artifacts.unwrap().sections, [Box::<str>::from("one")]);
    assert!(running.result.is_none() && running.callback.is_none());

    fixture.report(&job, Outcome::Ack { result: Some("{\"a\":1}".into()) }).await.unwrap();
    fixture.store.count_download(job.id).await.unwrap();
    fixture.reopen().await;
    let ended = detail(fixture, job.id).await;
    assert_eq!(ended.result, Some(ResultDetail::Inline { downloads: 1 }));
    assert_eq!(ended.callback.expect("it has a callback").queue.name, "_callbacks");

    let stranger = Reach::Namespace(fixture.theirs);
    assert!(fixture.store.job_detail(&stranger, job.id).await.unwrap().is_none());
}

/// Moves and attempts of several attempts, each followed by more sections than a page shows, and longer outputs.
pub async fn moves_and_attempts_are_shown_however_long_the_log_is(fixture: &mut Fixture) {
    let at_once = Backoff::Fixed { delay: std::time::Duration::ZERO, jitter: 0.0 };
    fixture.save_queue(QueueSettings { backoff: at_once, ..QueueSettings::default() }).await;
    let mut job = fixture.running(payload("1")).await;
    for attempt in 1..=3 {
        for number in 0..161 {
            let name = format!("section-{attempt}-{number}").into();
            let section = Section { name, body: "1".into(), at: Timestamp::EPOCH };
            let command = Command::Section { lease: Some(lease(&job)), section: Arc::new(section) };
            fixture.apply(job.id, command).await.unwrap();
        }
        let text = "x".repeat(60_000).into();
        fixture.apply(job.id, Command::Output { lease: Some(lease(&job)), part: None, text }).await.unwrap();
        fixture.report(&job, Outcome::Nack { retryable: true, delay: None }).await.unwrap();
        job = fixture.claim(1).await.pop().expect("it is back at once");
    }
    fixture.reopen().await;

    let page = detail(fixture, job.id).await;
    let attempts = page.moves.iter().filter(|event| matches!(event.kind, EventKind::Attempt(_)));
    assert_eq!(attempts.count(), 3);
    let first = page.moves.first().expect("a job has moves");
    assert!(matches!(first.kind, EventKind::State { from: None, .. }), "{first:?}");
    // Published; then out, back and out again: once for each attempt.
    assert_eq!(page.moves.len(), 1 + 1 + 3 * 3);
    assert!(page.moves.is_sorted_by_key(|event| event.seq));
}

/// The result of a job is large; its page does not grow with it.
pub async fn a_status_read_loads_no_inline_result(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let large: Arc<str> = format!("\"{}\"", "x".repeat(200_000)).into();

    fixture.report(&job, Outcome::Ack { result: Some(large) }).await.unwrap();

    let page = detail(fixture, job.id).await;
    assert_eq!(page.result, Some(ResultDetail::Inline { downloads: 0 }));
    assert!(format!("{page:?}").len() < 20_000);
}

/// While the job is handed out, given back and ended, no page shows parts of two moments.
pub async fn the_page_of_a_job_is_of_one_moment(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { max_deferrals: 1_000_000, ..QueueSettings::default() }).await;
    let job = fixture.publish(calling_back("1")).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (store, reach, over) = (Arc::clone(&fixture.store), Reach::Namespace(fixture.ours), Arc::clone(&is_over));
    let reader = tokio::spawn(async move {
        let mut pages = 0;
        loop {
            let is_last = over.load(Ordering::SeqCst);
            let page = store.job_detail(&reach, job.id).await.unwrap().expect("the job exists");
            check(&page);
            pages += 1;
            if is_last {
                return pages;
            }
        }
    });

    for change in 0..CHANGES {
        let running = fixture.claim(1).await.pop().expect("it is queued");
        let is_last = change + 1 == CHANGES;
        let outcome = if is_last { Outcome::Ack { result: Some("1".into()) } } else { Outcome::Release };
        let command = report(Some(lease(&running)), outcome);
        let order = JobCommand { id: running.id, reach: Reach::Everything, command };
        fixture.store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap();
    }
    is_over.store(true, Ordering::SeqCst);

    assert!(reader.await.unwrap() > 0);
}

fn check(page: &JobDetail) {
    let job = &page.found.job;
    assert_eq!(page.events.last().map(|event| event.seq), Some(job.events), "the log is of another moment");
    let has_ended = job.status().is_terminal();
    assert_eq!(page.callback.is_some(), has_ended, "the callback is of another moment");
    let succeeded = matches!(job.state, State::Succeeded { .. });
    assert_eq!(page.result.is_some(), succeeded, "the result is of another moment");
}
