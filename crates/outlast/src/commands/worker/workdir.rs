//! The working directory of one attempt, private and removed at its end: payload, checkpoint, sections, progress pipe and
//! result file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;
use tokio::net::unix::pipe;

use super::handout::Handout;
use super::job_client::{CallError, JobClient};

pub(crate) struct Workdir {
    directory: TempDir,
    has_checkpoint: bool,
}

impl Workdir {
    pub(crate) fn make() -> io::Result<Workdir> {
        let directory = TempDir::with_prefix("outlast-job-")?;
        let workdir = Workdir { directory, has_checkpoint: false };
        mkfifoat(CWD, workdir.progress(), Mode::RUSR | Mode::WUSR)?;
        fs::write(workdir.directives(), "")?;
        Ok(workdir)
    }

    /// Writes the payload, the sections and the checkpoint.
    pub(crate) async fn fill(&mut self, handout: &Handout, client: &JobClient) -> Result<(), CallError> {
        let full = |error: io::Error| CallError::Refused(format!("cannot write the files of the job: {error}"));
        fs::write(self.payload(), handout.payload.get()).map_err(full)?;
        let sections: String = handout.sections.iter().map(|name| format!("{name}\n")).collect();
        fs::write(self.sections(), sections).map_err(full)?;
        let Some(checkpoint) = &handout.checkpoint else { return Ok(()) };
        match &checkpoint.data {
            Some(data) => fs::write(self.checkpoint(), data.get()).map_err(full)?,
            None => client.fetch_checkpoint(&self.checkpoint()).await?,
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

    /// Both ends of the progress pipe. Our writing end keeps the pipe open between two writers.
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

    /// The paths, as environment variables of the program.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut paths = vec![
            ("OUTLAST_PROGRESS", self.progress()),
            ("OUTLAST_PROGRESS_FD", PathBuf::from("3")),
            ("OUTLAST_RESULT_FILE", self.result()),
            ("OUTLAST_SECTIONS_FILE", self.sections()),
            ("OUTLAST_DIRECTIVES_FILE", self.directives()),
        ];
        if self.has_checkpoint {
            paths.push(("OUTLAST_CHECKPOINT_FILE", self.checkpoint()));
        }
        paths.into_iter().map(|(name, path)| (name, path.into_os_string())).collect()
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
