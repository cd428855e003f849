//! The directory of one job, readable by nobody else and gone when the job is over: its payload, what an earlier attempt
//! has saved, the progress pipe, and the place for the result.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tokio::net::unix::pipe;

use super::desk::{Desk, Trouble};
use super::received::Received;

pub(crate) struct Scratch {
    directory: TempDir,
    has_checkpoint: bool,
}

impl Scratch {
    pub(crate) fn make() -> io::Result<Scratch> {
        let directory = TempDir::with_prefix("outlast-job-")?;
        let scratch = Scratch { directory, has_checkpoint: false };
        mkfifoat(CWD, scratch.progress(), Mode::RUSR | Mode::WUSR)?;
        fs::write(scratch.directives(), "")?;
        Ok(scratch)
    }

    /// Puts down what the program is to find.
    pub(crate) async fn fill(&mut self, received: &Received, desk: &Desk) -> Result<(), Trouble> {
        let full = |error: io::Error| Trouble::Refused(format!("cannot write the files of the job: {error}"));
        fs::write(self.payload(), received.payload.get()).map_err(full)?;
        let sections: String = received.sections.iter().map(|name| format!("{name}\n")).collect();
        fs::write(self.sections(), sections).map_err(full)?;
        let Some(checkpoint) = &received.checkpoint else { return Ok(()) };
        match &checkpoint.data {
            Some(data) => fs::write(self.checkpoint(), data.get()).map_err(full)?,
            None => desk.fetch_checkpoint(&self.checkpoint()).await?,
        }
        self.has_checkpoint = true;
        Ok(())
    }

    pub(crate) fn stdin(&self) -> io::Result<File> {
        File::open(self.payload())
    }

    /// Where stdout goes when it is the result.
    pub(crate) fn stdout(&self) -> io::Result<File> {
        File::create(self.result())
    }

    /// Both ends of the progress pipe. Ours for writing keeps the other one open between two writers.
    pub(crate) fn pipe(&self) -> io::Result<(pipe::Receiver, pipe::Sender)> {
        let receiver = pipe::OpenOptions::new().open_receiver(self.progress())?;
        let sender = pipe::OpenOptions::new().open_sender(self.progress())?;
        Ok((receiver, sender))
    }

    pub(crate) fn result(&self) -> PathBuf {
        self.path("result")
    }

    pub(crate) fn directives(&self) -> PathBuf {
        self.path("directives")
    }

    /// Where the program finds all of it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut places = vec![
            ("OUTLAST_PROGRESS", self.progress()),
            ("OUTLAST_PROGRESS_FD", PathBuf::from("3")),
            ("OUTLAST_RESULT_FILE", self.result()),
            ("OUTLAST_SECTIONS_FILE", self.sections()),
            ("OUTLAST_DIRECTIVES_FILE", self.directives()),
        ];
        if self.has_checkpoint {
            places.push(("OUTLAST_CHECKPOINT_FILE", self.checkpoint()));
        }
        places.into_iter().map(|(name, path)| (name, path.into_os_string())).collect()
    }

    fn payload(&self) -> PathBuf {
        self.path("payload.json")
    }

    fn checkpoint(&self) -> PathBuf {
        self.path("checkpoint")
    }

    fn sections(&self) -> PathBuf {
        self.path("sections")
    }

    fn progress(&self) -> PathBuf {
        self.path("progress")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
