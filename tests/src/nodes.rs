//! The nodes of a server: each is one process of the real binary on its own port, with its standard error in a file of
//! its own, which is printed when the test fails. A node can be killed, stopped in its tracks, ended in order and
//! started again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::http::Client;
use crate::server::Launch;
use crate::wait;

/// A debug build under load on two cores opens its store well within this, migrations included.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// A killed process is gone in milliseconds; a graceful stop may drain first.
const EXIT_DEADLINE: Duration = Duration::from_secs(40);
const LOG_LINES_SHOWN: usize = 60;

pub struct Node {
    pub number: usize,
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

impl Node {
    /// Starts and waits until the node listens or ends.
    pub async fn start(launch: &Launch, number: usize) -> Result<Node, EarlyExit> {
        let (mut process, ready) = spawn(launch, number);
        let base = match wait::within(START_DEADLINE, ready).await {
            Some(Ok(base)) => base,
            Some(Err(_closed)) => {
                let status = process.wait_for_exit("the exit of a server that closed its output").await;
                let log = process.log_tail();
                return Err(EarlyExit { status, log });
            }
            None => panic!("no ready line within {START_DEADLINE:?}:\n{}", process.log_tail()),
        };
        Ok(Node { number, base, process, launch: launch.clone() })
    }

    /// Talks to this node alone, past any balancer.
    pub fn client(&self) -> Client {
        Client::new(&self.base, &self.launch.key)
    }

    pub fn client_with_timeout(&self, timeout: Duration) -> Client {
        Client::with_timeout(&self.base, &self.launch.key, timeout)
    }

    pub fn address(&self) -> SocketAddr {
        let address = self.base.strip_prefix("http://").and_then(|address| address.parse().ok());
        address.expect("a node listens on http://address:port")
    }

    /// Kill -9, and wait until the process is gone.
    pub async fn kill9(&mut self) {
        self.begin_kill9();
        self.process.wait_for_exit("the end of a killed server").await;
    }

    /// Kill -9, without waiting.
    pub fn begin_kill9(&self) {
        self.process.signal("KILL");
    }

    /// SIGTERM, and wait for the graceful exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.process.wait_for_exit("the exit after SIGTERM").await
    }

    /// SIGTERM, without waiting: what the node does from here on is what the test is about.
    pub fn ask_to_stop(&self) {
        self.process.signal("TERM");
    }

    /// SIGHUP: the node reads its configuration again, some time soon.
    pub fn hang_up(&self) {
        self.process.signal("HUP");
    }

    /// Stops the process where it is: nothing it has not yet sent is sent before `resume`. Waits until every thread has
    /// stopped.
    pub async fn freeze(&self) {
        self.process.signal("STOP");
        let tasks = format!("/proc/{}/task", self.process_id());
        wait::until_now("all threads to stand still", EXIT_DEADLINE, || all_stopped(&tasks).then_some(())).await;
    }

    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// A new start of a node that is gone, on another port.
    pub async fn start_again(&mut self) {
        assert!(!self.is_running(), "node {} has to be stopped first", self.number);
        match Node::start(&self.launch.clone(), self.number).await {
            Ok(node) => *self = node,
            Err(early) => panic!("node {} ended at start with {}:\n{}", self.number, early.status, early.log),
        }
    }

    /// The id of the process; with a wrapper, the wrapper's.
    pub fn process_id(&self) -> u32 {
        self.process.child.id()
    }

    /// All that this start has written to its standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.process.log).expect("the log can be read")
    }

    /// Waits for the process to end.
    pub async fn exit_within(&mut self, deadline: Duration) -> ExitStatus {
        self.process.exit_within("the server to end", deadline).await
    }

    pub fn is_running(&mut self) -> bool {
        self.process.exit_status().is_none()
    }
}

fn spawn(launch: &Launch, number: usize) -> (Process, oneshot::Receiver<String>) {
    let log = launch.next_log(number);
    let mut words: Vec<_> = launch.wrapper(number).iter().map(Into::into).collect();
    words.push(launch.program.clone().into_os_string());
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(["serve", "--data"])
        .arg(launch.data_of(number))
        .args(if launch.listens_by_file { &[][..] } else { &["--listen", "127.0.0.1:0"] })
        .args(&launch.flags)
        .env("OUTLAST_ADMIN_KEY", &launch.key)
        .envs(launch.environment(number))
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

/// The state follows the name, which is in parentheses.
fn all_stopped(tasks: &str) -> bool {
    let Ok(threads) = fs::read_dir(tasks) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z']))
    })
}
