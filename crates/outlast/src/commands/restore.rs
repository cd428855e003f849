//! `outlast restore`: makes a data directory of a backup. Checks all of the backup before it writes anything, writes to an empty
//! directory only, and puts the database in its place last: what an interrupted restore leaves, no server starts on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use outlast_store::blobs::location::Location;
use outlast_store::sqlite::MIGRATIONS;
use serde_json::json;

use super::backup::StoreFlags;
use super::backup::files::{content, copy, is_vacant, make_directory, size, sync};
use super::backup::manifest::{self, DATABASE, FileEntry, Manifest, object_key};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, escape};

/// The database while it is written. No server looks at it.
const UNFINISHED: &str = "outlast.db.unfinished";
/// So many wrong files are named.
const NAMED_MAX: usize = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The directory that `outlast backup` has written
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    store: StoreFlags,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<(), Failure> {
    let config = args.store.load(environment)?;
    let restore = Restore { backup: args.directory, data: config.data.clone(), objects: config.blobs() };
    let data = config.data.clone();
    let restored =
        tokio::task::spawn_blocking(move || restore.run()).await.context("the restore was interrupted")??;
    let has_key = restored.has_secret_key || config.secret_key.is_some();
    conclude(&data, &restored, has_key, args.store.json)
}

struct Restore {
    backup: PathBuf,
    data: PathBuf,
    objects: Location,
}

struct Restored {
    manifest: Manifest,
    objects: u64,
    has_secret_key: bool,
}

impl Restore {
    /// Blocks, for as long as it takes to read everything twice.
    fn run(self) -> anyhow::Result<Restored> {
        let (manifest, objects) = self.verify()?;
        let folder = self.object_folder(objects)?;
        for place in [Some(&self.data), folder.as_ref()].into_iter().flatten() {
            if !is_vacant(place).with_context(|| format!("cannot look at {}", place.display()))? {
                bail!("{} is not empty; restore into a new directory", place.display());
            }
        }
        let cannot_write = || format!("cannot write to {}", self.data.display());
        make_directory(&self.data).with_context(cannot_write)?;
        let mut has_secret_key = false;
        manifest::read(&self.backup, |entry| {
            has_secret_key |= entry.path == "secret.key";
            self.copy(&entry, folder.as_deref())
        })?;
        for place in [Some(&self.data), folder.as_ref()].into_iter().flatten() {
            sync(place).with_context(cannot_write)?;
        }
        // From here on a server starts on it.
        fs::rename(self.data.join(UNFINISHED), self.data.join(DATABASE)).with_context(cannot_write)?;
        sync(&self.data).with_context(cannot_write)?;
        Ok(Restored { manifest, objects, has_secret_key })
    }

    /// Every file is there and is what the manifest says. Also counts the objects.
    fn verify(&self) -> anyhow::Result<(Manifest, u64)> {
        let (mut wrong, mut paths, mut objects) = (Vec::new(), BTreeSet::new(), 0);
        let manifest = manifest::read(&self.backup, |entry| {
            objects += u64::from(object_key(&entry.path).is_some());
            match content(&self.backup.join(&entry.path)) {
                Err(error) => wrong.push(format!("{}: {error}", entry.path)),
                Ok(found) if found.bytes != entry.bytes => {
                    wrong.push(format!("{}: {} bytes, not {}", entry.path, found.bytes, entry.bytes));
                }
                Ok(found) if found.sha256 != entry.sha256 => wrong.push(format!("{}: its bytes changed", entry.path)),
                Ok(_) => {}
            }
            if !paths.insert(entry.path.clone()) {
                bail!("the manifest names {} twice", entry.path);
            }
            Ok(())
        })?;
        if !wrong.is_empty() {
            let count = wrong.len();
            wrong.truncate(NAMED_MAX);
            bail!("the backup is damaged; nothing was restored. {count} files differ: {}", wrong.join("; "));
        }
        if !paths.contains(DATABASE) {
            bail!("the backup has no {DATABASE}");
        }
        let known = MIGRATIONS.last().map_or(0, |(number, _, _)| *number);
        if manifest.header.schema > known {
            bail!(
                "version {} took the backup (schema {}), and this binary knows schema {known}; restore with that version",
                manifest.header.version,
                manifest.header.schema
            );
        }
        Ok((manifest, objects))
    }

    /// Where the server will look for objects; `None` if there are none to restore.
    fn object_folder(&self, objects: u64) -> anyhow::Result<Option<PathBuf>> {
        match &self.objects {
            _ if objects == 0 => Ok(None),
            Location::Folder(folder) => Ok(Some(folder.clone())),
            Location::Bucket(_) => bail!(
                "the backup holds {objects} objects and blobs_url names a bucket; restore without blobs_url, then copy DIR/objects to \
                 the bucket"
            ),
        }
    }

    fn copy(&self, entry: &FileEntry, folder: Option<&Path>) -> anyhow::Result<()> {
        let target = match (object_key(&entry.path), folder) {
            (Some(key), Some(folder)) => folder.join(key.to_string()),
            _ if entry.path == DATABASE => self.data.join(UNFINISHED),
            _ => self.data.join(&entry.path),
        };
        let copied = copy(&self.backup.join(&entry.path), &target)
            .with_context(|| format!("cannot write {}", target.display()))?;
        if (copied.bytes, &copied.sha256) != (entry.bytes, &entry.sha256) {
            bail!("{} changed while it was copied", entry.path);
        }
        Ok(())
    }
}

fn conclude(data: &Path, restored: &Restored, has_key: bool, is_json: bool) -> Result<(), Failure> {
    let Restored { manifest: Manifest { header, bytes, missing, .. }, objects, has_secret_key } = restored;
    if is_json {
        let summary = json!({
            "data": data.to_string_lossy(),
            "createdAt": header.created_at,
            "version": header.version,
            "queues": header.queues,
            "jobs": header.jobs,
            "objects": objects,
            "objectsElsewhere": header.objects_elsewhere,
            "secretKey": has_secret_key,
            "bytes": bytes,
            "missing": missing,
        });
        return output::print_json(&summary.to_string());
    }
    let shown = match &header.objects_elsewhere {
        Some(elsewhere) => format!("not in the backup: they are at {elsewhere}"),
        None if missing.is_empty() => objects.to_string(),
        None => format!("{objects}; {} were missing when the backup was taken", missing.len()),
    };
    let key = match (has_secret_key, has_key) {
        (true, _) => "restored",
        (false, true) => "not in the backup: it is in the configuration",
        (false, false) => "not in the backup: set OUTLAST_SECRET_KEY before the start if queues push or have headers",
    };
    output::print(&format!(
        "restored: {}\n  as of       {} (version {})\n  jobs        {} in {} queues\n  objects     {}\n  secret key  {key}\n  size        \
         {}\n",
        escape(&data.display().to_string()),
        escape(&header.created_at),
        escape(&header.version),
        header.jobs,
        header.queues,
        escape(&shown),
        size(*bytes),
    ))
}
