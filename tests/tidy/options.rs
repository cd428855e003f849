//! The page of options names every option of config.default.yaml with its default, and no other.

use std::collections::BTreeMap;

use crate::tree::{File, check, files};

const FILE: &str = "config.default.yaml";
const PAGE: &str = "docs/reference/CONFIG.md";
/// Rows for sections that hold names of the user's own.
const SECTIONS_OF_NAMES: [&str; 2] = ["sources.NAME.…", "queues.NAME.…"];

#[test]
fn the_page_of_options_has_each_option_with_its_default() {
    let files = files();
    let options = options(&find(&files, FILE).text);
    let rows = rows(&find(&files, PAGE).text);
    assert!(options.len() > 50, "only {} options were found", options.len());
    let mut differing = Vec::new();
    for (name, default) in &options {
        match rows.get(name) {
            None => differing.push(format!("{PAGE} lacks {name}")),
            Some(shown) if !is_same(shown, default) => {
                differing.push(format!("{name}: {PAGE} says {shown}, {FILE} says {default}"));
            }
            Some(_) => {}
        }
    }
    let unknown = rows.keys().filter(|name| !options.contains_key(*name));
    differing.extend(unknown.map(|name| format!("{PAGE} has {name}, and {FILE} does not")));
    check("the page of options has each option with its default", differing);
}

#[test]
fn another_default_is_found() {
    assert!(is_same("`info`", "info") && is_same("unset: `<data>/objects`", "null") && is_same("none", "[]"));
    assert!(is_same("80, 443", "[80, 443]") && is_same("the system's", "[]"));
    assert!(
        !is_same("10s", "30s") && !is_same("none", "null") && !is_same("unset", "x") && !is_same("80", "[80, 443]")
    );
    assert_eq!(options("a: 1\n# b: 2\nc:\n  d: x\n  # e: f\ng: {}\n").into_keys().collect::<Vec<_>>(), ["a", "c.d"]);
}

/// `section.name` and its default, as written.
fn options(text: &str) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    let mut section = "";
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match (name.strip_prefix("  "), value) {
            (None, "") => section = name,
            (None, "{}") => {}
            (None, _) => drop(options.insert(name.to_owned(), value.to_owned())),
            (Some(name), _) => drop(options.insert(format!("{section}.{name}"), value.to_owned())),
        }
    }
    options
}

/// The first table of the page: option and default.
fn rows(text: &str) -> BTreeMap<String, String> {
    let table =
        text.lines().skip_while(|line| !line.starts_with("| option |")).take_while(|line| line.starts_with('|'));
    let cells = table.skip(2).map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let named = cells.map(|cells| (cells[1].trim_matches('`').to_owned(), cells[2].to_owned()));
    named.filter(|(name, _)| !SECTIONS_OF_NAMES.contains(&name.as_str())).collect()
}

fn is_same(shown: &str, default: &str) -> bool {
    match default {
        "null" => shown == "unset" || shown.starts_with("unset: "),
        "[]" => shown == "none" || shown == "the system's",
        _ => shown.trim_matches('`') == default.trim_start_matches('[').trim_end_matches(']'),
    }
}

fn find<'a>(files: &'a [File], path: &str) -> &'a File {
    files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no {path}"))
}
