//! A filter as a tree of terms, and how it is judged. `and` and `or` stop as soon as the answer is known.

use std::fmt;

use serde_json::Value;

use super::Finding;
use super::budget::{Exhausted, Overrun, StepBudget};
use super::condition::Condition;
use super::path::Path;

/// Not deeper than `DEPTH_MAX`: a chain of `and` is one level.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    Term(Term),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    pub(super) fn holds(&self, event: &Value, budget: &mut StepBudget) -> Result<bool, Exhausted> {
        match self {
            Expression::Term(term) => term.holds(event, budget).map_err(|Overrun| term.exhausted()),
            Expression::Not(inner) => Ok(!inner.holds(event, budget)?),
            Expression::And(parts) => {
                for part in parts {
                    if !part.holds(event, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Or(parts) => {
                for part in parts {
                    if part.holds(event, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// In the order in which they are written.
    pub(super) fn terms(&self) -> Vec<&Term> {
        match self {
            Expression::Term(term) => vec![term],
            Expression::Not(inner) => inner.terms(),
            Expression::And(parts) | Expression::Or(parts) => parts.iter().flat_map(Expression::terms).collect(),
        }
    }

    fn write_parts(f: &mut fmt::Formatter<'_>, parts: &[Expression], word: &str) -> fmt::Result {
        f.write_str("(")?;
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                write!(f, " {word} ")?;
            }
            write!(f, "{part}")?;
        }
        f.write_str(")")
    }
}

/// With parentheses around every `and` and `or`.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Term(term) => write!(f, "{term}"),
            Expression::Not(inner) => write!(f, "not {inner}"),
            Expression::And(parts) => Expression::write_parts(f, parts, "and"),
            Expression::Or(parts) => Expression::write_parts(f, parts, "or"),
        }
    }
}

/// A path and what is demanded of the values that it leads to.
#[derive(Debug, Clone)]
pub(super) struct Term {
    /// Where it begins in the filter.
    pub column: usize,
    pub path: Path,
    pub condition: Condition,
}

impl Term {
    fn holds(&self, event: &Value, budget: &mut StepBudget) -> Result<bool, Overrun> {
        match self.path.follow(event) {
            Some(node) => self.condition.holds(node, budget),
            None => self.condition.holds(self.path.query(event, budget)?, budget),
        }
    }

    pub(super) fn explain<'a>(&'a self, event: &'a Value, budget: &mut StepBudget) -> Result<Finding<'a>, Exhausted> {
        let nodes = match self.path.follow(event) {
            Some(node) => node.into_iter().collect(),
            None => self.path.query(event, budget).map_err(|Overrun| self.exhausted())?,
        };
        let holds = self.condition.holds(nodes.iter().copied(), budget).map_err(|Overrun| self.exhausted())?;
        Ok(Finding { term: self, nodes, holds })
    }

    fn exhausted(&self) -> Exhausted {
        Exhausted { column: self.column, term: self.to_string() }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.condition)
    }
}
