//! Points in time and how durations are written. A timestamp is whole milliseconds since the Unix epoch; arithmetic
//! saturates, so that no duration a user sends can overflow. Reading a clock happens outside, behind [`Clock`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp(0);
    /// 9999-12-31T23:59:59.999Z, the last moment RFC 3339 can write; everything later is clamped to it.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// Clamps into the range that can be written down.
    pub fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis.clamp(0, Timestamp::MAX.0))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Later by `duration`, at most [`Timestamp::MAX`].
    pub fn plus(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.0.saturating_add(millis))
    }

    /// Earlier by `duration`, at least [`Timestamp::EPOCH`].
    pub fn minus(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.0.saturating_sub(millis))
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-15T20:37:00.000Z`. Written digit by digit, since every answer has some.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(86_400_000));
        let in_day = self.0.rem_euclid(86_400_000);
        let (seconds, millis) = (in_day / 1000, in_day % 1000);
        let parts = [
            (year, 4),
            (month, 2),
            (day, 2),
            (seconds / 3600, 2),
            (seconds / 60 % 60, 2),
            (seconds % 60, 2),
            (millis, 3),
        ];
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut end = 0;
        for (number, digits) in parts {
            end += digits;
            put_digits(&mut text, end, number);
            end += 1;
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// Writes a number so that its last digit is before `end`; the zeros in front are there already.
fn put_digits(text: &mut [u8], end: usize, mut number: i64) {
    for slot in text.iter_mut().take(end).rev() {
        if number == 0 {
            return;
        }
        *slot = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

/// Proleptic Gregorian date of a day number, by the era method: 400-year eras of 146,097 days, years from March.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Day number of a proleptic Gregorian date; the inverse of [`civil_from_days`].
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The port through which everything above core learns the time.
pub trait Clock: Send + Sync {
    /// The present moment. Never goes back within one process.
    fn now(&self) -> Timestamp;
}

/// A hundred years: longer than any wait that makes sense, short enough that sums stay far from overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Reads `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"` or a bare number of seconds. `None` for anything else, for negative
/// values and for more than [`DURATION_MAX`].
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let scale_millis = match unit.trim() {
        "ms" => 1.0,
        "s" | "" => 1000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    duration_from_seconds(number.parse::<f64>().ok()? * scale_millis / 1000.0)
}

/// Seconds, fractions allowed, rounded to whole milliseconds. `None` when negative, not finite or above [`DURATION_MAX`].
pub fn duration_from_seconds(seconds: f64) -> Option<Duration> {
    if !(0.0..=DURATION_MAX.as_secs_f64()).contains(&seconds) {
        return None;
    }
    let exact = Duration::try_from_secs_f64(seconds).ok()?;
    let micros = exact.as_micros();
    Some(Duration::from_millis(u64::try_from((micros + 500) / 1000).ok()?))
}

/// Serde form of durations in settings: a number of seconds, whole where it can be.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        if duration.subsec_nanos() == 0 {
            return serializer.serialize_u64(duration.as_secs());
        }
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        super::duration_from_seconds(seconds).ok_or_else(|| D::Error::custom("not a duration in seconds"))
    }
}

/// The same for durations that may be unset.
pub mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::seconds::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(seconds) = Option::<f64>::deserialize(deserializer)? else {
            return Ok(None);
        };
        super::duration_from_seconds(seconds).map(Some).ok_or_else(|| D::Error::custom("not a duration in seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_as_rfc_3339_with_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_763_238_999_042, "2025-11-15T20:36:39.042Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
    }

    #[test]
    fn dates_and_day_numbers_are_inverse() {
        for days in (-100_000..3_000_000).step_by(97) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }

    #[test]
    fn adding_an_absurd_duration_stops_at_the_end_of_time() {
        let far = Timestamp::from_millis(5).plus(Duration::MAX);

        assert_eq!(far, Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.since(far), Duration::ZERO);
    }

    #[test]
    fn durations_are_read_in_every_unit_and_refused_otherwise() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5", 1500),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1s", "1y", "s", "1 2", "1e9d", "NaN", "inf", "999999999d", "1..2", "٣s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
