//! Cuts a filter into tokens. Each knows the byte at which it begins, so that every error can name its column.

use serde_json::{Number, Value};

use super::error::FilterError;
use super::path::Path;

/// Characters of a symbol: consecutive ones form one token, so that `=>` is reported as it was written.
const SYMBOLS: [char; 9] = ['=', '<', '>', '!', '&', '|', '~', '^', '%'];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FilterToken {
    Path(Path),
    /// A text, a number, `true`, `false` or `null`.
    Value(Value),
    /// Any other word.
    Word(Box<str>),
    /// An operator, or what somebody took for one.
    Symbol(Box<str>),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    /// The rest is no token. The parser reports it when it gets there, so that the user sees the first error.
    Bad(FilterError),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TokenAt {
    pub token: FilterToken,
    pub start: usize,
    pub end: usize,
}

/// The last token is the end, or the first that is none.
pub(super) fn tokens(text: &str) -> Vec<TokenAt> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let start = text.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let (token, end) = next(text, start).unwrap_or_else(|error| (FilterToken::Bad(error), text.len()));
        let is_last = matches!(token, FilterToken::Bad(_) | FilterToken::End);
        tokens.push(TokenAt { token, start, end });
        if is_last {
            return tokens;
        }
        at = end;
    }
}

/// Does something stick to the end of a path that cannot follow it?
fn goes_on(rest: &str) -> bool {
    let can_follow =
        |letter: char| letter.is_whitespace() || SYMBOLS.contains(&letter) || matches!(letter, ')' | ']' | ',');
    rest.chars().next().is_some_and(|letter| !can_follow(letter))
}

fn next(text: &str, start: usize) -> Result<(FilterToken, usize), FilterError> {
    let rest = text.get(start..).unwrap_or_default();
    let Some(first) = rest.chars().next() else {
        return Ok((FilterToken::End, start));
    };
    let run = |belongs: fn(char) -> bool| rest.split(|letter| !belongs(letter)).next().unwrap_or_default();
    match first {
        '$' => {
            let (path, end) = Path::read(text, start)?;
            if text.get(end..).is_some_and(goes_on) {
                let message = "the path ends here; a name with other letters is written as in $['invoice-id']";
                return Err(FilterError::at(text, end, message));
            }
            Ok((FilterToken::Path(path), end))
        }
        '"' | '\'' => quoted(text, start, first).map(|(value, end)| (FilterToken::Value(Value::String(value)), end)),
        '(' => Ok((FilterToken::Open, start + 1)),
        ')' => Ok((FilterToken::Close, start + 1)),
        '[' => Ok((FilterToken::OpenList, start + 1)),
        ']' => Ok((FilterToken::CloseList, start + 1)),
        ',' => Ok((FilterToken::Comma, start + 1)),
        _ if first.is_ascii_digit() || matches!(first, '-' | '+' | '.') => {
            let written = run(is_number_letter);
            let number = number(written).map_err(|message| FilterError::at(text, start, message))?;
            Ok((FilterToken::Value(Value::Number(number)), start + written.len()))
        }
        _ if is_word_letter(first) => {
            let word = run(is_word_letter);
            Ok((keyword(word), start + word.len()))
        }
        _ if SYMBOLS.contains(&first) => {
            let symbol = run(|letter| SYMBOLS.contains(&letter));
            Ok((FilterToken::Symbol(symbol.into()), start + symbol.len()))
        }
        '{' => Err(FilterError::at(text, start, "an object cannot be compared; compare its members one by one")),
        '@' => Err(FilterError::at(text, start, "a path begins with $, as in $.data.id")),
        _ => Err(FilterError::at(text, start, format!("{first:?} has no meaning here"))),
    }
}

fn is_word_letter(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

/// More than numbers have, so that `1_000` and `12px` are refused as a whole.
fn is_number_letter(letter: char) -> bool {
    is_word_letter(letter) || matches!(letter, '-' | '+' | '.')
}

fn keyword(word: &str) -> FilterToken {
    match word {
        "true" => FilterToken::Value(Value::Bool(true)),
        "false" => FilterToken::Value(Value::Bool(false)),
        "null" => FilterToken::Value(Value::Null),
        _ => FilterToken::Word(word.into()),
    }
}

fn number(written: &str) -> Result<Number, String> {
    serde_json::from_str(written).map_err(|error| {
        if error.to_string().starts_with("number out of range") {
            format!("the number {} is too large", cut(written))
        } else {
            format!("{} is not a number as JSON has them, such as 1000, -0.5 or 1e6", cut(written))
        }
    })
}

/// The text in quotes, and where it ends. Escapes are those of JSON, and `\'`.
fn quoted(text: &str, start: usize, quote: char) -> Result<(String, usize), FilterError> {
    let mut value = String::new();
    let mut at = start + 1;
    loop {
        let mut letters = text.get(at..).unwrap_or_default().chars();
        let Some(letter) = letters.next() else {
            return Err(FilterError::at(text, start, "this text has no closing quote"));
        };
        if letter == quote {
            return Ok((value, at + 1));
        }
        if letter == '\\' {
            let (escaped, end) = escape(text, at)?;
            value.push(escaped);
            at = end;
            continue;
        }
        value.push(letter);
        at += letter.len_utf8();
    }
}

/// The character that the escape at this byte means, and where it ends.
fn escape(text: &str, start: usize) -> Result<(char, usize), FilterError> {
    let after = text.get(start + 1..).unwrap_or_default();
    let letter = match after.chars().next() {
        Some(letter @ ('"' | '\'' | '\\' | '/')) => letter,
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => return unicode(text, start),
        Some(other) => {
            let message = format!("\\{other} means nothing in a text; a backslash is written \\\\");
            return Err(FilterError::at(text, start, message));
        }
        None => return Err(FilterError::at(text, start, "this text has no closing quote")),
    };
    Ok((letter, start + 2))
}

/// `\u00e9`, or two of them for what UTF-16 writes as a pair.
fn unicode(text: &str, start: usize) -> Result<(char, usize), FilterError> {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
    };
    let first = unit(start);
    let alone = first.and_then(|first| char::from_u32(u32::from(first)));
    if let Some(letter) = alone {
        return Ok((letter, start + 6));
    }
    let pair = first
        .zip(unit(start + 6))
        .and_then(|(first, second)| char::decode_utf16([first, second]).next().and_then(Result::ok));
    match pair {
        Some(letter) => Ok((letter, start + 12)),
        None => Err(FilterError::at(text, start, "\\u is followed by the four digits of a character, as in \\u00e9")),
    }
}

/// A part of the filter as a message shows it.
pub(super) fn cut(written: &str) -> String {
    const LETTERS_MAX: usize = 24;
    if written.chars().count() <= LETTERS_MAX {
        return format!("\"{written}\"");
    }
    let start: String = written.chars().take(LETTERS_MAX).collect();
    format!("\"{start}…\"")
}
