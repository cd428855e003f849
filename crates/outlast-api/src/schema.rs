//! Tables of bodies and queries: the same table reads and checks a request, appears in the OpenAPI
//! document, and is walked by the bad-input test. A field exists nowhere else.

pub mod messages;

mod members;

use std::borrow::Cow;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_core::queue::FieldError;
use outlast_core::time::{duration_from_seconds, parse_duration};
use serde_json::value::RawValue;

use members::{Members, fault_of_shape};
use messages::{no_object, unknown, wants};

/// JSON deeper than this is refused before it is read.
pub const DEPTH_MAX: usize = 64;
/// At most this many faults of one object are reported; a sender with more of them uses the wrong API.
const ERRORS_MAX: usize = 20;
/// A name that is not ours is repeated up to this length, so that an answer is never larger than its request.
const NAME_SHOWN_MAX: usize = 64;

/// A JSON object with named fields and no others.
#[derive(Debug)]
pub struct Object {
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// `null` is accepted and unsets it.
    pub nullable: bool,
    pub about: &'static str,
}

/// The type of a value. Ranges are inclusive.
#[derive(Debug)]
pub enum Kind {
    /// Any JSON, kept byte for byte.
    Any,
    /// An object that is read later and on its own, so that its faults do not spoil the others of a list.
    Entry(&'static Object),
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    /// Text of so many bytes that passes a check; the words say what the check wants, the pattern, where there is one,
    /// says the same to programs.
    Text {
        min: usize,
        max: usize,
        check: fn(&str) -> bool,
        wants: &'static str,
        pattern: &'static str,
    },
    Word(&'static [&'static str]),
    Duration {
        min: Duration,
        max: Duration,
    },
    /// RFC 3339.
    Time,
    Object(&'static Object),
    /// Text to text.
    Map {
        entries: usize,
        name_bytes: usize,
        value_bytes: usize,
    },
    /// Text to numbers from 0.
    Amounts {
        entries: usize,
        name_bytes: usize,
        max: f64,
    },
    List {
        of: &'static Kind,
        max: usize,
    },
}

pub const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, required: false, nullable: false, about }
}

impl Field {
    pub const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub const fn nullable(mut self) -> Field {
        self.nullable = true;
        self
    }
}

/// Text without further conditions.
pub const fn text(max: usize) -> Kind {
    Kind::Text { min: 1, max, check: anything, wants: "", pattern: "" }
}

fn anything(_: &str) -> bool {
    true
}

/// A value that has been read and is within its range.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Any(&'a RawValue),
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(Cow<'a, str>),
    Duration(Duration),
    Time(Timestamp),
    Object(Values<'a>),
    Map(Vec<(String, String)>),
    Amounts(Vec<(String, f64)>),
    List(Vec<Value<'a>>),
}

/// The fields that were sent. Taking one out removes it.
#[derive(Debug, Default)]
pub(crate) struct Values<'a>(Vec<(&'static str, Value<'a>)>);

impl<'a> Values<'a> {
    pub(crate) fn take(&mut self, name: &str) -> Option<Value<'a>> {
        let place = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::Text(text) => Some(text.into_owned()),
            _ => None,
        }
    }

    pub(crate) fn int(&mut self, name: &str) -> Option<i64> {
        match self.take(name)? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self, name: &str) -> Option<f64> {
        match self.take(name)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn u32(&mut self, name: &str) -> Option<u32> {
        self.int(name).and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn usize(&mut self, name: &str) -> Option<usize> {
        self.int(name).and_then(|number| usize::try_from(number).ok())
    }

    pub(crate) fn bool(&mut self, name: &str) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn duration(&mut self, name: &str) -> Option<Duration> {
        match self.take(name)? {
            Value::Duration(duration) => Some(duration),
            _ => None,
        }
    }

    pub(crate) fn time(&mut self, name: &str) -> Option<Timestamp> {
        match self.take(name)? {
            Value::Time(time) => Some(time),
            _ => None,
        }
    }

    pub(crate) fn any(&mut self, name: &str) -> Option<&'a RawValue> {
        match self.take(name)? {
            Value::Any(raw) => Some(raw),
            _ => None,
        }
    }

    pub(crate) fn object(&mut self, name: &str) -> Option<Values<'a>> {
        match self.take(name)? {
            Value::Object(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn map(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        match self.take(name)? {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn amounts(&mut self, name: &str) -> Option<Vec<(String, f64)>> {
        match self.take(name)? {
            Value::Amounts(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Option<Vec<Value<'a>>> {
        match self.take(name)? {
            Value::List(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = (&'static str, Value<'a>)> {
        self.0.into_iter()
    }

    pub(crate) fn push(&mut self, name: &'static str, value: Value<'a>) {
        self.0.push((name, value));
    }
}

/// Reads a body. An empty one counts as `{}`.
pub(crate) fn read<'a>(object: &'static Object, body: &'a [u8]) -> Result<Values<'a>, Vec<FieldError>> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return read_members(object, Members(Vec::new()), "");
    }
    if let Some(fault) = fault_of_shape(body) {
        return Err(vec![FieldError::new("body", fault)]);
    }
    let members: Members<'a> =
        serde_json::from_slice(body).map_err(|error| vec![FieldError::new("body", not_an_object(&error, object))])?;
    read_members(object, members, "")
}

/// A body that is any JSON, as it came.
pub(crate) fn check_json(body: &[u8]) -> Result<&str, Vec<FieldError>> {
    let fault = |message: String| vec![FieldError::new("body", message)];
    if let Some(shape) = fault_of_shape(body) {
        return Err(fault(shape));
    }
    let raw: &RawValue = serde_json::from_slice(body).map_err(|error| fault(format!("is not valid JSON: {error}")))?;
    Ok(raw.get())
}

/// Reads one object of a list, whose own faults must not spoil the others.
pub(crate) fn read_raw<'a>(
    object: &'static Object,
    raw: &'a RawValue,
    path: &str,
) -> Result<Values<'a>, Vec<FieldError>> {
    let members: Members<'a> =
        serde_json::from_str(raw.get()).map_err(|error| vec![FieldError::new(path, not_an_object(&error, object))])?;
    read_members(object, members, path)
}

fn not_an_object(error: &serde_json::Error, object: &Object) -> String {
    match error.classify() {
        serde_json::error::Category::Data => no_object(object.fields),
        _ => format!("is not valid JSON: {error}"),
    }
}

fn read_members<'a>(object: &'static Object, members: Members<'a>, path: &str) -> Result<Values<'a>, Vec<FieldError>> {
    let mut values = Values(Vec::with_capacity(members.0.len()));
    let mut errors = Vec::new();
    for (name, raw) in members.0 {
        if errors.len() >= ERRORS_MAX {
            return Err(errors);
        }
        let Some(field) = object.fields.iter().find(|field| field.name == name) else {
            errors.push(FieldError::new(join(path, shown(&name)), unknown(&name, object.fields)));
            continue;
        };
        let at = join(path, field.name);
        if values.0.iter().any(|(known, _)| *known == field.name) {
            errors.push(FieldError::new(at, "is given twice"));
            continue;
        }
        match read_value(field, raw, &at) {
            Ok(value) => values.0.push((field.name, value)),
            Err(mut found) => errors.append(&mut found),
        }
    }
    let missing = |field: &&Field| field.required && !values.contains(field.name);
    for field in object.fields.iter().filter(missing) {
        let at = join(path, field.name);
        let faulty = errors.iter().any(|error| {
            error.field == at
                || error.field.starts_with(&format!("{at}."))
                || error.field.starts_with(&format!("{at}["))
        });
        if !faulty {
            errors.push(FieldError::new(at, "is required"));
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

fn read_value<'a>(field: &'static Field, raw: &'a RawValue, at: &str) -> Result<Value<'a>, Vec<FieldError>> {
    if raw.get() == "null" && field.nullable {
        return Ok(Value::Null);
    }
    read_kind(&field.kind, raw, at)
}

fn read_kind<'a>(kind: &'static Kind, raw: &'a RawValue, at: &str) -> Result<Value<'a>, Vec<FieldError>> {
    let json = raw.get();
    let wrong = || vec![FieldError::new(at, format!("must be {}", wants(kind)))];
    match kind {
        Kind::Any | Kind::Entry(_) => Ok(Value::Any(raw)),
        Kind::Bool => match json {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(wrong()),
        },
        Kind::Object(object) => match json.starts_with('{') {
            true => read_raw(object, raw, at).map(Value::Object),
            false => Err(wrong()),
        },
        Kind::List { of, max } => read_list(of, *max, json, at),
        Kind::Map { entries, name_bytes, value_bytes } => {
            let fits = |text: &Cow<'_, str>| text.len() <= *value_bytes && !text.contains('\0');
            let read = read_entries(json, *name_bytes, |raw| text_of(raw).filter(fits).map(Cow::into_owned));
            read.filter(|map| map.len() <= *entries).map(Value::Map).ok_or_else(wrong)
        }
        Kind::Amounts { entries, name_bytes, max } => {
            let amount = |raw: &str| serde_json::from_str(raw).ok().filter(|amount| (0.0..=*max).contains(amount));
            let read = read_entries(json, *name_bytes, amount);
            read.filter(|amounts| amounts.len() <= *entries).map(Value::Amounts).ok_or_else(wrong)
        }
        Kind::Int { .. }
        | Kind::Number { .. }
        | Kind::Text { .. }
        | Kind::Word(_)
        | Kind::Duration { .. }
        | Kind::Time => {
            let value = match text_of(json) {
                Some(text) if matches!(kind, Kind::Int { .. } | Kind::Number { .. }) => {
                    drop(text);
                    None
                }
                Some(text) => read_text(kind, text),
                None if matches!(kind, Kind::Text { .. } | Kind::Word(_) | Kind::Time) => None,
                None => read_number(kind, json),
            };
            value.ok_or_else(wrong)
        }
    }
}

fn text_of(json: &str) -> Option<Cow<'_, str>> {
    if !json.starts_with('"') {
        return None;
    }
    match serde_json::from_str::<&str>(json) {
        Ok(text) => Some(Cow::Borrowed(text)),
        Err(_) => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
    }
}

/// A value from text: a JSON string, or a query parameter.
fn read_text<'a>(kind: &'static Kind, text: Cow<'a, str>) -> Option<Value<'a>> {
    match kind {
        Kind::Text { min, max, check, .. } => {
            let fits = (*min..=*max).contains(&text.len()) && check(&text) && !text.contains('\0');
            fits.then_some(Value::Text(text))
        }
        Kind::Word(words) => words.contains(&&*text).then_some(Value::Text(text)),
        Kind::Duration { min, max } => {
            parse_duration(&text).filter(|duration| (min..=max).contains(&duration)).map(Value::Duration)
        }
        Kind::Time => parse_time(&text).map(Value::Time),
        _ => None,
    }
}

fn read_number<'a>(kind: &'static Kind, json: &str) -> Option<Value<'a>> {
    match kind {
        Kind::Int { min, max } => {
            let number = json.parse::<i64>().ok().or_else(|| whole(json));
            number.filter(|number| (min..=max).contains(&number)).map(Value::Int)
        }
        Kind::Number { min, max } => {
            json.parse::<f64>().ok().filter(|number| (min..=max).contains(&number)).map(Value::Number)
        }
        Kind::Duration { min, max } => {
            let seconds = json.parse::<f64>().ok()?;
            duration_from_seconds(seconds).filter(|duration| (min..=max).contains(&duration)).map(Value::Duration)
        }
        _ => None,
    }
}

/// A whole number in the clothes of a fraction, like `5.0` or `1e2`: some languages write no others.
fn whole(json: &str) -> Option<i64> {
    let number = json.parse::<f64>().ok()?;
    let text = format!("{number:.0}");
    (number.fract() == 0.0).then(|| text.parse().ok()).flatten()
}

/// RFC 3339 and no more: the parser of the library also takes other forms of ISO 8601.
fn parse_time(text: &str) -> Option<Timestamp> {
    if !is_rfc3339(text) {
        return None;
    }
    let time: jiff::Timestamp = text.parse().ok()?;
    let millis = time.as_millisecond();
    (0..=Timestamp::MAX.as_millis()).contains(&millis).then(|| Timestamp::from_millis(millis))
}

const WHOLE: &str = "0000-00-00T00:00:00";

/// `2026-11-15T20:37:00.5+01:00`, by its form; whether there is such a day is for the parser.
fn is_rfc3339(text: &str) -> bool {
    let has_form = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                b'T' => matches!(byte, b'T' | b't'),
                wanted => byte == wanted,
            })
    };
    let Some((whole, rest)) = text.split_at_checked(WHOLE.len()) else {
        return false;
    };
    let digits = rest.strip_prefix('.').map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    let offset = rest.get(digits.map_or(0, |digits| digits + 1)..).unwrap_or_default();
    let is_numeric =
        |sign: char| offset.strip_prefix(sign).is_some_and(|offset| has_form(offset, "00:00") && offset < "24");
    has_form(whole, WHOLE) && digits != Some(0) && (matches!(offset, "Z" | "z") || is_numeric('+') || is_numeric('-'))
}

fn read_list<'a>(of: &'static Kind, max: usize, json: &'a str, at: &str) -> Result<Value<'a>, Vec<FieldError>> {
    let wrong = |message: String| vec![FieldError::new(at, message)];
    let raws: Vec<&'a RawValue> = match serde_json::from_str(json) {
        Ok(raws) if json.starts_with('[') => raws,
        _ => return Err(wrong("must be a list".to_owned())),
    };
    if raws.len() > max {
        return Err(wrong(format!("must have at most {max} entries, not {}", raws.len())));
    }
    let mut values = Vec::with_capacity(raws.len());
    let mut errors = Vec::new();
    for (place, raw) in raws.into_iter().enumerate() {
        match read_kind(of, raw, &format!("{at}[{place}]")) {
            Ok(value) => values.push(value),
            Err(mut found) => errors.append(&mut found),
        }
    }
    if errors.is_empty() { Ok(Value::List(values)) } else { Err(errors) }
}

/// The members of an object, each name once. `None` where one of them is wrong.
fn read_entries<T>(json: &str, name_bytes: usize, read: impl Fn(&str) -> Option<T>) -> Option<Vec<(String, T)>> {
    let members: Members<'_> = serde_json::from_str(json).ok()?;
    let mut entries: Vec<(String, T)> = Vec::with_capacity(members.0.len());
    for (name, raw) in members.0 {
        let value = read(raw.get())?;
        let fits = (1..=name_bytes).contains(&name.len()) && !name.contains('\0');
        if !fits || entries.iter().any(|(known, _)| *known == name) {
            return None;
        }
        entries.push((name.into_owned(), value));
    }
    Some(entries)
}

/// Parameters of an open name like `tag.*`, without the fixed part.
type Starred = Vec<(String, String)>;

/// Reads a query string. A field named `tag.*` matches any parameter with that prefix.
pub(crate) fn read_query(fields: &'static [Field], query: &str) -> Result<(Values<'static>, Starred), Vec<FieldError>> {
    let (mut values, mut open, mut errors) = (Values::default(), Vec::new(), Vec::new());
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        if errors.len() >= ERRORS_MAX {
            return Err(errors);
        }
        let starred = |field: &&Field| {
            field.name.strip_suffix('*').is_some_and(|start| name.len() > start.len() && name.starts_with(start))
        };
        let Some(field) = fields.iter().find(|field| field.name == name).or_else(|| fields.iter().find(starred)) else {
            errors.push(FieldError::new(shown(&name), unknown(&name, fields)));
            continue;
        };
        let start = field.name.strip_suffix('*').map(str::len);
        let repeated = match start.and_then(|start| name.get(start..)) {
            Some(rest) => open.iter().any(|(known, _): &(String, String)| known == rest),
            None => values.contains(field.name),
        };
        if repeated {
            errors.push(FieldError::new(shown(&name), "is given twice"));
            continue;
        }
        let value = match &field.kind {
            Kind::Int { .. } | Kind::Number { .. } => read_number(&field.kind, &text),
            Kind::Bool => text.parse().ok().map(Value::Bool),
            kind => read_text(kind, Cow::Owned(text.clone().into_owned())),
        };
        match (value, start) {
            (None, _) => errors.push(FieldError::new(shown(&name), format!("must be {}", wants(&field.kind)))),
            (Some(_), Some(start)) => {
                open.push((name.get(start..).unwrap_or_default().to_owned(), text.into_owned()));
            }
            (Some(value), None) => values.push(field.name, value),
        }
    }
    if errors.is_empty() { Ok((values, open)) } else { Err(errors) }
}

/// The place of a field for messages; costs nothing where there is no path, as in most bodies.
fn join<'a>(path: &str, name: &'a str) -> Cow<'a, str> {
    if path.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(format!("{path}.{name}")) }
}

/// A name that somebody sent, cut to a length that can be repeated.
fn shown(name: &str) -> &str {
    let end = (0..=NAME_SHOWN_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_and_nothing_else() {
        for good in [
            "2026-11-15T20:37:00Z",
            "2026-11-15t20:37:00z",
            "2026-11-15T20:37:00.5Z",
            "2026-11-15T20:37:00.123456789+23:59",
            "2026-11-15T20:37:00-00:00",
        ] {
            assert!(parse_time(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "2026-11-15",
            "2026-11-15T20:37Z",
            "2026-11-15T20Z",
            "2026-11-15T20:37:00",
            "2026-11-15 20:37:00Z",
            "2026-11-15T20:37:00,5Z",
            "2026-11-15T20:37:00.Z",
            "2026-11-15T20:37:00+01",
            "2026-11-15T20:37:00+0100",
            "2026-11-15T20:37:00+24:00",
            "2026-11-15T20:37:00+01:00:00",
            "2026-11-15T20:37:00+01:00[Europe/Berlin]",
            "2026-11-15T20:37:00Z[UTC]",
            "20261115T203700Z",
            "+002026-11-15T20:37:00Z",
            "2026-W46-7T20:37:00Z",
            "2026-02-30T20:37:00Z",
            "2026-11-15T24:00:00Z",
            "1763239020",
            "2026-11-15T20:37:0\u{660}Z",
            " 2026-11-15T20:37:00Z",
        ] {
            assert!(parse_time(bad).is_none(), "{bad}");
        }
    }
}
