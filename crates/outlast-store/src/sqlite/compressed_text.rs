//! Long texts, packed on disk where that saves room: each is written twice, to the WAL and to the file, and the one thread that
//! writes spends most of its time on that. A packed text is a blob, any other one is a text.

use std::cell::RefCell;
use std::sync::Arc;

use lz4_flex::block::{CompressTable, compress_into_with_table, compress_prepend_size, get_maximum_output_size};
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

use crate::checksum::Digest;

/// Shorter texts share a page with many others as they are.
const PACK_MIN: usize = 1024;

const LENGTH_BYTES: usize = size_of::<u32>();

/// The format cannot pack tighter.
const PACKED_RATIO_MAX: usize = 255;

/// A text on its way to the disk.
pub(super) struct CompressedText {
    form: TextEncoding,
    /// Of the form: worked out here, before the writer's turn.
    digest: Digest,
}

enum TextEncoding {
    Plain(Arc<str>),
    Compressed(Vec<u8>),
}

impl CompressedText {
    /// Compressed only if that saves at least a quarter; for less it is not worth unpacking at every read.
    pub(super) fn new(text: &Arc<str>) -> CompressedText {
        let plain =
            || CompressedText { form: TextEncoding::Plain(Arc::clone(text)), digest: Digest::of_text(text.as_bytes()) };
        if text.len() < PACK_MIN {
            return plain();
        }
        let packed = pack(text.as_bytes());
        match packed.len() <= text.len() / 4 * 3 {
            true => CompressedText { digest: Digest::of_blob(&packed), form: TextEncoding::Compressed(packed) },
            false => plain(),
        }
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// As it will be on disk.
    pub(super) fn len(&self) -> usize {
        match &self.form {
            TextEncoding::Plain(text) => text.len(),
            TextEncoding::Compressed(bytes) => bytes.len(),
        }
    }
}

impl ToSql for CompressedText {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match &self.form {
            TextEncoding::Plain(text) => ValueRef::Text(text.as_bytes()),
            TextEncoding::Compressed(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// A text as it was before it was packed.
pub(super) struct DecompressedText(pub(super) String);

impl FromSql for DecompressedText {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<DecompressedText> {
        let bytes = match value {
            ValueRef::Text(bytes) => bytes.to_vec(),
            ValueRef::Blob(packed) => unpack(packed)?,
            _ => return Err(FromSqlError::InvalidType),
        };
        String::from_utf8(bytes).map(DecompressedText).map_err(FromSqlError::other)
    }
}

/// The length, then the packed bytes.
fn pack(bytes: &[u8]) -> Vec<u8> {
    thread_local! {
        // Allocating the table for each text is a large part of the cost of compressing a short one.
        static TABLE: RefCell<CompressTable> = RefCell::new(CompressTable::small());
    }
    let Some(length) = u16::try_from(bytes.len()).ok().filter(|length| *length < u16::MAX) else {
        return compress_prepend_size(bytes);
    };
    let mut packed = vec![0; LENGTH_BYTES + get_maximum_output_size(bytes.len())];
    let (head, rest) = packed.split_at_mut(LENGTH_BYTES);
    head.copy_from_slice(&u32::from(length).to_le_bytes());
    let written = TABLE.with_borrow_mut(|table| compress_into_with_table(bytes, rest, table));
    packed.truncate(LENGTH_BYTES + written.expect("there is room for the worst case"));
    packed
}

fn unpack(packed: &[u8]) -> FromSqlResult<Vec<u8>> {
    let (length, packed) = lz4_flex::block::uncompressed_size(packed).map_err(FromSqlError::other)?;
    // A length that cannot be true is not worth the memory.
    let wrong_length = FromSqlError::OutOfRange(i64::try_from(length).unwrap_or(i64::MAX));
    if length / PACKED_RATIO_MAX > packed.len() {
        return Err(wrong_length);
    }
    let bytes = lz4_flex::block::decompress(packed, length).map_err(FromSqlError::other)?;
    if bytes.len() == length { Ok(bytes) } else { Err(wrong_length) }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use sha2::{Digest, Sha256};

    use super::*;

    fn kept(text: &str) -> (String, String) {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute("CREATE TABLE kept (body TEXT NOT NULL)", []).unwrap();
        connection.execute("INSERT INTO kept VALUES (?1)", [CompressedText::new(&text.into())]).unwrap();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, DecompressedText>(1)?.0));
        connection.query_row("SELECT typeof(body), body FROM kept", [], read).unwrap()
    }

    #[test]
    fn every_text_comes_back_and_long_ones_are_packed() {
        let words = "{\"amount_due\":1000,\"currency\":\"eur\"},".repeat(100);
        // Nothing in it comes twice.
        let noise: String = (0..50u8).map(|n| outlast_core::object::digest_text(&Sha256::digest([n]))).collect();
        for (text, stored_as) in [
            ("", "text"),
            ("null", "text"),
            ("\"a \0 b\"", "text"),
            ("\u{1F980}", "text"),
            (&words, "blob"),
            (&words.repeat(20), "blob"),
            (&"\u{1F980}".repeat(500), "blob"),
            (&noise, "text"),
        ] {
            assert_eq!(kept(text), (stored_as.to_owned(), text.to_owned()));
        }
    }

    #[test]
    fn bytes_that_make_no_sense_are_an_error() {
        let connection = Connection::open_in_memory().unwrap();
        for value in ["x''", "x'00'", "x'ffffff7f00'", "x'0500000000'", "7", "NULL"] {
            let read = connection.query_row(&format!("SELECT {value}"), [], |row| row.get::<_, DecompressedText>(0));
            assert!(read.is_err(), "{value}");
        }
    }
}
