//! Checks the disk: the data directory, its permissions, whether a server has it locked, and the space left.

use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use rustix::process::geteuid;

use super::{Check, Verdict, files};

/// The file in the data directory that a running server holds locked.
const LOCK_FILE: &str = "lock";
/// Below this a busy server can run full within minutes.
const FREE_BYTES_WARN: u64 = 1024 * 1024 * 1024;
/// Below this the next checkpoint of the store may not fit.
const FREE_BYTES_FAIL: u64 = 100 * 1024 * 1024;

const MIB: u64 = 1024 * 1024;

pub(crate) fn checks(data: &Path) -> Vec<Check> {
    let metadata = match std::fs::metadata(data) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let finding = format!("{} does not exist; the first start of a server makes it", data.display());
            return vec![Check::new("data directory", Verdict::Warn, finding)];
        }
        Err(error) => {
            let finding = format!("{} cannot be looked at: {error}", data.display());
            return vec![Check::new("data directory", Verdict::Fail, finding)];
        }
    };
    if !metadata.is_dir() {
        let finding = format!("{} is not a directory", data.display());
        return vec![Check::new("data directory", Verdict::Fail, finding)];
    }
    let mut checks =
        vec![directory(data), permissions(data, &metadata), owner(data, &metadata), lock(data), space(data)];
    checks.extend(files::checks(data, is_held(data)));
    checks
}

fn directory(data: &Path) -> Check {
    match access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Check::new("data directory", Verdict::Ok, data.display().to_string()),
        Err(error) => {
            let finding = format!("{} cannot be read and written by this user: {error}", data.display());
            Check::new("data directory", Verdict::Fail, finding)
        }
    }
}

/// Others must not write the directory, nor read the key in it.
fn permissions(data: &Path, metadata: &Metadata) -> Check {
    let mode = metadata.mode() & 0o7777;
    let key = data.join("admin.key");
    if let Ok(key_metadata) = std::fs::metadata(&key)
        && key_metadata.mode() & 0o077 != 0
    {
        let finding = format!("{0} can be read by others; run: chmod 600 {0}", key.display());
        return Check::new("permissions", Verdict::Fail, finding);
    }
    if mode & 0o022 != 0 {
        let finding = format!("{0} can be written by other users (mode {mode:o}); run: chmod 700 {0}", data.display());
        return Check::new("permissions", Verdict::Fail, finding);
    }
    if mode & 0o077 != 0 {
        let finding = format!("{0} can be entered by other users (mode {mode:o}); run: chmod 700 {0}", data.display());
        return Check::new("permissions", Verdict::Warn, finding);
    }
    Check::new("permissions", Verdict::Ok, format!("mode {mode:o}"))
}

/// A server runs as the owner of its directory and of everything in it.
fn owner(data: &Path, metadata: &Metadata) -> Check {
    let user = geteuid().as_raw();
    if metadata.uid() != user {
        let finding =
            format!("the directory belongs to user {}; a server started by user {user} refuses it", metadata.uid());
        return Check::new("owner", Verdict::Warn, finding);
    }
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) => return Check::new("owner", Verdict::Fail, format!("the files cannot be listed: {error}")),
    };
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else { continue };
        if found.uid() != metadata.uid() {
            let finding = format!(
                "{} belongs to user {}, its directory to user {}",
                entry.path().display(),
                found.uid(),
                metadata.uid()
            );
            return Check::new("owner", Verdict::Warn, finding);
        }
    }
    Check::new("owner", Verdict::Ok, format!("everything belongs to user {}", metadata.uid()))
}

fn lock(data: &Path) -> Check {
    let file = match File::open(data.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Check::new("lock", Verdict::Ok, "free: no server has used this directory yet");
        }
        Err(error) => return Check::new("lock", Verdict::Fail, format!("cannot be opened: {error}")),
    };
    // There is no way to ask without trying. The shared lock is given back when the file closes, microseconds later; a
    // server that starts in between would have to be started again.
    match file.try_lock_shared() {
        Ok(()) => Check::new("lock", Verdict::Ok, "free: no server runs on this directory"),
        Err(TryLockError::WouldBlock) => Check::new("lock", Verdict::Ok, "held: a server runs on this directory"),
        Err(TryLockError::Error(error)) => Check::new("lock", Verdict::Warn, format!("cannot be tested: {error}")),
    }
}

/// Does a server run on this directory?
fn is_held(data: &Path) -> bool {
    File::open(data.join(LOCK_FILE)).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn space(data: &Path) -> Check {
    let free = match statvfs(data) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => return Check::new("disk space", Verdict::Warn, format!("unknown: {error}")),
    };
    let finding = format!("{} MiB free", free / MIB);
    Check::new("disk space", judge_space(free), finding)
}

fn judge_space(free: u64) -> Verdict {
    match free {
        0..FREE_BYTES_FAIL => Verdict::Fail,
        FREE_BYTES_FAIL..FREE_BYTES_WARN => Verdict::Warn,
        FREE_BYTES_WARN.. => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn verdict(checks: &[Check], name: &str) -> Verdict {
        checks.iter().find(|check| check.name == name).unwrap().verdict
    }

    fn private_directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_only_worth_a_look() {
        let parent = private_directory();

        let checks = checks(&parent.path().join("missing"));

        assert_eq!(verdict(&checks, "data directory"), Verdict::Warn);
    }

    #[test]
    fn a_file_in_place_of_the_directory_fails() {
        let parent = private_directory();
        let path = parent.path().join("file");
        fs::write(&path, "").unwrap();

        assert_eq!(verdict(&checks(&path), "data directory"), Verdict::Fail);
    }

    #[test]
    fn a_key_that_others_can_read_fails() {
        let directory = private_directory();
        let key = directory.path().join("admin.key");
        fs::write(&key, "ol_x").unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(verdict(&checks(directory.path()), "permissions"), Verdict::Fail);

        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(verdict(&checks(directory.path()), "permissions"), Verdict::Ok);
    }

    #[test]
    fn a_directory_that_others_can_enter_is_worth_a_look_and_a_writable_one_fails() {
        let directory = private_directory();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(verdict(&checks(directory.path()), "permissions"), Verdict::Warn);

        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(verdict(&checks(directory.path()), "permissions"), Verdict::Fail);
    }

    #[test]
    fn a_held_lock_differs_from_a_free_one() {
        let directory = private_directory();
        let file = File::create(directory.path().join(LOCK_FILE)).unwrap();
        assert!(lock(directory.path()).finding.starts_with("free"));

        file.try_lock().unwrap();
        assert!(lock(directory.path()).finding.starts_with("held"));
    }

    #[test]
    fn little_space_warns_and_almost_none_fails() {
        assert_eq!(judge_space(0), Verdict::Fail);
        assert_eq!(judge_space(FREE_BYTES_FAIL), Verdict::Warn);
        assert_eq!(judge_space(FREE_BYTES_WARN), Verdict::Ok);
    }
}
