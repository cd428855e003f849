//! Objects in a local folder, each in a file of its own that only we may read. A file is written under another name, synced,
//! renamed, and its folder synced: what was confirmed survives a power cut, and a half-written file is never an object.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use tokio::task::{JoinHandle, spawn_blocking};

use super::content_hasher::ContentHasher;
use super::deletion_lock::{self, DeletionPause, DeletionPermit};
use super::{CHUNK_BYTES, Error, ObjectReader, READ_BYTES, WrittenObject};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Beside the object it is to become, so that deleting the key finds it. No key of ours ends like this.
const UNFINISHED: &str = ".part";

/// A folder may be removed as empty just before a file is made in it; then both are made again. The same for a file that
/// its writer removes just before it is taken over.
const CREATE_TRIES: usize = 5;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub(super) fn open(root: PathBuf) -> Result<Folder, Error> {
        let was_there = root.is_dir();
        make_folders(&root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        if let Some(above) = root.parent().filter(|_| !was_there) {
            sync_folder(above).map_err(failed)?;
        }
        Ok(Folder { root })
    }

    pub(super) async fn write<S>(&self, key: &str, mut stream: S) -> Result<WrittenObject, Error>
    where
        S: Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    {
        let (root, path) = (self.root.clone(), self.root.join(key));
        let mut draft = blocking(move || TempFile::create(root, path)).await?;
        let (mut gathered, mut gathered_bytes) = (Vec::new(), 0);
        while let Some(bytes) = stream.next().await {
            let bytes = bytes?;
            gathered_bytes += bytes.len();
            gathered.push(bytes);
            if gathered_bytes >= CHUNK_BYTES {
                let chunks = std::mem::take(&mut gathered);
                gathered_bytes = 0;
                draft = blocking(move || draft.append(&chunks)).await?;
            }
        }
        blocking(move || draft.append(&gathered)?.finish()).await
    }

    pub(super) async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<ObjectReader, Error> {
        let (root, path) = (self.root.clone(), self.root.join(key));
        let (file, length) = blocking(move || {
            let file = open_below(&root, &path, OFlags::RDONLY)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        })
        .await?;
        let range = range.unwrap_or(0..length);
        let at = range.start.min(length);
        let reader = FileReader { file, at, end: range.end.clamp(at, length) };
        // One read is always under way while the last one is being sent.
        let chunks = stream::unfold(Some(reader.next()), |under_way| async move {
            match under_way?.await {
                Ok(Ok(None)) => None,
                Ok(Ok(Some((bytes, reader)))) => Some((Ok(bytes), Some(reader.next()))),
                Ok(Err(error)) => Some((Err(failed(error)), None)),
                Err(error) => Some((Err(Error::Unavailable(error.into())), None)),
            }
        });
        Ok(ObjectReader { length, chunks: Box::pin(chunks) })
    }

    pub(super) async fn head(&self, key: &str) -> Result<u64, Error> {
        let path = self.root.join(key);
        blocking(move || Ok(fs::metadata(path)?.len())).await
    }

    /// A second name of the same file: files are never changed, only replaced under their name.
    pub(super) async fn copy(&self, from: &str, to: &str) -> Result<(), Error> {
        let (root, from, to) = (self.root.clone(), self.root.join(from), self.root.join(to));
        blocking(move || {
            make_folders(to.parent().unwrap_or(&root))?;
            fs::hard_link(&from, &to)?;
            sync_name(&root, &to)
        })
        .await
    }

    pub(super) fn permit_deletions(&self) -> Result<Option<DeletionPermit>, Error> {
        deletion_lock::permit(&self.root).map_err(failed)
    }

    pub(super) fn pause_deletions(&self) -> Result<Option<DeletionPause>, Error> {
        deletion_lock::pause(&self.root).map_err(failed)
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Error> {
        let (root, path) = (self.root.clone(), self.root.join(key));
        blocking(move || {
            remove_if_there(&path)?;
            remove_if_there(&unfinished(&path))?;
            remove_empty_folders(&root, &path);
            Ok(())
        })
        .await
    }
}

/// A file that is being written. Dropped before [`TempFile::finish`] has ended well, it takes its file with it; that is quick,
/// and happens on the blocking pool unless the caller gave up while it waited for its stream.
struct TempFile {
    root: PathBuf,
    path: PathBuf,
    file: File,
    tally: ContentHasher,
    is_finished: bool,
}

impl TempFile {
    fn create(root: PathBuf, path: PathBuf) -> io::Result<TempFile> {
        let unfinished = unfinished(&path);
        let folder = path.parent().unwrap_or(&root);
        let mut tries = 0;
        let file = loop {
            make_folders(folder)?;
            match open_alone(&root, &unfinished) {
                Err(error) if error.kind() == ErrorKind::NotFound && tries < CREATE_TRIES => tries += 1,
                opened => break opened?,
            }
        };
        Ok(TempFile { root, path, file, tally: ContentHasher::default(), is_finished: false })
    }

    fn append(mut self, chunks: &[Bytes]) -> io::Result<TempFile> {
        for chunk in chunks {
            self.file.write_all(chunk)?;
            self.tally.take(chunk);
        }
        Ok(self)
    }

    fn finish(mut self) -> io::Result<WrittenObject> {
        self.file.sync_all()?;
        fs::rename(unfinished(&self.path), &self.path)?;
        sync_name(&self.root, &self.path)?;
        self.is_finished = true;
        Ok(std::mem::take(&mut self.tally).written())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // A file that cannot be removed here is removed when the key is deleted.
            drop(fs::remove_file(unfinished(&self.path)));
        }
    }
}

struct FileReader {
    file: File,
    at: u64,
    end: u64,
}

type Piece = io::Result<Option<(Bytes, FileReader)>>;

impl FileReader {
    fn next(mut self) -> JoinHandle<Piece> {
        spawn_blocking(move || {
            let wanted = usize::try_from(self.end - self.at).unwrap_or(READ_BYTES).min(READ_BYTES);
            if wanted == 0 {
                return Ok(None);
            }
            self.file.seek(SeekFrom::Start(self.at))?;
            let mut buffer = Vec::with_capacity(wanted);
            let limit = u64::try_from(wanted).unwrap_or(0);
            let read = Read::by_ref(&mut self.file).take(limit).read_to_end(&mut buffer)?;
            if read < wanted {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "a file has become shorter"));
            }
            self.at += limit;
            Ok(Some((Bytes::from(buffer), self)))
        })
    }
}

/// A file to write, empty and exclusive. A writer holds the file's lock, so a file that a killed process left has none
/// and is started over. Where files cannot be locked, it stays until its key is deleted.
fn open_alone(root: &Path, path: &Path) -> io::Result<File> {
    let (file, is_new) = match open_below(root, path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => (open_below(root, path, OFlags::WRONLY)?, false),
        opened => (opened?, true),
    };
    match file.try_lock() {
        Err(TryLockError::Error(_)) if is_new => return Ok(file),
        Err(_) => return Err(io::Error::new(ErrorKind::WouldBlock, "somebody else writes this object now")),
        Ok(()) => {}
    }
    // Its writer may have ended between our opening and our locking it.
    let (named, locked) = (fs::metadata(path)?, file.metadata()?);
    if (named.dev(), named.ino()) != (locked.dev(), locked.ino()) {
        return Err(ErrorKind::NotFound.into());
    }
    file.set_len(0)?;
    Ok(file)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Opens what really is below the root: no name of ours leads over a link, so one that does was put there by somebody else.
fn open_below(root: &Path, path: &Path, flags: OFlags) -> io::Result<File> {
    let folder = File::open(root)?;
    let below = path.strip_prefix(root).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(FILE_MODE) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(File::from(openat2(folder, below, flags | OFlags::CLOEXEC, mode, resolve)?))
}

fn make_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// Makes the name of a file durable. One whose folder is not synced may be gone after a power cut, so it is not believed
/// either. Somebody else may have made one of the folders and not have synced it yet; to sync what is synced costs next to
/// nothing.
fn sync_name(root: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        sync_folder(folder).inspect_err(|_| drop(fs::remove_file(path)))?;
    }
    Ok(())
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Upwards until one is not empty, which is how removing it fails.
fn remove_empty_folders(root: &Path, path: &Path) {
    let folders = path.ancestors().skip(1).take_while(|folder| *folder != root);
    for folder in folders {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

async fn blocking<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(done) => done.map_err(failed),
        Err(error) => Err(Error::Unavailable(error.into())),
    }
}

fn failed(error: io::Error) -> Error {
    // A link where none belongs.
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return Error::Refused(error.into());
    }
    match error.kind() {
        ErrorKind::NotFound => Error::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full(error.into()),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::AlreadyExists => {
            Error::Refused(error.into())
        }
        _ => Error::Unavailable(error.into()),
    }
}

#[cfg(test)]
mod tests;
