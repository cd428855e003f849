//! Checks the files of an embedded store: database, log and state file, whether they belong together, and
//! the clock against the last commit. Only reads, also where a server refuses to start.

use std::path::Path;

use outlast_core::Clock;
use outlast_engine::ports::SystemClock;
use outlast_store::sqlite::{Loss, StateFound, StateRecord, Survey, WalScan, WalState};

use super::{Check, Verdict};

/// A clock that is set right in passing moves less.
const CLOCK_WARN_SECONDS: u64 = 5;

pub(super) fn checks(data: &Path, is_running: bool) -> Vec<Check> {
    let survey = match Survey::read(data) {
        Ok(survey) => survey,
        Err(error) => return vec![Check::new("files", Verdict::Fail, format!("cannot be read: {error}"))],
    };
    // A running server changes the files while they are read, one after the other.
    let loss = survey.loss().filter(|_| !is_running);
    let mut checks = vec![database(&survey), log(survey.log), state(survey.state), verdict(loss, is_running)];
    if let StateFound::Found(record) = survey.state {
        checks.push(clock(&record));
    }
    checks
}

fn database(survey: &Survey) -> Check {
    let finding = match survey.database {
        None => "none".to_owned(),
        Some(file) => match file.mark {
            Some(mark) => format!("{} bytes, mark {mark}", file.bytes),
            None => format!("{} bytes, no mark: of an older release", file.bytes),
        },
    };
    Check::new("database", Verdict::Ok, finding)
}

fn log(log: Option<WalScan>) -> Check {
    let finding = match log {
        None => "none".to_owned(),
        Some(log) if log.is_empty() => "empty".to_owned(),
        Some(WalScan { bytes, salt: None, .. }) => format!("{bytes} bytes, header damaged"),
        Some(WalScan { bytes, salt: Some(salt), committed, .. }) => {
            format!("{bytes} bytes, salt {:08x}-{:08x}, {committed} committed frames", salt.0, salt.1)
        }
    };
    Check::new("log", Verdict::Ok, finding)
}

fn state(state: StateFound) -> Check {
    let finding = match state {
        StateFound::Missing => "none: new, restored, or of an older release".to_owned(),
        StateFound::Damaged => "cannot be read".to_owned(),
        StateFound::Found(record) => described(&record),
    };
    Check::new("state file", Verdict::Ok, finding)
}

fn described(record: &StateRecord) -> String {
    let log = match record.log {
        WalState::Unknown => "no start was completed".to_owned(),
        WalState::Stopped => "stopped cleanly".to_owned(),
        WalState::Running(position) | WalState::Emptying(position) => format!(
            "running or killed, log {:08x}-{:08x} with {} committed frames",
            position.salt.0, position.salt.1, position.frames
        ),
    };
    let StateRecord { mark, checkpointed, incarnation, next_seq, at, .. } = record;
    format!(
        "{log}; mark {mark} ({checkpointed} in the database), last number {}, last commit {at}, incarnation {incarnation}",
        next_seq - 1
    )
}

fn verdict(loss: Option<Loss>, is_running: bool) -> Check {
    match loss {
        Some(loss) => Check::new("files", Verdict::Fail, format!("acknowledged data may be lost: {loss}")),
        None if is_running => Check::new("files", Verdict::Ok, "not compared: a server is running"),
        None => Check::new("files", Verdict::Ok, "database, log and state file belong together"),
    }
}

fn clock(record: &StateRecord) -> Check {
    let now = SystemClock::start().now();
    match record.at.since(now).as_secs() {
        behind @ CLOCK_WARN_SECONDS.. => {
            let finding =
                format!("{behind} s behind the last commit ({}); the server's time goes on from there", record.at);
            Check::new("clock", Verdict::Warn, finding)
        }
        _ => Check::new("clock", Verdict::Ok, "not behind the last commit"),
    }
}
