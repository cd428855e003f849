//! One program at work: started in a process group of its own, terminated, killed and waited for, so that no process of
//! it is left. Its stderr is passed on and its end is remembered.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Opens the progress pipe as descriptor 3 and becomes the program, in the same process: what a shell does in one line
/// is not to be had from the standard library without `unsafe`.
const OPEN_AND_BECOME: &str = r#"exec "$@" 3>"$OUTLAST_PROGRESS""#;
/// As much of stderr as is remembered.
const STDERR_TAIL_BYTES_MAX: usize = 4 * 1024;
/// How long stderr is read after the end, in case something outside the group holds it open.
const STDERR_DRAIN: Duration = Duration::from_millis(500);
/// How long killed processes of the group take to be gone, and how often that is looked at.
const REAP_DEADLINE: Duration = Duration::from_secs(2);
const REAP_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Program {
    child: Child,
    group: Option<Pid>,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

/// The arguments of a program's start.
pub(crate) struct Start<'a> {
    pub command: &'a [OsString],
    pub environment: Vec<(&'static str, OsString)>,
    /// Taken out of what the program inherits.
    pub hidden: &'a [&'a str],
    pub stdin: File,
    pub stdout: Stdio,
}

impl Program {
    pub(crate) fn start(start: Start<'_>) -> io::Result<Program> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", OPEN_AND_BECOME, "outlast-worker"]).args(start.command);
        for name in start.hidden {
            command.env_remove(name);
        }
        command.envs(start.environment);
        command.stdin(start.stdin).stdout(start.stdout).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let stderr_tail = Arc::default();
        let stderr = child.stderr.take();
        let reader = tokio::spawn(pass_on(stderr, Arc::clone(&stderr_tail)));
        Ok(Program { child, group, stderr_tail, reader })
    }

    /// Asks the program and all that it has started to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Cancel-safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// After the end: kills what is left of the group, waits until it is gone, and gives the end of what was written to
    /// stderr.
    pub(crate) async fn finish(mut self) -> String {
        self.kill();
        self.reap().await;
        // From here on the group id may belong to another process.
        self.group = None;
        if timeout(STDERR_DRAIN, &mut self.reader).await.is_err() {
            self.reader.abort();
        }
        let mut stderr_tail = self.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(stderr_tail.make_contiguous()).into_owned()
    }

    /// Processes that the program has left behind go to the system's first process when their parent is gone. Where that is this
    /// one, as in a container, it has to be waited for here.
    async fn reap(&self) {
        let Some(group) = self.group else { return };
        let all = async {
            // An error says that there is nothing of the group among our children.
            while let Ok(ended) = waitpgid(group, WaitOptions::NOHANG) {
                if ended.is_none() {
                    tokio::time::sleep(REAP_PAUSE).await;
                }
            }
        };
        let _ = timeout(REAP_DEADLINE, all).await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails when the group is empty, which is the goal.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        self.reader.abort();
    }
}

/// Copies stderr to our own and remembers its end.
async fn pass_on(stderr: Option<ChildStderr>, stderr_tail: Arc<Mutex<VecDeque<u8>>>) {
    let Some(mut stderr) = stderr else { return };
    let mut own = tokio::io::stderr();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..length) else { return };
        remember(&stderr_tail, bytes);
        // A closed stderr loses the copy; the tail is still kept.
        let _ = own.write_all(bytes).await;
        let _ = own.flush().await;
    }
}

fn remember(stderr_tail: &Mutex<VecDeque<u8>>, bytes: &[u8]) {
    let mut stderr_tail = stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
    stderr_tail.extend(bytes);
    let surplus = stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES_MAX);
    stderr_tail.drain(..surplus);
}
