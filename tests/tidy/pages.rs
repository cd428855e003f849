//! Pages that state facts of the tree: the modules in ARCHITECTURE.md.

use crate::tree::{File, check, files};

const PAGE: &str = "ARCHITECTURE.md";
/// Directories whose modules the page lists.
const LISTED: [&str; 18] = [
    "crates/outlast-core/src",
    "crates/outlast-store/src",
    "crates/outlast-store/src/sqlite",
    "crates/outlast-store/src/postgres",
    "crates/outlast-store/src/blobs",
    "crates/outlast-store/src/codec",
    "crates/outlast-store/src/peer_bus",
    "crates/outlast-engine/src",
    "crates/outlast-engine/src/jobs",
    "crates/outlast-engine/src/queues",
    "crates/outlast-engine/src/objects",
    "crates/outlast-engine/src/feeds",
    "crates/outlast-engine/src/keys",
    "crates/outlast-engine/src/egress",
    "crates/outlast-engine/src/push",
    "crates/outlast-engine/src/inbound",
    "crates/outlast-api/src",
    "crates/outlast/src",
];

#[test]
fn architecture_lists_every_module_in_declared_order() {
    let files = files();
    let page = text(&files, PAGE).expect("the page exists");
    let mut wrong = Vec::new();
    for directory in LISTED {
        let (listed, declared) = (listed(page, directory), declared(&files, directory));
        let absent = |names: &[String], other: &[String]| -> Vec<String> {
            names.iter().filter(|name| !other.contains(name)).cloned().collect()
        };
        if listed != declared {
            wrong.push(format!(
                "{directory}: not listed: {:?}; listed and gone: {:?}; the order is that of the `mod` lines",
                absent(&declared, &listed),
                absent(&listed, &declared)
            ));
        }
    }
    check("ARCHITECTURE.md, Modules, lists the modules of each directory", wrong);
}

fn text<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

/// The first column of the table below the directory's heading.
fn listed(page: &str, directory: &str) -> Vec<String> {
    let heading = format!("### `{directory}`");
    let below = page.lines().skip_while(|line| *line != heading).skip(1);
    let rows = below.take_while(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

/// The `mod` lines of the file that declares the directory's modules.
fn declared(files: &[File], directory: &str) -> Vec<String> {
    let candidates = [format!("{directory}/lib.rs"), format!("{directory}/main.rs"), format!("{directory}.rs")];
    let source = candidates.iter().find_map(|path| text(files, path)).expect("a listed directory has a parent module");
    let names = source.lines().filter_map(|line| {
        let (before, name) = line.strip_suffix(';')?.split_once("mod ")?;
        (before.is_empty() || before.starts_with("pub")).then(|| name.to_owned())
    });
    names.filter(|name| name != "tests").collect()
}
