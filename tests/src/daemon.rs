//! A program that the tests need beside the server (a database, a cache, a pooler), in the background and in a folder
//! of its own. It ends and its folder goes with the value that holds it; and when the test process ends without
//! dropping that value (statics, kill -9), a small shell that waits for this does the same.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::stopwatch::Stopwatch;
use crate::wait;

/// How often a condition is looked at; small against every deadline here.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A killed process is gone in milliseconds; a database that stops at once may first end its children.
const EXIT_DEADLINE: Duration = Duration::from_secs(20);
const LOG_LINES_SHOWN: usize = 40;

/// Waits for the end of its input. A word before that end means that everything is in order.
/// `$1` folder, `$2` process and `$3` signal, if any. Five seconds, then by force.
const WATCH: &str = r#"
read -r word && exit 0
if [ -n "$2" ]; then
  kill -s "$3" "$2" 2>/dev/null
  kill -s CONT "$2" 2>/dev/null
  for turn in $(seq 100); do kill -0 "$2" 2>/dev/null || break; sleep 0.05; done
  kill -s KILL "$2" 2>/dev/null
fi
rm -rf "$1"
"#;

/// The shell that cleans up when this process has ended without doing so.
struct Watch(Child);

/// Where a daemon keeps its things, and as whom it runs: some refuse to run as root.
pub struct Folder {
    // Before `_watch`: in order is what is gone.
    directory: TempDir,
    user: Option<&'static str>,
    _watch: Watch,
}

/// A running program. `end_signal` is what ends it quickly and for sure.
pub struct Daemon {
    child: Child,
    end_signal: &'static str,
    log: PathBuf,
    // Dropped when the child is gone.
    _watch: Watch,
}

impl Watch {
    fn over(folder: &Path, process: &[&str]) -> Watch {
        let mut command = Command::new("sh");
        command.args(["-c", WATCH, "watch"]).arg(folder).args(process).stdin(Stdio::piped()).process_group(0);
        Watch(command.spawn().expect("there is a shell"))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

impl Folder {
    /// For a program that runs as the user of the tests.
    pub fn new(prefix: &str) -> Folder {
        let directory = TempDir::with_prefix(prefix).expect("a temporary directory");
        let _watch = Watch::over(directory.path(), &[]);
        Folder { directory, user: None, _watch }
    }

    /// For a program that refuses to run as root: then the folder and the program are `user`'s.
    pub fn not_of_root(prefix: &str, user: &'static str) -> Folder {
        let mut folder = Folder::new(prefix);
        if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            run_to_the_end(Command::new("chown").arg(user).arg(folder.path()));
            folder.user = Some(user);
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file that only the program can read.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, content).expect("the folder can be written to");
        self.hand_over(&path);
        path
    }

    /// Makes a file that is there the program's own.
    pub fn hand_over(&self, path: &Path) {
        run_to_the_end(Command::new("chmod").arg("600").arg(path));
        if let Some(user) = self.user {
            run_to_the_end(Command::new("chown").arg(user).arg(path));
        }
    }

    /// A command that will run as the folder's user, in the folder.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", user, "--init-groups", "--"]).arg(program);
                command
            }
        };
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }
}

impl Daemon {
    /// Starts a command of [`Folder::command`]. Its output goes to the file `log` of the folder, across starts.
    pub fn start(folder: &Folder, mut command: Command, end_signal: &'static str) -> Daemon {
        let log = folder.path().join("log");
        let output: File = OpenOptions::new().create(true).append(true).open(&log).expect("the log can be opened");
        let again = output.try_clone().expect("a file can be opened twice");
        let started = command.stdout(output).stderr(again).process_group(0).spawn();
        let child = started.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let _watch = Watch::over(folder.path(), &[&child.id().to_string(), end_signal]);
        Daemon { child, end_signal, log, _watch }
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).stderr(Stdio::null()).status();
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child can be waited for")
    }

    /// Ends the program with this signal and waits until it is gone.
    pub fn end_by(&mut self, signal: &str) {
        if self.exit_status().is_none() {
            self.signal(signal);
        }
        until("the end of a daemon", EXIT_DEADLINE, || self.exit_status());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(self.end_signal);
            self.signal("CONT");
            let _ = self.child.wait();
        }
        if thread::panicking() {
            eprintln!("--- end of {} ---\n{}", self.log.display(), self.log_tail());
        }
    }
}

/// A free port. Another process may take it before the caller does.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// Polls without a runtime: daemons are also started from places that are not asynchronous.
#[track_caller]
pub fn until<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let stopwatch = Stopwatch::start();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(!stopwatch.has_passed(deadline), "{}", wait::still_waiting(what, deadline, &stopwatch));
        thread::sleep(POLL_INTERVAL);
    }
}

/// The output of a command; panics with its error output when it fails.
#[track_caller]
pub fn run_to_the_end(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program in one of these directories or on the path; panics with the name of the Debian package that has it.
pub fn find_program(name: &str, directories: &[PathBuf], package: &str) -> PathBuf {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = directories.iter().cloned().chain(std::env::split_paths(&on_path));
    let found = places.find_map(|place| Some(place.join(name)).filter(|path| path.is_file()));
    found.unwrap_or_else(|| panic!("{name} is missing: `make test` installs it, or install the package {package}"))
}
