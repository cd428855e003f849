//! Cuts a stream into parts of one size, the last one excepted, and keeps count of what passes.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use object_store::PutPayload;

use crate::blobs::content_hasher::ContentHasher;
use crate::blobs::{Error, WrittenObject};

pub(super) struct Parts<S> {
    stream: S,
    part_bytes: usize,
    /// Bytes that came with the last part and belong to the next.
    carried: Bytes,
    tally: ContentHasher,
    is_over: bool,
}

impl<S: Stream<Item = Result<Bytes, Error>> + Send + Unpin> Parts<S> {
    pub(super) fn new(stream: S, part_bytes: usize) -> Parts<S> {
        Parts { stream, part_bytes, carried: Bytes::new(), tally: ContentHasher::default(), is_over: false }
    }

    /// Has the stream ended? Then the part that was given last is the last one.
    pub(super) fn is_over(&self) -> bool {
        self.is_over && self.carried.is_empty()
    }

    /// `None` when nothing is left.
    pub(super) async fn next(&mut self) -> Result<Option<PutPayload>, Error> {
        let (mut gathered, mut room) = (Vec::new(), self.part_bytes);
        while room > 0 {
            let mut bytes = std::mem::take(&mut self.carried);
            if bytes.is_empty() && !self.is_over {
                match self.stream.next().await {
                    Some(item) => bytes = item?,
                    None => self.is_over = true,
                }
            }
            if self.is_over && bytes.is_empty() {
                break;
            }
            self.carried = bytes.split_off(bytes.len().min(room));
            room -= bytes.len();
            if !bytes.is_empty() {
                self.tally = std::mem::take(&mut self.tally).add(bytes.clone()).await?;
                gathered.push(bytes);
            }
        }
        Ok((!gathered.is_empty()).then(|| gathered.into_iter().collect()))
    }

    pub(super) async fn written(self) -> Result<WrittenObject, Error> {
        self.tally.finish().await
    }
}
