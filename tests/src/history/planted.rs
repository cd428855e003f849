//! The checker on small histories: sound ones pass, and each planted violation is found under its own rule.

use serde_json::{Value, json};

use super::{Action, Answer, Claim, Operation, Outcome, Rule, Seen, Snapshot, check};

/// A history in the making; every call ends before the next begins, unless `overlapping` is used.
struct Story {
    tick: u64,
    operations: Vec<Operation>,
    snapshot: Snapshot,
}

impl Story {
    fn new() -> Story {
        let snapshot = Snapshot { first_version: 1, ..Snapshot::default() };
        Story { tick: 0, operations: Vec::new(), snapshot }
    }

    fn call(mut self, action: Action, answer: Answer) -> Story {
        self.tick += 2;
        self.operations.push(Operation { started: self.tick, ended: self.tick + 1, action, answer });
        self
    }

    /// Makes the latest two calls concurrent.
    fn overlapping(mut self) -> Story {
        let count = self.operations.len();
        self.operations[count - 2].ended = self.tick + 2;
        self.tick += 2;
        self
    }

    fn publish(self, marker: &str) -> Story {
        let job = format!("job-{marker}");
        self.publish_as(marker, Answer::Published { job })
    }

    fn publish_as(self, marker: &str, answer: Answer) -> Story {
        let marker = marker.to_owned();
        let payload = payload(&marker);
        self.call(Action::Publish { marker, payload }, answer)
    }

    fn claim(self, lease: &str, replays: u64, attempt: u64) -> Story {
        let claim = Claim { job: "job-a".into(), lease: lease.into(), replays, attempt };
        self.call(Action::Receive, Answer::Received(vec![claim]))
    }

    fn settle(self, lease: &str, outcome: Outcome, answer: Answer) -> Story {
        let (job, lease) = ("job-a".into(), lease.into());
        self.call(Action::Settle { job, lease, outcome }, answer)
    }

    fn cancel(self, answer: Answer) -> Story {
        self.call(Action::Cancel { job: "job-a".into() }, answer)
    }

    fn replay(self, answer: Answer) -> Story {
        self.call(Action::Replay { job: "job-a".into() }, answer)
    }

    fn change_queue(self, value: u64, answer: Answer) -> Story {
        let queue = "own".into();
        self.call(Action::ChangeQueue { queue, value }, answer)
    }

    fn finds_queue(mut self, value: u64) -> Story {
        self.snapshot.queues.insert("own".into(), value);
        self
    }

    fn finds(mut self, seen: Seen) -> Story {
        self.snapshot.jobs.insert(format!("job-{}", seen.marker), seen);
        self
    }

    fn broken_rules(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            check(&self.operations, &self.snapshot).into_iter().map(|found| found.rule).collect();
        rules.dedup();
        rules
    }
}

fn payload(marker: &str) -> Value {
    json!({ "marker": marker })
}

fn seen(status: &str, version: u64) -> Seen {
    Seen {
        marker: "a".into(),
        payload: payload("a"),
        status: status.into(),
        replays: 0,
        attempt: 1,
        max_attempts: 20,
        defer_count: 0,
        version,
    }
}

fn answered(status: &str, version: u64) -> Answer {
    Answer::Changed { status: status.into(), version }
}

fn unknown() -> Answer {
    Answer::Unknown("connection reset".into())
}

fn unavailable() -> Answer {
    Answer::Refused { status: 503, code: "store_unavailable".into() }
}

fn refused(code: &str) -> Answer {
    Answer::Refused { status: 409, code: code.into() }
}

#[track_caller]
fn sound(story: &Story) {
    assert_eq!(check(&story.operations, &story.snapshot), vec![]);
}

#[track_caller]
fn breaks(story: &Story, rule: Rule) {
    let found = story.broken_rules();
    assert!(found.contains(&rule), "{rule:?} is planted, found {found:?}");
}

/// Published, nacked once, deferred once, acked: every count and version as it should be.
fn whole_life() -> Story {
    Story::new()
        .publish("a")
        .claim("l1", 0, 1)
        .settle("l1", Outcome::Nack, answered("queued", 3))
        .claim("l2", 0, 2)
        .settle("l2", Outcome::Defer, answered("queued", 5))
        .claim("l3", 0, 2)
        .settle("l3", Outcome::Ack, answered("succeeded", 7))
}

fn end_of_whole_life() -> Seen {
    Seen { attempt: 2, defer_count: 1, ..seen("succeeded", 7) }
}

#[test]
fn a_whole_life_is_sound() {
    sound(&whole_life().finds(end_of_whole_life()));
}

#[test]
fn operations_of_unknown_ending_may_be_either_way() {
    sound(&Story::new().publish_as("a", unknown()));
    sound(&Story::new().publish_as("a", unknown()).finds(seen("queued", 1)));
    let acked = || Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Ack, unknown());
    sound(&acked().finds(seen("running", 2)));
    sound(&acked().finds(seen("succeeded", 3)));
    let replayed = || Story::new().publish("a").cancel(answered("cancelled", 2)).replay(unknown());
    sound(&replayed().finds(seen("cancelled", 2)));
    sound(&replayed().finds(Seen { replays: 1, ..seen("queued", 3) }));
}

#[test]
fn a_publish_that_is_answered_at_its_second_try_may_have_happened_at_its_first() {
    let story =
        Story::new().publish_as("a", unknown()).claim("l1", 0, 1).settle("l1", Outcome::Ack, answered("succeeded", 3));
    sound(&story.publish("a").finds(seen("succeeded", 3)));
}

#[test]
fn a_lost_publish_is_found() {
    breaks(&Story::new().publish("a"), Rule::PublishLost);
}

#[test]
fn an_altered_payload_is_found() {
    let altered = Seen { payload: json!({ "marker": "b" }), ..seen("queued", 1) };
    breaks(&Story::new().publish("a").finds(altered), Rule::PayloadAltered);
}

#[test]
fn two_ids_for_one_key_are_found() {
    let twice = Story::new().publish("a").publish_as("a", Answer::Published { job: "job-b".into() });
    breaks(&twice.finds(seen("queued", 1)), Rule::KeyDoubled);
}

#[test]
fn two_jobs_with_one_key_are_found_even_if_one_was_never_answered() {
    let mut story = Story::new().publish("a").publish_as("a", unknown()).finds(seen("queued", 1));
    story.snapshot.jobs.insert("job-z".into(), seen("queued", 1));
    breaks(&story, Rule::KeyDoubled);
}

#[test]
fn a_job_from_nowhere_is_found() {
    breaks(&Story::new().finds(seen("queued", 1)), Rule::FromNowhere);
}

#[test]
fn a_refused_publish_that_was_stored_is_found() {
    let refused_twice =
        Story::new().publish_as("a", refused("store_unavailable")).publish_as("a", refused("overloaded"));
    breaks(&refused_twice.finds(seen("queued", 1)), Rule::RefusedYetDone);
    let then_lost = Story::new().publish_as("a", refused("store_unavailable")).publish_as("a", unknown());
    sound(&then_lost.finds(seen("queued", 1)));
}

#[test]
fn a_refused_ack_or_cancel_that_took_effect_is_found() {
    let acked = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Ack, unavailable());
    breaks(&acked.finds(seen("succeeded", 3)), Rule::RefusedYetDone);
    breaks(&Story::new().publish("a").cancel(unavailable()).finds(seen("cancelled", 2)), Rule::RefusedYetDone);
}

#[test]
fn a_lost_ack_is_found() {
    let story = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Ack, answered("succeeded", 3));
    breaks(&story.finds(seen("running", 2)), Rule::OutcomeLost);
}

#[test]
fn a_lost_failure_is_found_and_a_replayed_one_is_sound() {
    let failed = || Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Fail, answered("failed", 3));
    breaks(&failed().finds(seen("running", 2)), Rule::OutcomeLost);
    sound(&failed().replay(answered("queued", 4)).finds(Seen { replays: 1, ..seen("queued", 4) }));
}

#[test]
fn a_lost_cancel_is_found() {
    let story = Story::new().publish("a").cancel(answered("cancelled", 2));
    breaks(&story.finds(seen("pending", 1)), Rule::OutcomeLost);
}

#[test]
fn a_lost_replay_and_a_doubled_replay_are_found() {
    let replayed = || Story::new().publish("a").cancel(answered("cancelled", 2)).replay(answered("queued", 3));
    breaks(&replayed().finds(seen("cancelled", 2)), Rule::ReplayMiscounted);
    breaks(&replayed().finds(Seen { replays: 2, ..seen("queued", 5) }), Rule::ReplayMiscounted);
}

#[test]
fn a_lost_defer_and_a_doubled_defer_are_found() {
    for defer_count in [0, 2] {
        let found = Seen { defer_count, ..end_of_whole_life() };
        breaks(&whole_life().finds(found), Rule::DeferMiscounted);
    }
}

#[test]
fn a_retry_with_the_same_lease_is_one_ending() {
    let story = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Defer, unknown()).settle(
        "l1",
        Outcome::Defer,
        answered("queued", 3),
    );
    let found = Seen { defer_count: 1, ..seen("queued", 3) };
    sound(&story.finds(found));
}

#[test]
fn a_lost_nack_is_found_by_the_next_attempt_number() {
    let story = Story::new()
        .publish("a")
        .claim("l1", 0, 1)
        .settle("l1", Outcome::Nack, answered("queued", 3))
        .claim("l2", 0, 1);
    breaks(&story.finds(seen("running", 4)), Rule::AttemptMiscounted);
}

#[test]
fn an_uncharged_nack_and_too_many_attempts_are_found() {
    let nacked = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Nack, answered("queued", 3));
    breaks(&nacked.finds(Seen { attempt: 0, ..seen("queued", 3) }), Rule::AttemptMiscounted);
    breaks(&Story::new().publish("a").finds(Seen { attempt: 21, ..seen("queued", 1) }), Rule::AttemptMiscounted);
}

#[test]
fn a_forgotten_claim_is_found() {
    let claimed = || Story::new().publish("a").claim("l1", 0, 1);
    sound(&claimed().finds(seen("running", 2)));
    breaks(&claimed().finds(seen("queued", 2)), Rule::ClaimLost);
    breaks(&claimed().finds(Seen { attempt: 2, ..seen("running", 2) }), Rule::ClaimLost);
}

#[test]
fn a_refused_holder_is_found() {
    let story = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Ack, refused("lease_lost"));
    breaks(&story.finds(seen("running", 2)), Rule::ClaimLost);
}

#[test]
fn a_refusal_after_an_ending_of_unknown_outcome_is_sound() {
    let story = Story::new().publish("a").claim("l1", 0, 1).settle("l1", Outcome::Nack, unknown()).settle(
        "l1",
        Outcome::Nack,
        refused("not_running"),
    );
    sound(&story.finds(seen("queued", 3)));
}

#[test]
fn two_holders_are_found() {
    let story = Story::new().publish("a").claim("l1", 0, 1).claim("l2", 0, 1);
    breaks(&story.finds(seen("running", 3)), Rule::DoubleLease);
}

#[test]
fn two_overlapping_holders_are_found_and_an_ending_between_them_is_sound() {
    let overlap = || Story::new().publish("a").claim("l1", 0, 1).claim("l2", 0, 1).overlapping();
    breaks(&overlap().finds(seen("running", 3)), Rule::DoubleLease);
    let story = Story::new()
        .publish("a")
        .claim("l2", 0, 1)
        .settle("l2", Outcome::Defer, answered("queued", 3))
        .claim("l1", 0, 1);
    let mut story = story.finds(Seen { defer_count: 1, ..seen("running", 4) });
    // The answer with l1 was under way from before the claim of l2: the order of the answers is not that of the leases.
    story.operations[3].started = story.operations[0].ended + 1;
    sound(&story);
}

#[test]
fn one_token_given_out_twice_is_found() {
    let story = Story::new()
        .publish("a")
        .claim("l1", 0, 1)
        .settle("l1", Outcome::Defer, answered("queued", 3))
        .claim("l1", 0, 1);
    breaks(&story.finds(seen("running", 4)), Rule::DoubleLease);
}

#[test]
fn a_hand_out_after_success_is_found() {
    let story = whole_life().claim("l4", 0, 2);
    breaks(&story.finds(end_of_whole_life()), Rule::RanAfterSuccess);
}

#[test]
fn a_lost_change_covered_by_later_ones_is_found_by_the_version() {
    let story = Story::new()
        .publish("a")
        .claim("l1", 0, 1)
        .settle("l1", Outcome::Defer, answered("queued", 3))
        .claim("l2", 0, 1)
        .settle("l2", Outcome::Defer, answered("queued", 4));
    let found = Seen { defer_count: 2, ..seen("queued", 4) };
    breaks(&story.finds(found), Rule::VersionBehind);
}

#[test]
fn a_version_behind_the_acknowledged_changes_is_found() {
    let story = Story::new().publish("a").claim("l1", 0, 1);
    breaks(&story.finds(seen("running", 1)), Rule::VersionBehind);
}

#[test]
fn a_lost_queue_change_is_found() {
    let changed = || Story::new().change_queue(1, Answer::QueueChanged).change_queue(2, Answer::QueueChanged);
    sound(&changed().finds_queue(2));
    breaks(&changed().finds_queue(1), Rule::QueueChangeLost);
    breaks(&changed(), Rule::QueueChangeLost);
    sound(&changed().change_queue(3, unknown()).finds_queue(2));
    sound(&changed().change_queue(3, unknown()).finds_queue(3));
    breaks(&changed().change_queue(3, refused("invalid_request")).finds_queue(3), Rule::QueueChangeLost);
}
