//! The manifest of a backup, in JSON Lines: what the backup is, every file with its size and SHA-256, and a last line that covers
//! all lines before it. It gets its name when everything else is on disk, so a directory with a manifest is a whole backup.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use outlast_core::ObjectKey;
use outlast_core::object::digest_text;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(crate) const MANIFEST: &str = "manifest.jsonl";
pub(crate) const DATABASE: &str = "outlast.db";
/// Files of a data directory that are copied if they are there.
pub(crate) const KEY_FILES: [&str; 2] = ["secret.key", "admin.key"];
const OBJECTS: &str = "objects/";
/// Of this file's form; a reader refuses a later one.
pub(crate) const FORMAT: u32 = 1;
/// No line of ours comes near this.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub outlast_backup: u32,
    /// When the snapshot was begun: everything acknowledged before it is in the backup.
    pub created_at: String,
    /// The version that wrote it.
    pub version: String,
    pub schema: u32,
    pub queues: u64,
    pub jobs: u64,
    /// Where objects are that the backup does not hold.
    pub objects_elsewhere: Option<String>,
}

/// A file of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Footer {
    files: u64,
    bytes: u64,
    /// Of all lines before this one.
    #[serde(rename = "manifestSha256")]
    sha256: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    File(FileEntry),
    /// An object that a job needs and that was not there.
    Missing {
        missing: String,
    },
    Footer(Footer),
}

/// The members of a manifest besides its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub header: Header,
    pub files: u64,
    pub bytes: u64,
    pub missing: Vec<String>,
}

/// Writes a manifest line by line.
pub(crate) struct Writer {
    file: BufWriter<File>,
    digest: Sha256,
    pub files: u64,
    pub bytes: u64,
}

impl Writer {
    pub(crate) fn begin(directory: &Path, header: &Header) -> io::Result<Writer> {
        let path = directory.join(unfinished());
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
        let mut writer = Writer { file: BufWriter::new(file), digest: Sha256::new(), files: 0, bytes: 0 };
        writer.line(header)?;
        Ok(writer)
    }

    pub(crate) fn file(&mut self, entry: &FileEntry) -> io::Result<()> {
        self.files += 1;
        self.bytes += entry.bytes;
        self.line(entry)
    }

    pub(crate) fn missing(&mut self, path: &str) -> io::Result<()> {
        self.line(&serde_json::json!({"missing": path}))
    }

    /// Everything else must be on disk before.
    pub(crate) fn finish(mut self, directory: &Path) -> io::Result<()> {
        let sha256 = digest_text(&self.digest.clone().finalize());
        self.line(&Footer { files: self.files, bytes: self.bytes, sha256 })?;
        self.file.into_inner()?.sync_all()?;
        fs::rename(directory.join(unfinished()), directory.join(MANIFEST))?;
        File::open(directory)?.sync_all()
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.digest.update(&line);
        self.file.write_all(&line)
    }
}

fn unfinished() -> String {
    format!("{MANIFEST}.unfinished")
}

/// The path of an object within a backup.
pub(crate) fn object_path(key: &ObjectKey) -> String {
    format!("{OBJECTS}{key}")
}

/// The key of an object, by its path within a backup.
pub(crate) fn object_key(path: &str) -> Option<ObjectKey> {
    path.strip_prefix(OBJECTS)?.parse().ok()
}

/// Reads the whole manifest, hands on every file, and checks the manifest itself at the end. Paths lead nowhere else: only names
/// that a backup has are accepted.
pub(crate) fn read(
    directory: &Path,
    mut each: impl FnMut(FileEntry) -> anyhow::Result<()>,
) -> anyhow::Result<Manifest> {
    let path = directory.join(MANIFEST);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{} is not a complete backup: it has no {MANIFEST}", directory.display())
        }
        opened => opened.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut lines = Lines { file: BufReader::new(file), digest: Sha256::new(), number: 0 };
    let broken = |number: u64| format!("{MANIFEST} is damaged at line {number}");
    let Some(first) = lines.next()? else { bail!(broken(1)) };
    let header: Header = serde_json::from_str(&first).with_context(|| broken(1))?;
    if header.outlast_backup != FORMAT {
        bail!("the backup has format {}, and this binary knows {FORMAT}", header.outlast_backup);
    }
    let mut manifest = Manifest { header, files: 0, bytes: 0, missing: Vec::new() };
    loop {
        let before = digest_text(&lines.digest.clone().finalize());
        let Some(line) = lines.next()? else { bail!("{MANIFEST} was cut off: its last line is missing") };
        match serde_json::from_str(&line).with_context(|| broken(lines.number))? {
            Line::File(entry) => {
                let is_known =
                    entry.path == DATABASE || KEY_FILES.contains(&&*entry.path) || object_key(&entry.path).is_some();
                if !is_known {
                    bail!("{MANIFEST} names {:?}, which no backup has", entry.path);
                }
                manifest.files += 1;
                manifest.bytes += entry.bytes;
                each(entry)?;
            }
            Line::Missing { missing } => manifest.missing.push(missing),
            Line::Footer(footer) => {
                let is_whole =
                    footer.sha256 == before && (footer.files, footer.bytes) == (manifest.files, manifest.bytes);
                if !is_whole || lines.next()?.is_some() {
                    bail!("{MANIFEST} is damaged: its last line does not fit the lines before");
                }
                return Ok(manifest);
            }
        }
    }
}

struct Lines {
    file: BufReader<File>,
    digest: Sha256,
    number: u64,
}

impl Lines {
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        Read::by_ref(&mut self.file).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        self.number += 1;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            bail!("{MANIFEST} is damaged at line {}: the line has no end", self.number);
        }
        self.digest.update(&line);
        Ok(Some(String::from_utf8(line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let (created_at, version) = ("2026-11-17T20:00:00.000Z".to_owned(), "0.1.0".to_owned());
        Header { outlast_backup: FORMAT, created_at, version, schema: 1, queues: 2, jobs: 3, objects_elsewhere: None }
    }

    fn written(path: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::begin(directory.path(), &header()).unwrap();
        for path in [DATABASE, path] {
            writer.file(&FileEntry { path: path.to_owned(), bytes: 7, sha256: "00".repeat(32) }).unwrap();
        }
        writer.missing("objects/1/x").unwrap();
        assert!(read(directory.path(), |_| Ok(())).is_err(), "an unfinished manifest is none");
        writer.finish(directory.path()).unwrap();
        directory
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let directory = written("secret.key");
        let mut paths = Vec::new();

        let manifest = read(directory.path(), |entry| {
            paths.push(entry.path);
            Ok(())
        });

        let expected = Manifest { header: header(), files: 2, bytes: 14, missing: vec!["objects/1/x".to_owned()] };
        assert_eq!(manifest.unwrap(), expected);
        assert_eq!(paths, [DATABASE, "secret.key"]);
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let directory = written("secret.key");
        let path = directory.path().join(MANIFEST);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(read(directory.path(), |_| Ok(())).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(read(directory.path(), |_| Ok(())).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in ["../outlast.db", "/etc/passwd", "objects/../secret.key", "objects/", "lock", "outlast.state"] {
            let directory = written(path);
            assert!(read(directory.path(), |_| Ok(())).is_err(), "{path}");
        }
    }
}
