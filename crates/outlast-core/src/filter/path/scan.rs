//! Where a path ends in a filter, what it is made of, and the bounds that hold before the library sees it. The library
//! recurses into brackets, which ends the process when they are too deep, and reads a filter selector twice, and so one that is
//! nested n deep 2^n times.

use super::{PathStep, SearchShape};
use crate::filter::error::FilterError;

const BYTES_MAX: usize = 1024;
const BRACKETS_MAX: usize = 32;
const FILTERS_MAX: u32 = 3;

/// A text that has the form of a path. Only the library says whether it is one.
#[derive(Debug)]
pub(in crate::filter) struct Scanned {
    /// The byte behind it.
    pub end: usize,
    /// If it has names and indexes only.
    pub(super) steps: Option<Vec<PathStep>>,
    pub(super) shape: SearchShape,
}

/// The path whose `$` is at this byte.
pub(in crate::filter) fn scan(text: &str, start: usize) -> Result<Scanned, FilterError> {
    let shape = SearchShape { parts: 1, repeats: 1, descents: 0, filters: 0, restarts: false };
    let mut scanner = Scanner { text, at: start + 1, steps: Some(Vec::new()), shape };
    loop {
        let end = scanner.at;
        scanner.skip_space();
        match scanner.peek() {
            Some('.') => scanner.dot()?,
            Some('[') => scanner.bracket()?,
            _ => {
                let Scanner { steps, shape, .. } = scanner;
                return Ok(Scanned { end, steps, shape });
            }
        }
        if scanner.at - start > BYTES_MAX {
            return Err(FilterError::at(text, start, format!("a path has at most {BYTES_MAX} bytes")));
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    steps: Option<Vec<PathStep>>,
    shape: SearchShape,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn error(&self, message: impl Into<String>) -> FilterError {
        FilterError::at(self.text, self.at, message)
    }

    /// `.name`, `.*`, `..name`, `..*` or the dots of `..[`.
    fn dot(&mut self) -> Result<(), FilterError> {
        self.at += 1;
        self.shape.parts = self.shape.parts.saturating_add(1);
        if self.peek() == Some('.') {
            self.at += 1;
            self.shape.descents = self.shape.descents.saturating_add(1);
            self.steps = None;
            if self.peek() == Some('[') {
                return Ok(());
            }
        }
        if self.peek() == Some('*') {
            self.at += 1;
            self.steps = None;
            return Ok(());
        }
        let rest = self.rest();
        let name = rest.split(|letter| !is_name_letter(letter)).next().unwrap_or_default();
        if name.is_empty() || name.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Err(
                self.error("expected a name after the dot; an index is written [0], a name with other letters ['a-b']")
            );
        }
        self.at += name.len();
        if let Some(steps) = &mut self.steps {
            steps.push(PathStep::Name(name.into()));
        }
        Ok(())
    }

    /// From `[` to the `]` that belongs to it.
    fn bracket(&mut self) -> Result<(), FilterError> {
        let start = self.at;
        let mut open: Vec<Open> = Vec::new();
        loop {
            let Some(letter) = self.peek() else {
                return Err(FilterError::at(self.text, start, "this [ is never closed"));
            };
            match letter {
                '[' | '(' => {
                    open.push(Open { bracket: letter, selectors: 1, is_filter: false });
                    if open.len() > BRACKETS_MAX {
                        return Err(self.error(format!("brackets in a path are nested at most {BRACKETS_MAX} deep")));
                    }
                }
                ']' | ')' => {
                    let closed = open.pop().filter(|open| (open.bracket == '[') == (letter == ']'));
                    let Some(closed) = closed else {
                        return Err(self.error(format!("this {letter} closes nothing")));
                    };
                    self.shape.repeats = self.shape.repeats.saturating_mul(closed.selectors);
                }
                '"' | '\'' => self.quoted(letter)?,
                ',' => {
                    if let Some(open) = open.last_mut().filter(|open| open.bracket == '[') {
                        open.selectors = open.selectors.saturating_add(1);
                    }
                }
                '?' => self.filter(&mut open)?,
                '$' => self.shape.restarts = true,
                '.' if self.rest().starts_with("..") => {
                    self.at += 1;
                    self.shape.descents = self.shape.descents.saturating_add(1);
                }
                _ => {}
            }
            if is_part(letter) {
                self.shape.parts = self.shape.parts.saturating_add(1);
            }
            if !matches!(letter, '"' | '\'') {
                self.at += letter.len_utf8();
            }
            if open.is_empty() {
                break;
            }
        }
        self.step(start + 1..self.at - 1);
        Ok(())
    }

    /// A `?` makes the bracket around it a filter selector.
    fn filter(&mut self, open: &mut [Open]) -> Result<(), FilterError> {
        if let Some(open) = open.last_mut() {
            open.is_filter = true;
        }
        let around: u32 = open.iter().map(|open| u32::from(open.is_filter)).sum();
        if around > FILTERS_MAX {
            return Err(self.error(format!("filter selectors in a path are nested at most {FILTERS_MAX} deep")));
        }
        self.shape.filters = self.shape.filters.max(around);
        Ok(())
    }

    /// Behind the closing quote.
    fn quoted(&mut self, quote: char) -> Result<(), FilterError> {
        let start = self.at;
        self.at += 1;
        while let Some(letter) = self.peek() {
            self.at += letter.len_utf8();
            if letter == quote {
                return Ok(());
            }
            if letter == '\\' {
                self.at += self.peek().map_or(0, char::len_utf8);
            }
        }
        Err(FilterError::at(self.text, start, format!("this {quote} is never closed")))
    }

    /// The text between the brackets: one name, one index, or something to search for.
    fn step(&mut self, inside: std::ops::Range<usize>) {
        let inside = self.text.get(inside).unwrap_or_default().trim();
        let step = name(inside).or_else(|| inside.parse().ok().map(PathStep::Index));
        match (&mut self.steps, step) {
            (Some(steps), Some(step)) => steps.push(step),
            _ => self.steps = None,
        }
    }
}

/// A bracket that waits for its end.
struct Open {
    bracket: char,
    selectors: u64,
    is_filter: bool,
}

/// A quoted name without escapes.
fn name(text: &str) -> Option<PathStep> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let name = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!name.contains([quote, '\\'])).then(|| PathStep::Name(name.into()))
}

/// Everything that the library does something for.
fn is_part(letter: char) -> bool {
    matches!(letter, '.' | '[' | '(' | ',' | '?' | '@' | '$' | ':' | '*' | '=' | '<' | '>' | '!' | '&' | '|')
}

fn is_name_letter(letter: char) -> bool {
    letter == '_' || letter.is_ascii_alphanumeric() || !letter.is_ascii()
}
