//! Reading request bodies: bounded in size and time before anything looks at them.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::budget::Charge;
use crate::error::{Code, Problem};
use crate::limits::Limits;
use crate::read_deadline::ready_by;

/// How much of a refused request's body is read, so that the client can reuse the connection.
const DISCARD_BYTES_MAX: usize = 64 << 10;
const DISCARD_MAX: Duration = Duration::from_millis(250);

/// A body of several frames is gathered in pieces; each piece is as long as the bytes before it, within these bounds.
const PIECE_MIN: usize = 4 << 10;
const PIECE_MAX: usize = 256 << 10;

/// A body that came in one frame of at most this size is covered by the slot of its request.
const SLOT_BODY_BYTES: usize = 4 << 10;

/// The whole body, at most `bytes_max`. The charge grows with the memory that the body takes as it arrives; what its
/// sender announces costs nothing.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut Body,
    bytes_max: usize,
    limits: &Limits,
    charge: &mut Charge,
) -> Result<Bytes, Problem> {
    check_encoding(headers)?;
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let declared = declared_length(headers);
    if declared.is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let mut pace = Pace::start(limits);
    let mut gathered = Gathered::default();
    while let Some(data) = pace.next(body).await? {
        let length = gathered.length + data.len();
        if length > bytes_max {
            return Err(too_large(bytes_max));
        }
        // Nearly every body is one frame, which then needs no copy.
        if gathered.length == 0 && body.is_end_stream() {
            if data.len() > SLOT_BODY_BYTES {
                charge.grow(data.len())?;
            }
            return Ok(data);
        }
        gathered.add(&data, declared.unwrap_or(bytes_max), charge)?;
    }
    Ok(gathered.join())
}

/// A body in pieces. One buffer that grows would leave holes of all sizes behind, which slow senders make many of.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Vec<u8>>,
    length: usize,
}

impl Gathered {
    /// Copies the bytes, so that the connection gets its buffer back. `expected` bounds the room that is taken ahead.
    fn add(&mut self, mut data: &[u8], expected: usize, charge: &mut Charge) -> Result<(), Problem> {
        while !data.is_empty() {
            let piece = match self.pieces.last_mut() {
                Some(piece) if piece.len() < piece.capacity() => piece,
                _ => {
                    let left = expected.saturating_sub(self.length).max(data.len());
                    let capacity = left.min(self.length.clamp(PIECE_MIN, PIECE_MAX));
                    charge.grow(capacity)?;
                    self.pieces.push(Vec::with_capacity(capacity));
                    continue;
                }
            };
            let (now, later) = data.split_at(data.len().min(piece.capacity() - piece.len()));
            piece.extend_from_slice(now);
            self.length += now.len();
            data = later;
        }
        Ok(())
    }

    fn join(mut self) -> Bytes {
        match self.pieces.len() {
            0 | 1 => self.pieces.pop().unwrap_or_default().into(),
            _ => self.pieces.concat().into(),
        }
    }
}

/// How long a body may still take: in all, since its last byte, and by the least rate over its life.
struct Pace<'a> {
    limits: &'a Limits,
    started: Instant,
    received: usize,
}

impl<'a> Pace<'a> {
    fn start(limits: &'a Limits) -> Pace<'a> {
        Pace { limits, started: Instant::now(), received: 0 }
    }

    /// The next bytes; `None` at the end of the body.
    async fn next(&mut self, body: &mut Body) -> Result<Option<Bytes>, Problem> {
        let end = self.started + self.limits.body_total;
        loop {
            let now = Instant::now();
            // After its time only what the last look has brought counts: there is no other look for each byte that
            // drips in.
            let next = match now < end {
                true => ready_by(end.min(now + self.limits.body_idle).min(self.due()), body.frame()).await,
                false => body.is_end_stream().then_some(None),
            };
            let slow = || Problem::new(Code::RequestTimeout, "the request body came too slowly; nothing was stored");
            let Some(frame) = next.ok_or_else(slow)? else {
                return Ok(None);
            };
            let frame = frame.map_err(|_| Problem::field("body", "ended before its announced length"))?;
            if let Ok(data) = frame.into_data() {
                self.received += data.len();
                return Ok(Some(data));
            }
        }
    }

    /// When the body falls below the least rate unless more of it comes.
    fn due(&self) -> Instant {
        let received = u64::try_from(self.received).unwrap_or(u64::MAX);
        let rate = u64::try_from(self.limits.body_bytes_per_second).unwrap_or(u64::MAX).max(1);
        self.started + self.limits.body_grace + Duration::from_millis(received.saturating_mul(1000) / rate)
    }
}

/// The body as it comes, of any length: only a sender that falls silent is given up.
pub(crate) fn stream(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
) -> Result<impl Stream<Item = Result<Bytes, Interruption>> + Send + use<>, Problem> {
    check_encoding(headers)?;
    let idle = limits.body_idle;
    Ok(unfold(Some(body), move |body| async move {
        let mut body = body?;
        loop {
            let frame = match ready_by(Instant::now() + idle, body.frame()).await {
                Some(Some(Ok(frame))) => frame,
                Some(None) => return None,
                Some(Some(Err(_))) => return Some((Err(Interruption::Ended), None)),
                None => return Some((Err(Interruption::Silent), None)),
            };
            if let Ok(data) = frame.into_data() {
                return Some((Ok(data), Some(body)));
            }
        }
    }))
}

/// Why a body did not arrive whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    Ended,
    Silent,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interruption::Ended => "the connection ended before the announced length",
            Interruption::Silent => "nothing came for too long",
        })
    }
}

impl std::error::Error for Interruption {}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Code::UnsupportedMediaType, "compressed bodies are not accepted; send it plain"));
    }
    Ok(())
}

/// Reads and discards the rest of a body. `false` when there is more of it than is worth waiting for.
pub(crate) async fn discard(body: &mut Body) -> bool {
    let mut left = DISCARD_BYTES_MAX;
    let discarded = async {
        while let Some(frame) = body.frame().await {
            let length = frame.ok()?.into_data().map_or(0, |data| data.len());
            left = left.checked_sub(length)?;
        }
        Some(())
    };
    timeout(DISCARD_MAX, discarded).await.is_ok_and(|done| done.is_some())
}

pub(crate) fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn too_large(bytes_max: usize) -> Problem {
    Problem::new(
        Code::PayloadTooLarge,
        format!("the request body has more than {bytes_max} bytes, which is the limit here"),
    )
}
