//! `outlast filter`: tries a filter on an event and shows why it passes or does not. Needs no server.

use outlast_core::filter::{Exhausted, Explanation, Filter, FilterError, Finding};
use serde_json::{Value, json};

use crate::client::{NoServer, Remote};
use crate::commands::argument;
use crate::config::Environment;
use crate::display::Display;
use crate::failure::{Exit, Failure};
use crate::output::{self, escape};
use crate::table::{Cell, Column, Table};

/// Of the values that a path leads to, this many are shown.
const SHOWN_MAX: usize = 3;
/// Of the filter, this many characters before and behind the place of an error.
const CONTEXT_CHARS: usize = 50;

const EXIT_CODES: &str = "\
Exit codes:
  0  the event matches
  1  the event does not match
  2  the filter or the event cannot be read, or judging takes too many steps";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The filter, as in '$.data.object.amount_due >= 1000'
    #[arg(value_name = "FILTER")]
    filter: String,
    /// The event: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", default_value = "-")]
    event: String,
    #[command(flatten)]
    no_server: NoServer,
}

pub(crate) fn run(args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    // First, so that a wrong filter is refused before stdin is read.
    let filter = Filter::parse(&args.filter).map_err(|error| not_a_filter(&args.filter, &error))?;
    let text = argument::text(&args.event)?;
    let event: Value =
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("the event is not JSON: {error}")))?;
    let explanation = filter.explain(&event).map_err(|error| too_expensive(&error))?;
    if remote.json {
        output::print_json(&to_json(&explanation))?;
    } else {
        output::print(&to_text(&explanation, Display::of_stdout(environment)))?;
    }
    if explanation.is_match {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "the event does not match").printed())
}

fn not_a_filter(text: &str, error: &FilterError) -> Failure {
    Failure { details: pointed(text, error.column), ..Failure::usage(error.to_string()) }
}

fn too_expensive(error: &Exhausted) -> Failure {
    Failure::usage(error.to_string()).with_hint("name the members on the way instead of searching with .. or [?…]")
}

/// The text around a column, and a line with a caret below it. Measured as it is shown, escapes included.
fn pointed(text: &str, column: usize) -> Vec<String> {
    let place = column.saturating_sub(1);
    let first = place.saturating_sub(CONTEXT_CHARS);
    let before: String = text.chars().skip(first).take(place - first).collect();
    let behind: String = text.chars().skip(place).take(CONTEXT_CHARS).collect();
    let lead = if first > 0 { "…" } else { "" };
    let tail = if text.chars().count() > place + CONTEXT_CHARS { "…" } else { "" };
    let indent = lead.chars().count() + escape(&before).chars().count();
    vec![format!("{lead}{before}{behind}{tail}"), format!("{}^", " ".repeat(indent))]
}

fn to_text(explanation: &Explanation<'_>, display: Display) -> String {
    let mut table = Table::new(&[Column::fixed("holds"), Column::text("term").at_least(20), Column::text("found")]);
    for finding in &explanation.findings {
        let holds = if finding.holds { "yes" } else { "no" };
        table.row([holds.to_owned(), finding.term(), found(finding)].map(Cell::from));
    }
    let answer = if explanation.is_match { "matches" } else { "does not match" };
    format!("{answer}\n\n{}", table.render(display))
}

fn found(finding: &Finding<'_>) -> String {
    if finding.nodes.is_empty() {
        return "nothing".to_owned();
    }
    let shown: Vec<String> = finding.nodes.iter().take(SHOWN_MAX).map(|node| node.to_string()).collect();
    let more = finding.nodes.len().saturating_sub(SHOWN_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

fn to_json(explanation: &Explanation<'_>) -> String {
    let mut terms = Vec::new();
    for finding in &explanation.findings {
        terms.push(json!({
            "column": finding.column(),
            "term": finding.term(),
            "holds": finding.holds,
            "found": finding.nodes,
        }));
    }
    json!({"matches": explanation.is_match, "terms": terms}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(filter: &str, event: &str) -> Args {
        Args { filter: filter.to_owned(), event: event.to_owned(), no_server: NoServer::default() }
    }

    fn tried(filter: &str, event: &str) -> Result<(), Failure> {
        run(&args(filter, event), &Remote::default(), &Environment::default())
    }

    #[track_caller]
    fn refused(filter: &str, event: &str) -> Failure {
        tried(filter, event).unwrap_err()
    }

    #[test]
    fn the_answer_shows_the_values_that_every_term_found() {
        let event = json!({"type": "invoice.paid", "items": [{"price": 5}, {"price": 50}, {"price": 6}, {"price": 7}]});
        let filter = Filter::parse("$.type == 'invoice.open' or $.items[*].price > 10 and not $.test exists").unwrap();
        let explanation = filter.explain(&event).unwrap();

        assert_eq!(
            to_text(&explanation, Display::PLAIN),
            "matches\n\n\
             HOLDS  TERM                      FOUND\n\
             no     $.type == \"invoice.open\"  \"invoice.paid\"\n\
             yes    $.items[*].price > 10     5, 50, 6 and 1 more\n\
             no     $.test exists             nothing\n"
        );
        let parsed: Value = serde_json::from_str(&to_json(&explanation)).unwrap();
        assert_eq!(parsed["matches"], json!(true));
        assert_eq!(
            parsed["terms"][1],
            json!({"column": 29, "term": "$.items[*].price > 10", "holds": true, "found": [5, 50, 6, 7]})
        );
    }

    #[test]
    fn a_caret_points_at_the_error() {
        assert_eq!(
            refused("$.ä => 1", "{}").render(Display::PLAIN),
            "error: column 5: expected an operator such as ==, >= or contains, found \"=>\"; did you mean \">=\"?\n  \
             $.ä => 1\n      ^\n"
        );
        assert_eq!(pointed("$.a\t= 1", 5), ["$.a\t= 1", "     ^"], "a tab is shown as two characters");
        let long = format!("$.{} = 1 or {}", "a".repeat(80), "b".repeat(80));
        let [shown, caret] = &pointed(&long, 84)[..] else { panic!("two lines") };
        assert_eq!(shown.chars().nth(caret.chars().count() - 1), Some('='));
        assert!(shown.starts_with("…a") && shown.ends_with("b…"));
    }

    #[test]
    fn the_exit_code_tells_no_match_from_bad_input() {
        assert_eq!(tried("$.a == 1", r#"{"a": 1}"#), Ok(()));
        assert_eq!(refused("$.a == 1", r#"{"a": 2}"#).exit, Exit::Refused);
        assert_eq!(refused("$.a", "{}").exit, Exit::Usage);
        assert_eq!(refused("$.a == 1", "{a: 1}").exit, Exit::Usage);
        assert_eq!(refused("$.a == 1", "").exit, Exit::Usage);
        let wide = format!("[{}]", vec!["0"; 100_000].join(","));
        let failure = refused("$..*..*..* exists", &wide);
        assert!(failure.exit == Exit::Usage && failure.hint.is_some(), "{failure:?}");
    }
}
