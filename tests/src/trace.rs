//! System calls of the real server that fail or kill it, injected by strace, and what its log says about them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From which call on (counted per thread), and for how long, the calls fail with EIO.
#[derive(Debug, Clone, Copy)]
pub struct Injection {
    /// Names as strace takes them, separated by commas.
    pub calls: &'static str,
    pub ordinal: u32,
    /// Sticky: every later call fails too. Otherwise the disk seems healthy again at once.
    pub sticky: bool,
}

impl Injection {
    /// The command to put in front of the server; the log is written to `log`.
    pub fn wrapper(&self, log: &Path) -> Vec<String> {
        let calls = self.calls;
        let every = if self.sticky { "+" } else { "" };
        let words = [
            "strace",
            "-f",
            // Only the named calls stop in strace, so the server keeps nearly its own speed.
            "--seccomp-bpf",
            "-ttt",
            "-o",
            &log.display().to_string(),
            "-e",
            &format!("trace={calls}"),
            "-e",
            &format!("inject={calls}:error=EIO:when={}{every}", self.ordinal),
        ];
        words.map(str::to_owned).to_vec()
    }
}

/// At which call (counted per thread) the server is killed, before the call is carried out.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    /// Names as strace takes them, separated by commas.
    pub calls: &'static str,
    pub ordinal: u32,
}

impl Death {
    /// The command to put in front of the server; the log is written to `log`.
    pub fn wrapper(&self, log: &Path) -> Vec<String> {
        let Death { calls, ordinal } = self;
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:signal=SIGKILL:when={ordinal}"));
        let log = log.display().to_string();
        // Without the filter that makes tracing cheap: with it signals are not injected.
        ["strace", "-f", "-o", &log, "-e", &trace, "-e", &inject].map(str::to_owned).to_vec()
    }
}

/// The moment of the first injected error, or nothing if the server never made that many calls.
pub fn first_injection(log: &PathBuf) -> Option<SystemTime> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().find(|line| line.contains("(INJECTED)")).and_then(moment)
}

/// `1234 1700000000.123456 fdatasync(7) = -1 EIO (Input/output error) (INJECTED)`
fn moment(line: &str) -> Option<SystemTime> {
    let seconds: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(UNIX_EPOCH + Duration::from_secs_f64(seconds))
}

/// Whether strace runs here at all; `make test` installs it.
pub fn strace_is_installed() -> bool {
    std::process::Command::new("strace").arg("--version").output().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_injected_call_is_found_by_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let text = "77 1700000000.100000 fsync(3) = 0\n\
                    77 1700000001.500000 fsync(3) = -1 EIO (Input/output error) (INJECTED)\n\
                    78 1700000002.500000 fsync(3) = -1 EIO (Input/output error) (INJECTED)\n";
        std::fs::write(&log, text).unwrap();

        let found = first_injection(&log).unwrap();

        let expected = UNIX_EPOCH + Duration::from_millis(1_700_000_001_500);
        let distance = found.duration_since(expected).unwrap_or_else(|early| early.duration());
        assert!(distance < Duration::from_millis(1));
    }

    #[test]
    fn a_log_without_an_injected_call_has_no_moment() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "77 1700000000.100000 fsync(3) = 0\n").unwrap();

        assert_eq!(first_injection(&log), None);
        assert_eq!(first_injection(&directory.path().join("missing")), None);
    }
}
