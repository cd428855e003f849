//! The rules of prose: no private idiom, and no sentence with Who, Whoever or What as its subject. Documents, comments,
//! texts of the program and names of functions are read; CONTRIBUTING.md says how to write instead.

mod blocks;

use crate::tree::{File, check, files};
use blocks::{Block, blocks, function_names};

/// Words with a plainer one, which names the actor or the fact: "the worker learns", "an outage", "ends", "duplicate".
const IDIOM: [&str; 21] = [
    "told",
    "heard",
    "hears",
    "unheard",
    "nobody",
    "whoever",
    "stands",
    "stood still",
    "is over",
    "was over",
    "came before",
    "by itself",
    "by themselves",
    "by himself",
    "looks after",
    "look after",
    "looked after",
    "in vain",
    "anew",
    "the telling",
    "not patient",
];
const SUBJECTS: [&str; 3] = ["Who", "Whoever", "What"];

/// Uses in the literal sense, and texts that quote the rule: file, words around it, reason.
const ALLOWED: [(&str, &str, &str); 2] = [
    ("tests/tidy/prose", "", "the rule itself and its examples"),
    ("CONTRIBUTING.md", "No sentence begins with Who, Whoever or What", "the rule itself"),
];

/// Directories that break the rule today. An entry goes when its directory is clean; this list may only shrink.
const PENDING: [&str; 5] =
    ["README.md", "benches/src/", "crates/outlast-core/", "crates/outlast-engine/", "crates/outlast-store/"];

#[test]
fn prose_is_plain() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| !is_pending(file)) {
        broken.extend(findings(file));
    }
    check("prose names the actor and uses the plain word (CONTRIBUTING.md, Style)", broken);
}

#[test]
fn every_pending_directory_still_has_findings() {
    let files = files();
    let clean = PENDING.iter().filter(|directory| {
        let mut inside = files.iter().filter(|file| file.under(directory));
        inside.all(|file| findings(file).is_empty())
    });
    check("remove clean directories from PENDING", clean.map(|directory| (*directory).to_owned()).collect());
}

#[test]
fn every_allowed_use_still_exists() {
    let files = files();
    let unused = ALLOWED.iter().filter(|(path, words, _)| {
        let mut inside = files.iter().filter(|file| file.under(path));
        !inside.any(|file| file.text.contains(words))
    });
    check("remove unused entries from ALLOWED", unused.map(|(path, words, _)| format!("{path}: {words}")).collect());
}

#[test]
fn the_rule_finds_what_it_forbids() {
    let bad = [
        ("page.md", "The sender is told of it."),
        ("page.md", "## What is kept"),
        ("page.md", "It ends.\nWhoever asks gets 404."),
        ("page.md", "| a | Who asks first waits |"),
        ("page.yaml", "key: 1 # stands for the key"),
        ("code.rs", "/// It happens\n/// by itself.\nfn run() {}"),
        ("code.rs", "fn run() { warn!(\"nobody could be reached\"); }"),
        ("code.rs", "fn a_sender_is_told_the_truth() {}"),
        ("code.rs", "fn what_is_stored_stays() {}"),
        ("code.sql", "-- What is stored stays.\nSELECT 1;"),
    ];
    for (path, text) in bad {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        assert!(!findings(&file).is_empty(), "{path}: {text}");
    }
}

#[test]
fn the_rule_leaves_plain_text_alone() {
    let good = [
        ("page.md", "What is a job? `nobody` is a user. It says what is kept.\n\n```\nnobody stands\n```\n"),
        ("code.rs", "fn run() { let nobody = '\"'; call(\"told\"); } // It says what it does."),
        ("data.json", "nobody was told"),
    ];
    for (path, text) in good {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        assert_eq!(findings(&file), Vec::<String>::new(), "{path}");
    }
}

fn is_pending(file: &File) -> bool {
    PENDING.iter().any(|directory| file.under(directory))
}

fn findings(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for block in blocks(file) {
        found.extend(idiom(&file.path, &block));
        found.extend(subjects(&file.path, &block));
    }
    for name in function_names(file) {
        let begins = name.text.starts_with("what ") || name.text.starts_with("who ");
        found.extend(idiom(&file.path, &name));
        found.extend(begins.then(|| report(&file.path, &name, 0, "begins with a pronoun as its subject")).flatten());
    }
    found
}

fn idiom(path: &str, block: &Block) -> Vec<String> {
    let lower = block.text.to_ascii_lowercase();
    let at = |phrase: &&str| whole_words(&lower, phrase).map(|at| (at, format!("\"{phrase}\""))).collect::<Vec<_>>();
    IDIOM.iter().flat_map(at).filter_map(|(at, why)| report(path, block, at, &why)).collect()
}

fn subjects(path: &str, block: &Block) -> Vec<String> {
    let mut found = Vec::new();
    let mut start = 0;
    for (end, mark) in block.text.match_indices(['.', '!', '?', ':', ';']).chain([(block.text.len(), "")]) {
        if block.text[end..]
            .chars()
            .nth(1)
            .is_some_and(|next| !next.is_whitespace() && !matches!(next, '*' | '"' | ')'))
        {
            continue;
        }
        let sentence = block.text[start..end].trim_start_matches(|sign: char| !sign.is_alphanumeric() && sign != '`');
        let first = sentence.split(|sign: char| !sign.is_alphanumeric()).next().unwrap_or_default();
        if SUBJECTS.contains(&first) && mark != "?" {
            found.extend(report(path, block, start, &format!("a sentence begins with {first}")));
        }
        start = end + mark.len();
    }
    found
}

fn report(path: &str, block: &Block, at: usize, why: &str) -> Option<String> {
    let allowed = |(file, words, _): &(&str, &str, &str)| path.starts_with(file) && block.text.contains(words);
    if ALLOWED.iter().any(allowed) {
        return None;
    }
    let rest: String = block.text[at..].chars().take(80).collect();
    Some(format!("{path}:{}: {why}: {}", block.line_of(at), rest.trim()))
}

/// Where a phrase begins and ends with a word.
fn whole_words<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |sign: Option<char>| sign.is_some_and(|sign| sign.is_alphanumeric() || sign == '_');
    text.match_indices(phrase).map(|(at, _)| at).filter(move |at| {
        !is_word(text[..*at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next())
    })
}
