//! One request and its answer on one connection. The connection is driven by the request itself: no task of its own, so
//! none outlives it, and an idle connection is just a value in the pool.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming as Chunks};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

use super::stream::{Counter, Stream, Transport};
use super::{Incoming, SendError, SendPhase};

/// Largest head of an answer; also what is read at once. At most 100 headers, which is the library's own bound.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// A body of unknown length starts with this much room and doubles it as it grows.
const BODY_BYTES_FIRST: usize = 4 * 1024;
/// A body in pieces of a byte costs a thousand times what its bytes would.
const BODY_PIECES_MAX: usize = 4096;
/// Many servers close a connection after five idle seconds, and what is sent at that very moment is lost.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// How much earlier than the other side we let go.
const IDLE_MARGIN: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Stream>, Full<Bytes>>,
    meter: Arc<Counter>,
    is_closed: bool,
    pub since: Instant,
    /// How long it may be idle before the other side may have closed it.
    pub idle_max: Duration,
}

/// How a request ended that got no answer.
pub(super) struct NoAnswer {
    pub error: SendError,
    /// The connection was gone before anything went out on it: one that had been idle may just have been closed by the
    /// other side, and the request can be made on another. Once a byte has left, the endpoint may have had all of it.
    pub is_stale: bool,
    /// It broke without a word.
    pub has_no_listeners: bool,
}

/// What bounds an exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub deadline: Instant,
    /// For the head of the answer, if it is to be earlier than the deadline.
    pub first_byte: Option<Duration>,
    pub body_max: usize,
    /// For a success that says it is JSON.
    pub json_max: usize,
}

impl Connection {
    pub(super) async fn open(transport: Transport) -> Result<Connection, SendError> {
        let meter = Arc::new(Counter::default());
        let stream = Stream::new(transport, Arc::clone(&meter));
        let opened = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await;
        let broken = |_| SendError::new(SendPhase::Send, "the connection broke");
        let (sender, driver) = opened.map_err(broken)?;
        Ok(Connection { sender, driver, meter, is_closed: false, since: Instant::now(), idle_max: IDLE_MAX })
    }

    /// Can it take a request? Looks whether the other side has closed it or has said something out of turn.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.is_closed && self.sender.is_ready()
    }

    /// Sends the request and reads the answer. Dropping this future leaves the connection unusable.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        bounds: Bounds,
    ) -> Result<Incoming, NoAnswer> {
        self.meter.begin();
        let length = request.body().size_hint().lower();
        let head_deadline = match bounds.first_byte {
            Some(first_byte) => bounds.deadline.min(Instant::now() + first_byte),
            None => bounds.deadline,
        };
        let response = match timeout_at(head_deadline, self.head(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.no_answer(&error, length)),
            Err(_) => return Err(self.late(length)),
        };
        self.meter.head_is_complete();
        let (head, chunks) = response.into_parts();
        // Two lengths for one body: what comes after it cannot be trusted to be the next answer.
        let is_ambiguous = head.headers.contains_key(TRANSFER_ENCODING) && head.headers.contains_key(CONTENT_LENGTH);
        let body_max = if is_json(&head) { bounds.json_max } else { bounds.body_max };
        let (body, is_cut) = self.body(chunks, bounds.deadline, body_max).await;
        self.is_closed |= is_cut || is_ambiguous;
        self.idle_max = idle_max(&head.headers);
        Ok(Incoming { status: head.status.as_u16(), headers: head.headers, body, is_cut })
    }

    async fn head(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Chunks>> {
        let mut answer = pin!(self.sender.send_request(request));
        poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// As much of the body as is wanted, and whether that is not all of it.
    async fn body(&mut self, chunks: Chunks, deadline: Instant, body_max: usize) -> (Bytes, bool) {
        let known = chunks.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        if known == Some(0) {
            return (Bytes::new(), false);
        }
        let room = known.unwrap_or(BODY_BYTES_FIRST).min(body_max);
        let mut body = BytesMut::with_capacity(room);
        let whole = timeout_at(deadline, self.fill(chunks, &mut body, body_max)).await;
        (body.freeze(), !whole.unwrap_or(false))
    }

    /// True when the body ended within the bounds.
    async fn fill(&mut self, chunks: Chunks, body: &mut BytesMut, body_max: usize) -> bool {
        let mut chunks = pin!(chunks);
        let mut pieces = 0;
        while let Some(frame) = poll_fn(|cx| self.frame(chunks.as_mut(), cx)).await {
            let Ok(frame) = frame else { return false };
            pieces += 1;
            if pieces > BODY_PIECES_MAX {
                return false;
            }
            // Pieces that came in together are all ready at once; others want their turn, and the deadline its look.
            consume_budget().await;
            // Trailers say nothing that is of use here.
            let Ok(chunk) = frame.into_data() else { continue };
            let left = body_max.saturating_sub(body.len());
            let (kept, is_all) = if chunk.len() > left { (chunk.slice(..left), false) } else { (chunk, true) };
            body.extend_from_slice(&kept);
            if !is_all {
                return false;
            }
        }
        true
    }

    fn frame(
        &mut self,
        mut chunks: Pin<&mut Chunks>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = chunks.as_mut().poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.drive(cx);
        chunks.poll_frame(cx)
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.is_closed {
            self.is_closed = Pin::new(&mut self.driver).poll(cx).is_ready();
        }
    }

    fn late(&mut self, length: u64) -> NoAnswer {
        self.is_closed = true;
        let phase = self.phase(length);
        let message = match phase {
            SendPhase::Send => "the host did not take the request in time",
            SendPhase::Head => "the answer's head was not complete in time",
            _ => "no answer in time",
        };
        NoAnswer { error: SendError::new(phase, message), is_stale: false, has_no_listeners: false }
    }

    fn no_answer(&mut self, error: &hyper::Error, length: u64) -> NoAnswer {
        self.is_closed = true;
        let phase = self.phase(length);
        let message = if self.meter.is_flooded() || error.is_parse_too_large() {
            "the answer's head is too large"
        } else if error.is_parse() {
            "the answer is not HTTP/1.1"
        } else {
            "the connection broke before the answer was there"
        };
        let has_no_listeners = self.meter.received() == 0;
        let is_stale = has_no_listeners && self.meter.sent() == 0;
        NoAnswer { error: SendError::new(phase, message), is_stale, has_no_listeners }
    }

    fn phase(&self, length: u64) -> SendPhase {
        let sent = u64::try_from(self.meter.sent()).unwrap_or(u64::MAX);
        if self.meter.received() > 0 {
            return SendPhase::Head;
        }
        // With its head a request is longer than its body.
        if sent <= length { SendPhase::Send } else { SendPhase::FirstByte }
    }
}

/// Ours, or less where the other side says that it waits less: `keep-alive: timeout=5, max=100`.
fn idle_max(headers: &HeaderMap) -> Duration {
    let texts = headers.get_all("keep-alive").iter().filter_map(|value| value.to_str().ok());
    let words = texts.flat_map(|text| text.split(',')).filter_map(|word| word.trim().strip_prefix("timeout="));
    let seconds = words.filter_map(|number| number.trim().parse().ok()).min();
    let said = seconds.map(|seconds| Duration::from_secs(seconds).saturating_sub(IDLE_MARGIN));
    said.unwrap_or(IDLE_MAX).min(IDLE_MAX)
}

/// A success whose body is JSON by its own word, and not packed.
fn is_json(head: &response::Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json") || kind.to_ascii_lowercase().ends_with("+json");
    head.status.is_success() && is_json && !head.headers.contains_key(CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_let_go_before_the_other_side_does_it() {
        for (said, seconds) in [
            (&[][..], 4),
            (&["timeout=75"], 4),
            (&["timeout=5, max=100"], 4),
            (&["max=100,timeout=3"], 2),
            (&["timeout=1"], 0),
            (&["timeout=0"], 0),
            (&["timeout=9", "timeout=2"], 1),
            (&["timeout=soon"], 4),
            (&["timeout=-1"], 4),
            (&["300"], 4),
        ] {
            let mut headers = HeaderMap::new();
            for text in said {
                headers.append("keep-alive", text.parse().unwrap());
            }
            assert_eq!(idle_max(&headers), Duration::from_secs(seconds), "{said:?}");
        }
    }
}
