//! Maps a webhook's answer, or its absence, to an outcome, by status and headers. Pure, so that the whole table is
//! tested here.

use std::time::Duration;

use crate::command::Outcome;
use crate::gate::HoldCause;
use crate::queue::{DeferScope, Mode, range};
use crate::time::{Timestamp, days_from_civil};

/// The effect of a delivery's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum WebhookAnswer {
    /// The job is taken; the outcome comes by call.
    Receipt,
    Outcome(Outcome),
}

/// The parts of an answer that decide.
#[derive(Clone, Copy, Debug)]
pub struct WebhookHead<'a> {
    pub status: u16,
    pub retry_after: Option<&'a str>,
    /// `x-outlast-retry: false` was sent.
    pub forbids_retry: bool,
}

/// Reads an answer. The body, if it becomes a result, is added by the caller.
pub fn read(head: WebhookHead<'_>, mode: Mode, now: Timestamp) -> WebhookAnswer {
    match head.status {
        202 if mode != Mode::Callback => WebhookAnswer::Receipt,
        200..=299 if mode == Mode::Ack => WebhookAnswer::Receipt,
        200..=299 => WebhookAnswer::Outcome(Outcome::Ack { result: None }),
        _ if head.forbids_retry => WebhookAnswer::Outcome(Outcome::Nack { retryable: false, delay: None }),
        429 | 503 | 529 => {
            let retry_after = head.retry_after.and_then(|text| retry_after(text, now));
            WebhookAnswer::Outcome(Outcome::Defer { retry_after, scope: None, cause: HoldCause::Backpressure })
        }
        410 => WebhookAnswer::Outcome(Outcome::Nack { retryable: false, delay: None }),
        _ => WebhookAnswer::Outcome(Outcome::Nack { retryable: true, delay: None }),
    }
}

/// Why a delivery has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The endpoint did not take the request or did not answer it.
    Endpoint,
    /// A connection that had been used before was closed without a word: the endpoint may just have given up an idle one.
    UsedConnection,
    /// Nothing was sent, through no fault of the endpoint's: our name server is out, or too many wait for its host.
    OurSide,
}

/// After trouble of our own, which is no fault of the endpoint's.
const OUR_SIDE_PAUSE: Duration = Duration::from_secs(5);

/// The outcome of a delivery without an answer; `probe` is the cause of the hold that it probes, if it does.
pub fn missing(why: NoAnswer, probe: Option<HoldCause>) -> Outcome {
    match why {
        NoAnswer::Endpoint => as_endpoint_failure(Outcome::Nack { retryable: true, delay: None }, probe),
        NoAnswer::UsedConnection => put_off(Duration::ZERO, probe),
        NoAnswer::OurSide => put_off(OUR_SIDE_PAUSE, probe),
    }
}

/// The endpoint is broken: a probe of its circuit that finds it so costs no attempt, unless it is the last word.
pub fn as_endpoint_failure(outcome: Outcome, probe: Option<HoldCause>) -> Outcome {
    match (probe, &outcome) {
        (Some(HoldCause::Circuit), Outcome::Nack { retryable: true, .. }) => {
            Outcome::Defer { retry_after: None, scope: None, cause: HoldCause::Circuit }
        }
        _ => outcome,
    }
}

/// Nothing is sent while the circuit is open. The rest of a whole queue grows with each probe; a single job waits for as
/// long as the circuit of its own host.
pub fn circuit_open(scope: DeferScope, wait: Duration) -> Outcome {
    Outcome::Defer { retry_after: (scope == DeferScope::Job).then_some(wait), scope: None, cause: HoldCause::Circuit }
}

/// Later, free. A probe has found out nothing by it, so its queue rests on.
fn put_off(pause: Duration, probe: Option<HoldCause>) -> Outcome {
    let scope = if probe.is_some() { DeferScope::Queue } else { DeferScope::Job };
    Outcome::Defer { retry_after: Some(pause), scope: Some(scope), cause: probe.unwrap_or(HoldCause::Backpressure) }
}

/// Does the status say that the endpoint itself is broken, whatever was sent to it? Such answers open its circuit.
pub fn is_broken(status: u16) -> bool {
    (500..=599).contains(&status) && !matches!(status, 501 | 503 | 505 | 529)
}

/// A longer pause than this is not credible: such a header counts as absent.
const CREDIBLE_MAX: Duration = Duration::from_secs(365 * 86_400);

/// `Retry-After` as seconds or HTTP date, clamped to 0…24 h. `None` when it is malformed or not credible: the queue's own
/// delay applies then.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let asked = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(text.parse().ok()?)
    } else {
        http_date(text)?.since(now)
    };
    (asked <= CREDIBLE_MAX).then(|| asked.min(*range::RETRY_AFTER.end()))
}

/// IMF-fixdate, the one form that must be sent: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let mut parts = date.split(' ');
    let day = number(parts.next()?, 2)?;
    let month_name = parts.next()?;
    let month = i64::try_from(MONTHS.iter().position(|month| *month == month_name)?).ok()? + 1;
    let year = number(parts.next()?, 4)?;
    let mut clock = parts.next()?.split(':');
    let (hour, minute, second) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    if parts.next()? != "GMT" || parts.next().is_some() || clock.next().is_some() {
        return None;
    }
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds.saturating_mul(1000)))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    fn of(status: u16, mode: Mode) -> WebhookAnswer {
        read(WebhookHead { status, retry_after: None, forbids_retry: false }, mode, Timestamp::EPOCH)
    }

    fn nack(retryable: bool) -> WebhookAnswer {
        WebhookAnswer::Outcome(Outcome::Nack { retryable, delay: None })
    }

    #[test]
    fn every_row_of_the_answer_table_holds() {
        let done = WebhookAnswer::Outcome(Outcome::Ack { result: None });
        let held =
            WebhookAnswer::Outcome(Outcome::Defer { retry_after: None, scope: None, cause: HoldCause::Backpressure });
        for (status, standard, ack) in [
            (200, &done, &WebhookAnswer::Receipt),
            (204, &done, &WebhookAnswer::Receipt),
            (202, &WebhookAnswer::Receipt, &WebhookAnswer::Receipt),
            (429, &held, &held),
            (503, &held, &held),
            (529, &held, &held),
            (410, &nack(false), &nack(false)),
            (301, &nack(true), &nack(true)),
            (404, &nack(true), &nack(true)),
            (500, &nack(true), &nack(true)),
        ] {
            assert_eq!(&of(status, Mode::Standard), standard, "{status}");
            assert_eq!(&of(status, Mode::Ack), ack, "{status}");
        }
        for status in [301, 404, 410, 429, 500, 503, 529] {
            let forbidden = WebhookHead { status, retry_after: Some("5"), forbids_retry: true };
            assert_eq!(read(forbidden, Mode::Standard, Timestamp::EPOCH), nack(false), "{status}");
        }
    }

    #[test]
    fn a_delivery_without_an_answer_is_charged_unless_it_was_not_the_endpoint() {
        let of = |why, probe| missing(why, probe);
        let later = |seconds, scope, cause| Outcome::Defer {
            retry_after: Some(Duration::from_secs(seconds)),
            scope: Some(scope),
            cause,
        };
        let charged = Outcome::Nack { retryable: true, delay: None };
        let rests = Outcome::Defer { retry_after: None, scope: None, cause: HoldCause::Circuit };

        assert_eq!(of(NoAnswer::Endpoint, None), charged);
        assert_eq!(of(NoAnswer::Endpoint, Some(HoldCause::Backpressure)), charged);
        assert_eq!(of(NoAnswer::Endpoint, Some(HoldCause::Circuit)), rests, "a probe in vain is free");
        assert_eq!(of(NoAnswer::UsedConnection, None), later(0, DeferScope::Job, HoldCause::Backpressure));
        assert_eq!(of(NoAnswer::OurSide, None), later(5, DeferScope::Job, HoldCause::Backpressure));
        assert_eq!(
            of(NoAnswer::OurSide, Some(HoldCause::Circuit)),
            later(5, DeferScope::Queue, HoldCause::Circuit),
            "a probe that was not made leaves the hold in force"
        );
        let last_word = Outcome::Nack { retryable: false, delay: None };
        assert_eq!(as_endpoint_failure(last_word.clone(), Some(HoldCause::Circuit)), last_word);
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_date() {
        let now = Timestamp::from_millis(784_111_777_000);
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("86401", Some(86_400)),
            ("31536000", Some(86_400)),
            ("31536001", None),
            ("18446744073709551615", None),
            ("99999999999999999999999", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Tue, 08 Nov 1994 08:50:37 GMT", Some(86_400)),
            ("Sun, 06 Nov 2094 08:00:00 GMT", None),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
            ("Sun, 06 Nov 1994 08:50:37 CET", None),
            ("Sun, 99 Nov 1994 08:50:37 GMT", None),
        ] {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }

    proptest! {
        /// I-22: hostile values neither panic nor leave the range.
        #[test]
        fn hostile_retry_after_values_stay_in_range(text in ".{0,40}", now in any::<i64>()) {
            if let Some(wait) = retry_after(&text, Timestamp::from_millis(now)) {
                prop_assert!(range::RETRY_AFTER.contains(&wait));
            }
        }
    }
}
