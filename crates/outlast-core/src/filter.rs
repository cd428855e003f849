//! The filter language of subscriptions: which events of a source a queue wants, as in `$.data.object.amount_due >=
//! 1000`. A filter is parsed once, with errors that name the column, and evaluated on every event, within a budget of
//! steps. Authors of filters and senders of events may both be hostile; neither gets more than the budget.

mod budget;
mod condition;
mod error;
mod expression;
mod projection;
mod lexer;
mod number;
mod parser;
mod path;
mod pattern;
mod value;

use std::fmt;

use serde_json::Value;

use budget::StepBudget;
use expression::{Expression, Term};

pub use budget::Exhausted;
pub use error::FilterError;
pub use path::Path;
pub use projection::Projection;

/// Longest filter, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Most comparisons of one filter.
pub const TERMS_MAX: usize = 64;
/// How deep parentheses, `not` and lists may be nested. Parsing and judging recurse as deep.
pub const DEPTH_MAX: usize = 32;

/// A filter that was understood.
#[derive(Clone)]
pub struct Filter {
    text: Box<str>,
    root: Expression,
}

impl Filter {
    /// Refuses what is not a filter, and what is beyond the bounds above.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        Ok(Filter { root: parser::parse(text)?, text: text.trim().into() })
    }

    /// Does this event pass? Costs at most the budget, whatever filter and event are.
    pub fn matches(&self, event: &Value) -> Result<bool, Exhausted> {
        self.root.holds(event, &mut StepBudget::full())
    }

    /// Whatever it asks about is kept.
    pub fn add_to_projection(&self, projection: &mut Projection) {
        for term in self.root.terms() {
            projection.add(&term.path);
        }
    }

    /// Why an event passes or does not: every term is judged, also those that can no longer change the answer.
    pub fn explain<'a>(&'a self, event: &'a Value) -> Result<Explanation<'a>, Exhausted> {
        let mut budget = StepBudget::full();
        let mut findings = Vec::new();
        for term in self.root.terms() {
            findings.push(term.explain(event, &mut budget)?);
        }
        Ok(Explanation { is_match: self.matches(event)?, findings })
    }
}

/// As it was written.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// As it was understood: with all parentheses.
impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({})", self.root)
    }
}

/// Two filters are the same when they are written the same.
impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}

/// The answer of a filter, and how it came about.
#[derive(Debug)]
pub struct Explanation<'a> {
    pub is_match: bool,
    /// One for each term, in the order in which they are written.
    pub findings: Vec<Finding<'a>>,
}

/// The finding of one term, such as `$.type == "invoice.paid"`, in an event.
#[derive(Debug)]
pub struct Finding<'a> {
    term: &'a Term,
    /// The value at the path; none when the event has no such place.
    pub nodes: Vec<&'a Value>,
    /// Does the term hold, taken alone? A `not` before it is not counted in.
    pub holds: bool,
}

impl Finding<'_> {
    /// Where the term begins in the filter, in characters from 1.
    pub fn column(&self) -> usize {
        self.term.column
    }

    /// The term in its plain form.
    pub fn term(&self) -> String {
        self.term.to_string()
    }
}

#[cfg(test)]
mod tests;
