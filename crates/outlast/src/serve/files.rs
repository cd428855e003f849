//! Files that only the owner may read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Writes a line and syncs it. An embedded store has made the directory already.
pub(super) fn write_private(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(line.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// The same, if there is no such file or an empty one. It appears whole or not at all. False when there was one.
pub(super) fn write_private_new(path: &Path, line: &str, mark: &str) -> std::io::Result<bool> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".");
    // Processes that share a directory write drafts of their own.
    draft.push(mark);
    write_private(Path::new(&draft), line)?;
    let is_there = || fs::metadata(path).is_ok_and(|found| found.len() > 0);
    match fs::hard_link(&draft, path) {
        Ok(()) => fs::remove_file(&draft).map(|()| true),
        Err(_) if is_there() => fs::remove_file(&draft).map(|()| false),
        // The file is empty, or this file system has no second names.
        Err(_) => fs::rename(&draft, path).map(|()| true),
    }
}
