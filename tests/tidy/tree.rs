//! The files of the repository, as text.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories that `.gitignore` excludes, and directories that are not part of the project.
const SKIPPED: [&str; 7] = [".git", "target", "outlast-data", ".venv", "node_modules", "__pycache__", ".claude"];

pub struct File {
    /// From the root, with slashes.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Is it in this directory?
    pub fn under(&self, directory: &str) -> bool {
        self.path.starts_with(directory)
    }

    /// Numbered lines that hold one of these.
    pub fn lines_with(&self, needles: &[&str]) -> Vec<String> {
        let holds = |line: &str| needles.iter().any(|needle| line.contains(needle));
        let numbered = self.text.lines().zip(1..).filter(|(line, _)| holds(line));
        numbered.map(|(line, number)| format!("{}:{number}: {}", self.path, line.trim())).collect()
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// Every text file, in order of path.
pub fn files() -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), "", &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(files.len() > 50, "the repository was not found");
    files
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(directory).expect("a directory can be read") {
        let entry = entry.expect("a directory can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text });
        }
    }
}

/// Fails with the list of what breaks the rule.
pub fn check(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}
