//! The terminal behind stdout: how many columns it has and whether it takes colour. Without a terminal nothing is cut and
//! nothing is coloured.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::config::Environment;

/// Of a terminal that does not tell its size.
const WIDTH_DEFAULT: usize = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Display {
    /// `None`: no terminal, so lines may have any length.
    pub width: Option<usize>,
    pub has_colour: bool,
}

/// The role of a text; [`Display::paint`] gives it its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Style {
    #[default]
    Plain,
    Heading,
    Good,
    Bad,
    Active,
    Waiting,
    Faint,
}

impl Display {
    /// Neither a width nor colour.
    #[cfg(test)]
    pub(crate) const PLAIN: Display = Display { width: None, has_colour: false };

    pub(crate) fn of_stdout(environment: &Environment) -> Display {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Display { width: is_terminal.then(|| width(stdout)), has_colour: is_terminal && takes_colour(environment) }
    }

    pub(crate) fn paint(self, text: &str, style: Style) -> String {
        let code = match style {
            _ if !self.has_colour => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Heading => 1,
            Style::Faint => 2,
            Style::Bad => 31,
            Style::Good => 32,
            Style::Waiting => 33,
            Style::Active => 36,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// By <https://no-color.org>: any value of NO_COLOR but the empty one switches colour off.
pub(crate) fn takes_colour(environment: &Environment) -> bool {
    environment.setting("NO_COLOR").is_none() && environment.setting("TERM").is_some_and(|term| term != "dumb")
}

/// The colour of a job's status, an operation's status or a doctor's verdict.
pub(crate) fn status_style(status: &str) -> Style {
    match status {
        "succeeded" | "done" | "ok" => Style::Good,
        "failed" | "stuck" | "fail" | "dead" => Style::Bad,
        "running" => Style::Active,
        "pending" | "paused" | "warn" | "slow" => Style::Waiting,
        "cancelled" | "expired" | "stopped" => Style::Faint,
        _ => Style::Plain,
    }
}

/// Columns of a terminal.
pub(crate) fn width(terminal: impl AsFd) -> usize {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH_DEFAULT } else { columns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_switch_colour_off() {
        for (variables, takes) in [
            (&[("TERM", "xterm")][..], true),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true),
            (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
            (&[("TERM", "dumb")], false),
            (&[], false),
        ] {
            assert_eq!(takes_colour(&Environment::of(variables)), takes, "{variables:?}");
        }
    }

    #[test]
    fn only_a_display_with_colour_paints() {
        let colour = Display { width: Some(80), has_colour: true };

        assert_eq!(colour.paint("failed", Style::Bad), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(colour.paint("queued", Style::Plain), "queued");
        assert_eq!(Display::PLAIN.paint("failed", Style::Bad), "failed");
    }
}
