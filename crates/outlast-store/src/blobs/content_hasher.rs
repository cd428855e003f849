//! Length, SHA-256 and the checksums of bytes as they pass. Hashing is done on the blocking pool, in pieces that are worth the way there.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::checksums::Builder;
use super::{CHUNK_BYTES, Error, WrittenObject};

#[derive(Default)]
pub(super) struct ContentHasher {
    digest: Sha256,
    checksums: Builder,
    length: u64,
    /// Not hashed yet; less than a chunk between two calls.
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
}

impl ContentHasher {
    pub(super) async fn add(mut self, bytes: Bytes) -> Result<ContentHasher, Error> {
        self.waiting_bytes += bytes.len();
        self.waiting.push(bytes);
        match self.waiting_bytes < CHUNK_BYTES {
            true => Ok(self),
            false => self.work_off().await,
        }
    }

    pub(super) async fn finish(self) -> Result<WrittenObject, Error> {
        Ok(self.work_off().await?.written())
    }

    async fn work_off(mut self) -> Result<ContentHasher, Error> {
        let hash = move || {
            for bytes in std::mem::take(&mut self.waiting) {
                self.take(&bytes);
            }
            self.waiting_bytes = 0;
            self
        };
        spawn_blocking(hash).await.map_err(|error| Error::Unavailable(error.into()))
    }

    /// Hashes at once: for who is on the blocking pool already.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.checksums.take(bytes);
        self.length = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// Facts about the bytes that were hashed so far.
    pub(super) fn written(self) -> WrittenObject {
        WrittenObject { length: self.length, sha256: self.digest.finalize().into(), checksums: self.checksums.finish() }
    }
}
