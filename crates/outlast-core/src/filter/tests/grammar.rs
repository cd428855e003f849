//! What belongs together, and what is shown of it.

use serde_json::json;

use super::{check, filter};
use crate::filter::{Filter, Path};

#[test]
fn not_binds_before_and_and_and_before_or() {
    for (written, understood) in [
        ("$.a exists", "$.a exists"),
        ("  $.a   exists\n", "$.a exists"),
        ("$.a == 1 or $.b == 2 and $.c == 3", "($.a == 1 or ($.b == 2 and $.c == 3))"),
        ("$.a == 1 and $.b == 2 or $.c == 3", "(($.a == 1 and $.b == 2) or $.c == 3)"),
        ("($.a == 1 or $.b == 2) and $.c == 3", "(($.a == 1 or $.b == 2) and $.c == 3)"),
        ("not $.a == 1 and $.b == 2", "(not $.a == 1 and $.b == 2)"),
        ("not ($.a == 1 and $.b == 2)", "not ($.a == 1 and $.b == 2)"),
        ("not not $.a exists or $.b exists", "(not not $.a exists or $.b exists)"),
        ("$.a exists and $.b exists and $.c exists", "($.a exists and $.b exists and $.c exists)"),
        ("((($.a exists)))", "$.a exists"),
        ("$.a=='x'and$.b>=2", "($.a == \"x\" and $.b >= 2)"),
        ("$ .a [0] == 1", "$ .a [0] == 1"),
        ("$.a in[1,'b',null,[true]]", "$.a in [1,\"b\",null,[true]]"),
        ("$.a contains 'it\\'s \"x\"'", "$.a contains \"it's \\\"x\\\"\""),
        ("$['a b'].c starts_with \"\\u00e9\\n\"", "$['a b'].c starts_with \"é\\n\""),
        ("$.a matches '^x$'", "$.a matches \"^x$\""),
        ("$.and.or.not == 'and'", "$.and.or.not == \"and\""),
        ("$[?@.a == 'x] or ('].b == 1", "$[?@.a == 'x] or ('].b == 1"),
    ] {
        assert_eq!(format!("{:?}", filter(written)), format!("Filter({understood})"), "{written}");
        assert_eq!(filter(written).to_string(), written.trim());
        let again = filter(understood);
        assert_eq!(format!("{again:?}"), format!("Filter({understood})"), "what is shown can be read");
    }
}

#[test]
fn truth_tables() {
    for bits in 0..8 {
        let (a, b, c) = (bits & 1 == 1, bits & 2 == 2, bits & 4 == 4);
        let event = json!({"a": a, "b": b, "c": c});
        let of = |pattern: &str| {
            let named = |text: String, name: &str| text.replace(name, &format!("$.{} == true", name.to_lowercase()));
            ["A", "B", "C"].into_iter().fold(pattern.to_owned(), named)
        };

        check(&of("A or B and C"), &event, a || b && c);
        check(&of("A and B or C"), &event, a && b || c);
        check(&of("(A or B) and C"), &event, (a || b) && c);
        check(&of("not A and B"), &event, !a && b);
        check(&of("not A or not (B and C)"), &event, !(a && b && c));
        check(&of("not (A or B) and not C"), &event, !(a || b || c));
    }
}

#[test]
fn a_filter_can_be_shared_between_threads_and_copied() {
    fn shared<T: Send + Sync + Clone + 'static>(value: &T) -> T {
        value.clone()
    }
    let one = filter("$.a matches 'x' and $..b exists");

    let other = shared(&one);

    assert_eq!(one, other);
    assert_ne!(one, filter("$.a exists"));
    assert_eq!(other.matches(&json!({"a": "axe", "b": 1})), Ok(true));
}

#[test]
fn bounds_are_reached_before_they_are_passed() {
    let term = "$.a exists";
    let chain = |count: usize| vec![term; count].join(" and ");
    let nested = |depth: usize| format!("{}{term}{}", "(".repeat(depth), ")".repeat(depth));
    let lists = |depth: usize| format!("$.a == {}{}", "[".repeat(depth), "]".repeat(depth));

    assert!(Filter::parse(&chain(64)).is_ok());
    assert_eq!(Filter::parse(&chain(65)).unwrap_err().message, "a filter has at most 64 comparisons");
    assert!(Filter::parse(&nested(32)).is_ok());
    assert_eq!(Filter::parse(&nested(33)).unwrap_err().column, 33);
    assert!(Filter::parse(&format!("{}{term}", "not ".repeat(32))).is_ok());
    assert!(Filter::parse(&format!("{}{term}", "not ".repeat(33))).is_err());
    assert!(Filter::parse(&lists(32)).is_ok());
    assert!(Filter::parse(&lists(33)).is_err());
    assert!(Filter::parse(&format!("{term}{}", " ".repeat(4086))).is_ok());
    assert_eq!(Filter::parse(&format!("{term}{}", " ".repeat(4087))).unwrap_err().column, 4097);
    assert!(Path::parse(&format!("$.{}", "a".repeat(1022))).is_ok());
    assert!(Path::parse(&format!("$.{}", "a".repeat(1023))).is_err());
}
