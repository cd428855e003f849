//! Checksums of an object's chunks: made while it is written, kept with its row, checked while it is read. A chunk is handed
//! on only after its checksum was found right, so a reader of any range gets bytes that were written, or an error.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use futures_util::{StreamExt, stream};

use super::{Chunks, Error};

/// Bytes under one checksum, the last chunk of an object excepted. Part of the stored form.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// The first byte of the stored form: CRC-64/NVME of each mebibyte follows, big-endian.
const FORM: u8 = 1;
const SUM_BYTES: usize = size_of::<u64>();

/// Makes the checksums of bytes as they pass.
pub(super) struct Builder {
    chunk: Digest,
    /// Bytes of the chunk that has begun.
    filled: u64,
    stored: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder { chunk: digest(), filled: 0, stored: vec![FORM] }
    }
}

impl Builder {
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(CHUNK_BYTES - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.chunk.update(now);
            self.filled += length_of(now);
            if self.filled == CHUNK_BYTES {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    fn end_chunk(&mut self) {
        self.stored.extend(self.chunk.finalize_reset().to_be_bytes());
        self.filled = 0;
    }

    pub(super) fn finish(mut self) -> Arc<[u8]> {
        if self.filled > 0 {
            self.end_chunk();
        }
        self.stored.into()
    }
}

/// The checksums of an object of this length, as they were stored.
#[derive(Clone, Debug)]
pub(super) struct Checksums {
    stored: Arc<[u8]>,
    length: u64,
}

impl Checksums {
    /// `None` when they are of another form, or of an object of another length.
    pub(super) fn read(stored: &Arc<[u8]>, length: u64) -> Option<Checksums> {
        let (form, sums) = stored.split_first()?;
        let wanted = usize::try_from(length.div_ceil(CHUNK_BYTES)).ok()?.checked_mul(SUM_BYTES)?;
        (*form == FORM && sums.len() == wanted).then(|| Checksums { stored: Arc::clone(stored), length })
    }

    /// The whole chunks that `span` touches.
    pub(super) fn around(&self, span: &Range<u64>) -> Range<u64> {
        let start = span.start / CHUNK_BYTES * CHUNK_BYTES;
        let end = span.end.div_ceil(CHUNK_BYTES).saturating_mul(CHUNK_BYTES).min(self.length);
        start..end.max(start)
    }

    fn of_chunk(&self, number: u64) -> Option<u64> {
        let at = usize::try_from(number).ok()?.checked_mul(SUM_BYTES)?.checked_add(1)?;
        let sum = self.stored.get(at..at.checked_add(SUM_BYTES)?)?;
        Some(u64::from_be_bytes(sum.try_into().ok()?))
    }

    /// Hands on the bytes of `span`, each chunk after it was found right. `chunks` has the bytes of [`Checksums::around`].
    pub(super) fn check(self, chunks: Chunks, span: Range<u64>) -> Chunks {
        let around = self.around(&span);
        let checking = Checking {
            number: around.start / CHUNK_BYTES,
            chunk: digest(),
            unchecked: Vec::new(),
            checked: VecDeque::new(),
            is_damaged: false,
            at: around.start,
            end: around.end,
            chunks,
            checksums: self,
            span,
        };
        // After an error nothing follows.
        let stream = stream::unfold(Some(checking), |checking| async move {
            let mut checking = checking?;
            match checking.next().await {
                Ok(bytes) => bytes.map(|bytes| (Ok(bytes), Some(checking))),
                Err(error) => Some((Err(error), None)),
            }
        });
        stream.boxed()
    }
}

struct Checking {
    chunks: Chunks,
    checksums: Checksums,
    /// The range that the reader gets.
    span: Range<u64>,
    /// The position of the read, and where it ends.
    at: u64,
    end: u64,
    /// The chunk that is being read.
    number: u64,
    chunk: Digest,
    unchecked: Vec<Bytes>,
    checked: VecDeque<Bytes>,
    is_damaged: bool,
}

impl Checking {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(bytes) = self.checked.pop_front() {
                return Ok(Some(bytes));
            }
            if self.is_damaged {
                return Err(Error::Damaged);
            }
            if self.at == self.end {
                return Ok(None);
            }
            match self.chunks.next().await {
                // Verified bytes go out before the error does.
                Some(bytes) => self.is_damaged = !self.take(bytes?),
                None => return Err(Error::Damaged),
            }
        }
    }

    /// False when there is something wrong with the bytes.
    fn take(&mut self, mut bytes: Bytes) -> bool {
        while !bytes.is_empty() {
            let chunk_end = ((self.number + 1) * CHUNK_BYTES).min(self.end);
            let room = usize::try_from(chunk_end.saturating_sub(self.at)).unwrap_or(usize::MAX);
            if room == 0 {
                // There is more than there should be.
                return false;
            }
            let now = bytes.split_to(room.min(bytes.len()));
            self.chunk.update(&now);
            self.at += length_of(&now);
            self.unchecked.push(now);
            if self.at == chunk_end && !self.end_chunk() {
                return false;
            }
        }
        true
    }

    fn end_chunk(&mut self) -> bool {
        if self.checksums.of_chunk(self.number) != Some(self.chunk.finalize_reset()) {
            return false;
        }
        let mut at = self.number * CHUNK_BYTES;
        for bytes in std::mem::take(&mut self.unchecked) {
            let end = at + length_of(&bytes);
            let wanted = self.span.start.clamp(at, end) - at..self.span.end.clamp(at, end) - at;
            let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let wanted = bytes.slice(place(wanted.start)..place(wanted.end.max(wanted.start)));
            if !wanted.is_empty() {
                self.checked.push_back(wanted);
            }
            at = end;
        }
        self.number += 1;
        true
    }
}

fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Nvme)
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn body(length: usize) -> Vec<u8> {
        (0..=250).cycle().step_by(31).take(length).collect()
    }

    fn checksums(body: &[u8], piece: usize) -> Arc<[u8]> {
        let mut builder = Builder::default();
        body.chunks(piece).for_each(|bytes| builder.take(bytes));
        builder.finish()
    }

    /// The pieces that a reader of the span gets of these bytes, and whether it ended well.
    async fn read(stored: &Arc<[u8]>, length: usize, there: &[u8], span: Range<u64>) -> (Vec<u8>, bool) {
        let checksums = Checksums::read(stored, length as u64).expect("they fit the length");
        let around = checksums.around(&span);
        let place = |at: u64| usize::try_from(at).unwrap().min(there.len());
        let there = &there[place(around.start)..place(around.end)];
        let pieces: Vec<_> = there.chunks(70_001).map(|bytes| Ok(Bytes::copy_from_slice(bytes))).collect();
        let mut chunks = checksums.check(stream::iter(pieces).boxed(), span);
        let mut got = Vec::new();
        while let Some(bytes) = chunks.next().await {
            match bytes {
                Ok(bytes) => got.extend_from_slice(&bytes),
                Err(error) => {
                    assert!(matches!(error, Error::Damaged), "{error}");
                    assert!(chunks.next().await.is_none(), "nothing follows an error");
                    return (got, false);
                }
            }
        }
        (got, true)
    }

    #[tokio::test]
    async fn every_range_of_sound_bytes_is_read_as_it_was_written() {
        for length in [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7] {
            let body = body(length);
            let stored = checksums(&body, 65_537);
            assert_eq!(stored, checksums(&body, length.max(1)), "pieces do not matter");
            for span in [0..length, 0..length.min(1), length / 2..length, length / 3..length / 2, length..length] {
                let (got, is_whole) = read(&stored, length, &body, span.start as u64..span.end as u64).await;
                assert!(is_whole && got == body[span.clone()], "{span:?} of {length}");
            }
        }
    }

    #[tokio::test]
    async fn a_flipped_bit_is_never_handed_on() {
        let length = 2 * MIB + 100;
        let body = body(length);
        let stored = checksums(&body, MIB);
        for flipped in [0, 1, MIB - 1, MIB, MIB + 5000, 2 * MIB, length - 1] {
            let mut there = body.clone();
            there[flipped] ^= 0x10;
            let damaged = flipped / MIB;

            let (got, is_whole) = read(&stored, length, &there, 0..length as u64).await;
            assert!(!is_whole && got == body[..damaged * MIB], "the whole, flipped at {flipped}");
            for chunk in 0..3 {
                let span = chunk * MIB + 1..length.min(chunk * MIB + 90);
                let (got, is_whole) = read(&stored, length, &there, span.start as u64..span.end as u64).await;
                match chunk == damaged {
                    true => assert!(!is_whole && got.is_empty(), "chunk {chunk}, flipped at {flipped}"),
                    false => assert!(is_whole && got == body[span], "chunk {chunk}, flipped at {flipped}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn too_few_bytes_are_damage() {
        let body = body(MIB + 10);
        let stored = checksums(&body, MIB);

        for left in [0, 5, MIB, MIB + 9] {
            let (got, is_whole) = read(&stored, body.len(), &body[..left], 0..body.len() as u64).await;
            assert!(!is_whole && got == body[..left / MIB * MIB], "{left} bytes are left");
        }
    }

    #[test]
    fn checksums_of_another_form_or_length_are_not_used() {
        let stored = checksums(&body(MIB + 1), MIB);

        assert!(Checksums::read(&stored, MIB as u64 + 1).is_some());
        assert!(Checksums::read(&stored, MIB as u64).is_none());
        assert!(Checksums::read(&Arc::from([]), 0).is_none());
        assert!(Checksums::read(&Arc::from([9]), 0).is_none());
    }
}
