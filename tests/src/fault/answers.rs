//! Reads the stream of messages that a PostgreSQL server sends, as far as is needed to see that a COMMIT was carried
//! out.

/// Of a message only this much is kept: the longest tag that is looked for.
const KEPT_BYTES: usize = COMMITTED.len();
const COMMITTED: &[u8] = b"COMMIT\0";

#[derive(Default)]
pub(super) struct Commits {
    place: Place,
    kind: u8,
    length: [u8; 4],
    body: Vec<u8>,
}

#[derive(Default, Clone, Copy)]
enum Place {
    /// Before the first message a server may have answered the question for TLS, with one byte.
    #[default]
    Opening,
    Kind,
    Length(usize),
    Body(usize),
    /// The rest is encrypted and cannot be read.
    Dark,
}

impl Commits {
    /// How many `CommandComplete` messages of a COMMIT end in this piece.
    pub(super) fn count(&mut self, piece: &[u8]) -> usize {
        piece.iter().filter(|byte| self.step(**byte)).count()
    }

    /// Whether this byte is the last one of such a message.
    fn step(&mut self, byte: u8) -> bool {
        match self.place {
            Place::Dark => {}
            Place::Opening if byte == b'N' => self.place = Place::Kind,
            Place::Opening if byte == b'S' => self.place = Place::Dark,
            Place::Opening | Place::Kind => {
                self.kind = byte;
                self.body.clear();
                self.place = Place::Length(0);
            }
            Place::Length(at) => {
                self.length[at] = byte;
                if at < 3 {
                    self.place = Place::Length(at + 1);
                    return false;
                }
                // The length counts itself.
                let left = (u32::from_be_bytes(self.length) as usize).saturating_sub(4);
                self.place = if left == 0 { Place::Kind } else { Place::Body(left) };
            }
            Place::Body(left) => {
                if self.body.len() < KEPT_BYTES {
                    self.body.push(byte);
                }
                self.place = if left == 1 { Place::Kind } else { Place::Body(left - 1) };
                return left == 1 && self.kind == b'C' && self.body == COMMITTED;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    #[test]
    fn commits_are_counted_however_the_stream_is_cut_up() {
        let stream = [
            b"N".to_vec(),
            message(b'R', &[0, 0, 0, 0]),
            message(b'C', b"INSERT 0 1\0"),
            message(b'C', b"COMMIT\0"),
            message(b'D', b"C\0\0\0\x0bCOMMIT\0"),
            message(b'2', b""),
            message(b'C', b"COMMIT PREPARED\0"),
            message(b'C', b"COMMIT\0"),
        ]
        .concat();
        for size in 1..stream.len() {
            let mut commits = Commits::default();
            let counted: usize = stream.chunks(size).map(|piece| commits.count(piece)).sum();
            assert_eq!(counted, 2, "in pieces of {size}");
        }
    }
}
