//! Copies files between a data directory and a backup, private to their owner and with the digest of what was copied.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use outlast_core::object::digest_text;
use rustix::fs::syncfs;
use sha2::{Digest, Sha256};

const BUFFER_BYTES: usize = 256 * 1024;

/// Length and hash of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub bytes: u64,
    pub sha256: String,
}

/// Copies into a new file, and makes the folders above it. Nothing is synced; see [`sync`].
pub(crate) fn copy(source: &Path, target: &Path) -> io::Result<Content> {
    let source = File::open(source)?;
    if let Some(folder) = target.parent() {
        make_directory(folder)?;
    }
    let mut target = OpenOptions::new().create_new(true).write(true).mode(0o600).open(target)?;
    read_through(source, |bytes| target.write_all(bytes))
}

/// Reads a file to its end.
pub(crate) fn content(path: &Path) -> io::Result<Content> {
    read_through(File::open(path)?, |_| Ok(()))
}

fn read_through(mut source: File, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Content> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    loop {
        let count = source.read(&mut buffer)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
            return Ok(Content { bytes, sha256: digest_text(&digest.finalize()) });
        };
        digest.update(piece);
        bytes += u64::try_from(count).unwrap_or_default();
        each(piece)?;
    }
}

pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Is there nothing at this path, or a directory without entries?
pub(crate) fn is_vacant(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Everything that was written to the file system of this directory is on its disk.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    Ok(syncfs(File::open(directory)?)?)
}

/// For people: `1.5 GiB`.
#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
pub(crate) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut shown = (bytes as f64, "bytes");
    for unit in units {
        if shown.0 >= 1024.0 {
            shown = (shown.0 / 1024.0, unit);
        }
    }
    match shown {
        (_, "bytes") => format!("{bytes} bytes"),
        (amount, unit) => format!("{amount:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_tells_what_it_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("deep/er/target"));
        fs::write(&source, vec![7; BUFFER_BYTES + 1]).unwrap();

        let copied = copy(&source, &target).unwrap();

        assert_eq!(copied, content(&source).unwrap());
        assert_eq!(fs::read(&source).unwrap(), fs::read(&target).unwrap());
        assert!(copy(&source, &target).is_err(), "nothing is overwritten");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
    }
}
