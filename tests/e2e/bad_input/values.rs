//! From what a field may hold to values it must take and values it must refuse, as JSON text: half of them cannot be
//! written with a JSON library.

use std::time::Duration;

use outlast_api::schema::{Field, Kind};

/// A value that must be refused, what is wrong with it, and where the answer must see the fault.
#[derive(Debug, Clone)]
pub(crate) struct Bad {
    pub field: String,
    pub what: String,
    pub json: String,
}

const TYPES: [(&str, &str); 7] = [
    ("null", "null"),
    ("a boolean", "true"),
    ("a number", "5"),
    ("a fraction", "1.5"),
    ("text", "\"rhubarb\""),
    ("a list", "[]"),
    ("an object", "{}"),
];

/// Beyond every number a field can hold.
const ABSURD_NUMBERS: [&str; 7] =
    ["1e308", "-1e308", "9223372036854775808", "-9223372036854775809", "1e400", "-1", "0.0000001e-308"];
const ABSURD_DURATIONS: [&str; 12] =
    ["", "-5s", "5 years", "NaN", "Infinity", "inf", "1e3s", "99999999999999999999d", "1.2.3s", "s", "0x10s", "５s"];
const ABSURD_TIMES: [&str; 13] = [
    "",
    "yesterday",
    "2026-11-15",
    "20:37:00Z",
    "2026-11-15T20:37:00",
    "2026-13-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-15T25:00:00Z",
    "1969-12-31T23:59:59Z",
    "10000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-01:00",
    "+292277026596-12-04T15:30:08Z",
    "1763239020",
];

/// Everything a field must refuse.
pub(crate) fn refused(field: &Field, at: &str) -> Vec<Bad> {
    let mut found = of_wrong_type(field, at);
    found.extend(out_of_range(&field.kind, at));
    found
}

fn of_wrong_type(field: &Field, at: &str) -> Vec<Bad> {
    let takes = |name: &str| match (&field.kind, name) {
        (Kind::Any | Kind::Entry(_), _) => true,
        (_, "null") => field.nullable,
        (Kind::Bool, "a boolean") => true,
        (Kind::Int { .. }, "a number") => true,
        (Kind::Number { .. } | Kind::Duration { .. }, "a number" | "a fraction") => true,
        // Not every text is right, but the right ones are among the edges.
        (Kind::Text { .. }, "text") => true,
        (Kind::Object(_) | Kind::Map { .. } | Kind::Amounts { .. }, "an object") => true,
        (Kind::List { .. }, "a list") => true,
        _ => false,
    };
    TYPES.iter().filter(|(name, _)| !takes(name)).map(|(name, json)| bad(at, *name, *json)).collect()
}

fn out_of_range(kind: &Kind, at: &str) -> Vec<Bad> {
    match kind {
        Kind::Any | Kind::Entry(_) | Kind::Bool => Vec::new(),
        Kind::Int { min, max } => {
            let mut found = vec![bad(at, "below the least", (i128::from(*min) - 1).to_string())];
            found.push(bad(at, "above the most", (i128::from(*max) + 1).to_string()));
            found.extend(absurd_numbers(at).filter(|bad| bad.json != "-1" || *min > -1));
            found
        }
        Kind::Number { min, max } => {
            let mut found = vec![bad(at, "below the least", format!("{:?}", min - 0.001))];
            found.push(bad(at, "above the most", format!("{:?}", max + 0.001)));
            found.extend(absurd_numbers(at).filter(|bad| !bad.json.ends_with("e-308")));
            found
        }
        Kind::Text { min, max, check, .. } => {
            let longest = longest_text(*min, *max, *check);
            let mut found = vec![bad(at, "one byte too long", text(&format!("{longest}a")))];
            found.push(bad(at, "far too long", text(&fill(20_000))));
            found.extend((*min > 0).then(|| bad(at, "empty", "\"\"")));
            found.push(bad(at, "with a NUL", "\"a\\u0000b\""));
            found
        }
        Kind::Word(words) => {
            let upper = words.first().map(|word| word.to_uppercase()).unwrap_or_default();
            ["", "nonsense", upper.as_str(), " ", "\\u0000"]
                .iter()
                .map(|word| bad(at, format!("the word \"{word}\""), format!("\"{word}\"")))
                .collect()
        }
        Kind::Duration { min, max } => bad_durations(*min, *max, at),
        Kind::Time => ABSURD_TIMES.iter().map(|time| bad(at, "no such time", text(time))).collect(),
        Kind::Object(object) => {
            let mut found = vec![bad(&format!("{at}.rhubarb"), "an unknown member", "{\"rhubarb\":1}")];
            for field in object.fields {
                let inside = format!("{at}.{}", field.name);
                for inner in refused(field, &inside) {
                    found.push(Bad { json: format!("{{\"{}\":{}}}", field.name, inner.json), ..inner });
                }
                found.extend(field.required.then(|| bad(&inside, "missing", "{}")));
            }
            found
        }
        Kind::Map { entries, name_bytes, value_bytes } => bad_maps(*entries, *name_bytes, *value_bytes, at),
        Kind::Amounts { entries, name_bytes, max } => bad_amounts(*entries, *name_bytes, *max, at),
        Kind::List { of, max } => bad_lists(of, *max, at),
    }
}

fn bad_durations(min: Duration, max: Duration, at: &str) -> Vec<Bad> {
    let (least, most) = (min.as_millis(), max.as_millis());
    let mut found: Vec<Bad> = ABSURD_DURATIONS.iter().map(|absurd| bad(at, "no such duration", text(absurd))).collect();
    found.push(bad(at, "above the most", format!("{}.001", max.as_secs())));
    found.push(bad(at, "above the most, as text", text(&format!("{}ms", most + 1))));
    if least > 0 {
        found.push(bad(at, "zero", "0"));
        found.push(bad(at, "below the least, as text", text(&format!("{}ms", least - 1))));
    }
    let numbers = absurd_numbers(at).filter(|bad| least > 0 || !bad.json.ends_with("e-308"));
    found.extend(numbers);
    found.push(bad(at, "a little below zero", "-0.001"));
    found
}

fn bad_maps(entries: usize, name_bytes: usize, value_bytes: usize, at: &str) -> Vec<Bad> {
    let many: Vec<String> = (0..=entries).map(|number| format!("\"n{number}\":\"x\"")).collect();
    vec![
        bad(at, "too many entries", format!("{{{}}}", many.join(","))),
        bad(at, "a name too long", format!("{{{}:\"x\"}}", text(&fill(name_bytes + 1)))),
        bad(at, "a value too long", format!("{{\"a\":{}}}", text(&fill(value_bytes + 1)))),
        bad(at, "an empty name", "{\"\":\"x\"}"),
        bad(at, "a number as value", "{\"a\":1}"),
        bad(at, "null as value", "{\"a\":null}"),
        bad(at, "a name twice", "{\"a\":\"x\",\"a\":\"y\"}"),
        bad(at, "a NUL in a name", "{\"a\\u0000\":\"x\"}"),
        bad(at, "a NUL in a value", "{\"a\":\"\\u0000\"}"),
    ]
}

fn bad_amounts(entries: usize, name_bytes: usize, max: f64, at: &str) -> Vec<Bad> {
    let many: Vec<String> = (0..=entries).map(|number| format!("\"n{number}\":1")).collect();
    let mut found = vec![
        bad(at, "too many entries", format!("{{{}}}", many.join(","))),
        bad(at, "a name too long", format!("{{{}:1}}", text(&fill(name_bytes + 1)))),
        bad(at, "an empty name", "{\"\":1}"),
        bad(at, "text as value", "{\"a\":\"1\"}"),
        bad(at, "null as value", "{\"a\":null}"),
        bad(at, "a name twice", "{\"a\":1,\"a\":2}"),
        bad(at, "a NUL in a name", "{\"a\\u0000\":1}"),
        bad(at, "above the most", format!("{{\"a\":{:?}}}", max + 1.0)),
    ];
    let absurd = ABSURD_NUMBERS.iter().filter(|number| !number.ends_with("e-308"));
    found.extend(absurd.map(|number| bad(at, "an absurd number", format!("{{\"a\":{number}}}"))));
    found
}

fn bad_lists(of: &Kind, max: usize, at: &str) -> Vec<Bad> {
    let mut found = Vec::new();
    if let (true, Some(entry)) = (max < usize::MAX, accepted(of).into_iter().next()) {
        found.push(bad(at, "too many entries", format!("[{}]", vec![entry; max + 1].join(","))));
    }
    for (name, json) in TYPES.iter().filter(|_| !matches!(of, Kind::Any | Kind::Entry(_))) {
        // A list of texts takes a text, and so on; what is wrong for the entries is wrong at their place.
        let takes = match (of, *name) {
            (Kind::Duration { .. }, "a number" | "a fraction") => true,
            (Kind::Int { min, max }, "a number") => json.parse().is_ok_and(|number| (*min..=*max).contains(&number)),
            (Kind::Text { check, .. }, "text") => check("rhubarb"),
            (Kind::Object(_), "an object") => true,
            _ => false,
        };
        found.extend((!takes).then(|| bad(&format!("{at}[0]"), format!("{name} as entry"), format!("[{json}]"))));
    }
    found
}

/// Values at the limits of what a field takes, and every word. Empty where no single value can be said to be right.
pub(crate) fn accepted(kind: &Kind) -> Vec<String> {
    match kind {
        Kind::Any | Kind::Entry(_) => TYPES.iter().map(|(_, json)| (*json).to_owned()).collect(),
        Kind::Bool => vec!["true".to_owned(), "false".to_owned()],
        Kind::Int { min, max } => vec![min.to_string(), max.to_string()],
        Kind::Number { min, max } => vec![format!("{min:?}"), format!("{max:?}")],
        Kind::Text { min, max, check, .. } => {
            let shortest = (*min..=*max).find_map(|length| text_of_length(length, *check));
            shortest.into_iter().chain([longest_text(*min, *max, *check)]).map(|good| text(&good)).collect()
        }
        Kind::Word(words) => words.iter().map(|word| text(word)).collect(),
        Kind::Duration { min, max } => [min, max]
            .iter()
            .flat_map(|edge| [format!("{}", edge.as_secs_f64()), text(&format!("{}ms", edge.as_millis()))])
            .collect(),
        Kind::Time => {
            ["1970-01-01T00:00:00Z", "9999-12-30T00:00:00Z", "2026-11-15T20:37:00.123456789+02:00"].map(text).into()
        }
        Kind::Object(object) => accepted_objects(object.fields),
        // Not all limits at once: some maps are bounded as a whole, too.
        Kind::Map { entries, name_bytes, value_bytes } => {
            let of = |entries: usize, name_bytes: usize, value_bytes: usize| {
                let place = |number: usize| format!("{number:0>name_bytes$}");
                let entry = |number: usize| format!("{}:{}", text(&place(number)), text(&fill(value_bytes)));
                format!("{{{}}}", (0..entries).map(entry).collect::<Vec<_>>().join(","))
            };
            vec!["{}".to_owned(), of(*entries, 3, 3), of(2, *name_bytes, *value_bytes)]
        }
        Kind::Amounts { entries, name_bytes, max } => {
            let many: Vec<String> = (0..*entries).map(|number| format!("\"n{number}\":{number}.5")).collect();
            let edge = format!("{{{}:{max:?},\"b\":0}}", text(&fill(*name_bytes)));
            vec!["{}".to_owned(), format!("{{{}}}", many.join(",")), edge]
        }
        Kind::List { of, max } => {
            let entry = accepted(of).into_iter().next().unwrap_or_default();
            vec![format!("[{}]", vec![entry; (*max).min(1000)].join(","))]
        }
    }
}

/// The least that a field takes where only its place matters.
pub(crate) fn sample(kind: &Kind) -> String {
    match kind {
        Kind::List { .. } => "[]".to_owned(),
        kind => accepted(kind).into_iter().min_by_key(String::len).expect("every kind takes something"),
    }
}

/// Each member of a nested object at its limits, beside the least its other members need.
fn accepted_objects(fields: &[Field]) -> Vec<String> {
    let mut found = Vec::new();
    for field in fields {
        for value in accepted(&field.kind) {
            let others = fields.iter().filter(|other| other.required && other.name != field.name);
            let mut members: Vec<String> = others
                .filter_map(|other| Some(format!("\"{}\":{}", other.name, accepted(&other.kind).into_iter().next()?)))
                .collect();
            members
                .extend(companions_inside(field.name, &value).iter().map(|(name, json)| format!("\"{name}\":{json}")));
            members.push(format!("\"{}\":{value}", field.name));
            found.push(format!("{{{}}}", members.join(",")));
        }
    }
    found
}

/// Other fields that a field needs, so that the rules between fields hold.
pub(crate) fn companions(field: &str, value: &str) -> Vec<(&'static str, &'static str)> {
    const URL: &str = "\"https://example.com/hook\"";
    match (field, value) {
        ("template", _) => vec![("webhookUrl", URL), ("mode", "\"ack\"")],
        ("mode", "\"standard\"" | "\"ack\"") => vec![("webhookUrl", URL)],
        ("webhookUrl", _) => vec![("mode", "\"ack\"")],
        ("signingSecret", _) => vec![("webhookUrl", URL), ("mode", "\"ack\"")],
        ("dedupeWindow", _) => vec![("retention", "\"3650d\"")],
        _ => Vec::new(),
    }
}

/// The same for the members of nested objects.
fn companions_inside(field: &str, value: &str) -> Vec<(&'static str, &'static str)> {
    match (field, value) {
        ("type", "\"schedule\"") => vec![("delays", "[1]")],
        ("delays", _) => vec![("type", "\"schedule\"")],
        ("delay", _) => vec![("type", "\"fixed\"")],
        ("maxDelay", _) => vec![("delay", "0")],
        _ => Vec::new(),
    }
}

/// The longest text that a field takes. A check of its own may stop before `max`.
fn longest_text(min: usize, max: usize, check: fn(&str) -> bool) -> String {
    let longest = (min..=max).rev().find_map(|length| text_of_length(length, check));
    longest.expect("one of the shapes passes the check; a new kind of text needs a new shape")
}

/// A text of this length that passes the field's own check, if one of the usual shapes does.
fn text_of_length(length: usize, check: fn(&str) -> bool) -> Option<String> {
    let shapes = ["", "http://a.example/", "a@b.", "manage:", "read", "0190a5d0-ac96-774b-bcce-b302099a8057"];
    let shaped = |shape: &&str| {
        let padding = length.checked_sub(shape.len())?;
        Some(format!("{shape}{}", fill(padding))).filter(|text| check(text))
    };
    shapes.iter().find_map(shaped)
}

fn absurd_numbers(at: &str) -> impl Iterator<Item = Bad> {
    let huge = format!("1{}", "0".repeat(400));
    let numbers = ABSURD_NUMBERS.iter().map(|number| (*number).to_owned()).chain([huge]);
    numbers.map(move |number| bad(at, "an absurd number", number))
}

fn bad(field: &str, what: impl Into<String>, json: impl Into<String>) -> Bad {
    Bad { field: field.to_owned(), what: what.into(), json: json.into() }
}

pub(crate) fn fill(length: usize) -> String {
    "a".repeat(length)
}

/// A JSON text.
pub(crate) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
