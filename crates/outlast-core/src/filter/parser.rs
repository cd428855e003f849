//! The grammar: `or` binds weakest, then `and`, then `not`. Recurses no deeper than [`DEPTH_MAX`].

use serde_json::Value;

use super::condition::Condition;
use super::error::{FilterError, column};
use super::expression::{Expression, Term};
use super::lexer::{FilterToken, TokenAt, cut, tokens};
use super::pattern::{self, Pattern};
use super::{DEPTH_MAX, TERMS_MAX, TEXT_BYTES_MAX};

pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(FilterError::at(text, TEXT_BYTES_MAX, format!("a filter has at most {TEXT_BYTES_MAX} bytes")));
    }
    let mut parser =
        Parser { text, tokens: tokens(text), at: 0, depth: 0, terms: 0, pattern_bytes: pattern::BYTES_MAX };
    let expression = parser.either()?;
    match parser.peek() {
        FilterToken::End => Ok(expression),
        FilterToken::Close => Err(parser.error("this ) closes nothing".to_owned())),
        _ => Err(parser.unexpected("and, or or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<TokenAt>,
    at: usize,
    depth: usize,
    terms: usize,
    /// The tokens that are left.
    pattern_bytes: usize,
}

impl Parser<'_> {
    fn either(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.all()?];
        while self.take_word("or") {
            parts.push(self.all()?);
        }
        Ok(single(parts, Expression::Or))
    }

    fn all(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.unary()?];
        while self.take_word("and") {
            parts.push(self.unary()?);
        }
        Ok(single(parts, Expression::And))
    }

    fn unary(&mut self) -> Result<Expression, FilterError> {
        let start = self.placed().map_or(self.text.len(), |placed| placed.start);
        if self.take_word("not") {
            self.descend(start)?;
            let inner = self.unary()?;
            self.depth -= 1;
            return Ok(Expression::Not(Box::new(inner)));
        }
        if *self.peek() == FilterToken::Open {
            self.at += 1;
            self.descend(start)?;
            let inner = self.either()?;
            if *self.peek() == FilterToken::End {
                return Err(FilterError::at(self.text, start, "this ( is never closed"));
            }
            if *self.peek() != FilterToken::Close {
                return Err(self.unexpected("and, or or )"));
            }
            self.at += 1;
            self.depth -= 1;
            return Ok(inner);
        }
        self.term(start)
    }

    fn term(&mut self, start: usize) -> Result<Expression, FilterError> {
        let path = match self.peek() {
            FilterToken::Path(path) => path.clone(),
            FilterToken::Value(_) | FilterToken::OpenList => {
                return Err(self.error("a comparison begins with its path, as in $.amount >= 1000".to_owned()));
            }
            FilterToken::Word(word) if meant(word).is_none() => {
                let message =
                    format!("expected a path such as $.type, not or (, found {}; a path begins with $", cut(word));
                return Err(self.error(message));
            }
            _ => return Err(self.unexpected("a path such as $.type, not or (")),
        };
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(self.error(format!("a filter has at most {TERMS_MAX} comparisons")));
        }
        self.at += 1;
        let condition = self.condition()?;
        Ok(Expression::Term(Term { column: column(self.text, start), path, condition }))
    }

    fn condition(&mut self) -> Result<Condition, FilterError> {
        let operator = match self.peek() {
            FilterToken::Word(word) | FilterToken::Symbol(word) => word.clone(),
            _ => return Err(self.no_operator()),
        };
        if !OPERATORS.contains(&&*operator) {
            return Err(self.no_operator());
        }
        self.at += 1;
        if &*operator == "exists" {
            return Ok(Condition::Exists);
        }
        let start = self.placed().map_or(self.text.len(), |placed| placed.start);
        let value = self.value()?;
        let built = match (&*operator, &value) {
            ("matches", Value::String(text)) => self.pattern(text),
            _ => build(&operator, value),
        };
        built.map_err(|message| FilterError::at(self.text, start, message))
    }

    fn pattern(&mut self, text: &str) -> Result<Condition, String> {
        let pattern = Pattern::parse(text, self.pattern_bytes)?;
        self.pattern_bytes = self.pattern_bytes.saturating_sub(pattern.bytes);
        Ok(Condition::Matches(pattern))
    }

    /// The right-hand side of an operator.
    fn value(&mut self) -> Result<Value, FilterError> {
        match self.peek() {
            FilterToken::Value(value) => {
                let value = value.clone();
                self.at += 1;
                Ok(value)
            }
            FilterToken::OpenList => self.list(),
            FilterToken::Path(_) => Err(self.error(
                "the right side is a value such as 1000, \"paid\" or [1, 2]; two paths cannot be compared".to_owned(),
            )),
            FilterToken::Word(word) => {
                let message = format!("{} is not a value; a text stands in quotes", cut(word));
                Err(self.error(message))
            }
            _ => Err(self.unexpected("a value such as 1000, \"paid\", true, null or [1, 2]")),
        }
    }

    fn list(&mut self) -> Result<Value, FilterError> {
        let start = self.placed().map_or(self.text.len(), |placed| placed.start);
        self.at += 1;
        self.descend(start)?;
        let mut values = Vec::new();
        while *self.peek() != FilterToken::CloseList {
            values.push(self.value()?);
            match self.peek() {
                FilterToken::Comma => {
                    self.at += 1;
                    if *self.peek() == FilterToken::CloseList {
                        return Err(self.unexpected("a value after the comma"));
                    }
                }
                FilterToken::CloseList => {}
                FilterToken::End => return Err(FilterError::at(self.text, start, "this [ is never closed")),
                _ => return Err(self.unexpected(", or ]")),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Value::Array(values))
    }

    fn descend(&mut self, start: usize) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("parentheses, not and lists are nested at most {DEPTH_MAX} deep");
            return Err(FilterError::at(self.text, start, message));
        }
        Ok(())
    }

    fn placed(&self) -> Option<&TokenAt> {
        self.tokens.get(self.at)
    }

    fn peek(&self) -> &FilterToken {
        self.placed().map_or(&FilterToken::End, |placed| &placed.token)
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), FilterToken::Word(word) if **word == *wanted);
        self.at += usize::from(found);
        found
    }

    /// At the next token.
    fn error(&self, message: String) -> FilterError {
        if let FilterToken::Bad(error) = self.peek() {
            return error.clone();
        }
        FilterError::at(self.text, self.placed().map_or(self.text.len(), |placed| placed.start), message)
    }

    fn written(&self) -> &str {
        self.placed().and_then(|placed| self.text.get(placed.start..placed.end)).unwrap_or_default()
    }

    fn unexpected(&self, expected: &str) -> FilterError {
        let found = match self.peek() {
            FilterToken::End => "the end".to_owned(),
            _ => cut(self.written()),
        };
        let hint = meant(self.written()).map(|word| format!("; did you mean \"{word}\"?")).unwrap_or_default();
        self.error(format!("expected {expected}, found {found}{hint}"))
    }

    fn no_operator(&self) -> FilterError {
        let mut error = self.unexpected("an operator such as ==, >= or contains");
        match self.peek() {
            FilterToken::Word(word) if &**word == "not" => {
                error.message.push_str("; not stands before the path, as in not $.type in [\"a\"]");
            }
            FilterToken::End | FilterToken::Close | FilterToken::Word(_) if meant(self.written()).is_none() => {
                error.message.push_str("; a path alone says nothing, write \"exists\" or \"== true\" behind it");
            }
            _ => {}
        }
        error
    }
}

fn single(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            join(parts)
        }
        None => join(parts),
    }
}

const OPERATORS: [&str; 12] =
    ["==", "!=", "<", "<=", ">", ">=", "in", "contains", "starts_with", "ends_with", "matches", "exists"];

/// The condition of an operator and the value behind it. `Err` says what that value has to be.
fn build(operator: &str, value: Value) -> Result<Condition, String> {
    let is_ordered = matches!(value, Value::Number(_) | Value::String(_));
    match (operator, value) {
        ("==", value) => Ok(Condition::Equal(value)),
        ("!=", value) => Ok(Condition::NotEqual(value)),
        ("<", value) if is_ordered => Ok(Condition::Less(value)),
        ("<=", value) if is_ordered => Ok(Condition::LessOrEqual(value)),
        (">", value) if is_ordered => Ok(Condition::Greater(value)),
        (">=", value) if is_ordered => Ok(Condition::GreaterOrEqual(value)),
        ("in", Value::Array(values)) => Ok(Condition::In(values)),
        ("contains", value) => Ok(Condition::Contains(value)),
        ("starts_with", Value::String(text)) => Ok(Condition::StartsWith(text)),
        ("ends_with", Value::String(text)) => Ok(Condition::EndsWith(text)),
        ("in", _) => Err("behind in stands a list, as in [\"paid\", \"open\"]".to_owned()),
        ("starts_with" | "ends_with" | "matches", _) => Err(format!("behind {operator} stands a text in quotes")),
        _ => Err(format!("behind {operator} stands a number or a text; nothing else has an order")),
    }
}

/// The probable meaning of a symbol from another language.
fn meant(written: &str) -> Option<&'static str> {
    let known = match written {
        "=" | "===" => "==",
        "!==" | "<>" | "~=" | "=!" => "!=",
        "=>" => ">=",
        "=<" => "<=",
        "&&" | "&" => "and",
        "||" | "|" => "or",
        "!" => "not",
        "=~" | "~" => "matches",
        _ => {
            let plain: String = written.to_lowercase().chars().filter(char::is_ascii_alphabetic).collect();
            match plain.as_str() {
                "and" => "and",
                "or" => "or",
                "not" => "not",
                "in" => "in",
                "is" | "eq" | "equals" => "==",
                "contains" | "includes" | "has" => "contains",
                "startswith" | "beginswith" => "starts_with",
                "endswith" => "ends_with",
                "matches" | "match" | "like" | "regex" => "matches",
                "exists" | "exist" | "present" => "exists",
                _ => return None,
            }
        }
    };
    (known != written).then_some(known)
}
