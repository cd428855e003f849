//! Links between pages: every relative link of a Markdown file leads to a file of the repository, and one with `#…` to a
//! heading of that page.

use std::collections::BTreeSet;

use crate::tree::{File, check, files, root};

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let files = files();
    let pages: Vec<&File> = files.iter().filter(|file| file.path.ends_with(".md")).collect();
    let mut dead = Vec::new();
    let mut links = 0;
    for page in &pages {
        for (line, target) in links_of(&page.text) {
            links += 1;
            if let Err(reason) = resolve(&pages, page, &target) {
                dead.push(format!("{}:{line}: {target}: {reason}", page.path));
            }
        }
    }
    assert!(links > 100, "only {links} links were found");
    check("a link of a page leads to a file and a heading", dead);
}

#[test]
fn a_link_to_nothing_is_found() {
    let page = File { path: "docs/a.md".to_owned(), text: "# One `b` (c)\n[x](#one-b-c) [y](b.md#z)\n".to_owned() };
    let pages = [&page];

    assert_eq!(resolve(&pages, &page, "#one-b-c"), Ok(()));
    assert_eq!(resolve(&pages, &page, "a.md"), Err("there is no such file"), "it is not on disk");
    assert_eq!(resolve(&pages, &page, "#two"), Err("the page has no such heading"));
    assert_eq!(resolve(&pages, &page, "no-such-page.md"), Err("there is no such file"));
    assert_eq!(links_of(&page.text), [(2, "#one-b-c".to_owned()), (2, "b.md#z".to_owned())]);
    assert_eq!(links_of("```\n[x](y)\n```\n`[x](y)` [z](https://example.com)"), []);
}

/// The relative links outside code, with the number of their line.
fn links_of(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let outside_code: String = line.split('`').step_by(2).collect();
        for rest in outside_code.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

fn resolve(pages: &[&File], page: &File, target: &str) -> Result<(), &'static str> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { page.path.clone() } else { joined(&page.path, path) };
    if !target.starts_with('#') && !root().join(&path).exists() {
        return Err("there is no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let found = pages.iter().find(|file| file.path == path).ok_or("only a page has headings")?;
    if headings(&found.text).contains(anchor) { Ok(()) } else { Err("the page has no such heading") }
}

/// A path relative to the directory of `from`, from the root.
fn joined(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that GitHub makes of the headings.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = prose(text).into_iter().map(|(_, line)| line);
    let titles = lines.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let mut anchors = BTreeSet::new();
    for title in titles {
        let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        let anchor: String = kept.map(|char| if char == ' ' { '-' } else { char }).collect();
        anchors.insert(anchor.to_lowercase());
    }
    anchors
}

/// The numbered lines outside fenced code.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((number, line));
        }
    }
    lines
}
