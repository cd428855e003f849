//! HTTP by hand over a bare socket, for requests that no client library would send.

use std::io;
use std::time::Duration;

use outlast_tests::wait::within;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A hit means the server neither answers nor closes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Raw {
    pub(crate) async fn connect(base: &str) -> io::Result<Raw> {
        let address = base.strip_prefix("http://").expect("the server speaks plain HTTP");
        Ok(Raw { stream: TcpStream::connect(address).await?, unread: Vec::new() })
    }

    /// Errors are left to the answer: a server that refuses early closes while the rest is being sent.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The next answer; `None` when the server closes without one.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        within(ANSWER_DEADLINE, self.read_answer()).await.expect("an answer, or the end of the connection")
    }

    /// Whether the server has answered or closed by then.
    pub(crate) async fn has_news_within(&mut self, time: Duration) -> bool {
        timeout(time, self.read_more()).await.is_ok()
    }

    /// Everything up to the end of the connection; panics when it does not end within the deadline.
    pub(crate) async fn rest(&mut self, deadline: Duration) -> Vec<u8> {
        let read = async { while self.read_more().await {} };
        within(deadline, read).await.unwrap_or_else(|| panic!("the server did not close within {deadline:?}"));
        std::mem::take(&mut self.unread)
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let head_end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read_more().await {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.unread[..head_end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.unread.len() < head_end + length && self.read_more().await {}
        let end = self.unread.len().min(head_end + length);
        answer.body = String::from_utf8_lossy(&self.unread[head_end..end]).into_owned();
        self.unread.drain(..end);
        Some(answer)
    }

    async fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.unread.extend_from_slice(&buffer[..length]);
                true
            }
        }
    }
}

/// One request on its own connection, byte for byte.
pub(crate) async fn exchange(base: &str, request: impl AsRef<[u8]>) -> Option<Answer> {
    let mut raw = Raw::connect(base).await.expect("the server listens");
    raw.send(request).await;
    raw.answer().await
}
