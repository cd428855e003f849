//! Migrations have the same numbers and names in every engine, in order and without gaps.

use std::collections::BTreeMap;

use crate::tree::{check, files};

/// `crates/outlast-store/src/<engine>/migrations/<number>_<name>.sql`, by engine.
fn migrations() -> BTreeMap<String, Vec<String>> {
    let mut engines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files() {
        let Some(rest) = file.path.strip_prefix("crates/outlast-store/src/") else {
            continue;
        };
        if let Some((engine, name)) = rest.split_once("/migrations/") {
            engines.entry(engine.to_owned()).or_default().push(name.to_owned());
        }
    }
    engines
}

#[test]
fn every_engine_has_the_same_migrations() {
    let engines = migrations();
    let first = engines.values().next().expect("an engine has migrations");
    let different =
        engines.iter().filter(|(_, names)| *names != first).map(|(engine, names)| format!("{engine}: {names:?}"));
    check(&format!("all engines have the migrations {first:?}"), different.collect());
}

#[test]
fn migrations_are_numbered_from_one_without_gaps() {
    let mut broken = Vec::new();
    for (engine, names) in migrations() {
        for (name, number) in names.iter().zip(1..) {
            if !name.starts_with(&format!("{number:04}_")) {
                broken.push(format!("{engine}: {name} is number {number} in order"));
            }
        }
    }
    check("migrations are named 0001_name.sql, 0002_name.sql and so on", broken);
}
