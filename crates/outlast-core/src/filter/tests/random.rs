//! Any text is parsed or refused; any filter says what a second, naive evaluator says.

use proptest::prelude::*;
use serde_json::{Value, json};
use serde_json_path::JsonPath;

use super::filter;
use crate::filter::Filter;

/// A filter as a tree, beside its text.
#[derive(Debug, Clone)]
enum Tree {
    Term(&'static str, &'static str, Value),
    Not(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
}

const PATHS: [&str; 8] = ["$", "$.a", "$.b", "$.a[0]", "$.a[-1].b", "$..a", "$.a[*]", "$.c.d"];
const OPERATORS: [&str; 12] =
    ["==", "!=", "<", "<=", ">", ">=", "in", "contains", "starts_with", "ends_with", "matches", "exists"];

fn scalars() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.0),
        json!(1.5),
        json!(u64::MAX),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992.0),
        json!(""),
        json!("a"),
        json!("ab"),
        json!("b"),
        json!("é"),
    ])
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![3 => scalars(), 1 => prop::collection::vec(scalars(), 0..3).prop_map(Value::Array)]
}

fn trees() -> impl Strategy<Value = Tree> {
    let term = (prop::sample::select(&PATHS[..]), prop::sample::select(&OPERATORS[..]), values()).prop_filter_map(
        "a value that fits its operator",
        |(path, operator, value)| {
            let fits = match operator {
                "<" | "<=" | ">" | ">=" => value.is_number() || value.is_string(),
                "in" => value.is_array(),
                "starts_with" | "ends_with" | "matches" => value.is_string(),
                _ => true,
            };
            fits.then_some(Tree::Term(path, operator, value))
        },
    );
    term.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|tree| Tree::Not(Box::new(tree))),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| Tree::And(Box::new(one), Box::new(other))),
            (inner.clone(), inner).prop_map(|(one, other)| Tree::Or(Box::new(one), Box::new(other))),
        ]
    })
}

fn events() -> impl Strategy<Value = Value> {
    values().prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(vec!["a", "b", "c", "d"]), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().map(|(name, v)| (name.to_owned(), v)).collect())),
        ]
    })
}

/// With parentheses only where they are needed.
fn written(tree: &Tree) -> String {
    let within = |inner: &Tree, needs: fn(&Tree) -> bool| match needs(inner) {
        true => format!("({})", written(inner)),
        false => written(inner),
    };
    match tree {
        Tree::Term(path, "exists", _) => format!("{path} exists"),
        Tree::Term(path, operator, value) => format!("{path} {operator} {value}"),
        Tree::Not(inner) => format!("not {}", within(inner, |tree| matches!(tree, Tree::And(..) | Tree::Or(..)))),
        Tree::And(one, other) => {
            let needs: fn(&Tree) -> bool = |tree| matches!(tree, Tree::Or(..));
            format!("{} and {}", within(one, needs), within(other, needs))
        }
        Tree::Or(one, other) => format!("{} or {}", written(one), written(other)),
    }
}

fn naive(tree: &Tree, event: &Value) -> bool {
    match tree {
        Tree::Not(inner) => !naive(inner, event),
        Tree::And(one, other) => naive(one, event) & naive(other, event),
        Tree::Or(one, other) => naive(one, event) | naive(other, event),
        Tree::Term(path, operator, value) => {
            let nodes = JsonPath::parse(path).unwrap().query(event).all();
            match *operator {
                "!=" => nodes.iter().all(|node| !same(node, value)),
                _ => nodes.iter().any(|node| naive_term(node, operator, value)),
            }
        }
    }
}

fn naive_term(node: &Value, operator: &str, value: &Value) -> bool {
    let less = |one: &Value, other: &Value| match (one, other) {
        (Value::String(one), Value::String(other)) => one.chars().lt(other.chars()),
        _ => doubled(one).zip(doubled(other)).is_some_and(|(one, other)| one < other),
    };
    let texts = node.as_str().zip(value.as_str());
    match operator {
        "exists" => true,
        "==" => same(node, value),
        "<" => less(node, value),
        ">" => less(value, node),
        "<=" => less(node, value) || same(node, value) && !node.is_array() && (node.is_number() || node.is_string()),
        ">=" => less(value, node) || same(node, value) && !node.is_array() && (node.is_number() || node.is_string()),
        "in" => value.as_array().unwrap().iter().any(|value| same(node, value)),
        "contains" => match node {
            Value::Array(elements) => elements.iter().any(|element| same(element, value)),
            _ => texts.is_some_and(|(node, value)| node.contains(value)),
        },
        "starts_with" => texts.is_some_and(|(node, value)| node.starts_with(value)),
        "ends_with" => texts.is_some_and(|(node, value)| node.ends_with(value)),
        // The patterns here are plain texts.
        "matches" => texts.is_some_and(|(node, value)| node.contains(value)),
        other => panic!("no operator {other}"),
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && (0..one.len()).all(|place| same(&one[place], &other[place]))
        }
        (Value::Number(_), Value::Number(_)) => doubled(one) == doubled(other),
        (Value::Object(_), Value::Object(_)) => panic!("a filter holds no object"),
        _ => one == other,
    }
}

/// Twice the number, exactly; the numbers here are whole or halves.
fn doubled(value: &Value) -> Option<i128> {
    let whole = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)).map(|whole| whole * 2);
    #[expect(clippy::cast_possible_truncation, reason = "small or a power of two")]
    let float = || value.as_f64().map(|float| (float * 2.0) as i128);
    whole.or_else(float)
}

proptest! {
    #[test]
    fn a_filter_says_what_a_naive_reading_says(tree in trees(), event in events()) {
        let text = written(&tree);

        let filter = filter(&text);

        prop_assert_eq!(filter.matches(&event), Ok(naive(&tree, &event)), "{} on {}", text, event);
        prop_assert_eq!(filter.explain(&event).unwrap().is_match, naive(&tree, &event));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        if let Err(error) = Filter::parse(&text) {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1, "{}", error);
        }
    }

    #[test]
    fn no_heap_of_tokens_makes_anything_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "$.a", "$..a", "$", "[", "]", "(", ")", "==", ">=", "!=", "in", "contains", "matches", "starts_with",
            "exists", "not", "and", "or", "'a'", "\"b\"", "1", "-1e5", "true", "null", ",", "'", "é", "\\", "=", "?@",
        ]), 0..12),
        glue in prop::sample::select(vec![" ", ""]),
        event in events(),
    ) {
        let text = words.join(glue);
        match Filter::parse(&text) {
            Ok(filter) => prop_assert!(filter.matches(&event).is_ok()),
            Err(error) => {
                prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1, "{}: {}", text, error);
            }
        }
    }
}
