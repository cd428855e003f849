//! Starts, kills and restarts the processes under test. A process ends when its handle is dropped.
//! The server gets an empty environment but for its key, so that nothing set outside can weaken or tune it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;

use crate::connection;
use crate::request::{QUEUE, Target};

/// A start that takes longer has failed.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The real server on a data directory of its own, which is deleted with it.
pub(crate) struct Server {
    process: Process,
    program: PathBuf,
    pub(crate) target: Target,
    root: TempDir,
}

impl Server {
    /// Starts the server on an empty data directory under `dir` and makes the queue.
    pub(crate) async fn start(program: &Path, dir: &Path) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("outlast-bench-").tempdir_in(dir)?;
        let target = Target { address: free_address()?, key: random_key()?.into() };
        let process = spawn_server(program, root.path(), &target)?;
        let mut server = Self { process, program: program.to_owned(), target, root };
        server.wait_until_ready()?;
        let request = server.target.put(&format!("/v1/queues/{QUEUE}"), b"{\"visibilityTimeout\":600}");
        // 201 for a made queue; 200 where the server calls a PUT a replacement.
        connection::call_once(&server.target, &request, &[200, 201]).await.context("cannot make the queue")?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        data_dir(self.root.path())
    }

    /// Kills the process (SIGKILL), waits until it is gone and starts it again on the same data and address.
    /// Returns at once: the new process need not answer yet.
    pub(crate) fn kill_and_restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = spawn_server(&self.program, self.root.path(), &self.target)?;
        Ok(())
    }

    pub(crate) fn wait_until_ready(&mut self) -> Result<()> {
        self.process.wait_until_ready().with_context(|| {
            let log = fs::read_to_string(log_path(self.root.path())).unwrap_or_default();
            format!("the server did not start; its log:\n{log}")
        })
    }
}

/// The bare HTTP stack in a process of its own.
pub(crate) struct Ceiling {
    process: Process,
    pub(crate) target: Target,
}

impl Ceiling {
    pub(crate) fn start() -> Result<Self> {
        let target = Target { address: free_address()?, key: random_key()?.into() };
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command
            .arg("ceiling")
            .arg("--listen")
            .arg(target.address.to_string())
            // The ceiling ends when this pipe closes, so it cannot outlive the benchmark.
            .stdin(Stdio::piped());
        let mut process = Process::spawn(&mut command, "ceiling listening on http://")?;
        process.wait_until_ready()?;
        Ok(Self { process, target })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }
}

struct Process {
    child: Child,
    ready: mpsc::Receiver<()>,
}

impl Process {
    fn spawn(command: &mut Command, ready_line: &'static str) -> Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the process has no stdout")?;
        let (sender, ready) = mpsc::channel();
        // Reads to the end, so that the process never blocks on a full pipe; ends with the process.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.starts_with(ready_line) {
                    // The receiver is gone when nobody waits for readiness.
                    sender.send(()).ok();
                }
            }
        });
        Ok(Self { child, ready })
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        self.ready.recv_timeout(READY_WITHIN).map_err(|error| match self.child.try_wait() {
            Ok(Some(status)) => anyhow!("the process ended with {status}"),
            _ => anyhow!(error).context("the process did not say that it is ready"),
        })
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing is left to do when the process is gone already.
        self.kill().ok();
    }
}

fn spawn_server(program: &Path, root: &Path, target: &Target) -> Result<Process> {
    let log = File::options().create(true).append(true).open(log_path(root))?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg("--data")
        .arg(data_dir(root))
        .arg("--listen")
        .arg(target.address.to_string())
        .env_clear()
        .env("OUTLAST_ADMIN_KEY", target.key.as_ref())
        .stdin(Stdio::null())
        .stderr(log);
    Process::spawn(&mut command, "outlast listening on http://")
}

fn data_dir(root: &Path) -> PathBuf {
    root.join("data")
}

/// Beside the data directory, so that the log is not counted as data.
fn log_path(root: &Path) -> PathBuf {
    root.join("server.log")
}

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?)
}

fn random_key() -> Result<String> {
    let mut key = String::from("ol_");
    for _ in 0..3 {
        let word = getrandom::u64().map_err(|error| anyhow!("no randomness: {error}"))?;
        key.push_str(&format!("{word:016x}"));
    }
    Ok(key)
}
