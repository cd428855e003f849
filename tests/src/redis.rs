//! A private Redis on a free port: nothing on disk, and it can be killed, emptied, stopped in its tracks and restarted
//! on the same port.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

use crate::daemon::{Daemon, Folder, find_program, free_port, until};

const START_DEADLINE: Duration = Duration::from_secs(20);
/// A paused Redis does not answer; do not query it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Each try takes another port; more in a row are not taken by accident.
const PORTS_TRIED_MAX: usize = 5;

pub struct Redis {
    pub url: String,
    port: u16,
    // Before `folder`: the process must be gone when the directory is removed.
    daemon: Daemon,
    folder: Folder,
}

impl Redis {
    /// The one of this test process, for tests that do it no harm.
    pub fn shared() -> &'static Redis {
        static SHARED: OnceLock<Redis> = OnceLock::new();
        SHARED.get_or_init(Redis::start)
    }

    /// One of its own.
    pub fn start() -> Redis {
        let folder = Folder::new("outlast-redis-");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            if let Some(daemon) = start_on(&folder, port) {
                return Redis { url: format!("redis://127.0.0.1:{port}"), port, daemon, folder };
            }
        }
        panic!("redis-server did not start on any of {PORTS_TRIED_MAX} ports")
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kill -9, and wait until the process is gone.
    pub fn kill(&mut self) {
        self.daemon.end_by("KILL");
    }

    /// A new start on the same port, empty. The one before must be gone.
    pub fn restart(&mut self) {
        assert!(!self.is_running(), "it has to be killed first");
        self.daemon = start_on(&self.folder, self.port).expect("the port is still free");
    }

    /// Stops the process where it is: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.daemon.signal("STOP");
    }

    pub fn resume(&self) {
        self.daemon.signal("CONT");
    }

    pub fn flush(&self) {
        assert_eq!(self.command("FLUSHALL"), "+OK");
    }

    pub fn is_running(&mut self) -> bool {
        self.daemon.exit_status().is_none()
    }

    /// Sends one command and gives the first line of the answer.
    pub fn command(&self, words: &str) -> String {
        ask(self.port, words).unwrap_or_else(|| panic!("no answer to {words:?}"))
    }

    /// Sends a command whose answer is a text of several lines, and gives it whole.
    pub fn command_bulk(&self, words: &str) -> String {
        ask_all(self.port, words).unwrap_or_else(|| panic!("no answer to {words:?}"))
    }
}

/// `None` when the port was taken.
fn start_on(folder: &Folder, port: u16) -> Option<Daemon> {
    let mut command = folder.command(&find_program("redis-server", &[], "redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    let mut daemon = Daemon::start(folder, command, "KILL");
    let is_up = until("redis-server to answer or to end", START_DEADLINE, || {
        if daemon.exit_status().is_some() {
            return Some(false);
        }
        // Another program on the port is not this one.
        let own = format!("process_id:{}", daemon.process_id());
        (ask_all(port, "INFO server")?.contains(&own)).then_some(true)
    });
    is_up.then_some(daemon)
}

fn ask(port: u16, words: &str) -> Option<String> {
    let mut reader = send(port, words)?;
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

/// The content of a bulk answer.
fn ask_all(port: u16, words: &str) -> Option<String> {
    let mut reader = send(port, words)?;
    let mut head = String::new();
    reader.read_line(&mut head).ok()?;
    let mut body = vec![0; head.trim_end().strip_prefix('$')?.parse().ok()?];
    std::io::Read::read_exact(&mut reader, &mut body).ok()?;
    String::from_utf8(body).ok()
}

fn send(port: u16, words: &str) -> Option<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    stream.write_all(format!("{words}\r\n").as_bytes()).ok()?;
    Some(BufReader::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_forgets_dies_comes_back_and_pauses() {
        let mut redis = Redis::start();
        assert_eq!(redis.command("SET a 1"), "+OK");

        redis.flush();
        assert_eq!(redis.command("EXISTS a"), ":0");

        redis.kill();
        assert!(!redis.is_running() && TcpStream::connect(redis.address()).is_err());
        redis.restart();
        assert_eq!(redis.command("PING"), "+PONG");

        redis.pause();
        let mut stream = TcpStream::connect(redis.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        assert!(std::io::Read::read(&mut stream, &mut [0; 8]).is_err(), "nothing comes while it is paused");
        redis.resume();
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        assert_eq!(std::io::Read::read(&mut stream, &mut [0; 8]).unwrap(), 7);
    }
}
