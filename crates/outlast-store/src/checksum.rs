//! Checksums of rows, the same on both engines: CRC-32C over the table, the row's identity and its columns. A row whose
//! bytes changed on disk fails its check, and so does a sound row that turns up in the place of another one.

use crc_fast::crc32_iscsi;

/// The order is the stored form: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Meta,
    Namespace,
    Queue,
    Gate,
    ApiKey,
    Operation,
    Job,
    Spec,
    Payload,
    Result,
    History,
    Checkpoint,
    Section,
    Object,
    InboundEvent,
    Body,
}

impl Table {
    /// For messages: the table, and which part of it where a row has two checksums.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Namespace => "namespace",
            Table::Queue => "queue",
            Table::Gate => "queue (hold and rate)",
            Table::ApiKey => "api_key",
            Table::Operation => "operation",
            Table::Job => "job",
            Table::Spec => "spec",
            Table::Payload => "job (payload)",
            Table::Result => "result",
            Table::History => "history",
            Table::Checkpoint => "checkpoint",
            Table::Section => "section",
            Table::Object => "object",
            Table::InboundEvent => "inbound_event",
            Table::Body => "inbound_event (body)",
        }
    }
}

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const TEXT: u8 = 2;
const BLOB: u8 = 3;
/// A row of the widest table: some forty columns of up to 13 bytes.
const CAPACITY: usize = 520;

/// The CRC of a long value, worked out before the row's turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    kind: u8,
    length: u64,
    crc: u32,
}

impl Digest {
    pub(crate) fn of_text(bytes: &[u8]) -> Digest {
        Digest { kind: TEXT, length: bytes.len() as u64, crc: crc32_iscsi(bytes) }
    }

    pub(crate) fn of_blob(bytes: &[u8]) -> Digest {
        Digest { kind: BLOB, length: bytes.len() as u64, crc: crc32_iscsi(bytes) }
    }
}

/// A checksum in the making: the columns are added in the order in which they are read. A text or blob counts by its kind,
/// its length and its own CRC, so that of a long one the CRC can be known beforehand.
pub(crate) struct RowSum {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl RowSum {
    pub(crate) fn of(table: Table) -> RowSum {
        let mut sum = RowSum { bytes: [0; CAPACITY], length: 0 };
        sum.put([table as u8]);
        sum
    }

    pub(crate) fn null(&mut self) {
        self.put([NULL]);
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.put([INTEGER]);
        self.put(number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.digest(Digest::of_text(text));
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.digest(Digest::of_blob(bytes));
    }

    pub(crate) fn digest(&mut self, digest: Digest) {
        self.put([digest.kind]);
        self.put(digest.length.to_le_bytes());
        self.put(digest.crc.to_le_bytes());
    }

    /// Signed, since that takes four bytes in either database.
    pub(crate) fn finish(self) -> i32 {
        self.crc().cast_signed()
    }

    fn crc(&self) -> u32 {
        crc32_iscsi(self.bytes.get(..self.length).unwrap_or_default())
    }

    fn put<const N: usize>(&mut self, part: [u8; N]) {
        if self.length + N > CAPACITY {
            // No table is that wide. If one ever is, its first columns count by their CRC.
            let so_far = self.crc().to_le_bytes();
            self.length = 0;
            self.put(so_far);
        }
        if let Some(room) = self.bytes.get_mut(self.length..self.length + N) {
            room.copy_from_slice(&part);
            self.length += N;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(table: Table, id: i64, text: &str) -> i32 {
        let mut sum = RowSum::of(table);
        sum.integer(id);
        sum.text(text.as_bytes());
        sum.null();
        sum.finish()
    }

    // The stored form: a change here makes every stored row look damaged.
    #[test]
    fn the_checksum_of_a_row_is_what_it_always_was() {
        assert_eq!(sum(Table::Spec, 7, "{\"a\":1}"), 369_533_654);
    }

    #[test]
    fn another_table_another_row_and_every_changed_bit_are_noticed() {
        let text = "{\"amount\":1000}";
        let sound = sum(Table::Spec, 7, text);

        assert_ne!(sum(Table::Result, 7, text), sound);
        assert_ne!(sum(Table::Spec, 8, text), sound);
        for bit in 0..text.len() * 8 {
            let mut bytes = text.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut changed = RowSum::of(Table::Spec);
            changed.integer(7);
            changed.text(&bytes);
            changed.null();
            assert_ne!(changed.finish(), sound, "bit {bit}");
        }
    }

    #[test]
    fn text_and_blob_and_the_border_between_two_columns_are_told_apart() {
        let of = |parts: &[&[u8]]| {
            let mut sum = RowSum::of(Table::Job);
            parts.iter().for_each(|part| sum.text(part));
            sum.finish()
        };
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        let mut blob = RowSum::of(Table::Job);
        blob.blob(b"ab");
        assert_ne!(blob.finish(), of(&[b"ab"]));
    }
}
