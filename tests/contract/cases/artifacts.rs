//! Saved work of a job: checkpoints, sections, and the objects of the object store, from their announcement to their
//! deletion.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::checkpoint::{Checkpoint, CheckpointData, SECTIONS_MAX, Section};
use outlast_core::object::DELETE_DELAY;
use outlast_core::{Command, Job, JobId, Object, ObjectKey, Outcome, QueueSettings, Refusal, Role, Timestamp};
use outlast_store::artifacts::{ObjectInspection, StoredObject};
use outlast_store::jobs::{Declined, JobCommand, Reach};
use outlast_tests::objects;

use crate::fixture::{Fixture, SECOND, ack, lease, nack, payload};

const HOUR: Duration = Duration::from_secs(3600);

fn inline(text: &str) -> CheckpointData {
    CheckpointData::Inline(text.into())
}

fn checkpoint(job: &Job, version: u32, data: CheckpointData) -> Command {
    let saved = Checkpoint { schema_version: version, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 };
    Command::Checkpoint { lease: Some(lease(job)), checkpoint: Arc::new(saved), progress: None }
}

fn section(job: &Job, name: &str, body: &str) -> Command {
    let section = Section { name: name.into(), body: body.into(), at: Timestamp::EPOCH };
    Command::Section { lease: Some(lease(job)), section: Arc::new(section) }
}

/// An object of this job that is not written yet.
fn object(fixture: &Fixture, job: &Job, role: Role, random: u64) -> Arc<Object> {
    let key = ObjectKey { namespace: fixture.ours, job: job.id, epoch: 1, random };
    Arc::new(Object { key, role, ..Object::clone(&objects::result(random, 10 + random)) })
}

impl Fixture {
    async fn kept_data(&self, id: JobId) -> Option<Checkpoint> {
        self.store.artifacts(&Reach::Namespace(self.ours), id).await.unwrap().expect("the job exists").checkpoint
    }

    async fn names(&self, id: JobId) -> Vec<Box<str>> {
        self.store.artifacts(&Reach::Namespace(self.ours), id).await.unwrap().expect("the job exists").sections
    }

    async fn objects(&self, id: JobId) -> Vec<(u64, bool, Option<Timestamp>)> {
        let found = self.store.objects(&Reach::Namespace(self.ours), id).await.unwrap().expect("the job exists");
        let shown = |stored: StoredObject| (stored.object.key.random, stored.attached, stored.delete_after);
        let mut all: Vec<_> = found.into_iter().map(shown).collect();
        all.sort();
        all
    }

    /// The numbers of the objects whose time has come.
    async fn due_deletions(&self) -> Vec<u64> {
        let doomed = self.store.due_deletions(100).await.unwrap();
        let mut numbers: Vec<u64> = doomed.objects.into_iter().map(|(key, _)| key.random).collect();
        numbers.sort();
        numbers
    }

    async fn expect_object(&self, job: &Job, object: &Arc<Object>) {
        let command = Command::Upload { lease: Some(lease(job)), object: Arc::clone(object) };
        self.apply(job.id, command).await.unwrap();
    }

    async fn finalize(&self, job: &Job, object: &Arc<Object>) {
        let command = Command::Finalize { lease: Some(lease(job)), object: Arc::clone(object) };
        self.apply(job.id, command).await.unwrap();
    }
}

/// I-35.
pub async fn a_checkpoint_takes_the_place_of_the_one_before_byte_for_byte(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let exact = "{\"n\": 12345678901234567890.000000000000000001 ,\"s\":\"\\u00e9\"}";

    fixture.apply(job.id, checkpoint(&job, 1, inline("\"first\""))).await.unwrap();
    fixture.pass(SECOND);
    fixture.apply(job.id, checkpoint(&job, 2, inline(exact))).await.unwrap();
    fixture.reopen().await;

    let kept = fixture.kept_data(job.id).await.unwrap();
    assert_eq!((kept.schema_version, &kept.data), (2, &inline(exact)));
    assert_eq!((kept.at, kept.replays, kept.attempt), (fixture.now(), 0, 1));
    let stranger = Reach::Namespace(fixture.theirs);
    assert_eq!(fixture.store.artifacts(&stranger, job.id).await.unwrap(), None);
}

pub async fn sections_are_replaced_by_name_and_listed_in_order_of_bytes(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    for name in ["b", "a10", "a9", "B", "a", "a:1", "a-1", "a.1", "a_1"] {
        fixture.apply(job.id, section(&job, name, "\"old\"")).await.unwrap();
    }
    fixture.pass(SECOND);
    fixture.apply(job.id, section(&job, "a9", "\"new\"")).await.unwrap();
    fixture.reopen().await;

    let mut names = ["B", "a", "a-1", "a.1", "a10", "a9", "a:1", "a_1", "b"].map(Box::<str>::from).to_vec();
    names.sort();
    let ours = Reach::Namespace(fixture.ours);
    let (mut listed, mut after): (Vec<Section>, Option<Box<str>>) = (Vec::new(), None);
    loop {
        let page = fixture.store.sections(&ours, job.id, after.as_deref(), 2).await.unwrap().unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        listed.extend(page);
    }

    assert_eq!(fixture.names(job.id).await, names);
    assert_eq!(listed.iter().map(|section| section.name.clone()).collect::<Vec<_>>(), names);
    let one = fixture.store.section(&ours, job.id, "a9").await.unwrap().unwrap();
    assert_eq!((&*one.body, one.at), ("\"new\"", fixture.now()));
    assert_eq!(fixture.store.section(&ours, job.id, "A9").await.unwrap(), None);
    let theirs = Reach::Namespace(fixture.theirs);
    assert_eq!(fixture.store.section(&theirs, job.id, "a9").await.unwrap(), None);
    assert_eq!(fixture.store.sections(&theirs, job.id, None, 5).await.unwrap(), None);
}

/// Two writers at the limit: the bound holds inside the transaction, and sections may still be replaced.
pub async fn a_full_job_takes_no_new_section_and_replaces_its_old_ones(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let order = |name: &str, body: &str| JobCommand {
        id: job.id,
        reach: Reach::Namespace(fixture.ours),
        command: section(&job, name, body),
    };
    let almost: Vec<JobCommand> = (1..SECTIONS_MAX).map(|number| order(&format!("s{number}"), "1")).collect();
    assert!(fixture.store.apply(almost).await.unwrap().iter().all(Result::is_ok));
    let full = Err(Declined::Refused(Refusal::SectionsFull));

    let names = ["s1", "first", "s2", "second", "first", "s3"];
    let answers = fixture.store.apply(names.iter().map(|name| order(name, "2")).collect()).await.unwrap();
    let racing = join_all((0..8).map(|number| fixture.store.apply(vec![order(&format!("late{number}"), "3")]))).await;

    let refused: Vec<&str> =
        names.iter().zip(&answers).filter(|(_, answer)| answer.is_err()).map(|(name, _)| *name).collect();
    assert_eq!(refused, ["second"]);
    assert_eq!(answers[3], full);
    assert!(racing.into_iter().all(|answers| answers.unwrap() == vec![full.clone()]));
    assert_eq!(fixture.names(job.id).await.len(), SECTIONS_MAX);
    assert_eq!(
        &*fixture.store.section(&Reach::Namespace(fixture.ours), job.id, "s3").await.unwrap().unwrap().body,
        "2"
    );
}

pub async fn saved_work_outlives_the_attempt_and_a_replay_but_not_success(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.apply(job.id, checkpoint(&job, 1, inline("1"))).await.unwrap();
    fixture.apply(job.id, section(&job, "a", "1")).await.unwrap();

    fixture.report(&job, nack()).await.unwrap();
    let second = fixture.claim(1).await.pop().unwrap();
    assert!(fixture.kept_data(job.id).await.is_some() && fixture.names(job.id).await.len() == 1);
    fixture.fail(&second).await;
    fixture.apply(job.id, Command::Replay { fresh: false, payload: None }).await.unwrap();
    let third = fixture.claim(1).await.pop().unwrap();
    assert!(fixture.kept_data(job.id).await.is_some() && fixture.names(job.id).await.len() == 1);
    fixture.report(&third, ack()).await.unwrap();

    assert_eq!((fixture.kept_data(job.id).await, fixture.names(job.id).await.len()), (None, 0));
    let work_summary = fixture.job(job.id).await.work_summary;
    assert!(!work_summary.has_checkpoint && !work_summary.has_sections);
}

pub async fn a_fresh_replay_drops_what_was_saved_and_a_keeping_queue_keeps_it_after_success(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    fixture.apply(job.id, checkpoint(&job, 1, inline("1"))).await.unwrap();
    fixture.apply(job.id, section(&job, "a", "1")).await.unwrap();
    fixture.fail(&job).await;
    fixture.apply(job.id, Command::Replay { fresh: true, payload: None }).await.unwrap();
    assert_eq!((fixture.kept_data(job.id).await, fixture.names(job.id).await.len()), (None, 0));

    fixture.save_queue(QueueSettings { keep_checkpoints: true, ..QueueSettings::default() }).await;
    let again = fixture.claim(1).await.pop().unwrap();
    fixture.apply(job.id, checkpoint(&again, 1, inline("2"))).await.unwrap();
    fixture.apply(job.id, section(&again, "b", "1")).await.unwrap();
    fixture.report(&again, ack()).await.unwrap();

    assert_eq!(fixture.kept_data(job.id).await.map(|kept| kept.data), Some(inline("2")));
    assert_eq!(fixture.names(job.id).await, [Box::<str>::from("b")]);
}

pub async fn a_checkpoint_in_an_object_takes_the_one_before_with_it(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let (first, second) = (object(fixture, &job, Role::Checkpoint, 1), object(fixture, &job, Role::Checkpoint, 2));
    for each in [&first, &second] {
        fixture.expect_object(&job, each).await;
        fixture.apply(job.id, checkpoint(&job, 1, CheckpointData::Object(Arc::clone(each)))).await.unwrap();
    }
    fixture.reopen().await;

    let kept = fixture.kept_data(job.id).await.unwrap();
    assert_eq!((&kept.data, kept.length()), (&CheckpointData::Object(second), 12));
    assert_eq!(fixture.objects(job.id).await, [(1, true, Some(fixture.now())), (2, true, None)]);
    assert_eq!(fixture.due_deletions().await, [1]);
    fixture.apply(job.id, checkpoint(&job, 1, inline("1"))).await.unwrap();
    assert_eq!(fixture.due_deletions().await, [1, 2], "an inline one takes its place as well");
}

/// Unfinished uploads are deleted an hour after their lease, so that late bytes are deleted as well.
pub async fn objects_of_a_lost_lease_are_deleted_with_it_and_not_before_their_grace(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let (begun, done) = (object(fixture, &job, Role::Result, 1), object(fixture, &job, Role::Result, 2));
    fixture.expect_object(&job, &begun).await;
    fixture.expect_object(&job, &done).await;
    fixture.finalize(&job, &done).await;
    assert_eq!(fixture.objects(job.id).await, [(1, false, None), (2, true, None)]);

    fixture.report(&job, nack()).await.unwrap();
    let at = fixture.now().plus(DELETE_DELAY);

    assert_eq!(fixture.objects(job.id).await, [(1, false, Some(at)), (2, true, Some(at))]);
    assert_eq!((fixture.due_deletions().await, fixture.store.due_deletions(9).await.unwrap().next), (vec![], Some(at)));
    fixture.pass(DELETE_DELAY - SECOND);
    assert_eq!(fixture.due_deletions().await, Vec::<u64>::new());
    fixture.pass(SECOND);
    fixture.reopen().await;
    assert_eq!(fixture.due_deletions().await, [1, 2]);
    assert_eq!(fixture.store.due_deletions(1).await.unwrap().objects.len(), 1, "no more than was asked for");
}

pub async fn only_objects_scheduled_for_deletion_can_be_forgotten(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let (old, new) = (object(fixture, &job, Role::Result, 1), object(fixture, &job, Role::Result, 2));
    for each in [&old, &new] {
        fixture.expect_object(&job, each).await;
        fixture.finalize(&job, each).await;
    }
    assert_eq!(fixture.due_deletions().await, [1], "a later upload takes the place of an earlier one");

    fixture.store.forget_objects(&[old.key, new.key]).await.unwrap();
    fixture.store.forget_objects(&[old.key]).await.unwrap();
    fixture.report(&job, ack()).await.unwrap();

    assert_eq!(fixture.objects(job.id).await, [(2, true, None)]);
    assert_eq!(fixture.due_deletions().await, Vec::<u64>::new());
}

pub async fn a_result_that_expires_schedules_its_object_and_downloads_are_counted_before(fixture: &mut Fixture) {
    let settings = QueueSettings { result_ttl: HOUR, ..QueueSettings::default() };
    fixture.save_queue(settings).await;
    let job = fixture.running(payload("1")).await;
    let result = object(fixture, &job, Role::Result, 1);
    fixture.expect_object(&job, &result).await;
    fixture.finalize(&job, &result).await;
    fixture.report(&job, ack()).await.unwrap();
    for _ in 0..3 {
        fixture.store.count_download(job.id).await.unwrap();
    }
    fixture.reopen().await;

    let stored = fixture.store.objects(&Reach::Everything, job.id).await.unwrap().unwrap();
    assert_eq!((stored.len(), stored[0].downloads, stored[0].attached), (1, 3, true));
    fixture.pass(HOUR);
    fixture.sweep().await;

    assert_eq!(fixture.due_deletions().await, [1]);
}

pub async fn a_purged_job_leaves_only_objects_that_are_to_be_deleted(fixture: &mut Fixture) {
    fixture.save_queue(QueueSettings { retention: HOUR, keep_checkpoints: true, ..QueueSettings::default() }).await;
    let job = fixture.running(payload("1")).await;
    let saved = object(fixture, &job, Role::Checkpoint, 1);
    fixture.expect_object(&job, &saved).await;
    fixture.apply(job.id, checkpoint(&job, 1, CheckpointData::Object(saved.clone()))).await.unwrap();
    fixture.apply(job.id, section(&job, "a", "1")).await.unwrap();
    let stranger = fixture.running(payload("2")).await;
    fixture.apply(stranger.id, section(&stranger, "a", "2")).await.unwrap();
    fixture.fail(&job).await;
    // The stranger goes on for longer.
    fixture.apply(stranger.id, Command::beat(Some(lease(&stranger)), Some(3 * HOUR))).await.unwrap();

    fixture.pass(HOUR + SECOND * 60);
    fixture.sweep().await;
    fixture.reopen().await;

    let ours = Reach::Namespace(fixture.ours);
    assert_eq!(fixture.find(job.id).await, None);
    assert_eq!(fixture.store.artifacts(&ours, job.id).await.unwrap(), None);
    assert_eq!(fixture.store.section(&ours, job.id, "a").await.unwrap(), None);
    assert_eq!(fixture.names(stranger.id).await, [Box::<str>::from("a")], "another job keeps what it has");
    assert_eq!(fixture.due_deletions().await, [1], "the bytes are still to be deleted");
    fixture.store.forget_objects(&[saved.key]).await.unwrap();
    assert_eq!(fixture.due_deletions().await, Vec::<u64>::new());
}

/// I-15.
pub async fn a_lost_lease_keeps_nothing(fixture: &mut Fixture) {
    let old = fixture.running(payload("1")).await;
    fixture.apply(old.id, checkpoint(&old, 1, inline("1"))).await.unwrap();
    fixture.report(&old, Outcome::Release).await.unwrap();
    let new = fixture.claim(1).await.pop().unwrap();
    let before = (fixture.job(new.id).await, fixture.kept_data(new.id).await);
    let bytes = object(fixture, &old, Role::Checkpoint, 1);

    for command in [
        checkpoint(&old, 9, inline("\"zombie\"")),
        checkpoint(&old, 9, CheckpointData::Object(Arc::clone(&bytes))),
        section(&old, "zombie", "1"),
        Command::Upload { lease: Some(lease(&old)), object: Arc::clone(&bytes) },
        Command::Finalize { lease: Some(lease(&old)), object: bytes },
        Command::Output { lease: Some(lease(&old)), part: None, text: "zombie".into() },
    ] {
        assert!(matches!(fixture.apply(new.id, command).await, Err(Declined::Refused(_))));
    }

    assert_eq!((fixture.job(new.id).await, fixture.kept_data(new.id).await), before);
    assert_eq!((fixture.names(new.id).await.len(), fixture.objects(new.id).await.len()), (0, 0));
}

pub async fn an_inspection_is_recorded_with_its_object_and_ends_with_the_next(fixture: &mut Fixture) {
    let job = fixture.running(payload("1")).await;
    let (result, other) = (object(fixture, &job, Role::Result, 1), object(fixture, &job, Role::Checkpoint, 2));
    fixture.expect_object(&job, &result).await;
    fixture.finalize(&job, &result).await;
    fixture.expect_object(&job, &other).await;
    let state = async |fixture: &Fixture| {
        let mut stored = fixture.store.objects(&Reach::Everything, job.id).await.unwrap().unwrap();
        stored.sort_by_key(|stored| stored.object.key.random);
        stored.into_iter().map(|stored| (stored.damaged_at, stored.object.checksums)).collect::<Vec<_>>()
    };
    let (before, checksums) = (other.checksums.clone(), Arc::<[u8]>::from([1, 2, 3]));

    fixture.store.record_inspection(&result.key, ObjectInspection::Damaged).await.unwrap();
    let first = fixture.now();
    fixture.reopen().await;
    assert_eq!(state(fixture).await, [(Some(first), result.checksums.clone()), (None, before.clone())]);
    fixture.pass(SECOND);
    fixture.store.record_inspection(&result.key, ObjectInspection::Damaged).await.unwrap();
    assert_eq!(state(fixture).await[0].0, Some(fixture.now()));

    fixture.store.record_inspection(&result.key, ObjectInspection::Sound(checksums.clone())).await.unwrap();
    fixture.reopen().await;
    assert_eq!(state(fixture).await, [(None, Some(checksums)), (None, before)]);
    let gone = ObjectKey { random: 99, ..result.key };
    fixture.store.record_inspection(&gone, ObjectInspection::Damaged).await.unwrap();
    assert_eq!(state(fixture).await.len(), 2);
}
