//! Progress of a job or a transfer: one line that is redrawn on a terminal, and a plain line per whole percent elsewhere.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use jiff::Timestamp;
use outlast_core::Clock;
use outlast_engine::ports::SystemClock;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, escape, show};

/// Of a terminal that does not say.
const WIDTH_DEFAULT: usize = 80;
/// The bar itself takes a third of the line, within these.
const BAR_MIN: u16 = 10;
const BAR_MAX: u16 = 40;

/// The terminal behind stdout, or the file: lines, and below them at most one bar.
pub(crate) struct Screen {
    is_terminal: bool,
    /// How many columns the bar has that is drawn.
    drawn: usize,
    /// What the last plain line about progress said: another percent or another stage makes a new one.
    said: Option<(String, String)>,
}

impl Screen {
    pub(crate) fn open() -> Screen {
        Screen { is_terminal: io::stdout().is_terminal(), drawn: 0, said: None }
    }

    /// A line above the bar.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.clear()?;
        output::print(&format!("{}\n", escape(text)))
    }

    pub(crate) fn progress(&mut self, progress: &Value) -> Result<(), Failure> {
        if self.is_terminal {
            return self.draw(&bar(progress, now(), width(io::stdout())));
        }
        let whole = pct(progress).map_or_else(String::new, |pct| format!("{:.0}", pct.floor()));
        let said = (whole, progress.get("stage").map(show).unwrap_or_default());
        if self.said.as_ref() == Some(&said) {
            return Ok(());
        }
        self.said = Some(said);
        let at = progress.get("at").map(show).unwrap_or_default();
        self.line(&format!("{at}  progress  {}", words(progress, now())))
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        if self.drawn == 0 {
            return Ok(());
        }
        let blank = " ".repeat(std::mem::take(&mut self.drawn));
        output::print(&format!("\r{blank}\r"))
    }

    fn draw(&mut self, text: &str) -> Result<(), Failure> {
        let length = text.chars().count();
        let rest = " ".repeat(self.drawn.saturating_sub(length));
        self.drawn = length;
        output::print(&format!("\r{text}{rest}"))
    }
}

/// The bytes of a transfer, on stderr, where that is a terminal.
pub(crate) struct Transfer {
    total: Option<u64>,
    is_terminal: bool,
    /// Tenths of a percent, or MiB, that were drawn last: more often nobody could see it.
    drawn: Option<u64>,
}

impl Transfer {
    pub(crate) fn of(total: Option<u64>) -> Transfer {
        Transfer { total, is_terminal: io::stderr().is_terminal(), drawn: None }
    }

    pub(crate) fn at(&mut self, bytes: u64) {
        let step = match self.total {
            Some(total) => bytes.saturating_mul(1000).checked_div(total).unwrap_or(1000),
            None => bytes / (1024 * 1024),
        };
        if !self.is_terminal || self.drawn == Some(step) {
            return;
        }
        self.drawn = Some(step);
        let text = match self.total {
            Some(total) => {
                let pct = f64::from(u16::try_from(step).unwrap_or(1000)) / 10.0;
                let width = width(io::stderr());
                format!("[{}] {pct:5.1}%  {} of {}", blocks(pct, width), size(bytes), size(total))
            }
            None => size(bytes),
        };
        // A closed stderr leaves nobody to tell.
        let _ = write!(io::stderr(), "\r{text}  ");
    }

    pub(crate) fn end(&self) {
        if self.drawn.is_some() {
            let _ = writeln!(io::stderr());
        }
    }
}

/// One line of at most `width` columns less one: a full line would move a terminal on.
fn bar(progress: &Value, now: Timestamp, width: usize) -> String {
    let words = escape(&words(progress, now));
    let text = match pct(progress) {
        Some(pct) => format!("[{}] {words}", blocks(pct, width)),
        None => words,
    };
    let room = width.saturating_sub(1).max(1);
    if text.chars().count() <= room {
        return text;
    }
    text.chars().take(room - 1).chain(['…']).collect()
}

fn blocks(pct: f64, width: usize) -> String {
    let length = u16::try_from(width / 3).unwrap_or(BAR_MAX).clamp(BAR_MIN, BAR_MAX);
    let is_done = |place: &u16| f64::from(*place) * 100.0 <= pct * f64::from(length);
    (1..=length).map(|place| if is_done(&place) { '#' } else { '-' }).collect()
}

/// `47.5%  render (3 of 7)  12 of 40 items  2m 05s left  a message`, as far as it is known.
fn words(progress: &Value, now: Timestamp) -> String {
    let mut parts = Vec::new();
    parts.extend(pct(progress).map(|pct| format!("{pct:.1}%")));
    let text = |name: &str| progress.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("stage"), of(progress, "stagesDone", "stagesTotal")) {
        (Some(stage), Some(count)) => parts.push(format!("{stage} ({count} stages)")),
        (Some(stage), None) => parts.push(stage.to_owned()),
        (None, Some(count)) => parts.push(format!("{count} stages")),
        (None, None) => {}
    }
    parts.extend(of(progress, "itemsDone", "itemsTotal").map(|count| format!("{count} items")));
    let eta: Option<Timestamp> = text("eta").and_then(|eta| eta.parse().ok());
    let left = eta.and_then(|eta| Duration::try_from(eta.duration_since(now)).ok());
    parts.extend(left.map(|left| format!("{} left", span(left))));
    parts.extend(text("message").map(str::to_owned));
    parts.join("  ")
}

/// `3 of 7`, or `3` where the total is not known.
fn of(progress: &Value, done: &str, total: &str) -> Option<String> {
    let number = |name: &str| progress.get(name).and_then(Value::as_f64);
    match (number(done)?, number(total)) {
        (done, Some(total)) => Some(format!("{done} of {total}")),
        (done, None) => Some(done.to_string()),
    }
}

fn pct(progress: &Value) -> Option<f64> {
    progress.get("pct").and_then(Value::as_f64).map(|pct| pct.clamp(0.0, 100.0))
}

fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A length as people read it.
pub(crate) fn size(bytes: u64) -> String {
    let (mut whole, mut rest) = (bytes, 0);
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if whole < 1024 || unit == "TiB" {
            return if unit == "B" { format!("{whole} B") } else { format!("{whole}.{} {unit}", rest * 10 / 1024) };
        }
        (whole, rest) = (whole / 1024, whole % 1024);
    }
    bytes.to_string()
}

fn width(terminal: impl AsFd) -> usize {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH_DEFAULT } else { columns }
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(SystemClock::start().now().as_millis()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_bar_shows_what_is_known_within_the_width() {
        let now = time("2026-01-01T00:00:00Z");
        let whole = json!({
            "pct": 50, "stage": "render", "stagesDone": 1, "stagesTotal": 3, "itemsDone": 12, "itemsTotal": 40,
            "eta": "2026-01-01T00:02:05.400Z", "message": "page\u{1b}[2J 3",
        });

        for (progress, width, shown) in [
            (json!({"pct": 0}), 80, "[--------------------------] 0.0%"),
            (json!({"pct": 100}), 30, "[##########] 100.0%"),
            (json!({"pct": 99.99}), 30, "[#########-] 100.0%"),
            (json!({"itemsDone": 7}), 80, "7 items"),
            (
                whole.clone(),
                120,
                "[####################--------------------] 50.0%  render (1 of 3 stages)  12 of 40 items  2m 05s left  page\\u{1b}[2J 3",
            ),
            (whole, 40, "[######-------] 50.0%  render (1 of 3 …"),
        ] {
            let line = bar(&progress, now, width);
            assert_eq!(line, shown);
            assert!(line.chars().count() < width, "{line}");
        }
    }

    #[test]
    fn times_and_sizes_are_short() {
        for (seconds, shown) in [(0, "0s"), (59, "59s"), (125, "2m 05s"), (3600, "1h 00m"), (100_000, "27h 46m")] {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
        for (bytes, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 60, "1048576.0 TiB")]
        {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn an_end_that_has_passed_is_not_shown() {
        let progress = json!({"pct": 50, "eta": "2026-01-01T00:00:00Z"});

        assert_eq!(words(&progress, time("2026-01-01T00:00:01Z")), "50.0%");
    }
}
