//! The account must notice each of these, or it is blind.

use std::time::Instant;

use super::*;

const ID: &str = "0190";

fn arrival(attempt: u64, answered: Option<u16>) -> Arrival {
    Arrival {
        number: 0,
        path: "/work".to_owned(),
        job: ID.to_owned(),
        webhook_id: ID.to_owned(),
        lease: format!("lease-{attempt}"),
        attempt,
        body: json!({"id": ID}),
        at: Instant::now(),
        answered,
        ended: None,
    }
}

fn callback() -> Arrival {
    let body = json!({"id": ID, "queue": "work", "status": "succeeded", "replays": 0, "finishedAt": "then"});
    Arrival {
        path: "/callback".to_owned(),
        lease: String::new(),
        webhook_id: "c".to_owned(),
        body,
        ..arrival(0, Some(200))
    }
}

/// A job that was delivered at the second attempt: the server died in the first.
fn sound() -> Account {
    let job = json!({
        "id": ID, "queue": "work", "status": "succeeded", "replays": 0, "attempt": 2, "maxAttempts": 2, "finishedAt": "then",
        "error": null, "callback": {"status": "succeeded"},
    });
    let events = vec![
        json!({"seq": 1, "type": "state", "to": "queued"}),
        json!({"seq": 2, "type": "attempt", "number": 1, "outcome": "unknown", "error": "unknown"}),
        json!({"seq": 3, "type": "attempt", "number": 2, "outcome": "acked", "statusCode": 200}),
        json!({"seq": 4, "type": "state", "to": "succeeded"}),
    ];
    Account {
        jobs: vec![Told { id: ID.to_owned(), job, events }],
        deliveries: vec![arrival(1, Some(200)), arrival(2, Some(200))],
        callbacks: vec![callback(), callback()],
        ..Account::default()
    }
}

#[track_caller]
fn check_found(promise: &str, plant: impl FnOnce(&mut Account)) {
    let mut account = sound();
    plant(&mut account);

    let violations = account.violations();
    assert!(violations.iter().any(|violation| violation.starts_with(promise)), "{violations:?}");
}

#[test]
fn a_sound_account_has_no_violations() {
    assert_eq!(sound().violations(), Vec::<String>::new());
}

#[test]
fn a_job_that_is_gone_or_never_ends_is_found() {
    check_found("I-01", |account| account.jobs[0].job = json!({"status": 404}));
    check_found("I-01", |account| account.jobs[0].job["status"] = json!("queued"));
}

#[test]
fn a_success_without_a_request_is_found() {
    check_found("I-27", |account| account.deliveries.iter_mut().for_each(|arrival| arrival.answered = Some(500)));
    check_found("I-27", |account| {
        account.by_ack.insert(ID.to_owned());
    });
}

#[test]
fn a_failure_without_evidence_or_before_its_time_is_found() {
    check_found("I-27", |account| {
        account.jobs[0].job["status"] = json!("failed");
        account.jobs[0].job["error"] = json!({"reason": "attempts_exhausted"});
        account.jobs[0].events[2] = json!({"seq": 3, "type": "attempt", "number": 2, "outcome": "nacked"});
    });
    check_found("I-17", |account| {
        account.jobs[0].job["status"] = json!("failed");
        account.jobs[0].job["error"] = json!({"reason": "attempts_exhausted"});
        account.jobs[0].job["maxAttempts"] = json!(3);
    });
}

#[test]
fn an_accepted_ack_that_was_forgotten_is_found() {
    check_found("I-03", |account| {
        account.acks_accepted.insert(ID.to_owned());
        account.jobs[0].job["status"] = json!("failed");
    });
}

#[test]
fn two_ends_and_too_many_hand_outs_are_found() {
    check_found("I-16", |account| {
        account.jobs[0].events.push(json!({"seq": 5, "type": "state", "to": "failed"}));
    });
    check_found("I-17", |account| account.jobs[0].job["maxAttempts"] = json!(1));
    check_found("the log", |account| drop(account.jobs[0].events.remove(0)));
}

#[test]
fn a_request_without_a_hand_out_is_found() {
    check_found("I-17", |account| account.deliveries.push(Arrival { lease: "x".to_owned(), ..arrival(2, None) }));
    check_found("I-17", |account| account.deliveries.push(arrival(3, None)));
    check_found("I-17", |account| account.deliveries[1].lease = "lease-1".to_owned());
    check_found("F27", |account| account.deliveries[1].webhook_id = "another".to_owned());
}

#[test]
fn callbacks_that_are_missing_unasked_for_or_contradictory_are_found() {
    check_found("I-28", |account| account.callbacks.clear());
    check_found("I-28", |account| account.jobs[0].job["callback"] = Value::Null);
    check_found("I-28", |account| account.callbacks[1].webhook_id = "another".to_owned());
    check_found("I-28", |account| account.callbacks[1].body["status"] = json!("failed"));
    check_found("I-28", |account| account.jobs[0].job["status"] = json!("expired"));
    check_found("I-28", |account| account.jobs[0].job["callback"]["status"] = json!("failed"));
}
