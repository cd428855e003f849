//! Rules of single files: length, header, names, words that must not stay, places that must not be named.

use crate::tree::{check, files};

const LINES_MAX: usize = 600;

/// Names that say what a file is made of instead of what it does.
const EMPTY_NAMES: [&str; 6] = ["types.rs", "utils.rs", "util.rs", "helpers.rs", "common.rs", "mod.rs"];

// Split, so that this file does not break its own rules.
const LEFTOVERS: [&str; 5] = [
    concat!("FIX", "ME"),
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "ignore"),
];
const UNNUMBERED: &str = concat!("TO", "DO");
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
const SHARED: &str = concat!("../sh", "ared");
const TEMPORARY: &str = concat!("/t", "mp/");
const REGISTRIES: [&str; 7] = [
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("py", "pi.org"),
    concat!("files.python", "hosted.org"),
    concat!("replace", "-with"),
    concat!("index", "-url"),
];

#[test]
fn no_file_is_too_long() {
    let too_long = files().into_iter().filter(|file| file.is_rust()).filter_map(|file| {
        let lines = file.text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines without its tests", file.path))
    });
    check("a file has at most 600 lines without its tests", too_long.collect());
}

#[test]
fn every_rust_file_begins_by_saying_what_it_does() {
    let mute = files().into_iter().filter(|file| file.is_rust()).filter_map(|file| {
        let first = file.text.lines().find(|line| !line.starts_with("// SPDX"));
        (!first.is_some_and(|line| line.starts_with("//! "))).then_some(file.path)
    });
    check("a Rust file begins with a `//!` comment", mute.collect());
}

#[test]
fn no_file_is_named_after_what_it_is_made_of() {
    let empty = files().into_iter().filter(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        EMPTY_NAMES.contains(&name)
    });
    check("a file is named after what it does", empty.map(|file| file.path).collect());
}

#[test]
fn nothing_is_left_for_later_without_a_number() {
    let is_source =
        |path: &str| [".rs", ".sql", ".sh", ".py", ".mjs", ".toml", ".yaml"].iter().any(|end| path.ends_with(end));
    let mut left = Vec::new();
    for file in files().iter().filter(|file| is_source(&file.path)) {
        left.extend(file.lines_with(&LEFTOVERS));
        left.extend(file.lines_with(&[UNNUMBERED]).into_iter().filter(|line| !line.contains(concat!("TO", "DO(#"))));
    }
    check("nothing unfinished stays without the number of its issue", left);
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    let mut named = Vec::new();
    for file in files().iter().filter(|file| file.path != "Cargo.lock") {
        named.extend(file.lines_with(&MACHINE_PATHS).into_iter().filter(|line| begins_a_path(line)));
        named.extend(file.lines_with(&REGISTRIES));
        named.extend(file.lines_with(&[SHARED]));
    }
    check("no file names a path of a machine, a host of a registry or a file outside the repository", named);
}

/// Does a path begin there, or does another one only have such a directory in it?
fn begins_a_path(line: &str) -> bool {
    let starts = MACHINE_PATHS.iter().flat_map(|needle| line.match_indices(needle).map(|(at, _)| at));
    let in_a_path = |before: char| before.is_alphanumeric() || matches!(before, '_' | '-' | '.' | '}' | '~');
    starts.into_iter().any(|at| !line[..at].ends_with(in_a_path))
}

#[test]
fn a_path_of_a_machine_is_distinguished_from_a_directory_in_another_path() {
    let place = MACHINE_PATHS[0];

    assert!(begins_a_path(&format!("see {place}x")) && begins_a_path(&format!("`{place}x`")));
    assert!(!begins_a_path(&format!("/v1/queues{place}jobs")));
}

#[test]
fn no_document_and_no_shipped_file_points_into_the_temporary_directory() {
    let mut named = Vec::new();
    for file in files()
        .iter()
        .filter(|file| file.path.ends_with(".md") || (file.under("crates/") && !file.path.contains("/tests")))
    {
        named.extend(file.lines_with(&[TEMPORARY]));
    }
    check("documents and shipped code do not name the temporary directory", named);
}
