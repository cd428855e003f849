//! `outlast backup`: copies an embedded store, its keys and its objects into a directory, while the server runs. Reads the data
//! directory from outside the server and never writes to it. The manifest comes last: a directory without one is no backup.

pub(crate) mod files;
pub(crate) mod manifest;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use outlast_core::Clock;
use outlast_core::object::digest_text;
use outlast_engine::ports::SystemClock;
use outlast_store::blobs::location::Location;
use outlast_store::blobs::{BlobTimeouts, Blobs, DeletionPause};
use outlast_store::sqlite::{Snapshot, SnapshotObject, inspect, take_snapshot};
use serde_json::json;

use self::files::{copy, is_vacant, make_directory, size, sync};
use self::manifest::{DATABASE, FORMAT, FileEntry, Header, KEY_FILES, Writer, object_path};
use crate::client::NoServer;
use crate::config::{Config, Environment, Flags};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, escape};

/// A server deletes a hundred objects at a time, and then lets a backup begin.
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSE_POLL: Duration = Duration::from_millis(20);
/// So many defects are named; the rest are counted.
const NAMED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Where the backup is written: a directory that does not exist yet, or is empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Which data directory is meant, and how to answer.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreFlags {
    /// Data directory of the server [environment: OUTLAST_DATA] [default: as the file says, or ./outlast-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Configuration file of the server [environment: OUTLAST_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// JSON output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    no_server: NoServer,
}

impl StoreFlags {
    /// The configuration of an embedded store.
    pub(crate) fn load(&self, environment: &Environment) -> Result<Config, Failure> {
        let flags = Flags { data: self.data.clone(), config: self.config.clone(), ..Flags::default() };
        let config = Config::load(&flags, environment).map_err(|problems| Failure::configuration(&problems))?;
        if config.external.database_url.is_some() {
            let message = "the jobs are in PostgreSQL (database_url), and this command copies embedded stores only";
            let hint = "back up the database with pg_dump, and keep secret.key and the objects with it; see docs/how-to/back-up-and-restore.md";
            return Err(Failure::usage(message).with_hint(hint));
        }
        Ok(config)
    }
}

/// The content of a backup.
struct Report {
    header: Header,
    objects: u64,
    bytes: u64,
    has_secret_key: bool,
    missing: Vec<String>,
    /// Objects that differ from their checksums.
    damaged: Vec<String>,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<(), Failure> {
    let config = args.store.load(environment)?;
    let target = args.directory;
    if !is_vacant(&target).with_context(|| format!("cannot look at {}", target.display()))? {
        return Err(Failure::usage(format!("{} is not empty; name a new directory", target.display())));
    }
    let objects = match config.blobs() {
        Location::Folder(path) => Objects::here(path).await?,
        elsewhere @ Location::Bucket(_) => Objects::Elsewhere(elsewhere.to_string()),
    };
    let is_key_configured = config.secret_key.is_some();
    let directory = target.clone();
    let written = tokio::task::spawn_blocking(move || Backup { data: config.data, target, objects }.run()).await;
    let written = written.context("the backup was interrupted")?.map_err(|error| {
        let hint = format!("{} holds no complete backup and can be removed", directory.display());
        Failure::from(error).with_hint(hint)
    });
    conclude(&directory, &written?, is_key_configured, args.store.json)
}

enum Objects {
    /// In a folder. The lock keeps the server from deleting any; without one no object has ever been written.
    Here {
        folder: PathBuf,
        _pause: Option<DeletionPause>,
    },
    Elsewhere(String),
}

impl Objects {
    /// Waits until no deletion is under way.
    async fn here(folder: PathBuf) -> Result<Objects, Failure> {
        if !folder.exists() {
            return Ok(Objects::Here { folder, _pause: None });
        }
        let failed = |error: outlast_store::blobs::Error| {
            Failure::new(Exit::Refused, format!("cannot lock {}: {}", folder.display(), error.with_causes()))
        };
        let blobs = Blobs::new(Location::Folder(folder.clone()), BlobTimeouts::default()).map_err(failed)?;
        let locked = tokio::time::timeout(PAUSE_MAX, async {
            loop {
                if let Some(pause) = blobs.pause_deletions()? {
                    return Ok(pause);
                }
                tokio::time::sleep(PAUSE_POLL).await;
            }
        });
        match locked.await {
            Ok(pause) => Ok(Objects::Here { _pause: Some(pause.map_err(failed)?), folder }),
            Err(_) => {
                let message = format!("{} is locked: another backup is being taken", folder.display());
                Err(Failure::new(Exit::Refused, message))
            }
        }
    }
}

struct Backup {
    data: PathBuf,
    target: PathBuf,
    /// Locked before the snapshot is taken: an object that the snapshot names cannot be deleted until it is copied.
    objects: Objects,
}

impl Backup {
    /// Blocks, for as long as it takes to copy everything.
    fn run(self) -> anyhow::Result<Report> {
        let created_at = SystemClock::start().now().to_string();
        let cannot_write = || format!("cannot write to {}", self.target.display());
        make_directory(&self.target).with_context(cannot_write)?;
        let database = self.target.join(DATABASE);
        let snapshot = take_snapshot(&self.data, &database).context("cannot take a snapshot of the database")?;
        let header = self.header(created_at, &snapshot)?;
        let mut writer = Writer::begin(&self.target, &header).with_context(cannot_write)?;
        let content = files::content(&database).with_context(cannot_write)?;
        writer.file(&entry(DATABASE.to_owned(), content))?;
        let mut report = Report {
            header,
            objects: 0,
            bytes: 0,
            has_secret_key: false,
            missing: Vec::new(),
            damaged: inspect(&self.target).context("cannot check the snapshot")?,
        };
        self.copy_keys(&mut writer, &mut report)?;
        self.copy_objects(&snapshot, &mut writer, &mut report)?;
        drop(snapshot);
        sync(&self.target).with_context(cannot_write)?;
        report.bytes = writer.bytes;
        writer.finish(&self.target).with_context(cannot_write)?;
        Ok(report)
    }

    fn header(&self, created_at: String, snapshot: &Snapshot) -> anyhow::Result<Header> {
        let objects_elsewhere = match &self.objects {
            Objects::Here { .. } => None,
            Objects::Elsewhere(shown) => Some(shown.clone()),
        };
        let (queues, jobs) = snapshot.counts()?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let schema = snapshot.schema;
        Ok(Header { outlast_backup: FORMAT, created_at, version, schema, queues, jobs, objects_elsewhere })
    }

    fn copy_keys(&self, writer: &mut Writer, report: &mut Report) -> anyhow::Result<()> {
        for name in KEY_FILES {
            let source = self.data.join(name);
            match copy(&source, &self.target.join(name)) {
                Ok(content) => writer.file(&entry(name.to_owned(), content))?,
                // The admin key may have been removed, and the other one may be in the configuration.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot copy {}", source.display())),
            }
            report.has_secret_key |= name == "secret.key";
        }
        Ok(())
    }

    fn copy_objects(&self, snapshot: &Snapshot, writer: &mut Writer, report: &mut Report) -> anyhow::Result<()> {
        let Objects::Here { folder, .. } = &self.objects else { return Ok(()) };
        let mut last = String::new();
        loop {
            let page = snapshot.objects(&last)?;
            let Some(end) = page.last() else { return Ok(()) };
            last = end.key.to_string();
            for object in &page {
                self.copy_object(folder, object, writer, report)?;
            }
        }
    }

    /// An object that no job needs is copied if it is there.
    fn copy_object(
        &self,
        folder: &Path,
        object: &SnapshotObject,
        writer: &mut Writer,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let path = object_path(&object.key);
        let source = folder.join(object.key.to_string());
        match copy(&source, &self.target.join(&path)) {
            Ok(content) => {
                let is_whole = (content.bytes, &content.sha256) == (object.length, &digest_text(&object.sha256));
                if object.is_needed && !is_whole {
                    report.damaged.push(format!("{path}: its bytes are not those that were stored"));
                }
                report.objects += 1;
                writer.file(&entry(path, content))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if object.is_needed {
                    writer.missing(&path)?;
                    report.missing.push(path);
                }
            }
            Err(error) => return Err(error).with_context(|| format!("cannot copy {}", source.display())),
        }
        Ok(())
    }
}

fn entry(path: String, content: files::Content) -> FileEntry {
    FileEntry { path, bytes: content.bytes, sha256: content.sha256 }
}

fn conclude(directory: &Path, report: &Report, is_key_configured: bool, is_json: bool) -> Result<(), Failure> {
    let Report { header, objects, bytes, has_secret_key, missing, damaged } = report;
    if is_json {
        let summary = json!({
            "directory": directory.to_string_lossy(),
            "createdAt": header.created_at,
            "queues": header.queues,
            "jobs": header.jobs,
            "objects": objects,
            "objectsElsewhere": header.objects_elsewhere,
            "secretKey": has_secret_key,
            "bytes": bytes,
            "missing": missing,
            "damaged": damaged,
        });
        output::print_json(&summary.to_string())?;
    } else {
        let shown = match &header.objects_elsewhere {
            Some(elsewhere) => format!("not copied: they are at {elsewhere}"),
            None => objects.to_string(),
        };
        let key = match (has_secret_key, is_key_configured) {
            (true, _) => "copied",
            (false, true) => "not copied: it is in the configuration",
            (false, false) => "there is none",
        };
        output::print(&format!(
            "backup complete: {}\n  jobs        {} in {} queues\n  objects     {}\n  secret key  {key}\n  size        {}\n",
            escape(&directory.display().to_string()),
            header.jobs,
            header.queues,
            escape(&shown),
            size(*bytes),
        ))?;
    }
    let mut defects: Vec<String> = missing.iter().map(|path| format!("{path}: not there")).collect();
    defects.extend(damaged.iter().cloned());
    if defects.is_empty() {
        return Ok(());
    }
    let count = defects.len();
    defects.truncate(NAMED_MAX);
    let message = format!("the store itself has {count} defects, and so has its backup");
    let hint = "outlast doctor shows what is damaged; keep the backups before this one";
    Err(Failure { details: defects, ..Failure::new(Exit::Refused, message) }.with_hint(hint))
}
