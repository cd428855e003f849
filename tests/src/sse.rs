//! A reader of server-sent events: opens a job's stream, gives its frames one by one, and tells a clean end from a
//! broken one. Dropping it breaks the connection.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::http::{Client, Lost, Reply};
use crate::wait::within;

/// Longer than any test lasts; silence has a bound of its own.
const STREAM_TIMEOUT: Duration = Duration::from_secs(600);
/// The server says something every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// No test lets a reader wait this long for what is to come.
const NEXT_MAX: Duration = Duration::from_secs(60);

pub struct Sse {
    response: Response,
    unread: Vec<u8>,
    /// As the server asks for it, in its first line.
    pub retry_millis: Option<u64>,
    pub keepalives: usize,
    /// The data of the `end` event; only the end of the stream comes after it.
    pub end: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// 0 where it has none.
    pub id: u64,
    pub event: String,
    pub data: Value,
}

#[derive(Debug, PartialEq)]
pub enum Next {
    Frame(Frame),
    /// The server has ended the stream as it should.
    End,
    /// The connection broke.
    Broken,
}

/// The response to a request for a stream.
pub enum Asked {
    Open(Box<Sse>),
    /// Any other answer; its body may be empty.
    Answer(Reply),
}

impl Sse {
    /// Asks for the stream of a job, after an event if one is given.
    pub async fn ask(client: &Client, id: &str, after: Option<u64>) -> Result<Asked, Lost> {
        let mut request = client.request(Method::GET, &format!("/v1/jobs/{id}/stream"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        Sse::send(request).await
    }

    /// Asks for any other stream.
    pub async fn ask_path(client: &Client, path: &str) -> Result<Asked, Lost> {
        Sse::send(client.request(Method::GET, path)).await
    }

    async fn send(request: RequestBuilder) -> Result<Asked, Lost> {
        let request = request.timeout(STREAM_TIMEOUT);
        let Some(answered) = within(NEXT_MAX, request.send()).await else {
            return Err(Lost(format!("no answer for {NEXT_MAX:?}")));
        };
        let response = answered.map_err(|error| Lost(format!("{error:?}")))?;
        if response.status() == 200 {
            let sse = Sse { response, unread: Vec::new(), retry_millis: None, keepalives: 0, end: None };
            return Ok(Asked::Open(Box::new(sse)));
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.map_err(|error| Lost(format!("{error:?}")))?;
        Ok(Asked::Answer(Reply { status, headers, body: serde_json::from_str(&text).unwrap_or_default() }))
    }

    /// The same where it must open.
    #[track_caller]
    pub fn open(client: &Client, id: &str, after: Option<u64>) -> impl Future<Output = Sse> {
        let (client, id) = (client.clone(), id.to_owned());
        async move {
            match Sse::ask(&client, &id, after).await {
                Ok(Asked::Open(sse)) => *sse,
                Ok(Asked::Answer(reply)) => panic!("no stream but {}: {}", reply.status, reply.body),
                Err(lost) => panic!("no answer: {lost:?}"),
            }
        }
    }

    pub async fn open_path(client: &Client, path: &str) -> Sse {
        match Sse::ask_path(client, path).await {
            Ok(Asked::Open(sse)) => *sse,
            Ok(Asked::Answer(reply)) => panic!("no stream but {}: {}", reply.status, reply.body),
            Err(lost) => panic!("no answer: {lost:?}"),
        }
    }

    pub fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The next frame or the end; panics when neither comes, or nothing at all.
    pub async fn next(&mut self) -> Next {
        let next = within(NEXT_MAX, self.read_next()).await;
        next.unwrap_or_else(|| panic!("neither an event nor an end for {NEXT_MAX:?}"))
    }

    async fn read_next(&mut self) -> Next {
        loop {
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("a stream is UTF-8");
                assert!(self.end.is_none(), "after the end comes {block}");
                if let Some(frame) = self.read(&block) {
                    return Next::Frame(frame);
                }
            }
            let chunk = within(SILENCE_MAX, self.response.chunk()).await;
            match chunk.unwrap_or_else(|| panic!("the stream is silent for {SILENCE_MAX:?}")) {
                Ok(Some(bytes)) => self.unread.extend_from_slice(&bytes),
                Ok(None) => {
                    assert!(self.unread.is_empty(), "a stream that ends in order ends between two frames");
                    return Next::End;
                }
                Err(_) => return Next::Broken,
            }
        }
    }

    /// Waits for the next keepalive; there must be no event before it.
    pub async fn keepalive(&mut self) {
        let before = self.keepalives;
        while self.keepalives == before {
            let chunk = within(SILENCE_MAX, self.response.chunk()).await.expect("a keepalive");
            self.unread.extend_from_slice(&chunk.expect("an open stream").expect("a stream without end"));
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                assert_eq!(self.read(&String::from_utf8(block).expect("a stream is UTF-8")), None);
            }
        }
    }

    /// The next frame where there must be one.
    pub async fn frame(&mut self) -> Frame {
        match self.next().await {
            Next::Frame(frame) => frame,
            other => panic!("an event is expected, not {other:?}"),
        }
    }

    /// All frames up to the end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Next::Frame(frame) => frames.push(frame),
                Next::End => return frames,
                Next::Broken => panic!("the stream broke after {} frames", frames.len()),
            }
        }
    }

    /// A frame; comments and settings are noted and are none.
    fn read(&mut self, block: &str) -> Option<Frame> {
        let (mut id, mut event, mut data) = (None, None, None);
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.split_once(": ") {
                Some(("id", value)) => id = value.parse().ok(),
                Some(("event", value)) => event = Some(value.to_owned()),
                Some(("data", value)) => data = serde_json::from_str(value).ok(),
                Some(("retry", value)) => self.retry_millis = value.parse().ok(),
                Some(("", "keepalive")) => self.keepalives += 1,
                _ => panic!("a line that makes no sense: {line:?}"),
            }
        }
        if event.as_deref() == Some("end") {
            assert_eq!(id, None, "a reader who comes back names the last event of the log");
            self.end = data;
            return None;
        }
        match (id, event, data) {
            (id, Some(event), Some(data)) => Some(Frame { id: id.unwrap_or(0), event, data }),
            (None, None, None) => None,
            parts => panic!("a frame of parts: {parts:?}"),
        }
    }
}
