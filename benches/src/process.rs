//! Starts, kills and restarts the processes under test. A process ends when its handle is dropped.
//! The server gets an empty environment but for its key, the URLs of what it stores in and, in the scenarios of push, the
//! leave to deliver to this machine, so that nothing set outside can weaken or tune it. Where a scenario has a
//! configuration file, it declares sources and queues, or room for more streams.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::connection;
use crate::request::{QUEUE, Target};

/// A start that takes longer has failed.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What a server stores in, what its nodes tell each other through, and whom it may call.
#[derive(Clone, Default)]
pub(crate) struct Backing {
    /// Without it the server keeps its jobs in its data directory.
    pub(crate) database_url: Option<String>,
    pub(crate) redis_url: Option<String>,
    /// It may deliver to this machine.
    pub(crate) delivers_here: bool,
    /// The text of its configuration file, if it has one.
    pub(crate) config: Option<String>,
}

/// The real server on a data directory of its own, which is deleted with it.
pub(crate) struct Server {
    process: Process,
    program: PathBuf,
    backing: Backing,
    pub(crate) target: Target,
    root: TempDir,
}

impl Server {
    /// Starts the server on an empty data directory under `dir` and makes the queue.
    pub(crate) async fn start(program: &Path, dir: &Path) -> Result<Self> {
        let server = Self::start_node(program, dir, Backing::default(), random_key()?)?;
        server.make_pull_queue().await?;
        Ok(server)
    }

    /// Starts the server on an empty data directory under `dir`, for receivers on this machine. It has no queue yet.
    pub(crate) fn start_push(program: &Path, dir: &Path) -> Result<Self> {
        let backing = Backing { delivers_here: true, ..Backing::default() };
        Self::start_node(program, dir, backing, random_key()?)
    }

    /// Starts the server on an empty data directory under `dir`, with a configuration file.
    pub(crate) fn start_with_config(program: &Path, dir: &Path, config: String) -> Result<Self> {
        let backing = Backing { config: Some(config), ..Backing::default() };
        Self::start_node(program, dir, backing, random_key()?)
    }

    /// Starts one or more servers on the same empty database, with one key, and makes the queue.
    pub(crate) async fn start_nodes(program: &Path, dir: &Path, backing: &Backing, count: usize) -> Result<Vec<Self>> {
        let key = random_key()?;
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push(Self::start_node(program, dir, backing.clone(), key.clone())?);
        }
        if let Some(node) = nodes.first() {
            node.make_pull_queue().await?;
        }
        Ok(nodes)
    }

    fn start_node(program: &Path, dir: &Path, backing: Backing, key: String) -> Result<Self> {
        let root = scratch_dir(dir)?;
        let target = Target { address: free_address()?, key: key.into() };
        let process = spawn_server(program, root.path(), &target, &backing)?;
        let mut server = Self { process, program: program.to_owned(), backing, target, root };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(crate) async fn make_pull_queue(&self) -> Result<()> {
        self.make_queue(QUEUE, &json!({"visibilityTimeout": 600})).await
    }

    pub(crate) async fn make_queue(&self, name: &str, settings: &Value) -> Result<()> {
        let request = self.target.put(&format!("/v1/queues/{name}"), settings.to_string().as_bytes());
        // 201 for a made queue; 200 where the server calls a PUT a replacement.
        connection::call_once(&self.target, &request, &[200, 201]).await.context("cannot make the queue")?;
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        data_dir(self.root.path())
    }

    /// Kills the process (SIGKILL), waits until it is gone and starts it again on the same data and address.
    /// Returns at once: the new process need not answer yet.
    pub(crate) fn kill_and_restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process = spawn_server(&self.program, self.root.path(), &self.target, &self.backing)?;
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
        self.process.id()
    }
}

/// A program that says on stdout when it is ready.
pub(crate) struct Process {
    child: Child,
    ready: mpsc::Receiver<()>,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command, ready_text: &'static str) -> Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the process has no stdout")?;
        let (sender, ready) = mpsc::channel();
        // Reads to the end, so that the process never blocks on a full pipe; ends with the process.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.contains(ready_text) {
                    // The receiver is gone when nobody waits for readiness.
                    sender.send(()).ok();
                }
            }
        });
        Ok(Self { child, ready })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_until_ready(&mut self) -> Result<()> {
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

fn spawn_server(program: &Path, root: &Path, target: &Target, backing: &Backing) -> Result<Process> {
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
    if let Some(url) = &backing.database_url {
        command.env("OUTLAST_DATABASE_URL", url).env("OUTLAST_ALLOW_LOCAL_OBJECTS", "true");
    }
    if let Some(url) = &backing.redis_url {
        command.env("OUTLAST_REDIS_URL", url);
    }
    if let Some(config) = &backing.config {
        let path = root.join("outlast.yaml");
        fs::write(&path, config)?;
        command.arg("-c").arg(path);
    }
    if backing.delivers_here {
        command.env("OUTLAST_ALLOW_PRIVATE_TARGETS", "127.0.0.0/8");
    }
    Process::spawn(&mut command, "outlast listening on http://")
}

fn data_dir(root: &Path) -> PathBuf {
    root.join("data")
}

/// Beside the data directory, so that the log is not counted as data.
fn log_path(root: &Path) -> PathBuf {
    root.join("server.log")
}

/// A directory that is deleted with its handle.
pub(crate) fn scratch_dir(dir: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("outlast-bench-").tempdir_in(dir);
    made.with_context(|| format!("cannot make a directory in {}", dir.display()))
}

pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?)
}

fn random_key() -> Result<String> {
    Ok(format!("ol_{}", random_text()?))
}

/// 48 hexadecimal digits that nobody can guess.
pub(crate) fn random_text() -> Result<String> {
    let mut text = String::new();
    for _ in 0..3 {
        let word = getrandom::u64().map_err(|error| anyhow!("no randomness: {error}"))?;
        text.push_str(&format!("{word:016x}"));
    }
    Ok(text)
}
