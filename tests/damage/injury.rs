//! Injuries: where they strike and what they do, drawn from a seed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outlast_tests::chance::Chance;
use rusqlite::Connection;

use crate::scene::Ending;

const PAGE: u64 = 4096;
/// A frame of the log is a page behind a header of its own, and the log has one, too.
const FRAME: u64 = PAGE + 24;
const LOG_HEADER: u64 = 32;
/// The used bytes of a slot of the state file; a slot is a page.
const STATE_BYTES: u64 = 104;

/// The place of an injury.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Anywhere in the database file of a store that was stopped.
    Database,
    /// The bytes of a row that a user gave: a payload, a result, a checkpoint.
    Row,
    /// Anywhere in the database file of a store that was killed, so that the log has a part of it.
    DatabaseUnderLog,
    /// The log of a store that was killed: no other file has its content.
    Log,
    StateFile,
    /// The file of a result or a checkpoint.
    Object,
}

impl Place {
    /// With how many of a hundred injuries strike there.
    const WEIGHTS: [(Place, u64); 6] = [
        (Place::Database, 30),
        (Place::Row, 15),
        (Place::DatabaseUnderLog, 10),
        (Place::Log, 25),
        (Place::StateFile, 5),
        (Place::Object, 15),
    ];

    pub(crate) fn any(chance: &mut Chance) -> Place {
        let mut drawn = chance.below(Place::WEIGHTS.iter().map(|(_, weight)| weight).sum());
        for (place, weight) in Place::WEIGHTS {
            match drawn.checked_sub(weight) {
                Some(rest) => drawn = rest,
                None => return place,
            }
        }
        Place::Database
    }

    /// How the store that is injured there had ended.
    pub(crate) fn ending(self) -> Ending {
        match self {
            Place::Database | Place::Row | Place::Object => Ending::Stopped,
            Place::DatabaseUnderLog | Place::Log | Place::StateFile => Ending::Killed,
        }
    }

    fn file(self, data: &Path, chance: &mut Chance) -> PathBuf {
        match self {
            Place::Database | Place::Row | Place::DatabaseUnderLog => data.join("outlast.db"),
            Place::Log => data.join("outlast.db-wal"),
            Place::StateFile => data.join("outlast.state"),
            Place::Object => {
                let mut files = Vec::new();
                gather(&data.join("objects"), &mut files);
                files.sort();
                chance.take(&mut files).expect("there are objects")
            }
        }
    }

    /// Where the page around this byte begins.
    fn page_around(self, offset: u64) -> u64 {
        match self {
            Place::Log => offset.saturating_sub(LOG_HEADER) / FRAME * FRAME + LOG_HEADER,
            _ => offset / PAGE * PAGE,
        }
    }

    fn page_length(self) -> u64 {
        if self == Place::Log { FRAME } else { PAGE }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    FlipBit,
    ZeroPage,
    RandomPage,
    OtherPage,
    Truncate,
    Delete,
}

#[derive(Debug)]
pub(crate) struct Injury {
    place: Place,
    act: Act,
    file: PathBuf,
    offset: u64,
}

impl Injury {
    pub(crate) fn inflict(data: &Path, chance: &mut Chance, place: Place) -> Injury {
        let file = place.file(data, chance);
        if place == Place::Row {
            return flip_in_row(&file, chance);
        }
        let length = fs::metadata(&file).expect("the file is there").len();
        let act = match chance.below(100) {
            0..45 => Act::FlipBit,
            45..57 => Act::ZeroPage,
            57..69 => Act::RandomPage,
            69..81 => Act::OtherPage,
            81..95 => Act::Truncate,
            _ => Act::Delete,
        };
        let offset = match place {
            // The rest of a slot is never looked at.
            Place::StateFile => chance.below(length / PAGE) * PAGE + chance.below(STATE_BYTES),
            _ => chance.below(length),
        };
        let injury = Injury { place, act, offset, file };
        injury.act(length, chance);
        injury
    }

    fn act(&self, length: u64, chance: &mut Chance) {
        let file = OpenOptions::new().read(true).write(true).open(&self.file).expect("the file opens");
        let page = self.place.page_around(self.offset);
        // The last page of a file that does not end with one is shorter.
        let page_length = self.place.page_length().min(length - page);
        let overwrite = |bytes: &[u8]| file.write_all_at(bytes, page).expect("the page is written");
        match self.act {
            Act::FlipBit => flip(&file, self.offset, chance),
            Act::ZeroPage => overwrite(&vec![0; page_length as usize]),
            Act::RandomPage => overwrite(&(0..page_length).map(|_| chance.below(256) as u8).collect::<Vec<_>>()),
            Act::OtherPage => {
                let mut other = vec![0; page_length as usize];
                let from = self.place.page_around(chance.below(length)).min(length - page_length);
                file.read_exact_at(&mut other, from).expect("the page is read");
                overwrite(&other);
            }
            // At a page or anywhere.
            Act::Truncate if chance.percent(50) => file.set_len(page).expect("the file is cut"),
            Act::Truncate => file.set_len(self.offset).expect("the file is cut"),
            Act::Delete => fs::remove_file(&self.file).expect("the file is removed"),
        }
    }

    pub(crate) fn kind(&self) -> String {
        format!("{:?} {:?}", self.place, self.act)
    }
}

impl fmt::Display for Injury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.offset / self.place.page_length() + 1;
        write!(f, "{} at {} (page {page}) of {}", self.kind(), self.offset, self.file.display())
    }
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => gather(&path, files),
            false => files.push(path),
        }
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
    // Pages keep old copies of their content; the test cannot know which one is read.
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
