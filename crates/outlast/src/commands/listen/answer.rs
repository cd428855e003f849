//! Chooses the receiver's response from the flags, by the number of the delivery.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use crate::client::duration;
use crate::commands::argument;
use crate::failure::Failure;

/// The response while `--fail-first` lasts.
const FAILURE: u16 = 500;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Answers")]
pub(crate) struct AnswerFlags {
    /// Status of the answers [default: 200, or 202 with --ack and --nack]
    #[arg(long, value_name = "CODE", value_parser = status())]
    status: Option<u16>,
    /// Statuses of the first answers, as in 429,503,200; the last one stays
    #[arg(long, value_name = "CODES", value_delimiter = ',', value_parser = status(), conflicts_with_all = ["status", "fail_first"])]
    sequence: Vec<u16>,
    /// Answer 500 to the first N deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    fail_first: Option<u16>,
    /// Send Retry-After with every answer that is not 2xx: a duration, or an HTTP date
    #[arg(long, value_name = "TIME", value_parser = retry_after)]
    retry_after: Option<String>,
    /// Send x-outlast-retry: false with every answer that is not 2xx
    #[arg(long)]
    no_retry: bool,
    /// JSON to answer with, or @file; the job's result in standard mode
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    /// Wait before answering
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Duration>,
}

fn status() -> RangedU64ValueParser<u16> {
    // 1xx is no answer.
    RangedU64ValueParser::new().range(200..=599)
}

/// Whole seconds of a duration, or a date as it was written.
fn retry_after(text: &str) -> Result<String, String> {
    if text.ends_with(" GMT") && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    let refuse = || "neither a duration nor an HTTP date; write 5, 2m or \"Sun, 06 Nov 1994 08:49:37 GMT\"".to_owned();
    let span = duration(text).map_err(|_| refuse())?;
    // The header counts whole seconds.
    Ok((span.as_secs() + u64::from(span.subsec_nanos() > 0)).to_string())
}

/// Every answer that will be given.
#[derive(Debug)]
pub(crate) struct Plan {
    first: Vec<u16>,
    then: u16,
    retry_after: Option<String>,
    forbids_retry: bool,
    body: Option<String>,
    delay: Duration,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    pub retry_after: Option<String>,
    pub forbids_retry: bool,
    pub body: Option<String>,
    pub delay: Duration,
}

impl Plan {
    pub(crate) fn read(flags: AnswerFlags, reports_later: bool) -> Result<Plan, Failure> {
        let usual = if reports_later { 202 } else { 200 };
        let (first, then) = match flags.sequence.split_last() {
            Some((last, first)) => (first.to_vec(), *last),
            None => (vec![FAILURE; usize::from(flags.fail_first.unwrap_or(0))], flags.status.unwrap_or(usual)),
        };
        let is_failing = !is_success(then) || first.iter().any(|status| !is_success(*status));
        for (flag, is_given) in [("--retry-after", flags.retry_after.is_some()), ("--no-retry", flags.no_retry)] {
            if is_given && !is_failing {
                return Err(Failure::usage(format!("{flag} has no effect on answers that are all 2xx"))
                    .with_hint("add --status 429, --sequence 503,200 or --fail-first 1"));
            }
        }
        let body = match &flags.body {
            Some(text) => Some(argument::json(text, "the body")?.get().to_owned()),
            None => None,
        };
        Ok(Plan {
            first,
            then,
            retry_after: flags.retry_after,
            forbids_retry: flags.no_retry,
            body,
            delay: flags.delay.unwrap_or_default(),
        })
    }

    /// The answer to the delivery with this number, counted from 0.
    pub(crate) fn answer(&self, number: usize) -> Answer {
        let status = *self.first.get(number).unwrap_or(&self.then);
        let fails = !is_success(status);
        Answer {
            status,
            retry_after: self.retry_after.clone().filter(|_| fails),
            forbids_retry: self.forbids_retry && fails,
            body: self.body.clone().filter(|_| !matches!(status, 204 | 304)),
            delay: self.delay,
        }
    }
}

pub(crate) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: AnswerFlags,
    }

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        let line = Line::try_parse_from([&["listen"], words].concat());
        Plan::read(line.map_err(|error| Failure::usage(error.to_string()))?.flags, false)
    }

    fn statuses(words: &[&str], count: usize) -> Vec<u16> {
        let plan = plan(words).unwrap();
        (0..count).map(|number| plan.answer(number).status).collect()
    }

    #[test]
    fn answers_follow_the_flags() {
        assert_eq!(statuses(&[], 2), [200, 200]);
        assert_eq!(statuses(&["--status", "418"], 2), [418, 418]);
        assert_eq!(statuses(&["--fail-first", "2"], 4), [500, 500, 200, 200]);
        assert_eq!(statuses(&["--fail-first", "1", "--status", "204"], 2), [500, 204]);
        assert_eq!(statuses(&["--sequence", "429,503,200"], 5), [429, 503, 200, 200, 200]);
    }

    #[test]
    fn an_outcome_that_comes_later_is_announced_with_202() {
        let line = Line::try_parse_from(["listen"]).unwrap();

        assert_eq!(Plan::read(line.flags, true).unwrap().answer(0).status, 202);
    }

    #[test]
    fn only_failures_say_when_to_come_back() {
        let plan = plan(&["--sequence", "429,200", "--retry-after", "1500ms", "--no-retry", "--body", "{}"]).unwrap();

        let (held, taken) = (plan.answer(0), plan.answer(1));

        assert_eq!((held.retry_after.as_deref(), held.forbids_retry), (Some("2"), true));
        assert_eq!((taken.retry_after, taken.forbids_retry, taken.body.as_deref()), (None, false, Some("{}")));
    }

    #[test]
    fn a_retry_after_is_a_duration_or_a_date() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (text, sent) in [("5", "5"), ("2m", "120"), ("0", "0"), (date, date)] {
            assert_eq!(retry_after(text).unwrap(), sent);
        }
        for wrong in ["", "soon", "-1", "tomorrow GMT\r\nx: y GMT"] {
            assert!(retry_after(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn flags_that_cannot_work_are_refused() {
        for words in [
            &["--status", "99"][..],
            &["--status", "600"],
            &["--sequence", "200,abc"],
            &["--sequence", "200", "--status", "200"],
            &["--sequence", "200", "--fail-first", "1"],
            &["--retry-after", "5"],
            &["--no-retry", "--status", "202"],
            &["--body", "{"],
            &["--body", "@no-such-file"],
            &["--delay", "soon"],
        ] {
            assert!(plan(words).is_err(), "{words:?}");
        }
    }
}
