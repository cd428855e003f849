//! What the disk does: the time of one synced append, and the space a data directory takes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::clock;

const APPEND_BYTES: usize = 4096;

/// Times of `count` appends of 4 KiB, each made durable with fdatasync, in a new file in `dir`.
pub(crate) fn synced_appends(dir: &Path, count: usize) -> Result<Vec<Duration>> {
    let path = dir.join("synced-appends");
    let mut file = File::create(&path)?;
    let block = [0x5a; APPEND_BYTES];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = clock::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    fs::remove_file(path)?;
    Ok(times)
}

/// Bytes of all files under `dir`: for each the larger of its length and the blocks it occupies.
pub(crate) fn used_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes +=
            if metadata.is_dir() { used_bytes(&entry.path())? } else { metadata.len().max(metadata.blocks() * 512) };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_folders_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        fs::write(dir.path().join("inner/file"), [1; 10_000]).unwrap();

        assert!(used_bytes(dir.path()).unwrap() >= 10_000);
    }
}
