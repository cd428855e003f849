//! Rules between the crates: dependencies go down only, and each outside thing is known in one place.

use std::fs;

use crate::tree::{File, check, files, root};

/// From the bottom to the top. A crate may use any crate before it.
const LAYERS: [&str; 5] = ["outlast-core", "outlast-store", "outlast-engine", "outlast-api", "outlast"];

/// Where tasks are started: the loops, the binary, the accept loop, the stores' own threads.
const SPAWNERS: [&str; 4] = [
    "crates/outlast-engine/src/",
    "crates/outlast/src/",
    "crates/outlast-api/src/listen.rs",
    "crates/outlast-store/src/",
];

const SQL: [&str; 7] =
    ["SELECT ", "INSERT INTO ", "INSERT OR ", "DELETE FROM ", "CREATE TABLE ", "ALTER TABLE ", "PRAGMA "];

fn shipped(file: &File) -> bool {
    file.is_rust() && file.under("crates/")
}

#[test]
fn dependencies_go_down_only() {
    let mut sideways = Vec::new();
    for (height, name) in LAYERS.iter().enumerate() {
        let manifest =
            fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).expect("a crate has a manifest");
        for used in manifest.lines().filter_map(dependency_of_ours) {
            let place = LAYERS.iter().position(|layer| *layer == used);
            if place.is_none_or(|place| place >= height) {
                sideways.push(format!("{name} uses {used}"));
            }
        }
    }
    check("a crate uses only crates below it", sideways);
}

#[test]
fn there_are_no_other_crates() {
    let directories = fs::read_dir(root().join("crates")).expect("the crates are there");
    let names =
        directories.map(|entry| entry.expect("a directory can be read").file_name().to_string_lossy().into_owned());
    let unknown = names.filter(|name| !LAYERS.contains(&name.as_str()));
    check("a crate has its place among the layers", unknown.collect());
}

/// The name at the beginning of a line like `outlast-core.workspace = true`.
fn dependency_of_ours(line: &str) -> Option<&str> {
    let name = line.split(['.', ' ', '=']).next()?;
    (name.starts_with("outlast") && line.contains("workspace")).then_some(name)
}

#[test]
fn the_api_asks_the_engine_and_never_the_store() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| file.under("crates/outlast-api/") && file.is_rust()) {
        broken.extend(file.lines_with(&[".store()"]));
    }
    check("handlers call the engine, not its store", broken);
}

#[test]
fn only_the_api_knows_axum() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| file.under("crates/") && !file.under("crates/outlast-api/")) {
        if file.is_rust() {
            broken.extend(file.lines_with(&["axum::", "use axum"]));
        }
        if file.path.ends_with("Cargo.toml") {
            broken.extend(file.lines_with(&["axum"]));
        }
    }
    check("axum is known to outlast-api only", broken);
}

#[test]
fn only_the_store_knows_sql() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| file.under("crates/") && !file.under("crates/outlast-store/")) {
        if file.is_rust() {
            broken.extend(file.lines_with(&SQL));
        }
        if file.path.ends_with("Cargo.toml") {
            broken.extend(file.lines_with(&["rusqlite"]));
        }
    }
    check("only outlast-store contains SQL", broken);
}

#[test]
fn tasks_are_started_where_somebody_waits_for_them() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| shipped(file) && !SPAWNERS.iter().any(|place| file.under(place))) {
        let before_tests = file.text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        let shipped = File { path: file.path.clone(), text: before_tests };
        broken.extend(shipped.lines_with(&["tokio::spawn(", "task::spawn(", "JoinSet"]));
    }
    check("tasks are started in the engine, the binary, the accept loop and the stores only", broken);
}

#[test]
fn the_core_neither_waits_nor_reads() {
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| shipped(file) && file.under("crates/outlast-core/src/")) {
        broken.extend(file.lines_with(&[
            "async fn",
            ".await",
            "std::fs",
            "std::net",
            "std::env",
            "SystemTime",
            "Instant::now",
        ]));
    }
    check("the core knows no async, no IO, no clock", broken);
}
