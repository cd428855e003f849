//! What is followed by hand leads where the library says.

use proptest::prelude::*;
use serde_json::{Value, json};
use serde_json_path::JsonPath;

use super::super::budget::StepBudget;
use super::super::path::Path;

/// Few names, so that paths and events meet.
const NAMES: [&str; 8] = ["a", "b", "é", "_x1", "a b", "it's", "0", ""];

fn events() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().map(|(name, v)| (name.to_owned(), v)).collect())),
        ]
    })
}

fn plain_steps() -> impl Strategy<Value = String> {
    let name = prop::sample::select(&NAMES[..]);
    prop_oneof![
        prop::sample::select(&NAMES[..4]).prop_map(|name| format!(".{name}")),
        prop::sample::select(&NAMES[..4]).prop_map(|name| format!(" .{name}")),
        name.clone().prop_map(|name| format!("[\"{name}\"]")),
        name.prop_map(|name| format!("[ '{}' ]", name.replace('\'', "\\'"))),
        (-4_i64..4).prop_map(|index| format!("[{index}]")),
    ]
}

fn any_steps() -> impl Strategy<Value = String> {
    let other = vec![
        ".*",
        "..*",
        "..a",
        "[*]",
        "[0:2]",
        "[::-1]",
        "['a','b']",
        "[0,0]",
        "[?@.a]",
        "[?@ == 1]",
        "..[?@.b > 0]",
        "[?@.a == $.b]",
        "[?count(@.*) > 1]",
        "[?@[?@.a]]",
        "..[0]",
    ];
    prop_oneof![plain_steps(), prop::sample::select(other).prop_map(str::to_owned)]
}

proptest! {
    #[test]
    fn a_followed_path_leads_where_the_library_says(
        steps in prop::collection::vec(plain_steps(), 0..5),
        event in events(),
    ) {
        let text = format!("${}", steps.concat());

        let library = JsonPath::parse(&text).unwrap().query(&event).all();
        let ours = Path::parse(&text).unwrap().nodes(&event).unwrap();

        prop_assert_eq!(library, ours, "{}", text);
    }

    #[test]
    fn any_path_leads_where_the_library_says(
        steps in prop::collection::vec(any_steps(), 0..4),
        event in events(),
    ) {
        let text = format!("${}", steps.concat());

        let library = JsonPath::parse(&text).unwrap().query(&event).all();
        let ours = Path::parse(&text).unwrap().nodes(&event);

        // What is refused for its cost is allowed to be; an event of forty values gets through but for the worst.
        if let Ok(ours) = ours {
            prop_assert_eq!(library, ours, "{}", text);
        }
    }

    #[test]
    fn no_search_finds_more_than_was_paid_for(
        steps in prop::collection::vec(any_steps(), 1..6),
        event in events(),
    ) {
        let path = Path::parse(&format!("${}", steps.concat())).unwrap();
        let mut budget = StepBudget::full();

        // One value may come out of a path that is followed, for nothing.
        if let Ok(found) = path.query(&event, &mut budget) {
            prop_assert!(found.len() <= 1 || found.len() as u64 * 16 <= budget.spent(), "{} on {}", path, event);
        }
    }

    #[test]
    fn whatever_is_taken_for_a_path_is_one_and_nothing_else_is(text in "\\$[ab0\\[\\]'\"\\.\\*\\?@$(): ,=1-]{0,12}") {
        let ours = Path::parse(&text).is_ok();
        let library = JsonPath::parse(text.trim()).is_ok();

        prop_assert_eq!(ours, library, "{}", text);
    }
}

#[test]
fn common_paths_are_followed_by_hand() {
    let event = json!({"a": {"b": [{"c": 1}]}});
    for (text, is_plain) in [
        ("$", true),
        ("$.a.b[0].c", true),
        ("$['a']['b'][-1].c", true),
        ("$.a.b[*].c", false),
        ("$..c", false),
        ("$.a.b[0,0].c", false),
        ("$.a.b[0:1].c", false),
        ("$['\\u0061']", false),
    ] {
        let path = Path::parse(text).unwrap();

        assert_eq!(path.follow(&event).is_some(), is_plain, "{text}");
        assert!(!path.query(&event, &mut StepBudget::full()).unwrap().is_empty(), "{text}");
    }
}
