//! What every operator says about every kind of value.

use serde_json::{Value, json};

use super::{check, filter};

fn event() -> Value {
    json!({
        "type": "invoice.paid",
        "amount": 1000,
        "rate": 0.25,
        "paid": true,
        "failed": false,
        "nothing": null,
        "empty": "",
        "tags": ["vip", "eu", 7, [1, 2], null],
        "items": [{"price": 5, "name": "pen"}, {"price": 50, "name": "ink"}, {"name": "gift"}],
        "customer": {"name": "Äda", "e-mail": "ada@example.com"},
    })
}

#[track_caller]
fn check_all(cases: &[(&str, bool)]) {
    let event = event();
    for (text, expected) in cases {
        check(text, &event, *expected);
    }
}

#[test]
fn values_are_equal_when_type_and_value_are() {
    check_all(&[
        ("$.type == 'invoice.paid'", true),
        ("$.type == \"invoice.paid\"", true),
        ("$.type == 'Invoice.paid'", false),
        ("$.amount == 1000", true),
        ("$.amount == 1e3", true),
        ("$.amount == 1000.0", true),
        ("$.amount == '1000'", false),
        ("$.paid == true", true),
        ("$.paid == 1", false),
        ("$.nothing == null", true),
        ("$.failed == null", false),
        ("$.empty == ''", true),
        ("$.empty == null", false),
        ("$.tags == ['vip', 'eu', 7.0, [1, 2], null]", true),
        ("$.tags == ['vip', 'eu', 7.0, [1, 3], null]", false),
        ("$.tags == ['vip']", false),
        ("$.tags == []", false),
        ("$.customer == null", false),
        ("$.missing == null", false),
        ("$.missing == false", false),
    ]);
}

#[test]
fn unequal_is_the_opposite_of_equal() {
    check_all(&[
        ("$.amount != 1000", false),
        ("$.amount != 999", true),
        ("$.amount != '1000'", true),
        ("$.customer != null", true),
        ("$.missing != 1", true),
        ("$.missing != null", true),
        ("$.items[*].price != 5", false),
        ("$.items[*].price != 6", true),
        ("$.items[*].weight != 6", true),
    ]);
}

#[test]
fn numbers_and_texts_have_an_order_and_nothing_else() {
    check_all(&[
        ("$.amount < 1000", false),
        ("$.amount <= 1000", true),
        ("$.amount > 999.99", true),
        ("$.amount >= 1000.01", false),
        ("$.rate < 1", true),
        ("$.rate >= -1", true),
        ("$.type < 'invoice.q'", true),
        ("$.type <= 'invoice.paid'", true),
        ("$.type > 'invoice.paid'", false),
        ("$.type >= 'Z'", true),
        ("$.customer.name > 'z'", true),
        ("$.empty < 'a'", true),
        ("$.type > 5", false),
        ("$.type <= 5", false),
        ("$.amount < 'z'", false),
        ("$.paid >= 0", false),
        ("$.nothing >= 0", false),
        ("$.nothing < 1", false),
        ("$.tags > 'a'", false),
        ("$.missing < 5", false),
        ("$.missing >= 5", false),
    ]);
}

#[test]
fn texts_are_ordered_by_code_points() {
    // UTF-16 would put the second before the first.
    let event = json!({"a": "\u{ff5e}", "b": "\u{1f600}"});

    check("$.a < '\u{1f600}'", &event, true);
    check("$.b > '\\uff5e'", &event, true);
    check("$.b == '\\ud83d\\ude00'", &event, true);
}

#[test]
fn one_of_a_list() {
    check_all(&[
        ("$.type in ['invoice.paid', 'invoice.open']", true),
        ("$.type in ['invoice.open']", false),
        ("$.type in []", false),
        ("$.amount in [1, 1000.0]", true),
        ("$.amount in ['1000', [1000], true]", false),
        ("$.nothing in [null]", true),
        ("$.missing in [null]", false),
        ("$.tags[3] in [[1, 2]]", true),
        ("not $.type in ['x']", true),
    ]);
}

#[test]
fn texts_contain_texts_and_lists_contain_elements() {
    check_all(&[
        ("$.type contains 'voice.'", true),
        ("$.type contains ''", true),
        ("$.type contains 'Voice'", false),
        ("$.tags contains 'vip'", true),
        ("$.tags contains 'vi'", false),
        ("$.tags contains 7", true),
        ("$.tags contains null", true),
        ("$.tags contains [1, 2]", true),
        ("$.tags contains [1]", false),
        ("$.amount contains 1", false),
        ("$.customer contains 'name'", false),
        ("$.missing contains ''", false),
    ]);
}

#[test]
fn beginnings_and_ends_of_texts() {
    check_all(&[
        ("$.type starts_with 'invoice.'", true),
        ("$.type starts_with ''", true),
        ("$.type starts_with 'voice'", false),
        ("$.type ends_with '.paid'", true),
        ("$.type ends_with 'invoice'", false),
        ("$.amount starts_with '1'", false),
        ("$.tags starts_with 'vip'", false),
        ("$.missing ends_with ''", false),
    ]);
}

#[test]
fn regular_expressions_are_found_anywhere_unless_anchored() {
    check_all(&[
        ("$.type matches 'voice'", true),
        ("$.type matches '^voice'", false),
        ("$.type matches '^invoice\\\\.(paid|open)$'", true),
        ("$.type matches 'PAID'", false),
        ("$.type matches '(?i)PAID'", true),
        ("$.customer.name matches '^\\\\w+$'", true),
        ("$.customer['e-mail'] matches '@example\\\\.com$'", true),
        ("$.amount matches '1000'", false),
        ("$.tags matches 'vip'", false),
        ("$.tags[*] matches '^v'", true),
        ("$.missing matches ''", false),
    ]);
}

#[test]
fn a_place_exists_whatever_is_there() {
    check_all(&[
        ("$ exists", true),
        ("$.nothing exists", true),
        ("$.failed exists", true),
        ("$.tags[4] exists", true),
        ("$.tags[-5] exists", true),
        ("$.tags[5] exists", false),
        ("$.tags[-6] exists", false),
        ("$.customer[0] exists", false),
        ("$.tags.vip exists", false),
        ("$.missing exists", false),
        ("$.missing.more exists", false),
        ("$..price exists", true),
        ("not $..weight exists", true),
    ]);
}

#[test]
fn of_several_values_one_is_enough() {
    check_all(&[
        ("$.items[*].price > 10", true),
        ("$.items[*].price > 50", false),
        ("$.items[*].price < 10", true),
        ("$.items[0:2].name == 'ink'", true),
        ("$..name contains 'gif'", true),
        ("$.items[?@.price > 10].name == 'ink'", true),
        ("$.items[?@.price > 10].name == 'pen'", false),
        ("$.items[?length(@.name) == 4] exists", true),
        ("$.items[*].price in [50]", true),
        ("$['type', 'amount'] == 1000", true),
    ]);
}

#[test]
fn numbers_compare_exactly() {
    let event = json!({
        "max": u64::MAX, "min": i64::MIN, "odd": 9_007_199_254_740_993_u64, "even": 9_007_199_254_740_992.0,
        "huge": 1e300, "tiny": 5e-324, "zero": -0.0, "half": -0.5, "beyond": 18_446_744_073_709_551_616.0,
    });
    for (text, expected) in [
        ("$.max == 18446744073709551615", true),
        ("$.max == 18446744073709551614", false),
        ("$.max == 18446744073709551615.0", false),
        ("$.max < 18446744073709551616", true),
        ("$.beyond > 18446744073709551615", true),
        ("$.beyond == 18446744073709551616", true),
        ("$.min == -9223372036854775808", true),
        ("$.min == -9223372036854775808.0", true),
        ("$.min < -9223372036854775807", true),
        ("$.min > -9223372036854775809", false),
        ("$.min > -1e300", true),
        ("$.odd == 9007199254740993", true),
        ("$.odd == 9007199254740992", false),
        ("$.odd == 9007199254740992.0", false),
        ("$.odd > 9007199254740992.0", true),
        ("$.even < 9007199254740993", true),
        ("$.even == 9007199254740992", true),
        ("$.huge > 18446744073709551615", true),
        ("$.huge == 1e300", true),
        ("$.tiny > 0", true),
        ("$.zero == 0", true),
        ("$.zero < 0", false),
        ("$.zero == -0", true),
        ("$.half < 0", true),
        ("$.half > -1", true),
        ("$.half == 0", false),
    ] {
        check(text, &event, expected);
    }
}

#[test]
fn an_explanation_judges_every_term() {
    let event = event();
    let filter = filter("$.paid == false and $.items[*].price > 10 or not $.missing exists");

    let explanation = filter.explain(&event).unwrap();

    assert!(explanation.is_match);
    let seen: Vec<_> =
        explanation.findings.iter().map(|finding| (finding.column(), finding.term(), finding.holds)).collect();
    assert_eq!(
        seen,
        [
            (1, "$.paid == false".to_owned(), false),
            (21, "$.items[*].price > 10".to_owned(), true),
            (50, "$.missing exists".to_owned(), false),
        ]
    );
    assert_eq!(explanation.findings[1].nodes, [&json!(5), &json!(50)]);
    assert!(explanation.findings[2].nodes.is_empty());
}
