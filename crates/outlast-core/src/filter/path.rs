//! A path into an event (RFC 9535). A path of names and indexes is followed by hand, without allocating; everything else is
//! left to the library, after the budget has paid for the worst that it can do.

mod scan;

use std::fmt;

use serde_json::Value;
use serde_json_path::JsonPath;

use super::budget::{Exhausted, Overrun, StepBudget};
use super::error::FilterError;

pub(super) use scan::{Scanned, scan};

/// Of one value in the library: it makes a list for each step.
const STEPS_PER_VISIT: u64 = 16;

#[derive(Clone)]
pub struct Path {
    text: Box<str>,
    route: PathPlan,
}

#[derive(Clone)]
enum PathPlan {
    /// Names and indexes only: one value or none.
    Plain(Box<[PathStep]>),
    Search {
        query: JsonPath,
        shape: SearchShape,
    },
}

#[derive(Debug, Clone, PartialEq)]
enum PathStep {
    Name(Box<str>),
    /// Below zero it counts from the end.
    Index(i64),
}

/// The properties that determine the cost of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SearchShape {
    /// Selectors, names and tests: what is done with each value that is visited, at most.
    parts: u64,
    /// How many times the same value can come out because a bracket names it more than once, as in `[*, *]`.
    repeats: u64,
    /// How many `..` there are.
    descents: u32,
    /// How deep filter selectors are nested.
    filters: u32,
    /// A filter selector begins again at `$`.
    restarts: bool,
}

impl Path {
    /// A text that is nothing but a path.
    pub fn parse(text: &str) -> Result<Path, FilterError> {
        let trimmed = text.trim();
        let start = text.len() - text.trim_start().len();
        if !trimmed.starts_with('$') {
            return Err(FilterError::at(text, start, "a path begins with $, as in $.data.id"));
        }
        let (path, end) = Path::read(text, start)?;
        if end < start + trimmed.len() {
            let message = "expected the end of the path; a name with other letters is written as in $['invoice-id']";
            return Err(FilterError::at(text, end, message));
        }
        Ok(path)
    }

    /// The path that begins at this byte, which is a `$`, and where it ends.
    pub(super) fn read(text: &str, start: usize) -> Result<(Path, usize), FilterError> {
        let Scanned { end, steps, shape } = scan(text, start)?;
        let written = text.get(start..end).unwrap_or_default();
        let query = JsonPath::parse(written).map_err(|error| {
            // Counted in bytes from 0, whatever its documentation says.
            let place = start + error.position().min(written.len());
            let reason = error.message().trim_end_matches("parser error").trim_end_matches(", ");
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            FilterError::at(text, place, format!("not a JSONPath of RFC 9535{reason}"))
        })?;
        let route = match steps {
            Some(steps) => PathPlan::Plain(steps.into()),
            None => PathPlan::Search { query, shape },
        };
        Ok((Path { text: written.into(), route }, end))
    }

    /// The names that it begins with; all that it leads to lies below them. `None`: it may lead anywhere.
    pub(super) fn leading_names(&self) -> Option<impl Iterator<Item = &str>> {
        match &self.route {
            PathPlan::Plain(steps) => Some(steps.iter().map_while(|step| match step {
                PathStep::Name(name) => Some(&**name),
                PathStep::Index(_) => None,
            })),
            PathPlan::Search { .. } => None,
        }
    }

    /// All values that it leads to, in the order of the document.
    pub fn nodes<'a>(&self, event: &'a Value) -> Result<Vec<&'a Value>, Exhausted> {
        match self.follow(event) {
            Some(node) => Ok(node.into_iter().collect()),
            None => self
                .query(event, &mut StepBudget::full())
                .map_err(|Overrun| Exhausted { column: 1, term: self.text.to_string() }),
        }
    }

    /// Where a path of names and indexes leads. `None`: it is not such a path and has to be searched.
    pub(super) fn follow<'a>(&self, event: &'a Value) -> Option<Option<&'a Value>> {
        match &self.route {
            PathPlan::Plain(steps) => Some(walk(steps, event)),
            PathPlan::Search { .. } => None,
        }
    }

    pub(super) fn query<'a>(&self, event: &'a Value, budget: &mut StepBudget) -> Result<Vec<&'a Value>, Overrun> {
        match &self.route {
            PathPlan::Plain(steps) => Ok(walk(steps, event).into_iter().collect()),
            PathPlan::Search { query, shape } => {
                let cost = shape.cost(event, budget)?;
                budget.spend(cost)?;
                Ok(query.query(event).all())
            }
        }
    }
}

fn walk<'a>(steps: &[PathStep], event: &'a Value) -> Option<&'a Value> {
    let mut node = event;
    for step in steps {
        node = match (step, node) {
            (PathStep::Name(name), Value::Object(members)) => members.get(&**name)?,
            (PathStep::Index(index), Value::Array(elements)) => match usize::try_from(*index) {
                Ok(index) => elements.get(index)?,
                Err(_) => {
                    let from_end = usize::try_from(index.unsigned_abs()).ok()?;
                    elements.get(elements.len().checked_sub(from_end)?)?
                }
            },
            _ => return None,
        };
    }
    Some(node)
}

impl SearchShape {
    /// An upper bound of what the search does. A child step leads from values that do not lie in each other to such values, so
    /// it sees each value of the event at most once, times `repeats`. The first `..` leaves values that do, and hands on
    /// what it found through every level: that is `nested` instead of `values`. Each further `..` can find the same value
    /// again from each of its ancestors, of which there are at most `depth`. A test in a filter selector looks at what lies
    /// in its candidate, which the same counts cover; one that begins again at `$` looks at the whole event for each
    /// candidate, once more for each filter selector that it is nested in.
    fn cost(self, event: &Value, budget: &mut StepBudget) -> Result<u64, Overrun> {
        let extent = budget.extent(event)?;
        let area = if self.descents == 0 { extent.values } else { extent.nested };
        let again = extent.depth.saturating_pow(self.descents.saturating_sub(1));
        let restarts = if self.restarts { area.saturating_pow(self.filters) } else { 1 };
        let visits = area.saturating_mul(self.repeats).saturating_mul(again).saturating_mul(restarts);
        Ok(visits.saturating_mul(self.parts).saturating_mul(STEPS_PER_VISIT))
    }
}

/// As it was written.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({})", self.text)
    }
}

/// Two paths are the same when they are written the same.
impl PartialEq for Path {
    fn eq(&self, other: &Path) -> bool {
        self.text == other.text
    }
}

impl Eq for Path {}
