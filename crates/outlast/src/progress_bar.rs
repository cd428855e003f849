//! Progress of a job or a transfer: one line that is redrawn on a terminal, and a plain line per whole percent elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::age::now;
use crate::display::width;
use crate::failure::{Exit, Failure};
use crate::output::{self, escape, show};

/// The bar itself takes a third of the line, within these.
const BAR_MIN: u16 = 10;
const BAR_MAX: u16 = 40;
/// A drawn bar is drawn again this often: its time left counts down, and it follows the terminal's width.
const REDRAW: Duration = Duration::from_secs(1);

/// The terminal behind stdout, or the file: lines, and below them at most one bar.
pub(crate) struct Screen {
    is_terminal: bool,
    bar: Option<Bar>,
    /// Percent and stage of the last plain line about progress: another percent or another stage makes a new line.
    last_line: Option<(String, String)>,
}

/// A bar on the terminal.
struct Bar {
    progress: Value,
    /// Columns of the text as it was drawn.
    drawn: usize,
}

impl Screen {
    pub(crate) fn open() -> Screen {
        Screen { is_terminal: io::stdout().is_terminal(), bar: None, last_line: None }
    }

    /// A line above the bar.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        let bar = self.bar.take();
        let width = width(io::stdout());
        let erased = bar.as_ref().map(|bar| erase(bar.drawn, width)).unwrap_or_default();
        output::print(&format!("{erased}{}\n", escape(text)))?;
        match bar {
            Some(bar) => self.draw(bar.progress, 0),
            None => Ok(()),
        }
    }

    pub(crate) fn progress(&mut self, progress: &Value) -> Result<(), Failure> {
        if self.is_terminal {
            let drawn = self.bar.as_ref().map_or(0, |bar| bar.drawn);
            return self.draw(progress.clone(), drawn);
        }
        let whole = pct(progress).map_or_else(String::new, |pct| format!("{:.0}", pct.floor()));
        let line = (whole, progress.get("stage").map(show).unwrap_or_default());
        if self.last_line.as_ref() == Some(&line) {
            return Ok(());
        }
        self.last_line = Some(line);
        let at = progress.get("at").map(show).unwrap_or_default();
        output::print(&format!("{}\n", escape(&format!("{at}  progress  {}", describe(progress, now())))))
    }

    /// Waits for `work` and keeps the bar current meanwhile. Ends early only if stdout cannot be written to.
    pub(crate) async fn redraw_during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        let mut work = std::pin::pin!(work);
        let mut resized = signal(SignalKind::window_change())
            .map_err(|error| Failure::new(Exit::Refused, format!("cannot wait for signals: {error}")))?;
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(REDRAW), if self.bar.is_some() => {}
                _ = resized.recv(), if self.bar.is_some() => {}
            }
            if let Some(bar) = self.bar.take() {
                self.draw(bar.progress, bar.drawn)?;
            }
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        match self.bar.take() {
            Some(bar) => output::print(&erase(bar.drawn, width(io::stdout()))),
            None => Ok(()),
        }
    }

    /// Draws over a bar of `drawn` columns.
    fn draw(&mut self, progress: Value, drawn: usize) -> Result<(), Failure> {
        let width = width(io::stdout());
        let text = bar(&progress, now(), width);
        let length = text.chars().count();
        let frame = if drawn < width {
            format!("\r{text}{}", " ".repeat(drawn.saturating_sub(length)))
        } else {
            format!("{}{text}", erase(drawn, width))
        };
        self.bar = Some(Bar { progress, drawn: length });
        output::print(&frame)
    }
}

/// Removes a text of `drawn` columns from a terminal of `width` columns. A terminal that got narrower has wrapped it: then
/// the cursor goes up to its first row, and everything below is erased.
fn erase(drawn: usize, width: usize) -> String {
    if drawn < width {
        return format!("\r{}\r", " ".repeat(drawn));
    }
    let rows_above = drawn.saturating_sub(1) / width.max(1);
    match rows_above {
        0 => "\r\u{1b}[J".to_owned(),
        rows => format!("\r\u{1b}[{rows}A\u{1b}[J"),
    }
}

/// The bytes of a transfer, on stderr, where that is a terminal.
pub(crate) struct Transfer {
    total: Option<u64>,
    is_terminal: bool,
    /// Tenths of a percent, or MiB, that were drawn last: drawing more often changes nothing on the screen.
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
        // A closed stderr loses the bar and nothing else.
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
    let words = escape(&describe(progress, now));
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
pub(crate) fn describe(progress: &Value, now: Timestamp) -> String {
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

/// A number of bytes as people read it.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_bar_shows_the_known_fields_within_the_width() {
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

        assert_eq!(describe(&progress, time("2026-01-01T00:00:01Z")), "50.0%");
    }

    #[test]
    fn the_time_left_counts_down_between_two_reports() {
        let progress = json!({"pct": 50, "eta": "2026-01-01T00:02:00Z"});

        assert_eq!(describe(&progress, time("2026-01-01T00:00:00Z")), "50.0%  2m 00s left");
        assert_eq!(describe(&progress, time("2026-01-01T00:00:01Z")), "50.0%  1m 59s left");
    }

    #[test]
    fn a_bar_that_a_narrower_terminal_has_wrapped_is_erased_whole() {
        for (drawn, width, erased) in [
            (10, 80, format!("\r{}\r", " ".repeat(10))),
            (79, 80, format!("\r{}\r", " ".repeat(79))),
            (79, 79, "\r\u{1b}[J".to_owned()),
            (79, 40, "\r\u{1b}[1A\u{1b}[J".to_owned()),
            (79, 20, "\r\u{1b}[3A\u{1b}[J".to_owned()),
        ] {
            assert_eq!(erase(drawn, width), erased, "{drawn} of {width}");
        }
    }
}
