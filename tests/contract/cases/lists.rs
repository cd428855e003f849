//! Lists: filters, cursors, labels, reach.

use outlast_core::{Command, JobId, Outcome, QueueSettings, Spec, Status};
use outlast_store::jobs::{ListJobs, Reach};
use outlast_store::queues::ExpectedVersion;

use crate::dump::all_dead;
use crate::fixture::{Fixture, QUEUE, SECOND, created, payload, tagged};

fn tag(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn newest_first(mut ids: Vec<JobId>) -> Vec<JobId> {
    ids.reverse();
    ids
}

pub async fn a_list_goes_from_the_newest_to_the_oldest_without_gap_or_repeat(fixture: &mut Fixture) {
    let published = newest_first(fixture.publish_many(11).await);

    for limit in [1, 2, 5, 11, 50] {
        assert_eq!(fixture.list(ListJobs { limit, ..fixture.ours() }).await, published, "pages of {limit}");
    }
    fixture.reopen().await;
    assert_eq!(fixture.list(ListJobs { limit: 3, ..fixture.ours() }).await, published);
}

pub async fn dead_letters_are_listed_by_the_time_of_their_failure(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    fixture.publish_many(5).await;
    let mut jobs = fixture.claim(9).await;
    // Not in the order of their publishing, and two of them in the same millisecond.
    jobs.swap(0, 3);
    let nack = || Outcome::Nack { retryable: false, delay: None };
    for (number, job) in jobs.iter().enumerate() {
        if number != 2 {
            fixture.pass(SECOND);
        }
        fixture.report(job, nack()).await.unwrap();
    }
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|at: usize| jobs[at].id);
    let reach = || Reach::Namespace(fixture.ours);
    let listed = async |limit| {
        let found = all_dead(&*fixture.store, reach(), QUEUE, limit).await;
        found.into_iter().map(|found| found.job.id).collect::<Vec<_>>()
    };

    for limit in [1, 2, 5, 50] {
        assert_eq!(listed(limit).await, [e, d, c, b, a], "pages of {limit}");
    }
    assert!(all_dead(&*fixture.store, reach(), "other", 9).await.is_empty());
    assert!(all_dead(&*fixture.store, Reach::Namespace(fixture.theirs), QUEUE, 9).await.is_empty());

    fixture.apply(b, Command::Replay { fresh: false, payload: None }).await.unwrap();
    assert_eq!(listed(2).await, [e, d, c, a]);
    let again = fixture.claim(1).await.pop().unwrap();
    fixture.pass(SECOND);
    fixture.report(&again, nack()).await.unwrap();
    assert_eq!(listed(2).await, [b, e, d, c, a], "one that failed again is the latest");
}

pub async fn a_cursor_is_not_disturbed_by_new_jobs(fixture: &mut Fixture) {
    let published = newest_first(fixture.publish_many(4).await);
    let first = fixture.store.jobs(ListJobs { limit: 2, ..fixture.ours() }).await.unwrap();
    fixture.publish_many(3).await;

    let rest = fixture.list(ListJobs { before: first.next, ..fixture.ours() }).await;

    assert_eq!(rest, published[2..]);
}

pub async fn a_list_shows_only_what_fits_its_filters(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    let spec = |key: Option<&str>, tags: &[(&str, &str)]| Spec {
        key: key.map(Into::into),
        tags: tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..payload("1")
    };
    let a = fixture.publish(spec(Some("t1"), &[("kind", "x"), ("size", "s")])).await.id;
    let b = fixture.publish(spec(Some("t2"), &[("kind", "x")])).await.id;
    let c = fixture.publish(spec(None, &[("kind", "y"), ("size", "s")])).await.id;
    let d = created(fixture.publish_to(fixture.ours, "other", spec(Some("t1"), &[("kind", "x")])).await).id;
    let e = fixture.publish(payload("1")).await.id;
    fixture.claim(1).await;

    let all = fixture.ours();
    let list = |change: fn(&mut ListJobs)| {
        let mut list = ListJobs { limit: 1, ..all.clone() };
        change(&mut list);
        list
    };
    for (list, expected) in [
        (list(|_| ()), vec![e, d, c, b, a]),
        (list(|list| list.queue = Some(QUEUE.to_owned())), vec![e, c, b, a]),
        (list(|list| list.queue = Some("nowhere".to_owned())), vec![]),
        (list(|list| list.status = Some(Status::Running)), vec![a]),
        (list(|list| list.status = Some(Status::Queued)), vec![e, d, c, b]),
        (list(|list| list.tags = vec![tag("kind", "x")]), vec![d, b, a]),
        (list(|list| list.tags = vec![tag("kind", "x"), tag("size", "s")]), vec![a]),
        (list(|list| list.tags = vec![tag("size", "s"), tag("kind", "y")]), vec![c]),
        (list(|list| list.tags = vec![tag("kind", "z")]), vec![]),
        (list(|list| list.key = Some("t1".to_owned())), vec![d, a]),
        (list(|list| (list.key, list.queue) = (Some("t1".to_owned()), Some("other".to_owned()))), vec![d]),
        (list(|list| (list.key, list.tags) = (Some("t2".to_owned()), vec![tag("kind", "x")])), vec![b]),
        (list(|list| (list.key, list.status) = (Some("t1".to_owned()), Some(Status::Running))), vec![a]),
    ] {
        assert_eq!(fixture.list(list.clone()).await, expected, "{list:?}");
    }
}

/// T13: neither a filter nor a cursor leads out of the caller's reach.
pub async fn a_list_shows_only_what_is_in_reach(fixture: &mut Fixture) {
    fixture.save("other", QueueSettings::default()).await;
    let anything = ExpectedVersion::Anything;
    fixture.store.save_queue(fixture.theirs, QUEUE, QueueSettings::default().into(), anything).await.unwrap().unwrap();
    let spec = || Spec { key: Some("t".into()), ..tagged("kind", "x") };
    let ours = fixture.publish(spec()).await.id;
    let other = created(fixture.publish_to(fixture.ours, "other", spec()).await).id;
    let theirs = created(fixture.publish_to(fixture.theirs, QUEUE, spec()).await).id;

    let bound = |names: &[&str]| Reach::Queues(fixture.ours, names.iter().map(|name| (*name).to_owned()).collect());
    for (reach, expected) in [
        (Reach::Everything, vec![theirs, other, ours]),
        (Reach::Namespace(fixture.ours), vec![other, ours]),
        (Reach::Namespace(fixture.theirs), vec![theirs]),
        (bound(&["other"]), vec![other]),
        (bound(&["other", QUEUE]), vec![other, ours]),
        (bound(&[]), vec![]),
    ] {
        let list = ListJobs { reach, ..fixture.ours() };
        assert_eq!(fixture.list(list.clone()).await, expected);
        assert_eq!(fixture.list(ListJobs { tags: vec![tag("kind", "x")], ..list.clone() }).await, expected);
        assert_eq!(fixture.list(ListJobs { key: Some("t".to_owned()), ..list.clone() }).await, expected);
        let of_queue: Vec<JobId> = expected.into_iter().filter(|id| *id != other).collect();
        assert_eq!(fixture.list(ListJobs { queue: Some(QUEUE.to_owned()), ..list }).await, of_queue);
    }
}

/// I-23: every dead letter is in the list of dead letters.
pub async fn dead_letters_are_listed_and_leave_the_list_by_replay(fixture: &mut Fixture) {
    let mut dead = Vec::new();
    for _ in 0..3 {
        let job = fixture.running(payload("1")).await;
        fixture.fail(&job).await;
        dead.push(job.id);
    }
    let list = ListJobs { queue: Some(QUEUE.to_owned()), status: Some(Status::Failed), limit: 2, ..fixture.ours() };
    assert_eq!(fixture.list(list.clone()).await, newest_first(dead.clone()));

    let replay = outlast_core::Command::Replay { fresh: false, payload: None };
    fixture.apply(dead[1], replay).await.unwrap();
    assert_eq!(fixture.list(list).await, [dead[2], dead[0]]);
}
