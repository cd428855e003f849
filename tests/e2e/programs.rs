//! Other programs beside the server: interpreters that judge or use it, and programs that run while a test goes on. They
//! are gone when the test ends, however it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use outlast_tests::wait;

/// An interpreter or a browser starts, or a program does what it was sent, well within this on two busy cores.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The interpreter, if it has this module. Where it is asked for, in CI or by name, it must be there.
pub(crate) fn python_with(module: &str) -> Option<PathBuf> {
    let named = std::env::var("OUTLAST_PYTHON").ok();
    let is_needed = named.is_some() || std::env::var("CI").is_ok_and(|value| value == "true");
    let python = PathBuf::from(named.unwrap_or_else(|| "python3".to_owned()));
    let found = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if found.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(!is_needed, "{} has no {module}: install tests/requirements.txt ({found:?})", python.display());
    println!("not run: {} has no {module}; install tests/requirements.txt", python.display());
    None
}

/// The interpreter, for programs that need nothing else.
pub(crate) fn python() -> PathBuf {
    PathBuf::from(std::env::var("OUTLAST_PYTHON").unwrap_or_else(|_| "python3".to_owned()))
}

/// A browser that can be run headless. In CI it must be there.
pub(crate) fn browser() -> Option<PathBuf> {
    let named = std::env::var("OUTLAST_BROWSER").ok();
    let is_needed = named.is_some() || std::env::var("CI").is_ok_and(|value| value == "true");
    let browser = PathBuf::from(named.unwrap_or_else(|| "chromium".to_owned()));
    let found = Command::new(&browser).arg("--version").output();
    if found.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(browser);
    }
    assert!(!is_needed, "{} cannot be run ({found:?})", browser.display());
    println!("not run: there is no {}", browser.display());
    None
}

/// A program under tests/scripts/.
pub(crate) fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)
}

/// A file under examples/.
pub(crate) fn example(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples").join(path)
}

/// Runs a program to its end and gives what it prints; it must end well.
pub(crate) fn printed_by(command: &mut Command, input: &[u8]) -> String {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program that runs beside the test.
pub(crate) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let lines = Arc::default();
        let out = read_lines(child.stdout.take().unwrap(), &lines);
        let err = read_lines(child.stderr.take().unwrap(), &lines);
        Running { child, lines, readers: vec![out, err] }
    }

    /// The address in the line with which a program says that it is ready.
    pub(crate) async fn address(&self) -> String {
        let line = self.line("listening on http://").await;
        let from = line.find("http://").unwrap();
        line[from..].trim_end_matches(", Ctrl-C ends").to_owned()
    }

    /// The first line that has this in it.
    pub(crate) async fn line(&self, part: &str) -> String {
        let what = format!("a line with {part:?}");
        wait::until_now(&what, DEADLINE, || self.lines().into_iter().find(|line| line.contains(part))).await
    }

    /// Everything printed so far, on both outputs.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the program has ended already: {:?}", self.lines());
    }

    /// Ctrl-C, and what is left when it has ended.
    pub(crate) async fn interrupt(self) -> (ExitStatus, Vec<String>) {
        self.signal("INT");
        self.end().await
    }

    /// Waits for the end, and gives what is left then.
    pub(crate) async fn end(mut self) -> (ExitStatus, Vec<String>) {
        let ended = || self.child.try_wait().unwrap();
        let status = wait::until_now("the end of a program", DEADLINE, ended).await;
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (status, self.lines())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("a program beside the test has printed:\n{}", self.lines().join("\n"));
        }
    }
}

fn read_lines(source: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    })
}

/// A program of ours with nothing of our own environment but the way to interpreters.
pub(crate) fn clean_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}
