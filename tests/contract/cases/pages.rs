//! Pages and hand-outs end when they fill an answer, in bytes as they are written; the next one goes on without a gap.

use std::sync::Arc;

use futures_util::future::join_all;
use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::{Command, Job, JobId, Outcome, Spec, Status, Timestamp};
use outlast_store::inbound_events::{Ingested, ListInboundEvents, NewInboundEvent};
use outlast_store::jobs::{ListJobs, Reach};
use outlast_store::page::{EncodedSize, PAGE_BYTES_MAX, PageSize};

use crate::fixture::{Fixture, lease, payload};

const QUARTER: usize = PAGE_BYTES_MAX / 4;

/// Not more than one entry beyond the bound, and the page before that entry was not full.
fn assert_bounded<T: EncodedSize>(page: &[T]) {
    let (_, before) = page.split_last().expect("a page has at least one entry");
    assert!(!PageSize::of(before).is_full(), "{} entries", page.len());
}

fn large(number: usize) -> Spec {
    payload(&format!("\"{number:02}{}\"", "x".repeat(QUARTER)))
}

async fn publish_large(fixture: &Fixture, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(fixture.publish(large(number)).await.id);
        fixture.pass(std::time::Duration::from_millis(1));
    }
    ids
}

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

pub async fn a_page_of_events_ends_with_its_bytes(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let texts = ["\u{1}".repeat(16 << 10), "plain".repeat(3000), "short".to_owned()];
    for number in 0..60 {
        let text = texts[number % texts.len()].as_str().into();
        fixture.apply(job.id, Command::Output { lease: Some(lease(&job)), part: None, text }).await.unwrap();
    }
    fixture.reopen().await;

    let (mut seen, mut pages) = (0, 0);
    loop {
        let page = fixture.store.events(&Reach::Everything, job.id, seen, 1000).await.unwrap().unwrap();
        let Some(last) = page.last() else { break };
        assert_bounded(&page);
        assert!(page.iter().zip(seen + 1..).all(|(event, seq)| event.seq == seq));
        assert_eq!(PageSize::of(&page).is_full(), last.seq < 62, "only a full page has a successor");
        (seen, pages) = (last.seq, pages + 1);
    }

    assert_eq!(seen, 62);
    assert!(pages >= 3, "{pages} pages");
}

pub async fn a_page_of_sections_ends_with_its_bytes(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    for number in 0..10 {
        let section = Section { name: format!("s{number}").into(), body: large(number).payload, at: Timestamp::EPOCH };
        let command = Command::Section { lease: Some(lease(&job)), section: Arc::new(section) };
        fixture.apply(job.id, command).await.unwrap();
    }

    let (mut seen, mut after): (usize, Option<Box<str>>) = (0, None);
    loop {
        let page = fixture.store.sections(&Reach::Everything, job.id, after.as_deref(), 200).await.unwrap().unwrap();
        let Some(last) = page.last() else { break };
        assert_bounded(&page);
        assert!(page.len() <= 4, "{} sections", page.len());
        after = Some(last.name.clone());
        seen += page.len();
    }

    assert_eq!(seen, 10);
}

pub async fn a_page_of_jobs_ends_with_its_bytes_and_has_no_payloads(fixture: &mut Fixture) {
    let mut published = Vec::new();
    for number in 0..10 {
        let tags = vec![("text".into(), "\u{1}".repeat(QUARTER / 6).into())];
        published.push(fixture.publish(Spec { tags, ..large(number) }).await.id);
        fixture.pass(std::time::Duration::from_millis(1));
    }
    published.reverse();

    let list = ListJobs { limit: 200, ..fixture.ours() };
    let first = fixture.store.jobs(list.clone()).await.unwrap();
    assert_bounded(&first.jobs.iter().map(|found| found.job.clone()).collect::<Vec<_>>());
    assert!(first.next.is_some() && first.jobs.len() <= 4);

    assert_eq!(fixture.list(list).await, published);
}

pub async fn a_page_of_arrivals_ends_with_its_bytes_and_has_no_bodies(fixture: &mut Fixture) {
    let mut stored = Vec::new();
    for number in 0..10 {
        let new = NewInboundEvent {
            namespace: fixture.ours,
            source: "stripe".into(),
            kind: "invoice.paid".into(),
            key: None,
            headers: [("x-text".into(), "\u{1}".repeat(QUARTER / 6).into())].into(),
            body: large(number).payload,
            jobs: Vec::new(),
        };
        match fixture.store.ingest(vec![new]).await.unwrap().pop() {
            Some(Ingested::Created { id, .. }) => stored.push(id),
            other => panic!("not new: {other:?}"),
        }
    }
    stored.reverse();

    let mut list = ListInboundEvents { namespace: fixture.ours, source: None, kind: None, before: None, limit: 1000 };
    let mut listed = Vec::new();
    loop {
        let page = fixture.store.inbound_events(list.clone()).await.unwrap();
        if !page.inbound_events.is_empty() {
            assert_bounded(&page.inbound_events);
        }
        assert!(page.inbound_events.iter().all(|inbound_event| inbound_event.body.is_empty()));
        listed.extend(page.inbound_events.into_iter().map(|inbound_event| inbound_event.id));
        let Some(next) = page.next else { break };
        list.before = Some(next);
    }

    assert_eq!(listed, stored);
}

pub async fn a_claim_ends_with_its_bytes_and_leaves_the_rest_in_line(fixture: &mut Fixture) {
    let published = publish_large(fixture, 10).await;

    let first = fixture.claim_with(fixture.want(100)).await;
    assert!(first.size.is_full());
    assert_eq!(ids(&first.jobs), published[..4]);
    assert!(first.jobs.iter().zip(0..).all(|(job, number)| job.spec == large(number).into()));
    assert_eq!(fixture.counts().await.get(Status::Queued), 6);
    assert_eq!(ids(&fixture.claim(100).await), published[4..8]);

    assert_eq!(ids(&fixture.claim(100).await), published[8..]);
}

pub async fn claims_of_one_moment_share_the_line_by_bytes(fixture: &mut Fixture) {
    let published = publish_large(fixture, 20).await;

    let mut handed_out = Vec::new();
    while handed_out.len() < 20 {
        for claimed in join_all((0..3).map(|_| fixture.claim_with(fixture.want(9)))).await {
            assert!(claimed.jobs.len() <= 4, "{} jobs", claimed.jobs.len());
            handed_out.extend(ids(&claimed.jobs));
        }
    }

    handed_out.sort();
    assert_eq!(handed_out, published);
}

pub async fn a_claim_counts_what_earlier_attempts_have_saved(fixture: &mut Fixture) {
    let published = fixture.publish_many(10).await;
    for job in fixture.claim(10).await {
        let data = CheckpointData::Inline(large(0).payload);
        let saved = Checkpoint { schema_version: 1, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 };
        let command = Command::Checkpoint { lease: Some(lease(&job)), checkpoint: Arc::new(saved), progress: None };
        fixture.apply(job.id, command).await.unwrap();
        fixture.report(&job, Outcome::Release).await.unwrap();
    }

    assert_eq!(ids(&fixture.claim(100).await), published[..4]);
    assert_eq!(ids(&fixture.claim(100).await), published[4..8]);

    assert_eq!(ids(&fixture.claim(100).await), published[8..]);
}
