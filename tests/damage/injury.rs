//! Injuries: where they strike and what they do, drawn from a seed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outlast_tests::chance::Chance;
use rusqlite::Connection;

const PAGE: u64 = 4096;

/// What is injured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Anywhere in the database file.
    Database,
    /// The bytes of a row that a user gave: a payload, a result, a checkpoint.
    Row,
}

impl Place {
    pub(crate) const ALL: [Place; 2] = [Place::Database, Place::Row];
}

#[derive(Clone, Copy, Debug)]
enum Act {
    FlipBit,
    ZeroPage,
    RandomPage,
    OtherPage,
    Truncate,
}

#[derive(Debug)]
pub(crate) struct Injury {
    place: Place,
    act: Act,
    file: PathBuf,
    offset: u64,
}

impl Injury {
    pub(crate) fn inflict(data: &Path, chance: &mut Chance, places: &[Place]) -> Injury {
        let place = places[usize::try_from(chance.below(places.len() as u64)).unwrap_or(0)];
        let file = data.join("outlast.db");
        if place == Place::Row {
            return flip_in_row(&file, chance);
        }
        let length = fs::metadata(&file).expect("the file is there").len();
        let act = match chance.below(100) {
            0..50 => Act::FlipBit,
            50..65 => Act::ZeroPage,
            65..80 => Act::RandomPage,
            80..95 => Act::OtherPage,
            _ => Act::Truncate,
        };
        let injury = Injury { place, act, offset: chance.below(length), file };
        injury.act(length, chance);
        injury
    }

    fn act(&self, length: u64, chance: &mut Chance) {
        let file = OpenOptions::new().read(true).write(true).open(&self.file).expect("the file opens");
        let page = self.offset / PAGE * PAGE;
        match self.act {
            Act::FlipBit => flip(&file, self.offset, chance),
            Act::ZeroPage => file.write_all_at(&[0; 4096], page).expect("the page is written"),
            Act::RandomPage => {
                let noise: Vec<u8> = (0..PAGE).map(|_| chance.below(256) as u8).collect();
                file.write_all_at(&noise, page).expect("the page is written");
            }
            Act::OtherPage => {
                let mut other = vec![0; 4096];
                let from = chance.below(length / PAGE) * PAGE;
                file.read_exact_at(&mut other, from).expect("the page is read");
                file.write_all_at(&other, page).expect("the page is written");
            }
            Act::Truncate => file.set_len(page).expect("the file is cut"),
        }
    }

    pub(crate) fn kind(&self) -> String {
        format!("{:?} {:?}", self.place, self.act)
    }
}

impl fmt::Display for Injury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (page {}) of {}", self.kind(), self.offset, self.offset / PAGE + 1, self.file.display())
    }
}

fn flip(file: &File, offset: u64, chance: &mut Chance) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the byte is read");
    byte[0] ^= 1 << chance.below(8);
    file.write_all_at(&byte, offset).expect("the byte is written");
}

/// One bit of a text that is found in the file as it was stored.
fn flip_in_row(path: &Path, chance: &mut Chance) -> Injury {
    const TEXTS: [&str; 4] = [
        "SELECT payload FROM spec WHERE typeof(payload) = 'text'",
        "SELECT body FROM result",
        "SELECT data FROM checkpoint WHERE data IS NOT NULL",
        "SELECT body FROM section",
    ];
    let connection = Connection::open(path).expect("the database opens");
    let sql = TEXTS[usize::try_from(chance.below(4)).unwrap_or(0)];
    let mut statement = connection.prepare(sql).expect("the tables are known");
    let texts: Vec<String> =
        statement.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("texts");
    drop(statement);
    drop(connection);
    let bytes = fs::read(path).expect("the file is read");
    let text = &texts[usize::try_from(chance.below(texts.len() as u64)).unwrap_or(0)];
    // A long text goes on in other pages; its beginning is in one.
    let beginning = &text.as_bytes()[..text.len().min(40)];
    let (within, bit) = (chance.below(beginning.len() as u64), chance.below(8));
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the file opens");
    // Pages keep copies of what stood there before; which one is read cannot be told from here.
    let mut last = None;
    for (at, window) in bytes.windows(beginning.len()).enumerate() {
        if window == beginning {
            let offset = at as u64 + within;
            let byte = bytes[at + within as usize] ^ 1 << bit;
            file.write_all_at(&[byte], offset).expect("the byte is written");
            last = Some(offset);
        }
    }
    let offset = last.expect("the text is in the file");
    Injury { place: Place::Row, act: Act::FlipBit, offset, file: path.to_owned() }
}
