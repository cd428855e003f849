//! Answers in memory. A read that may be large waits for its turn; what it wrote is charged to its caller until the
//! last byte is sent, and goes out in pieces. So neither many readers nor silent ones can make the process hold more
//! than
//! `limits.answer_bytes` and what the turns allow. `docs/decisions/0030` says how the numbers were chosen.

mod turns;

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use outlast_store::page::PAGE_BYTES_MAX;

use crate::budget::{Budget, Charge, Full, Holder, Priority, Shares};
use crate::error::{Code, Problem};
use crate::limits::Limits;

pub(crate) use turns::{Turn, Turns, Weight};

/// Answers up to this size are written whole and not counted: the kernel's buffers take them.
const SMALL_MAX: usize = 32 << 10;
/// Frames of streams up to this size are not counted.
const SMALL_FRAME_MAX: usize = 16 << 10;
/// Size of the pieces in which a larger answer is written.
const PIECE_BYTES: usize = 64 << 10;
/// Memory of a download: the checked chunk, and pieces of the next one.
const DOWNLOAD_BYTES: u64 = (1 << 20) + (256 << 10);
/// Guaranteed to every caller while the budget has it: one page and the entry that filled it.
const LEAST: usize = 2 * PAGE_BYTES_MAX;

pub(crate) struct Answers {
    budget: Arc<Budget>,
    turns: Arc<Turns>,
}

/// The budget that an unsent answer is charged to. Held for its drop.
#[derive(Clone)]
#[expect(dead_code, reason = "dropped to give the memory back")]
enum ResponseCharge {
    Answer(Arc<Charge>),
    /// Handed-out jobs are counted by the store, from the moment it takes them.
    HandOut(Arc<dyn Any + Send + Sync>),
}

/// An answer of handed-out jobs carries their share among its extensions, or all of them. Held for its drop.
#[derive(Clone)]
pub(crate) struct HandoutMemory(pub(crate) Arc<dyn Any + Send + Sync>);

/// The effect of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteEffect {
    /// The answer may be refused, the caller asks again.
    Read,
    /// The change is stored, so the answer must be sent.
    Write,
}

impl Answers {
    pub(crate) fn new(limits: &Limits) -> Answers {
        let shares = Shares::of_key(limits.key_share_percent);
        let shares = Shares {
            namespace: shares.namespace.at_least(LEAST),
            key: shares.key.at_least(LEAST),
            tokens: shares.tokens.at_least(LEAST),
            token: shares.token.at_least(LEAST),
            anonymous: shares.anonymous.at_least(LEAST),
            address: shares.address.at_least(LEAST),
        };
        Answers { budget: Budget::new("bytes for answers", limits.answer_bytes, 0, shares), turns: Turns::new() }
    }

    /// Waits until a read of this weight may begin. To be held until the answer is written out. Cancel-safe.
    pub(crate) async fn turn(&self, holder: Holder, weight: Weight) -> Result<Turn, Problem> {
        // A caller with too much unsent is refused before it waits, and before anything is read for it.
        self.check_room(holder, weight)?;
        let turn = self.turns.take(holder, weight).await?;
        self.check_room(holder, weight)?;
        Ok(turn)
    }

    /// Would an answer of such a read be taken?
    pub(crate) fn check_room(&self, holder: Holder, weight: Weight) -> Result<(), Problem> {
        let bytes = match weight {
            Weight::Page => PAGE_BYTES_MAX,
            Weight::Single => PAGE_BYTES_MAX / 4,
        };
        drop(self.budget.take(holder, Priority::Ordinary, bytes)?);
        Ok(())
    }

    /// The same for a read that others share: it waits with its namespace, and is never refused.
    pub(crate) async fn shared_turn(&self, holder: Holder, weight: Weight) -> Result<Turn, Problem> {
        self.turns.take_shared(holder, weight).await
    }

    /// Bytes of answers that are not sent yet.
    pub(crate) fn used(&self) -> usize {
        self.budget.used()
    }

    /// The answer as it is sent: if it is large, it is counted and goes out in pieces.
    pub(crate) fn seal(
        &self,
        mut response: Response,
        holder: Holder,
        effect: RouteEffect,
    ) -> Result<Response, Problem> {
        let handed_out = response.extensions_mut().remove::<HandoutMemory>();
        let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length > SMALL_MAX) else {
            return Ok(response);
        };
        let (parts, mut body) = response.into_parts();
        let counted = match (handed_out, effect) {
            (Some(HandoutMemory(share)), _) => ResponseCharge::HandOut(share),
            (None, RouteEffect::Read) => {
                ResponseCharge::Answer(Arc::new(self.budget.take(holder, Priority::Ordinary, length)?))
            }
            (None, RouteEffect::Write) => {
                let mut charge = self.budget.open(holder, Priority::Ordinary);
                charge.grow_anyway(length);
                ResponseCharge::Answer(Arc::new(charge))
            }
        };
        // A body of a known length is one piece in memory, which is there at once.
        let whole = body.frame().now_or_never().flatten().and_then(Result::ok).and_then(|frame| frame.into_data().ok());
        let broken = || Problem::new(Code::Internal, "the answer could not be written");
        let bytes = exact(whole.filter(|bytes| bytes.len() == length).ok_or_else(broken)?);
        Ok(Response::from_parts(parts, Body::new(Pieces { rest: counted_bytes(bytes, counted) })))
    }

    /// A frame of a stream, which is counted until it is sent. An error when its reader has too much unsent.
    pub(crate) fn frame(&self, holder: Holder, bytes: Bytes) -> Result<Bytes, Full> {
        if bytes.len() <= SMALL_FRAME_MAX {
            return Ok(bytes);
        }
        let charge = self.budget.take(holder, Priority::Ordinary, bytes.len())?;
        Ok(counted_bytes(bytes, ResponseCharge::Answer(Arc::new(charge))))
    }

    /// Room for a download of so many bytes; to be held until it ends.
    pub(crate) fn download(&self, holder: Holder, length: u64) -> Result<Charge, Problem> {
        let bytes = usize::try_from(length.min(DOWNLOAD_BYTES)).unwrap_or(SMALL_MAX);
        Ok(self.budget.take(holder, Priority::Ordinary, bytes)?)
    }
}

/// Is an answer of this length written whole?
pub(crate) fn is_small(length: u64) -> bool {
    usize::try_from(length).is_ok_and(|length| length <= SMALL_MAX)
}

/// The same without the room that a growing text leaves: what is counted is what is held. Bytes that others have too
/// stay.
fn exact(bytes: Bytes) -> Bytes {
    match bytes.try_into_mut() {
        Ok(unshared) if unshared.capacity() > unshared.len() => Bytes::copy_from_slice(&unshared),
        Ok(unshared) => unshared.freeze(),
        Err(shared) => shared,
    }
}

/// Bytes that are counted until the last part of them is dropped.
fn counted_bytes(bytes: Bytes, counted: ResponseCharge) -> Bytes {
    struct Owner(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] ResponseCharge);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(bytes, counted))
}

/// A body of a known length that is given out piece by piece.
struct Pieces {
    rest: Bytes,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
