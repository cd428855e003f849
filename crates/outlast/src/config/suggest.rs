//! Suggests the known name that a misspelt one most likely meant.

use super::problem::Problem;
use super::tree::{Key, join};

/// The complaint about a key below `path` that is none of the known ones.
pub(crate) fn unknown_key<'a>(path: &str, key: &Key, known: impl IntoIterator<Item = &'a str>) -> Problem {
    let problem = Problem::new(key.origin.clone(), format!("unknown key \"{}\"", join(path, &key.name)));
    match suggest(&key.name, known) {
        Some(near) => problem.with_hint(format!("did you mean \"{near}\"?")),
        None => problem,
    }
}

/// The known name that a typing mistake most likely meant: at most a third of its letters differ.
pub(crate) fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let away = distance(name, candidate);
        if away <= (candidate.len() / 3).max(1) && best.is_none_or(|(least, _)| away < least) {
            best = Some((away, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Levenshtein distance, row by row.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, left_char) in left.chars().enumerate() {
        let mut next = vec![at + 1];
        let mut last = at + 1;
        for ((right_char, diagonal), above) in right.iter().zip(&row).zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(left_char != *right_char);
            last = replaced.min(above + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
