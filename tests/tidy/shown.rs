//! Programs that a page shows are the ones that the tests run, to the letter.

use crate::tree::{File, check, files};

const PAGE: &str = "docs/how-to/receive-webhooks.md";
const DIRECTORY: &str = "examples/receive-webhooks/";
/// In the order and under the language in which the page shows them.
const SHOWN: [(&str, &str); 6] = [
    ("yaml", "outlast.yaml"),
    ("json", "event.json"),
    ("python", "consumer.py"),
    ("ts", "consumer.mts"),
    ("go", "consumer.go"),
    ("ruby", "consumer.rb"),
];

#[test]
fn a_page_shows_the_programs_as_they_are() {
    let files = files();
    let mut differing = Vec::new();
    let text = &find(&files, PAGE).text;
    for (language, name) in SHOWN {
        let program = find(&files, &format!("{DIRECTORY}{name}"));
        if !text.contains(&format!("```{language}\n{}```\n", program.text)) {
            differing.push(format!("{PAGE} does not show {} as it is", program.path));
        }
    }
    check("a page shows the programs of examples/ to the letter", differing);
}

fn find<'a>(files: &'a [File], path: &str) -> &'a File {
    files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no {path}"))
}
