//! T24: filters and events that are made to take long. Each is refused, given up, or small.

use serde_json::{Value, json};

use super::filter;
use crate::filter::{Filter, Path};

/// About a MiB of the smallest values there are.
fn wide() -> Value {
    Value::Array(vec![json!(0); 500_000])
}

/// As deep as JSON can be read, with something on every level.
fn deep() -> Value {
    (0..120).fold(json!({"a": 1}), |inner, _| json!({"a": inner, "b": [1, 2, 3, 4, 5, 6, 7, 8], "c": vec![0; 60]}))
}

#[test]
fn parsing_is_bounded() {
    let nested = |open: &str, count: usize, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    for text in [
        nested("(", 2_000, "$.a exists", ")"),
        nested("(", 2_000, "", ""),
        "not ".repeat(1_000),
        format!("$.a == {}", "[".repeat(4_000)),
        nested("$[?", 1, &nested("(", 400, "@.a", ")"), "] exists"),
        nested("$[?", 1, &nested("!(", 200, "@.a", ")"), "] exists"),
        nested("$[?", 1, &nested("length(", 100, "@.a", ")"), " == 1] exists"),
        // Every level would be read twice by the library: 2^30 times.
        format!("${}{} exists", "[?@.a".repeat(30), "]".repeat(30)),
        format!("${}", "[?@".repeat(300)),
        format!("${}", "[".repeat(1_000)),
        format!("$.a matches '{}'", "(".repeat(3_000)),
        format!("$.a matches '{}'", "(?:".repeat(100)),
        "$.a matches '(a{1000}){1000}'".to_owned(),
        "$.a matches '((((a{100}){100}){100}){100})'".to_owned(),
        "$.a matches '\\\\p{L}{1000}'".to_owned(),
        vec!["$.a matches '\\\\w{10}'"; 50].join(" and "),
        "$.a matches 'a{4294967296}'".to_owned(),
        format!("$.a == {}", "9".repeat(400)),
        "$.a == 1e999999999".to_owned(),
        "$.a == -1e400".to_owned(),
        "$[99999999999999999999] exists".to_owned(),
        "$[-9223372036854775808] exists".to_owned(),
        "$[0:9223372036854775807:1] exists".to_owned(),
        "$.a exists or ".repeat(290),
        "x".repeat(1 << 20),
    ] {
        assert!(Filter::parse(&text).is_err(), "{text:.100}");
    }
}

#[test]
fn searching_is_bounded() {
    let (wide, deep) = (wide(), deep());
    let twice = format!("$..*{}", "[*,*]".repeat(30));
    for (text, event) in [
        ("$..*..* exists", &wide),
        ("$..*..*..* exists", &deep),
        ("$..*..*..*..*..*..*..*..* exists", &deep),
        ("$..[*,*,*,*,*,*,*,*,*,*,*,*]..* exists", &wide),
        ("$..[?@..a]..[?@..b] exists", &deep),
        ("$[?$[?$[?@ == 1]]] exists", &wide),
        ("$[?$..*] exists", &wide),
        ("$[?$ == $] exists", &wide),
        ("$..[?@ == $] exists", &wide),
        ("$..[?count($..*) > 1] exists", &deep),
        ("$..[?@..*] exists", &wide),
        (&*format!("{twice} exists"), &deep),
    ] {
        let exhausted = filter(text).matches(event).expect_err(text);

        assert_eq!(exhausted.column, 1);
        assert!(exhausted.to_string().ends_with(text), "{exhausted}");
        assert!(filter(text).explain(event).is_err());
    }
}

#[test]
fn comparing_is_bounded() {
    let many = format!("$[*] in [{}]", vec!["1"; 2_000].join(","));
    let text = json!("01".repeat(500_000));
    for (text, event) in [
        (&*many, &wide()),
        ("$ matches '(0|1)*1(0|1){200}$'", &text),
        ("$ matches '[01]*1[01]{500}2'", &text),
        ("$ matches '(\\\\w+\\\\s*){20}x'", &text),
        ("$ matches '((0*)*1*)*{50}x'", &text),
    ] {
        assert!(filter(text).matches(event).is_err(), "{text:.60}");
    }
}

#[test]
fn an_event_deeper_than_json_is_followed_but_not_searched() {
    let event = (0..300).fold(json!(1), |inner, _| Value::Object([("a".to_owned(), inner)].into_iter().collect()));

    assert_eq!(filter("$.a.a.a exists").matches(&event), Ok(true));
    assert!(filter("$..a exists").matches(&event).is_err());
    assert!(Path::parse("$..a").unwrap().nodes(&event).is_err());
}

#[test]
fn large_events_within_reason_are_judged() {
    let item = |number: usize| json!({"id": format!("item_{number}"), "price": number, "tags": ["a", "b"], "note": "x".repeat(60)});
    let event =
        json!({"type": "order", "items": (0..6_000).map(item).collect::<Vec<_>>(), "note": "y".repeat(200_000)});
    for (text, expected) in [
        ("$.items[*].price > 5998", true),
        ("$.items[?@.price > 5998].id == 'item_5999'", true),
        ("$..id == 'item_5999'", true),
        ("$..price > 5999", false),
        ("$.note contains 'yx'", false),
        ("$.note matches '^y+x'", false),
        ("$.items[*].id matches '^item_599\\\\d$'", true),
        ("$.items[5999].tags contains 'b'", true),
        ("$.type matches '^\\\\w{3,30}$'", true),
    ] {
        assert_eq!(filter(text).matches(&event), Ok(expected), "{text}");
    }
}

#[test]
fn every_beginning_of_a_filter_is_an_error_or_a_filter() {
    let text =
        "not ($.a['b'][0].c in [1, -2.5e3, 'x', [null]] or $..d[?@.e == \"é\\u00e9\"] matches '^a+$') and $.f != true";
    let mut understood = 0;
    for (end, _) in text.char_indices() {
        understood += usize::from(Filter::parse(&text[..end]).is_ok());
    }
    assert!(Filter::parse(text).is_ok());
    assert_eq!(understood, 2, "the parentheses alone are a filter, and with a space behind them");
}
