//! Space set aside for a full disk: a file of a few megabytes that is given up when a write finds no room, so that
//! outcomes of running jobs can still be stored, and taken back when space has returned.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::Timestamp;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// How often a full store checks whether space has returned. Only on a write, never by a timer.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Reserve {
    directory: PathBuf,
    bytes: u64,
    full_since_look: Option<Timestamp>,
}

impl Reserve {
    /// Takes the space if it is there; a disk that is full at start is full.
    pub(super) fn open(directory: &Path, bytes: u64, now: Timestamp) -> Reserve {
        let mut reserve = Reserve { directory: directory.to_owned(), bytes, full_since_look: None };
        if let Err(error) = reserve.fill() {
            tracing::warn!(%error, "no space to set aside; only outcomes are taken");
            reserve.give_up(now);
        }
        reserve
    }

    /// Is there room for new jobs? A full store looks again from time to time.
    pub(super) fn has_room(&mut self, now: Timestamp) -> bool {
        let Some(looked_at) = self.full_since_look else {
            return true;
        };
        if now.since(looked_at) < LOOK_AGAIN {
            return false;
        }
        self.full_since_look = Some(now);
        // Twice the reserve: enough to set it aside again and to take in some jobs.
        let free = statvfs(&self.directory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if free < self.bytes.saturating_mul(2) || self.fill().is_err() {
            return false;
        }
        self.full_since_look = None;
        tracing::info!("space has returned; new jobs are taken again");
        true
    }

    /// A write found no room: frees what was set aside.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        if self.full_since_look.is_none() {
            tracing::error!("the disk is full; only outcomes are taken until there is space");
        }
        self.full_since_look = Some(now);
        if let Ok(file) = self.file() {
            // If even this fails, outcomes fail too and say so.
            let _ = file.set_len(0);
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        fallocate(self.file()?, FallocateFlags::empty(), 0, self.bytes.max(1))?;
        Ok(())
    }

    fn file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.directory.join("reserve"))
    }
}
