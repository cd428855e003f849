//! The real server as a child process: start on a directory, kill, stop, start again on the same directory.
//! Its standard error is kept in a file beside the data and printed when the test fails.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::http::Client;
use crate::wait;

/// A debug build under load on two cores opens its store well within this.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// A killed process is gone in milliseconds; a graceful stop may drain first.
const EXIT_DEADLINE: Duration = Duration::from_secs(40);
const LOG_LINES_SHOWN: usize = 60;

/// What to start and on what. Clones share the directory, so a clone is a second start on the same data.
#[derive(Clone)]
pub struct Launch {
    pub program: PathBuf,
    pub data: PathBuf,
    pub key: String,
    environment: Vec<(String, String)>,
    wrapper: Vec<String>,
    scratch: Arc<TempDir>,
    starts: Arc<AtomicU64>,
}

pub struct Server {
    pub base: String,
    // Before `launch`: the process must be gone when the directory is removed.
    process: Process,
    launch: Launch,
}

/// The process group of one start; gone when dropped.
struct Process {
    child: Child,
    log: PathBuf,
    exited: bool,
}

/// The server ended before it said that it listens.
#[derive(Debug)]
pub struct EarlyExit {
    pub status: ExitStatus,
    pub log: String,
}

impl Launch {
    /// The `outlast` binary on a fresh directory.
    pub fn fresh() -> Launch {
        Launch::of(outlast_binary())
    }

    /// A given binary with the same flags, on a fresh directory.
    pub fn of(program: PathBuf) -> Launch {
        let scratch = TempDir::with_prefix("outlast-e2e-").expect("a temporary directory");
        let mut chance = Chance::seeded(u64::from(std::process::id()));
        Launch {
            program,
            data: scratch.path().join("data"),
            key: format!("ol_{}_{}", chance.text(12), chance.text(43)),
            environment: Vec::new(),
            wrapper: Vec::new(),
            scratch: Arc::new(scratch),
            starts: Arc::default(),
        }
    }

    pub fn on(mut self, data: &Path) -> Launch {
        self.data = data.to_owned();
        self
    }

    pub fn with_env(mut self, name: &str, value: &str) -> Launch {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the server as the last arguments of another command, such as strace.
    pub fn wrapped_by(mut self, wrapper: Vec<String>) -> Launch {
        self.wrapper = wrapper;
        self
    }

    /// A place for files that belong to the test and not to the server.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts and waits for the ready line; panics when the server ends instead.
    pub async fn start(&self) -> Server {
        match self.try_start().await {
            Ok(server) => server,
            Err(early) => panic!("the server ended at start with {}:\n{}", early.status, early.log),
        }
    }

    /// Starts and waits until the server listens or ends.
    pub async fn try_start(&self) -> Result<Server, EarlyExit> {
        let (mut process, ready) = self.spawn();
        let base = match tokio::time::timeout(START_DEADLINE, ready).await {
            Ok(Ok(base)) => base,
            Ok(Err(_closed)) => {
                let status = process.wait_for_exit("the exit of a server that closed its output").await;
                let log = process.log_tail();
                return Err(EarlyExit { status, log });
            }
            Err(_elapsed) => panic!("no ready line within {START_DEADLINE:?}:\n{}", process.log_tail()),
        };
        Ok(Server { base, launch: self.clone(), process })
    }

    fn spawn(&self) -> (Process, oneshot::Receiver<String>) {
        let start = self.starts.fetch_add(1, Ordering::SeqCst);
        let log = self.scratch().join(format!("stderr-{start}.log"));
        let mut words: Vec<_> = self.wrapper.iter().map(Into::into).collect();
        words.push(self.program.clone().into_os_string());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&self.data)
            .env("OUTLAST_ADMIN_KEY", &self.key)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("the log file can be made"))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {words:?}: {error}"));

        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (tell, ready) = oneshot::channel();
        std::thread::spawn(move || {
            let mut tell = Some(tell);
            // Reads to the end, so that a chatty server never blocks on a full pipe.
            for line in output.lines().map_while(Result::ok) {
                if let Some(base) = line.strip_prefix("outlast listening on ")
                    && let Some(tell) = tell.take()
                {
                    let _ = tell.send(base.trim().trim_end_matches('/').to_owned());
                }
            }
        });
        let exited = false;
        (Process { child, log, exited }, ready)
    }
}

impl Server {
    /// The real binary on a fresh directory.
    pub async fn fresh() -> Server {
        Launch::fresh().start().await
    }

    pub fn client(&self) -> Client {
        Client::new(&self.base, &self.launch.key)
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Kill -9, and wait until the process is gone.
    pub async fn kill9(&mut self) {
        self.process.signal("KILL");
        self.process.wait_for_exit("the end of a killed server").await;
    }

    /// SIGTERM, and wait for the graceful exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM");
        self.process.wait_for_exit("the exit after SIGTERM").await
    }

    /// Stops the process where it is: nothing it has not yet sent is ever sent. Waits until every thread stands still.
    pub async fn freeze(&self) {
        self.process.signal("STOP");
        let tasks = format!("/proc/{}/task", self.process_id());
        wait::until_now("all threads to stand still", EXIT_DEADLINE, || all_stopped(&tasks).then_some(())).await;
    }

    /// SIGTERM, without waiting: what the server does from here on is what the test is about.
    pub fn ask_to_stop(&self) {
        self.process.signal("TERM");
    }

    /// The id of the process; with a wrapper, the wrapper's.
    pub fn process_id(&self) -> u32 {
        self.process.child.id()
    }

    /// All that this start has written to its standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.process.log).expect("the log can be read")
    }

    /// Kill -9, then a new start on the same directory (and on another port).
    pub async fn crash_and_restart(&mut self) {
        self.kill9().await;
        *self = self.launch.clone().start().await;
    }

    /// Waits for the process to end by itself.
    pub async fn exit_within(&mut self, deadline: Duration) -> ExitStatus {
        self.process.exit_within("the server to end by itself", deadline).await
    }

    pub fn is_running(&mut self) -> bool {
        self.process.exit_status().is_none()
    }
}

impl Process {
    /// Signals the whole group, since a wrapper and the server under it are two processes.
    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", name, "--", &group]).stderr(Stdio::null()).status();
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("the child can be waited for");
        self.exited = self.exited || status.is_some();
        status
    }

    async fn wait_for_exit(&mut self, what: &str) -> ExitStatus {
        self.exit_within(what, EXIT_DEADLINE).await
    }

    async fn exit_within(&mut self, what: &str, deadline: Duration) -> ExitStatus {
        wait::until_now(what, deadline, || self.exit_status()).await
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.exited {
            self.signal("KILL");
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- end of the server's log ({}) ---\n{}", self.log.display(), self.log_tail());
        }
    }
}

/// The state stands behind the name, which is in parentheses.
fn all_stopped(tasks: &str) -> bool {
    let Ok(threads) = fs::read_dir(tasks) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z']))
    })
}

/// `OUTLAST_BIN`, or `outlast` in the profile directory this test was built into.
fn outlast_binary() -> PathBuf {
    if let Ok(path) = std::env::var("OUTLAST_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let path = test.ancestors().nth(2).expect("tests stand in <profile>/deps").join("outlast");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build -p outlast` first (with --release for release tests), or set OUTLAST_BIN",
        path.display()
    );
    path
}
