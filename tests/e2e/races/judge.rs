//! The winner of a race, and whether all observers agree. Pure: it compares the answers to the callers with the job as
//! it is shown afterwards, log included.

use jiff::Timestamp;
use serde_json::Value;

/// An event that ends a job, and so may take part in a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ack,
    Cancel,
    Timeout,
    Nack,
}

pub(super) struct Race {
    pub(super) id: String,
    pub(super) lease: String,
    pub(super) kinds: &'static [Kind],
    /// When the clock ends the attempt if no call does.
    pub(super) deadline: Timestamp,
    pub(super) is_watched: bool,
}

/// The answer to one caller.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) kind: Kind,
    pub(super) status: u16,
    pub(super) body: Value,
}

/// The losses that a clock may bring about.
const BY_CLOCK: [&str; 3] = ["lease_expired", "hard_time_limit", "job_timeout"];

/// The winner, or what is wrong.
pub(super) fn judge(race: &Race, heard: &[Heard], job: &Value) -> Result<Kind, String> {
    let ending = ending(job)?;
    let winner = winner(job, &ending)?;
    if !race.kinds.contains(&winner) {
        return Err(format!("{winner:?} has won without taking part"));
    }
    if winner == Kind::Timeout && finished_at(job)? < race.deadline {
        return Err(format!("the clock has won before the deadline {}", race.deadline));
    }
    for caller in heard {
        let fault = match caller.kind {
            Kind::Ack => report_fault(caller, job, &ending, "acked"),
            Kind::Nack => report_fault(caller, job, &ending, "nacked"),
            Kind::Cancel => cancel_fault(caller, job),
            Kind::Timeout => Some("the clock is no caller".to_owned()),
        };
        if let Some(fault) = fault {
            return Err(format!("{:?} got {} {}: {fault}", caller.kind, caller.status, caller.body));
        }
    }
    Ok(winner)
}

/// How the one attempt ended. The log has one end, and nothing moves after it.
fn ending(job: &Value) -> Result<String, String> {
    let events = job["events"].as_array().ok_or("the job shows no events")?;
    let attempts: Vec<&Value> = events.iter().filter(|event| event["type"] == "attempt").collect();
    let [attempt] = attempts[..] else {
        return Err(format!("{} attempts have ended", attempts.len()));
    };
    let moves: Vec<&Value> = events.iter().filter(|event| event["type"] == "state").collect();
    let ends = moves.iter().filter(|event| ["succeeded", "failed", "cancelled"].iter().any(|end| event["to"] == *end));
    if ends.count() != 1 {
        return Err("the log has not exactly one end".to_owned());
    }
    if moves.last().is_none_or(|last| last["to"] != job["status"] || last["at"] != job["finishedAt"]) {
        return Err("the log ends otherwise than the job".to_owned());
    }
    let in_order = events.iter().zip(1..).all(|(event, seq)| event["seq"] == seq);
    if !in_order {
        return Err("the log has a gap".to_owned());
    }
    Ok(attempt["outcome"].as_str().unwrap_or_default().to_owned())
}

fn winner(job: &Value, ending: &str) -> Result<Kind, String> {
    let by_clock = BY_CLOCK.contains(&ending);
    match (job["status"].as_str(), job["cancelReason"].as_str()) {
        (Some("succeeded"), None) if ending == "acked" => Ok(Kind::Ack),
        (Some("failed"), None) if ending == "nacked" => Ok(Kind::Nack),
        (Some("failed"), None) if by_clock => Ok(Kind::Timeout),
        (Some("cancelled"), Some("timeout")) if by_clock => Ok(Kind::Timeout),
        // A report after the request only ends the wait for it.
        (Some("cancelled"), Some("user")) if is_asked(job) && ending != "acked" => Ok(Kind::Cancel),
        (status, reason) => Err(format!("a job that is {status:?} for {reason:?} after it was {ending}")),
    }
}

/// Ack and nack: taken if and only if the attempt ended by them, and then the answer is the end.
fn report_fault(caller: &Heard, job: &Value, ending: &str, own: &str) -> Option<String> {
    let is_own = ending == own;
    match caller.status {
        200 if !is_own => Some("taken, although the attempt ended otherwise".to_owned()),
        200 if caller.body["accepted"] != true => Some("200 without a yes".to_owned()),
        200 => other_end(caller, job),
        409 if is_own => Some("refused, although the attempt ended so".to_owned()),
        409 => {
            let reported = ["acked", "nacked"].contains(&ending);
            let code = if reported { "outcome_conflict" } else { "lease_lost" };
            (caller.body["code"] != code).then(|| format!("should be {code}"))
        }
        _ => Some("neither taken nor refused".to_owned()),
    }
}

/// A cancel always gets the job: at its end, or still running and asked to stop. A request that was taken is never
/// followed by a failure, and one that came too late has left no trace.
fn cancel_fault(caller: &Heard, job: &Value) -> Option<String> {
    if caller.status != 200 {
        return Some("a cancel is always answered".to_owned());
    }
    if is_asked(job) && job["status"] == "failed" {
        return Some("the request was noted, and the job failed all the same".to_owned());
    }
    if caller.body["status"] != "running" {
        return other_end(caller, job);
    }
    let is_noted = is_asked(job) && caller.body["cancelRequested"] == true;
    (!is_noted).then(|| "still running, and the request is not in the log".to_owned())
}

fn other_end(caller: &Heard, job: &Value) -> Option<String> {
    let fields = ["status", "version"];
    fields.iter().find(|field| caller.body[**field] != job[**field]).map(|field| format!("the job has another {field}"))
}

fn is_asked(job: &Value) -> bool {
    job["events"].as_array().is_some_and(|events| events.iter().any(|event| event["reason"] == "cancel_requested"))
}

fn finished_at(job: &Value) -> Result<Timestamp, String> {
    job["finishedAt"].as_str().and_then(|at| at.parse().ok()).ok_or_else(|| "the job has no end".to_owned())
}

/// Wrong histories, which must be found: a judge that lets them pass would let the server's pass as well.
#[cfg(test)]
mod planted {
    use serde_json::json;

    use super::*;

    const AT: &str = "2026-01-01T00:00:01.000Z";

    fn race(kinds: &'static [Kind]) -> Race {
        let deadline = AT.parse().unwrap();
        Race { id: "id".to_owned(), lease: "lease".to_owned(), kinds, deadline, is_watched: false }
    }

    fn job(status: &str, ending: &str, asked: bool) -> Value {
        let mut events = vec![json!({"type": "state", "to": "running"})];
        if asked {
            events.push(json!({"type": "state", "to": "running", "reason": "cancel_requested"}));
        }
        events.push(json!({"type": "attempt", "outcome": ending}));
        events.push(json!({"type": "state", "to": status, "at": AT}));
        for (event, seq) in events.iter_mut().zip(1..) {
            event["seq"] = json!(seq);
        }
        let mut job = json!({"status": status, "finishedAt": AT, "version": 3, "events": events});
        if status == "cancelled" {
            job["cancelReason"] = json!(if asked { "user" } else { "timeout" });
        }
        job
    }

    fn taken(kind: Kind, status: &str) -> Heard {
        Heard { kind, status: 200, body: json!({"accepted": true, "status": status, "version": 3}) }
    }

    fn refused(kind: Kind, code: &str) -> Heard {
        Heard { kind, status: 409, body: json!({"code": code}) }
    }

    #[test]
    fn right_histories_have_the_winner_they_have() {
        let all = &[Kind::Ack, Kind::Cancel, Kind::Timeout, Kind::Nack];
        let draining = Heard {
            kind: Kind::Cancel,
            status: 200,
            body: json!({"status": "running", "cancelRequested": true, "version": 2}),
        };
        let cases = [
            (job("succeeded", "acked", false), vec![taken(Kind::Ack, "succeeded")], Kind::Ack),
            (job("succeeded", "acked", true), vec![taken(Kind::Ack, "succeeded"), draining.clone()], Kind::Ack),
            (job("failed", "nacked", false), vec![refused(Kind::Ack, "outcome_conflict")], Kind::Nack),
            (job("failed", "lease_expired", false), vec![refused(Kind::Ack, "lease_lost")], Kind::Timeout),
            (job("cancelled", "job_timeout", false), vec![taken(Kind::Cancel, "cancelled")], Kind::Timeout),
            (job("cancelled", "revoked", true), vec![refused(Kind::Nack, "lease_lost"), draining], Kind::Cancel),
            (job("cancelled", "nacked", true), vec![taken(Kind::Nack, "cancelled")], Kind::Cancel),
        ];
        for (job, heard, winner) in cases {
            assert_eq!(judge(&race(all), &heard, &job), Ok(winner), "{job}");
        }
    }

    #[test]
    fn wrong_histories_are_found() {
        let all: &[Kind] = &[Kind::Ack, Kind::Cancel, Kind::Timeout, Kind::Nack];
        let mut twice = job("succeeded", "acked", false);
        twice["events"].as_array_mut().unwrap().push(json!({"type": "state", "to": "failed", "at": AT, "seq": 4}));
        let mut gap = job("succeeded", "acked", false);
        gap["events"][2]["seq"] = json!(9);
        let mut early = job("failed", "lease_expired", false);
        early["finishedAt"] = json!("2026-01-01T00:00:00.999Z");
        early["events"][2]["at"] = early["finishedAt"].clone();
        let mut other_version = taken(Kind::Ack, "succeeded");
        other_version.body["version"] = json!(2);
        let unnoted = Heard { kind: Kind::Cancel, status: 200, body: json!({"status": "running"}) };
        let cases = [
            ("both were taken", job("succeeded", "acked", false), vec![taken(Kind::Nack, "failed")]),
            ("the winner was refused", job("succeeded", "acked", false), vec![refused(Kind::Ack, "lease_lost")]),
            ("the wrong refusal", job("failed", "nacked", false), vec![refused(Kind::Ack, "lease_lost")]),
            ("answered with another state", job("cancelled", "nacked", true), vec![taken(Kind::Nack, "failed")]),
            ("answered with another version", job("succeeded", "acked", false), vec![other_version]),
            (
                "the cancel was answered with another end",
                job("failed", "nacked", false),
                vec![taken(Kind::Cancel, "cancelled")],
            ),
            ("a request that left no trace", job("failed", "nacked", false), vec![unnoted]),
            ("a request that was not heeded", job("failed", "nacked", true), vec![taken(Kind::Cancel, "failed")]),
            ("two ends", twice, vec![]),
            ("a gap", gap, vec![]),
            ("too early", early, vec![]),
            ("cancelled without a request", job("cancelled", "revoked", false), vec![]),
            (
                "neither yes nor no",
                job("succeeded", "acked", false),
                vec![Heard { kind: Kind::Ack, status: 503, body: json!({}) }],
            ),
        ];
        for (name, job, heard) in cases {
            assert!(judge(&race(all), &heard, &job).is_err(), "not found: {name}");
        }
        let stranger = judge(&race(&[Kind::Ack, Kind::Cancel]), &[], &job("failed", "nacked", false));
        assert!(stranger.is_err(), "not found: a winner that did not take part");
    }
}
