//! Notices when the files of the running store are removed or replaced: what is written then would be gone with the process.
//! Asks the kernel to be woken at changes of the directory; where it cannot, looks once a second.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use super::directory::{database_path, lock_path, wal_index_path, wal_path};
use super::state_file::state_path;

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct FileWatch {
    directory: PathBuf,
    /// Path, device and inode of what was opened.
    files: Vec<(PathBuf, (u64, u64))>,
}

impl FileWatch {
    /// After all files are there.
    pub(super) fn of(directory: &Path) -> io::Result<FileWatch> {
        let mut files = Vec::new();
        let paths = [
            database_path(directory),
            wal_path(directory),
            wal_index_path(directory),
            state_path(directory),
            // Without it a second server could start here.
            lock_path(directory),
        ];
        for path in paths {
            match identity(&path) {
                Ok(identity) => files.push((path, identity)),
                // On a full disk there may be no log yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(FileWatch { directory: directory.to_owned(), files })
    }

    /// Ends when a file is not the one that was opened. Cancel-safe.
    pub(super) async fn gone(&self) -> String {
        let changes = self.changes().inspect_err(|error| {
            tracing::info!(%error, "no notification of removed files; looking for them every second");
        });
        let changes = changes.ok();
        loop {
            // Before the first wait: a file may have gone before the kernel was asked.
            if let Some(path) = self.missing() {
                let why = format!("{} was removed or replaced under the running server", path.display());
                tracing::error!(path = %path.display(), "a file of the store was removed or replaced; stopping without further answers");
                return why;
            }
            match &changes {
                Some(changes) => wait(changes).await,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    fn missing(&self) -> Option<&Path> {
        let gone = self.files.iter().find(|(path, opened)| match identity(path) {
            Ok(found) => found != *opened,
            Err(error) => error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory,
        });
        gone.map(|(path, _)| path.as_path())
    }

    #[allow(
        deprecated,
        reason = "its successor is unsafe for types that may change their descriptor; OwnedFd never does"
    )]
    fn changes(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let notifier = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let kinds = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&notifier, &self.directory, kinds)?;
        AsyncFd::new(notifier)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Waits until something has changed. The kind of change does not matter: all files are checked.
async fn wait(changes: &AsyncFd<OwnedFd>) {
    let Ok(mut ready) = changes.readable().await else {
        return tokio::time::sleep(LOOK_EVERY).await;
    };
    let mut events = [0; 4096];
    while rustix::io::read(changes.get_ref(), &mut events).is_ok_and(|count| count > 0) {}
    ready.clear_ready();
}
