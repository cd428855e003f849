//! Every error code is documented, with its status, and no other is.

use std::collections::BTreeMap;
use std::fs;

use crate::tree::root;

const CODE: &str = "crates/outlast-api/src/error.rs";
const PAGE: &str = "docs/reference/ERRORS.md";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// In the code: `("queue_not_found", 404, …)`.
fn codes_in_code(text: &str) -> BTreeMap<String, String> {
    let facts = text.split("(\"").skip(1).filter_map(|rest| {
        let (code, rest) = rest.split_once("\", ")?;
        let status = rest.get(..3)?;
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let is_status = status.bytes().all(|byte| byte.is_ascii_digit()) && rest.as_bytes().get(3) == Some(&b',');
        (is_code && is_status).then(|| (code.to_owned(), status.to_owned()))
    });
    facts.collect()
}

/// On the page: the rows of its tables, "| `queue_not_found` | 404 | …".
fn codes_on_page(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let code = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((code.to_owned(), cells.next()?.to_owned()))
    });
    rows.collect()
}

#[test]
fn every_error_code_is_documented_and_no_other_is() {
    let in_code = codes_in_code(&read(CODE));
    assert!(in_code.len() > 10, "{CODE} does not list its codes as this test expects: {in_code:?}");

    let on_page = codes_on_page(&read(PAGE));

    assert_eq!(on_page, in_code, "{PAGE} (left) and {CODE} (right) list different codes");
}

#[test]
fn codes_are_found_in_code_and_on_pages() {
    let code = "Code::A => (\"queue_not_found\", 404, \"No such queue\"),\n call(\"x\", 1)";
    let page = "| code | status |\n|---|---|\n| `queue_not_found` | 404 | make it first |\n`other`";

    assert_eq!(codes_in_code(code), codes_on_page(page));
    assert_eq!(codes_on_page(page).len(), 1);
}
