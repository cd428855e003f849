//! Every error says where, and what is allowed there.

use crate::filter::{Filter, Path};

#[test]
fn errors_name_the_column_and_what_is_allowed() {
    const OPERATOR: &str = "expected an operator such as ==, >= or contains, found";
    const ALONE: &str = "; a path alone says nothing, write \"exists\" or \"== true\" behind it";
    const START: &str = "expected a path such as $.type, not or (, found";
    const VALUE: &str = "expected a value such as 1000, \"paid\", true, null or [1, 2], found";
    let owned = |column: usize, parts: &[&str]| format!("column {column}: {}", parts.concat());
    for (text, expected) in [
        ("", owned(1, &[START, " the end"])),
        ("   ", owned(4, &[START, " the end"])),
        ("$.a.b.c.d.e.f => 1", owned(15, &[OPERATOR, " \"=>\"; did you mean \">=\"?"])),
        ("$.a = 1", owned(5, &[OPERATOR, " \"=\"; did you mean \"==\"?"])),
        ("$.ä <> 1", owned(5, &[OPERATOR, " \"<>\"; did you mean \"!=\"?"])),
        ("$.a IN [1]", owned(5, &[OPERATOR, " \"IN\"; did you mean \"in\"?"])),
        ("$.a startsWith 'x'", owned(5, &[OPERATOR, " \"startsWith\"; did you mean \"starts_with\"?"])),
        ("$.a", owned(4, &[OPERATOR, " the end", ALONE])),
        ("($.a)", owned(5, &[OPERATOR, " \")\"", ALONE])),
        ("$.a and $.b exists", owned(5, &[OPERATOR, " \"and\"", ALONE])),
        ("$.a 5", owned(5, &[OPERATOR, " \"5\""])),
        ("$.a not in [1]", owned(5, &[OPERATOR, " \"not\"; not stands before the path, as in not $.type in [\"a\"]"])),
        ("$.a == 1 && $.b == 2", owned(10, &["expected and, or or the end, found \"&&\"; did you mean \"and\"?"])),
        ("$.a == 1 AND $.b == 2", owned(10, &["expected and, or or the end, found \"AND\"; did you mean \"and\"?"])),
        ("$.a == 1 $.b == 2", owned(10, &["expected and, or or the end, found \"$.b\""])),
        ("$.a == 1)", owned(9, &["this ) closes nothing"])),
        ("($.a == 1", owned(1, &["this ( is never closed"])),
        ("($.a == 1 $.b", owned(11, &["expected and, or or ), found \"$.b\""])),
        ("!$.a exists", owned(1, &[START, " \"!\"; did you mean \"not\"?"])),
        ("1000 <= $.a", owned(1, &["a comparison begins with its path, as in $.amount >= 1000"])),
        ("$.a == 1 and", owned(13, &[START, " the end"])),
        ("data.a == 1", owned(1, &[START, " \"data\"; a path begins with $"])),
        ("@.a == 1", owned(1, &["a path begins with $, as in $.data.id"])),
        ("$.a ==", owned(7, &[VALUE, " the end"])),
        ("$.a == and", owned(8, &["\"and\" is not a value; a text stands in quotes"])),
        ("$.a == paid", owned(8, &["\"paid\" is not a value; a text stands in quotes"])),
        (
            "$.a == $.b",
            owned(8, &["the right side is a value such as 1000, \"paid\" or [1, 2]; two paths cannot be compared"]),
        ),
        ("$.a == {}", owned(8, &["an object cannot be compared; compare its members one by one"])),
        ("$.a < true", owned(7, &["behind < stands a number or a text; nothing else has an order"])),
        ("$.a >= [1]", owned(8, &["behind >= stands a number or a text; nothing else has an order"])),
        ("$.a in 5", owned(8, &["behind in stands a list, as in [\"paid\", \"open\"]"])),
        ("$.a starts_with 5", owned(17, &["behind starts_with stands a text in quotes"])),
        ("$.a in [1", owned(8, &["this [ is never closed"])),
        ("$.a in [1 2]", owned(11, &["expected , or ], found \"2\""])),
        ("$.a in [1,]", owned(11, &["expected a value after the comma, found \"]\""])),
        ("$.a == 'x", owned(8, &["this text has no closing quote"])),
        ("$.a == 'x\\", owned(10, &["this text has no closing quote"])),
        ("$.a matches '\\d'", owned(14, &["\\d means nothing in a text; a backslash is written \\\\"])),
        ("$.a == '\\u12'", owned(9, &["\\u is followed by the four digits of a character, as in \\u00e9"])),
        ("$.a == '\\ud800'", owned(9, &["\\u is followed by the four digits of a character, as in \\u00e9"])),
        ("$.a matches '(x'", owned(13, &["not a regular expression: unclosed group"])),
        ("$.a == 1e999", owned(8, &["the number \"1e999\" is too large"])),
        ("$.a == 01", owned(8, &["\"01\" is not a number as JSON has them, such as 1000, -0.5 or 1e6"])),
        ("$.a == .5", owned(8, &["\".5\" is not a number as JSON has them, such as 1000, -0.5 or 1e6"])),
        ("$.a == +1", owned(8, &["\"+1\" is not a number as JSON has them, such as 1000, -0.5 or 1e6"])),
        ("$.a == 1_000", owned(8, &["\"1_000\" is not a number as JSON has them, such as 1000, -0.5 or 1e6"])),
        ("$.a == -", owned(8, &["\"-\" is not a number as JSON has them, such as 1000, -0.5 or 1e6"])),
        ("$.a == 1; x", owned(9, &["';' has no meaning here"])),
    ] {
        let error = Filter::parse(text).expect_err(text);

        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn errors_in_paths_name_the_column_in_the_filter() {
    for (text, column) in [
        ("$.a-b == 1", 4),
        ("$.a exists and $.e-mail == 1", 19),
        ("$. == 1", 3),
        ("$.a.0 == 1", 5),
        ("$.a[ == 1", 4),
        ("$.a['b == 1", 5),
        ("$.a['b'] exists or $[(] == 1", 23),
        ("$[?@.a == 1e999] exists", 8),
        ("$[?match(@.a, 'x')] exists", 4),
        ("$[?unknown(@.a)] exists", 4),
        ("$[01] exists", 4),
        ("$.ä[01] exists", 6),
        ("$[9007199254740992] exists", 2),
        ("$[?@.a] [?@[?@[?@[?@.b]]]] exists", 19),
    ] {
        let error = Filter::parse(text).expect_err(text);

        assert_eq!(error.column, column, "{text}: {error}");
    }
}

#[test]
fn a_path_alone_is_checked_the_same() {
    for text in ["", "a", "$.a b", "$.a-b", "$.a == 1", "@.a", "$.", "$[", "$.."] {
        assert!(Path::parse(text).is_err(), "{text}");
    }
    for text in ["$", " $.a.b[0] ", "$..a", "$['a b']", "$ .a"] {
        assert_eq!(Path::parse(text).unwrap().to_string(), text.trim());
    }
}
