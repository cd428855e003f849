//! Rules of the manifests: versions stand once, and the lints hold everywhere.

use crate::tree::{File, check, files};

fn manifests() -> impl Iterator<Item = File> {
    files().into_iter().filter(|file| file.path.ends_with("Cargo.toml") && file.path != "Cargo.toml")
}

#[test]
fn only_the_root_manifest_has_versions() {
    let mut broken = Vec::new();
    for file in manifests() {
        let mut in_dependencies = false;
        for line in file.text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                broken.push(format!("{}: {line}", file.path));
            }
        }
    }
    check("a dependency is named with `workspace = true`, its version is in the root manifest", broken);
}

#[test]
fn every_crate_forbids_unsafe_code() {
    let lax = manifests().filter(|file| {
        let inherits = file.text.contains("[lints]\nworkspace = true");
        !inherits && !file.text.contains("unsafe_code = \"forbid\"")
    });
    check(
        "a crate takes the lints of the workspace, or forbids unsafe code itself",
        lax.map(|file| file.path).collect(),
    );
}
