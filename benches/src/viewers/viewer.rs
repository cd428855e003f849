//! One viewer: a stream of server-sent events, read line by line. It knows the last event it has seen, comes back with it,
//! and takes no event twice or out of order.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::clock;
use crate::request::Target;

use super::audience::Audience;

/// An event and its frame are smaller.
const BUFFER_BYTES: usize = 1024;
/// Until the next attempt, while nobody listens.
const NOBODY_PAUSE: Duration = Duration::from_millis(20);
/// What the server asks for with 503.
const LATER_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Viewer {
    pub(super) from: Ipv4Addr,
    pub(super) target: Target,
    pub(super) path: String,
    pub(super) last_event: u64,
    pub(super) audience: Arc<Audience>,
}

/// How a stream, or the attempt to open one, ended.
enum End {
    Nobody,
    Later,
    /// Before an answer came.
    Cut,
    Over,
}

impl Viewer {
    /// Views without end; with `opening` the first stream waits for its turn.
    pub(super) async fn view(mut self, opening: Arc<Semaphore>) -> Result<()> {
        let mut turn = Some(opening.acquire_owned().await?);
        loop {
            let end = match self.open().await? {
                Err(end) => end,
                Ok((stream, lines)) => {
                    turn.take();
                    self.read(stream, lines).await?
                }
            };
            ensure!(self.audience.expects_cuts(), "a stream ended, or was not opened, while the server was well");
            match end {
                End::Nobody => tokio::time::sleep(NOBODY_PAUSE).await,
                End::Later => {
                    self.audience.later.add(1);
                    tokio::time::sleep(LATER_PAUSE).await;
                }
                End::Cut => self.audience.cut.add(1),
                End::Over => {}
            }
        }
    }

    /// Sends the request and reads the head of the answer.
    async fn open(&self) -> Result<Result<(TcpStream, Lines), End>> {
        let mut stream = match self.connect().await {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(Err(End::Nobody)),
            Err(error) => return Err(error).context("cannot connect"),
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nlast-event-id: {}\r\n\r\n",
            self.path, self.target.address, self.target.key, self.last_event
        );
        if stream.write_all(request.as_bytes()).await.is_err() {
            return Ok(Err(End::Cut));
        }
        let (mut lines, mut head) = (Lines::default(), Vec::new());
        loop {
            while let Some(line) = lines.next() {
                if line.is_empty() {
                    return self.judge(&head).map(|judged| judged.map(|()| (stream, lines)));
                }
                head.push(String::from_utf8(line)?.to_ascii_lowercase());
            }
            if lines.read_from(&mut stream).await == 0 {
                return Ok(Err(End::Cut));
            }
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((self.from, 0)))?;
        #[expect(clippy::disallowed_methods, reason = "a benchmark calls the server it has started")]
        socket.connect(self.target.address).await
    }

    fn judge(&self, head: &[String]) -> Result<Result<(), End>> {
        let status = head.first().and_then(|line| line.strip_prefix("http/1.1 ")).unwrap_or_default();
        match status.get(..3) {
            Some("200") => {
                self.audience.opened();
                Ok(Ok(()))
            }
            Some("503") if head.iter().any(|line| line.starts_with("retry-after: ")) => Ok(Err(End::Later)),
            _ => bail!("a stream was answered with {head:?}"),
        }
    }

    async fn read(&mut self, mut stream: TcpStream, mut lines: Lines) -> Result<End> {
        loop {
            let arrived = clock::now();
            while let Some(line) = lines.next() {
                let Some(id) = line.strip_prefix(b"id: ") else {
                    continue;
                };
                let event = std::str::from_utf8(id)?.parse()?;
                ensure!(event == self.last_event + 1, "event {event} came after {}", self.last_event);
                self.last_event = event;
                self.audience.note(event, arrived);
            }
            if lines.read_from(&mut stream).await == 0 {
                return Ok(End::Over);
            }
        }
    }
}

/// What came, cut into lines. The marks of chunks stand between them as lines of their own.
#[derive(Default)]
struct Lines {
    unread: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
        Some(line)
    }

    /// How much came; nothing when the stream is over, by an error or by itself.
    async fn read_from(&mut self, stream: &mut TcpStream) -> usize {
        let mut buffer = [0; BUFFER_BYTES];
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        self.unread.extend_from_slice(buffer.get(..count).unwrap_or_default());
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_their_ends() {
        let mut lines = Lines { unread: b"1a\r\nid: 7\nevent: state\n\nda".to_vec() };

        let mut seen = Vec::new();
        while let Some(line) = lines.next() {
            seen.push(String::from_utf8(line).unwrap());
        }

        assert_eq!(seen, ["1a", "id: 7", "event: state", ""]);
        assert_eq!(lines.unread, b"da");
    }
}
