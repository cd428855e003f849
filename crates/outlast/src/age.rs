//! Times as people read them: `3m ago` beside a timestamp, and the short spans of tables and progress bars.

use std::time::Duration;

use jiff::Timestamp;
use outlast_core::Clock;
use outlast_engine::ports::SystemClock;
use serde_json::Value;

use crate::output::show;

/// Nearer to the present than this is `now`.
const PRESENT: Duration = Duration::from_secs(1);

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millisecond(SystemClock::start().now().as_millis()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `2026-01-01T00:00:00.000Z (3m ago)`; the value as it is where it is no timestamp.
pub(crate) fn stamp(value: &Value, now: Timestamp) -> String {
    match relative(value, now) {
        Some(relative) => format!("{} ({relative})", show(value)),
        None => show(value),
    }
}

/// `3m ago`, `now` or `in 3m`.
pub(crate) fn relative(value: &Value, now: Timestamp) -> Option<String> {
    let at = parse(value)?;
    let past = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    let future = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Some(match (past >= PRESENT, future >= PRESENT) {
        (true, _) => format!("{} ago", span(past)),
        (_, true) => format!("in {}", span(future)),
        (false, false) => "now".to_owned(),
    })
}

/// The time since a timestamp, for a column: `3m`, or `-` where there is none.
pub(crate) fn age(value: &Value, now: Timestamp) -> String {
    parse(value)
        .map_or_else(|| "-".to_owned(), |at| span(Duration::try_from(now.duration_since(at)).unwrap_or_default()))
}

/// `45s`, `3m`, `2h 5m`, `3d 4h`, `60d`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m"),
        3_600..86_400 => format!("{hours}h {}m", minutes % 60),
        86_400..2_592_000 => format!("{days}d {}h", hours % 24),
        _ => format!("{days}d"),
    }
}

fn parse(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_is_shown_with_its_distance_from_now() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (at, shown) in [
            (json!("2026-01-01T23:59:15.000Z"), "45s ago"),
            (json!("2026-01-01T23:56:10.000Z"), "3m ago"),
            (json!("2026-01-01T21:55:00.000Z"), "2h 5m ago"),
            (json!("2025-12-29T20:00:00.000Z"), "3d 4h ago"),
            (json!("2025-10-03T00:00:00.000Z"), "91d ago"),
            (json!("2026-01-02T00:00:00.400Z"), "now"),
            (json!("2026-01-02T00:00:30.000Z"), "in 30s"),
        ] {
            assert_eq!(relative(&at, now).as_deref(), Some(shown));
            assert_eq!(stamp(&at, now), format!("{} ({shown})", at.as_str().unwrap()));
        }
        assert_eq!((relative(&json!(null), now), stamp(&json!(7), now)), (None, "7".to_owned()));
    }

    #[test]
    fn an_age_in_a_column_is_short() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();

        assert_eq!(age(&json!("2026-01-01T23:56:10.000Z"), now), "3m");
        assert_eq!(age(&json!("2026-01-02T00:00:10.000Z"), now), "0s", "another machine's clock may be ahead");
        assert_eq!(age(&Value::Null, now), "-");
    }
}
