//! Maps the exit status of a program to the outcome of its job, and builds the reason of a nack.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Shown below the help of `worker run`; the page about workers has the same table.
pub(crate) const PROGRAM_EXITS: &str = "\
The exit of the program is the outcome of its job:
  0                ack; the result is the content of $OUTLAST_RESULT_FILE, if any
  64..69, 76..78   nack, not retryable: bad usage, bad input, no permission (sysexits.h)
  75               nack, retryable: a temporary failure (EX_TEMPFAIL)
  any other        nack, retryable
  by a signal      nack, retryable
After a cancel, any exit is reported as cancelled. When the worker stops, any exit but 0 releases the job without a charge.
The reason of a nack is the end of the program's stderr.
The program's stdout goes to the worker's stdout; with --json it goes to stderr, and stdout has one JSON line per job.";

/// The most a server takes as a reason, in bytes.
const REASON_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed { is_retryable: bool, reason: String },
}

/// `stderr_tail` is the end of the program's stderr.
pub(crate) fn classify(status: ExitStatus, stderr_tail: &str) -> End {
    let (is_retryable, how) = match (status.code(), status.signal()) {
        (Some(0), _) => return End::Done,
        (Some(code @ (64..=69 | 76..=78)), _) => (false, format!("exit code {code}")),
        (Some(code), _) => (true, format!("exit code {code}")),
        (None, Some(signal)) => (true, format!("ended by signal {signal}")),
        (None, None) => (true, "ended in an unknown way".to_owned()),
    };
    End::Failed { is_retryable, reason: reason(&how, stderr_tail) }
}

/// The exit status, followed by as much of the end of stderr as fits.
fn reason(how: &str, stderr_tail: &str) -> String {
    let stderr_tail = stderr_tail.trim();
    if stderr_tail.is_empty() {
        return how.to_owned();
    }
    let room = REASON_BYTES_MAX.saturating_sub(how.len() + 2);
    let mut start = stderr_tail.len().saturating_sub(room);
    while !stderr_tail.is_char_boundary(start) {
        start += 1;
    }
    format!("{how}: {}", stderr_tail.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: i32, is_retryable: bool, how: &str) {
        let end = classify(ExitStatus::from_raw(raw), "");

        assert_eq!(end, End::Failed { is_retryable, reason: how.to_owned() });
    }

    #[test]
    fn exit_codes_lead_to_outcomes() {
        assert_eq!(classify(ExitStatus::from_raw(0), "a remark"), End::Done);
        for code in [64, 65, 66, 69, 76, 78] {
            check(code << 8, false, &format!("exit code {code}"));
        }
        for code in [1, 2, 63, 70, 71, 75, 79, 126, 127, 255] {
            check(code << 8, true, &format!("exit code {code}"));
        }
        check(9, true, "ended by signal 9");
    }

    #[test]
    fn a_reason_is_the_end_of_stderr_and_fits() {
        let End::Failed { reason, .. } = classify(ExitStatus::from_raw(1 << 8), &format!("{}é", "ü".repeat(2000)))
        else {
            panic!("it failed")
        };

        assert!(reason.starts_with("exit code 1: ü") && reason.ends_with('é'), "{reason}");
        assert!(reason.len() <= REASON_BYTES_MAX && reason.len() > REASON_BYTES_MAX - 4);
    }
}
