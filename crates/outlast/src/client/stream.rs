//! Reads a job's log live: the server-sent events of `GET /v1/jobs/{id}/stream`. It never reconnects; the caller polls
//! instead when the stream breaks off.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use super::{ANSWER_BYTES_MAX, Call, Client};

/// The server sends a keepalive every 15 s; after three missed ones the stream is dead.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Pause before the next stream, unless the server names one.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);

pub(crate) struct Stream {
    response: Response,
    unread: Vec<u8>,
    /// Pause that the server asks for before the next stream.
    pub retry: Duration,
}

/// One frame of the stream.
pub(crate) enum Frame {
    /// An event of the log.
    Event(Value),
    /// Progress of the work; only the latest counts.
    Progress(Value),
    /// The job has ended, and everything was sent.
    End,
}

impl Client {
    /// The events after `after`. `None` when there is no such stream: refused, out of reach, or nothing more will come.
    pub(crate) async fn stream(&self, id: &str, after: u64) -> Option<Stream> {
        let path = ["v1", "jobs", id, "stream"];
        let call = Call::get(&path).header("last-event-id", after.to_string());
        let response = timeout(self.timeout, self.request(call).ok()?.send()).await.ok()?.ok()?;
        let is_stream = response.status() == StatusCode::OK;
        is_stream.then_some(Stream { response, unread: Vec::new(), retry: RETRY_DEFAULT })
    }
}

impl Stream {
    /// The next frame; `None` when the stream has ended or broken off.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(frame) = self.read(&String::from_utf8_lossy(&frame)) {
                    return Some(frame);
                }
            }
            let chunk = timeout(SILENCE_MAX, self.response.chunk()).await.ok()?.ok()??;
            if self.unread.len() + chunk.len() > ANSWER_BYTES_MAX {
                return None;
            }
            self.unread.extend_from_slice(&chunk);
        }
    }

    /// The content of a frame; `None` for comments and settings.
    fn read(&mut self, frame: &str) -> Option<Frame> {
        let (mut data, mut event) = (None, "");
        for line in frame.lines() {
            if let Some(text) = line.strip_prefix("data: ") {
                data = serde_json::from_str(text).ok();
            }
            if let Some(name) = line.strip_prefix("event: ") {
                event = name;
            }
            if let Some(Ok(millis)) = line.strip_prefix("retry: ").map(str::parse) {
                self.retry = Duration::from_millis(millis);
            }
        }
        data.map(|data| match event {
            "progress" => Frame::Progress(data),
            "end" => Frame::End,
            _ => Frame::Event(data),
        })
    }
}
