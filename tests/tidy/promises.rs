//! PROMISES.md against the tree: the figures of the suites, and the names of the tests.

use std::collections::BTreeSet;

use crate::tree::{File, check, files};

const PAGE: &str = "docs/reference/PROMISES.md";

/// A figure on the page, and the number in the code that it repeats.
struct Figure {
    /// The words on the page; `{}` is the figure.
    words: &'static str,
    path: &'static str,
    /// The code in front of the number.
    before: &'static str,
}

const fn figure(words: &'static str, path: &'static str, before: &'static str) -> Figure {
    Figure { words, path, before }
}

const FIGURES: [Figure; 20] = [
    figure("{} random walks", "crates/outlast-core/src/decide/tests/random.rs", "proptest_config(config("),
    figure(
        "walks of up to {} steps",
        "crates/outlast-core/src/decide/tests/random.rs",
        "steps in vec((pause(), act()), 1..",
    ),
    figure("{} random sequences on SQLite", "tests/contract/backend.rs", "Self: Sized,\n    {\n        "),
    figure("on SQLite and {} on PostgreSQL", "tests/contract/backend.rs", "fn sequences() -> usize {\n        "),
    figure("{} mutants of the rules", "tests/contract/diff/mutants.rs", "const ALL: [Mutant; "),
    figure("{} seeds, checked after every step", "tests/sim/main.rs", "const SEEDS: usize = "),
    figure("every step; {} planted bugs", "tests/sim/planted.rs", "\nconst BUGS: [Plant; "),
    figure("{} seeds of queues that deliver", "tests/sim/push.rs", "const SEEDS: usize = "),
    figure("that deliver, {} planted bugs", "tests/sim/planted.rs", "const PUSH_BUGS: [Plant; "),
    figure("{} kills of everything at once", "tests/e2e/kill.rs", "const CYCLES_PER_BLOCK: usize = "),
    figure("{} kills of one of three nodes", "tests/e2e/cluster/kill.rs", "const KILLS_PER_BLOCK: usize = "),
    figure("{} kills of the server", "tests/e2e/embedded/push_kill.rs", "const CYCLES_PER_BLOCK: usize = "),
    figure("{} cuts with and", "tests/e2e/embedded/power.rs", "const CUTS_PER_BLOCK: usize = "),
    figure("{} injuries of database", "tests/damage/main.rs", "const INJURIES: usize = "),
    figure("{} readers of streams", "tests/e2e/streams/resume.rs", "const READERS: usize = "),
    figure("of sockets, each cut at least {} times", "tests/e2e/streams/resume.rs", "const CUTS_MIN: usize = "),
    figure("{} ends of all connections", "tests/e2e/cluster/database.rs", "const TERMINATIONS: usize = "),
    figure("three nodes on {} connections", "tests/e2e/cluster/pooler.rs", "const POOL: usize = "),
    figure("of {} sections", "tests/e2e/work/resume.rs", "const SECTIONS: usize = "),
    figure("over three nodes, limit {}", "tests/e2e/cluster/agreement.rs", "const CONCURRENCY: usize = "),
];

#[test]
fn the_figures_of_the_promises_are_those_of_the_code() {
    let files = files();
    let page = text(&files, PAGE);
    let mut wrong = Vec::new();
    for Figure { words, path, before } in &FIGURES {
        let Some(number) = number_after(text(&files, path), before) else {
            wrong.push(format!("{path}: no number after {before:?}"));
            continue;
        };
        let said = words.replace("{}", &with_commas(number));
        if !page.contains(&said) {
            wrong.push(format!("{path} has {number}; the page does not say \"{said}\""));
        }
    }
    check("PROMISES.md repeats the constants of the suites", wrong);
}

#[test]
fn every_test_that_the_promises_name_exists() {
    let files = files();
    let functions = functions(&files);
    let named = names(text(&files, PAGE));
    assert!(named.len() > 100, "the page names {} tests", named.len());
    let gone = named.into_iter().filter(|name| !functions.contains(name));
    check("PROMISES.md names existing tests", gone.collect());
}

#[test]
fn numbers_and_names_are_found() {
    assert_eq!(number_after("const A: usize = 12_500;", "A: usize = "), Some(12_500));
    assert_eq!(number_after("const A: usize = B;", "A: usize = "), None);
    assert_eq!(with_commas(12_500), "12,500");
    assert_eq!(with_commas(1_000_000), "1,000,000");
    assert_eq!(names("`a_b_c_d`, `short_one`, `some_test_with_…`, `tests/e2e/a_b_c_d.rs`"), ["a_b_c_d"]);
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} exists")).text.as_str()
}

fn number_after(code: &str, before: &str) -> Option<u64> {
    let (_, rest) = code.split_once(before)?;
    let digits: String = rest.chars().take_while(|sign| sign.is_ascii_digit() || *sign == '_').collect();
    digits.replace('_', "").parse().ok()
}

fn with_commas(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", with_commas(number / 1000), number % 1000) }
}

/// Names in backticks that are long enough to be those of tests; a shortened one (`…`) is left out.
fn names(page: &str) -> Vec<String> {
    let is_name = |text: &&str| {
        text.matches('_').count() >= 3
            && text.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_')
    };
    let codes = page.split('`').skip(1).step_by(2);
    codes.filter(is_name).map(str::to_owned).filter(|name| !name.starts_with("outlast_")).collect()
}

fn functions(files: &[File]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (at, _) in file.text.match_indices("fn ") {
            let rest = &file.text[at + 3..];
            names.insert(rest.chars().take_while(|sign| sign.is_alphanumeric() || *sign == '_').collect());
        }
    }
    names
}
