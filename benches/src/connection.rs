//! One keep-alive HTTP/1.1 connection with the smallest answer parser that is safe: status and content-length.
//! An exchange costs one write and, as a rule, one read. There is no timeout per call: the phase around it has one.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::request::Target;

/// Larger than a usual answer: a read that does not fill the buffer tells the runtime that the socket is drained.
const BUFFER_BYTES: usize = 16 * 1024;
/// For a single question outside a phase; a server that takes longer is stuck.
const SINGLE_CALL_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) head_bytes: usize,
    pub(crate) body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The body, provided that the server answered as the scenario needs.
    pub(crate) fn expect(self, status: u16) -> Result<&'a [u8]> {
        ensure!(
            self.status == status,
            "expected status {status}, got {}: {}",
            self.status,
            String::from_utf8_lossy(self.body)
        );
        Ok(self.body)
    }
}

/// An answer to a single question, outside a phase.
pub(crate) struct SingleAnswer {
    pub(crate) body: Vec<u8>,
    pub(crate) total_bytes: usize,
}

/// Asks once, on a connection of its own, and expects one of the given statuses.
pub(crate) async fn call_once(target: &Target, request: &[u8], statuses: &[u16]) -> Result<SingleAnswer> {
    let exchange = async {
        let mut connection = Connection::open(target).await?;
        let answer = connection.call(request).await?;
        ensure!(
            statuses.contains(&answer.status),
            "unexpected status {}: {}",
            answer.status,
            String::from_utf8_lossy(answer.body)
        );
        Ok(SingleAnswer { body: answer.body.to_vec(), total_bytes: answer.head_bytes + answer.body.len() })
    };
    tokio::time::timeout(SINGLE_CALL_WITHIN, exchange).await.context("no answer in time")?
}

struct Head {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
}

impl Connection {
    pub(crate) async fn open(target: &Target) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "a benchmark calls the server it has started")]
        let stream = TcpStream::connect(target.address)
            .await
            .with_context(|| format!("cannot connect to {}", target.address))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    pub(crate) async fn open_many(target: &Target, count: usize) -> Result<Vec<Self>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(Self::open(target).await?);
        }
        Ok(connections)
    }

    /// Sends one request and reads its whole answer. Not cancel-safe: drop the connection after a cancelled call.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let head = loop {
            filled += self.read_more(filled).await?;
            let read = self.buffer.get(..filled).unwrap_or_default();
            if let Some(head) = parse_head(read)? {
                break head;
            }
        };
        let total = head.head_bytes + head.body_bytes;
        if self.buffer.len() <= total {
            self.buffer.resize(total + BUFFER_BYTES, 0);
        }
        while filled < total {
            filled += self.read_more(filled).await?;
        }
        ensure!(filled == total, "the server sent more than its answer");
        Ok(Answer {
            status: head.status,
            head_bytes: head.head_bytes,
            body: self.buffer.get(head.head_bytes..total).unwrap_or_default(),
        })
    }

    async fn read_more(&mut self, filled: usize) -> Result<usize> {
        let free = self.buffer.get_mut(filled..).unwrap_or_default();
        ensure!(!free.is_empty(), "the answer's head does not end");
        let count = self.stream.read(free).await?;
        ensure!(count > 0, "the server closed the connection");
        Ok(count)
    }
}

/// `None` while the head is not complete.
fn parse_head(read: &[u8]) -> Result<Option<Head>> {
    let Some(head) = head(read) else {
        return Ok(None);
    };
    let status = head
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|line| line.get(..3))
        .and_then(parse_number)
        .and_then(|status| u16::try_from(status).ok())
        .context("the answer does not start with an HTTP/1.1 status line")?;
    let Some(body_bytes) = body_bytes(head)? else {
        bail!("the answer with status {status} has no content-length");
    };
    Ok(Some(Head { status, head_bytes: head.len(), body_bytes }))
}

/// The head at the beginning of what was read, its empty line included; `None` while it is not complete.
pub(crate) fn head(read: &[u8]) -> Option<&[u8]> {
    let end = read.windows(4).position(|window| window == b"\r\n\r\n")?;
    read.get(..end + 4)
}

/// What the head says about the length of the body.
pub(crate) fn body_bytes(head: &[u8]) -> Result<Option<usize>> {
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some((name, value)) = split_header(line) else {
            continue;
        };
        if name.eq_ignore_ascii_case(b"content-length") {
            return parse_number(value).context("content-length is not a number").map(Some);
        }
    }
    Ok(None)
}

fn split_header(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
}

fn parse_number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whatever_the_case_of_its_names() {
        let read = b"HTTP/1.1 202 Accepted\r\nDate: x\r\nContent-LENGTH: 12\r\n\r\nbody";

        let head = parse_head(read).unwrap().unwrap();

        assert_eq!(head.status, 202);
        assert_eq!(head.body_bytes, 12);
        assert_eq!(head.head_bytes, read.len() - 4);
    }

    #[test]
    fn half_a_head_asks_for_more() {
        assert!(parse_head(b"HTTP/1.1 202 Accepted\r\nconte").unwrap().is_none());
    }

    #[test]
    fn an_answer_without_a_length_is_refused() {
        assert!(parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
