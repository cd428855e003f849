//! The calls of clients and their answers, and the checker that compares them with the final state of the server.
//! Pure: no clock, no network. An acknowledged operation must be visible; one of unknown ending may be either way.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

mod claims;
mod outcomes;
mod publishes;
mod queues;
mod view;

#[cfg(test)]
mod planted;

use view::JobView;

/// One call of one client. `started` and `ended` are ticks of one counter shared by all clients, so that
/// `a.ended < b.started` means that `a` ended before `b` began.
#[derive(Debug, Clone)]
pub struct Operation {
    pub started: u64,
    pub ended: u64,
    pub action: Action,
    pub answer: Answer,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// `marker` is the idempotency key, unique per logical publish and the same in its retries.
    Publish {
        marker: String,
        payload: Value,
    },
    Receive,
    Settle {
        job: String,
        lease: String,
        outcome: Outcome,
    },
    Cancel {
        job: String,
    },
    Replay {
        job: String,
    },
    /// Each queue has one client that changes it, so its changes are in order.
    ChangeQueue {
        queue: String,
        value: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ack,
    Nack,
    /// A nack that asks for no retry.
    Fail,
    Defer,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Published {
        job: String,
    },
    Received(Vec<Claim>),
    /// The state and version the server named for a settle, a cancel or a replay.
    Changed {
        status: String,
        version: u64,
    },
    QueueChanged,
    /// A definite "not stored".
    Refused {
        status: u16,
        code: String,
    },
    /// The answer was lost, or said nothing definite.
    Unknown(String),
}

#[derive(Debug, Clone)]
pub struct Claim {
    pub job: String,
    pub lease: String,
    pub replays: u64,
    pub attempt: u64,
}

/// The state of the server when the clients have gone.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The version a job has right after its publish.
    pub first_version: u64,
    /// By id. Everything the list of the queue shows, and everything that a client knew and could be read.
    pub jobs: BTreeMap<String, Seen>,
    /// The one setting that the clients change, by queue.
    pub queues: BTreeMap<String, u64>,
}

#[derive(Debug, Clone)]
pub struct Seen {
    pub marker: String,
    pub payload: Value,
    pub status: String,
    pub replays: u64,
    pub attempt: u64,
    pub max_attempts: u64,
    pub defer_count: u64,
    pub version: u64,
}

/// A broken promise, with what is needed to believe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub subject: String,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An acknowledged publish is not there.
    PublishLost,
    /// The job is there with another payload.
    PayloadAltered,
    /// One key, two jobs; or one key, two ids.
    KeyDoubled,
    /// A job that was never published.
    FromNowhere,
    /// Every publish, ack or cancel of this kind was refused in so many words, and yet it took effect.
    RefusedYetDone,
    /// An acknowledged ack, nack, defer or cancel has no effect in the end.
    OutcomeLost,
    /// More or fewer runs than replays.
    ReplayMiscounted,
    /// More or fewer deferrals than defers.
    DeferMiscounted,
    /// More or fewer attempts than charged endings.
    AttemptMiscounted,
    /// An acknowledged claim has no effect in the end, or its lease was refused.
    ClaimLost,
    /// Two holders of one job, or one lease token given out twice.
    DoubleLease,
    /// A job was handed out after its success was acknowledged.
    RanAfterSuccess,
    /// The version grew by less than the acknowledged changes.
    VersionBehind,
    /// A queue does not have the setting that was acknowledged last.
    QueueChangeLost,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} of {}: {}", self.rule, self.subject, self.detail)
    }
}

/// Every broken promise in this history; empty when all is well. Leases must be longer than the history,
/// since an expired lease would end a claim without any operation.
pub fn check(operations: &[Operation], snapshot: &Snapshot) -> Vec<Violation> {
    let mut violations = publishes::check(operations, snapshot);
    violations.extend(queues::check(operations, snapshot));
    violations.extend(claims::check_tokens(operations));
    for view in JobView::all(operations, snapshot) {
        violations.extend(claims::check(&view));
        violations.extend(outcomes::check(&view));
    }
    violations
}

/// Every operation that names this job, in order, with its answer: what a person needs to believe a violation.
pub fn about(operations: &[Operation], job: &str) -> String {
    let mut concerned: Vec<&Operation> = operations.iter().filter(|operation| operation.names(job)).collect();
    concerned.sort_by_key(|operation| operation.started);
    let mut text = String::new();
    for Operation { started, ended, action, answer } in concerned {
        let answer = match answer {
            Answer::Received(claims) => format!("{:?}", claims.iter().find(|claim| claim.job == job)),
            other => format!("{other:?}"),
        };
        let action = match action {
            Action::Publish { marker, .. } => format!("publish {marker}"),
            other => format!("{other:?}"),
        };
        text += &format!("  {started}..{ended} {action} -> {answer}\n");
    }
    text
}

/// How many operations of each kind were acknowledged. A receive counts when it brought something.
pub fn acknowledged(operations: &[Operation]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_acknowledged()) {
        *counts.entry(operation.action.kind()).or_insert(0) += 1;
    }
    counts
}

/// Answers that a healthy server never gives: 5xx without a definite meaning.
pub fn server_errors(operations: &[Operation]) -> Vec<&str> {
    let mut errors = Vec::new();
    for operation in operations {
        if let Answer::Unknown(reason) = &operation.answer
            && reason.starts_with("status ")
        {
            errors.push(reason.as_str());
        }
    }
    errors
}

impl Operation {
    pub fn is_acknowledged(&self) -> bool {
        match &self.answer {
            Answer::Received(claims) => !claims.is_empty(),
            Answer::Published { .. } | Answer::Changed { .. } | Answer::QueueChanged => true,
            Answer::Refused { .. } | Answer::Unknown(_) => false,
        }
    }

    fn names(&self, job: &str) -> bool {
        let by_action = match &self.action {
            Action::Settle { job: named, .. } | Action::Cancel { job: named } | Action::Replay { job: named } => {
                named == job
            }
            Action::Publish { .. } | Action::Receive | Action::ChangeQueue { .. } => false,
        };
        by_action
            || match &self.answer {
                Answer::Published { job: named } => named == job,
                Answer::Received(claims) => claims.iter().any(|claim| claim.job == job),
                _ => false,
            }
    }

    /// Acknowledged or of unknown ending: it may have had an effect.
    fn may_have_happened(&self) -> bool {
        !matches!(self.answer, Answer::Refused { .. })
    }

    /// The last moment at which it may take effect. A call whose answer was lost may wait at a paused node
    /// and be carried out long after its client has given up.
    fn effective_until(&self) -> u64 {
        if matches!(self.answer, Answer::Unknown(_)) { u64::MAX } else { self.ended }
    }

    fn is_before(&self, other: &Operation) -> bool {
        self.ended < other.started
    }
}

impl Action {
    pub fn kind(&self) -> &'static str {
        match self {
            Action::Publish { .. } => "publish",
            Action::Receive => "receive",
            Action::Settle { outcome: Outcome::Ack, .. } => "ack",
            Action::Settle { outcome: Outcome::Nack | Outcome::Fail, .. } => "nack",
            Action::Settle { outcome: Outcome::Defer, .. } => "defer",
            Action::Cancel { .. } => "cancel",
            Action::Replay { .. } => "replay",
            Action::ChangeQueue { .. } => "queue change",
        }
    }
}

fn violation(rule: Rule, subject: &str, detail: String) -> Violation {
    Violation { rule, subject: subject.to_owned(), detail }
}
