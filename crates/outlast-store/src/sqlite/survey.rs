//! Checks the files of a data directory before SQLite opens them and names what is missing of acknowledged data. Only
//! reads; `outlast doctor` shows the same. It cannot see a torn last transaction that was synced and whose record in
//! the state file a power cut took, nor damage inside the database file.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::directory::{database_path, wal_path};
use super::mark::{DatabaseFile, reaches, read_database};
use super::state_file::{StateFound, StateRecord, WalPosition, WalState, read_state};
use super::wal::{WalScan, scan};

/// Files that a server makes beside its database and never before it.
const BESIDE_DATABASE: [&str; 2] = ["admin.key", "secret.key"];
const OBJECTS: &str = "objects";

/// The content of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// `None` if it is missing or empty.
    pub database: Option<DatabaseFile>,
    pub state: StateFound,
    pub log: Option<WalScan>,
    /// Keys and objects that belong to a database.
    pub companions: Vec<&'static str>,
}

/// Something acknowledged may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    DatabaseMissing { beside: String },
    DatabaseOlder { found: Option<u32>, expected: u32 },
    LogMissing { frames: u32 },
    LogHeaderDamaged,
    LogForeign,
    LogCut { found: u32, expected: u32 },
    LogBroken { at: u32 },
    LogAfterStop,
    StateMissing,
    StateDamaged,
    StateOlder { found: u32, expected: u32 },
    NumbersMissing { found: i64, expected: i64 },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::DatabaseMissing { beside } => write!(f, "outlast.db is missing or empty beside {beside}"),
            Loss::DatabaseOlder { found: Some(found), expected } => {
                write!(f, "outlast.db is older than outlast.state says (mark {found}, at least {expected} expected)")
            }
            Loss::DatabaseOlder { found: None, .. } => {
                write!(f, "outlast.db is not the file that outlast.state belongs to: it has no mark")
            }
            Loss::LogMissing { frames } => write!(
                f,
                "outlast.db-wal is missing or empty, but the server did not stop cleanly and had committed {frames} frames to it"
            ),
            Loss::LogHeaderDamaged => {
                write!(f, "the header of outlast.db-wal is damaged, so nothing in it can be used")
            }
            Loss::LogForeign => write!(f, "outlast.db-wal is not the log that the server wrote last"),
            Loss::LogCut { found, expected } => {
                write!(f, "outlast.db-wal has {found} sound frames of {expected} that were committed")
            }
            Loss::LogBroken { at } => {
                write!(f, "outlast.db-wal is damaged at frame {at}, and committed transactions are behind it")
            }
            Loss::LogAfterStop => write!(
                f,
                "outlast.db-wal has content although the server stopped cleanly: another program or an older release wrote it, \
                 or it was copied here; if it was a program, start and stop that program once more"
            ),
            Loss::StateMissing => write!(f, "outlast.state is missing beside outlast.db and its log"),
            Loss::StateDamaged => write!(f, "outlast.state is damaged, so nothing says whether the log is whole"),
            Loss::StateOlder { found, expected } => write!(
                f,
                "outlast.state is older than outlast.db (mark {found}, at least {expected} expected); if outlast.db is a restored \
                 backup, remove outlast.state"
            ),
            Loss::NumbersMissing { found, expected } => write!(
                f,
                "the newest jobs or events are missing: numbers up to {} were committed, outlast.db ends at {}",
                expected - 1,
                found - 1
            ),
        }
    }
}

impl Survey {
    pub fn read(directory: &Path) -> io::Result<Survey> {
        // Before the log: a running server writes the log first.
        let state = read_state(directory)?;
        let asked = match state {
            StateFound::Found(record) => record.position(),
            StateFound::Missing | StateFound::Damaged => None,
        };
        let mut companions: Vec<&str> =
            BESIDE_DATABASE.into_iter().filter(|name| directory.join(name).exists()).collect();
        let has_objects = fs::read_dir(directory.join(OBJECTS)).is_ok_and(|mut entries| entries.next().is_some());
        companions.extend(has_objects.then_some(OBJECTS));
        Ok(Survey {
            database: read_database(&database_path(directory))?,
            state,
            log: scan(&wal_path(directory), asked)?,
            companions,
        })
    }

    pub fn loss(&self) -> Option<Loss> {
        match &self.state {
            StateFound::Missing => self.loss_without_state(),
            StateFound::Damaged => Some(Loss::StateDamaged),
            StateFound::Found(record) => self.loss_by(record),
        }
    }

    pub(super) fn has_log(&self) -> bool {
        self.log.is_some_and(|log| !log.is_empty())
    }

    /// A new directory, a restored backup, or one of a release that had no state file.
    fn loss_without_state(&self) -> Option<Loss> {
        match self.database {
            None if self.has_log() => Some(Loss::DatabaseMissing { beside: "outlast.db-wal".to_owned() }),
            None if !self.companions.is_empty() => Some(Loss::DatabaseMissing { beside: self.companions.join(", ") }),
            // A server sets the first mark after it has made the state file.
            Some(DatabaseFile { mark: Some(_), .. }) if self.has_log() => Some(Loss::StateMissing),
            _ => self.broken_log(),
        }
    }

    fn loss_by(&self, record: &StateRecord) -> Option<Loss> {
        let Some(database) = self.database else {
            let is_new = record.mark == 0 && !self.has_log();
            return (!is_new).then(|| Loss::DatabaseMissing { beside: "outlast.state".to_owned() });
        };
        self.misfit(database, record).or_else(|| self.loss_in_log(database, record))
    }

    /// Do database and state file belong together?
    fn misfit(&self, database: DatabaseFile, record: &StateRecord) -> Option<Loss> {
        match database.mark {
            None if record.checkpointed == 0 => None,
            Some(mark) if !reaches(record.mark, mark) => Some(Loss::StateOlder { found: record.mark, expected: mark }),
            Some(mark) if reaches(mark, record.checkpointed) => None,
            found => Some(Loss::DatabaseOlder { found, expected: record.checkpointed }),
        }
    }

    fn loss_in_log(&self, database: DatabaseFile, record: &StateRecord) -> Option<Loss> {
        // The last mark is in the file, so a checkpoint has copied everything before it.
        let is_whole = database.mark.is_some_and(|mark| reaches(mark, record.mark));
        let (position, may_be_empty) = match record.log {
            WalState::Unknown => return self.broken_log(),
            WalState::Stopped => return self.has_log().then_some(Loss::LogAfterStop),
            WalState::Running(position) => (position, false),
            WalState::Emptying(position) => (position, is_whole),
        };
        let Some(log) = self.log.filter(|log| !log.is_empty()) else {
            return (!may_be_empty).then_some(Loss::LogMissing { frames: position.frames });
        };
        match log.salt {
            None => (!may_be_empty).then_some(Loss::LogHeaderDamaged),
            Some(salt) if salt == position.salt => same_log(&log, position).or_else(|| self.broken_log()),
            // Started over after a complete checkpoint; the server ended before it wrote that down.
            Some(salt) if is_whole && (may_be_empty || salt.0 == position.salt.0.wrapping_add(1)) => self.broken_log(),
            Some(_) => Some(Loss::LogForeign),
        }
    }

    fn broken_log(&self) -> Option<Loss> {
        let log = self.log.filter(|log| !log.is_empty())?;
        match (log.salt, log.broken_at) {
            (None, _) => Some(Loss::LogHeaderDamaged),
            (_, Some(at)) => Some(Loss::LogBroken { at }),
            _ => None,
        }
    }
}

fn same_log(log: &WalScan, position: WalPosition) -> Option<Loss> {
    if log.committed < position.frames {
        return Some(Loss::LogCut { found: log.committed, expected: position.frames });
    }
    (position.frames > 0 && log.checksum != Some(position.checksum)).then_some(Loss::LogForeign)
}

impl StateRecord {
    pub fn position(&self) -> Option<WalPosition> {
        match self.log {
            WalState::Running(position) | WalState::Emptying(position) => Some(position),
            WalState::Unknown | WalState::Stopped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    const POSITION: WalPosition = WalPosition { salt: (10, 99), frames: 8, checksum: (1, 2) };

    fn record(log: WalState) -> StateRecord {
        let at = Timestamp::EPOCH;
        StateRecord { incarnation: 1, log, mark: 5, checkpointed: 4, copied: 0, next_seq: 1, at }
    }

    fn log(salt: (u32, u32), committed: u32) -> WalScan {
        let checksum = (committed >= 8).then_some((1, 2));
        WalScan { bytes: 4096, salt: Some(salt), committed, checksum, broken_at: None }
    }

    fn loss(state: WalState, mark: u32, log: Option<WalScan>) -> Option<Loss> {
        let database = Some(DatabaseFile { bytes: 4096, mark: Some(mark) });
        Survey { database, state: StateFound::Found(record(state)), log, companions: Vec::new() }.loss()
    }

    #[test]
    fn what_a_kill_leaves_is_no_loss() {
        let running = WalState::Running(POSITION);
        assert_eq!(loss(running, 4, Some(log((10, 99), 8))), None);
        assert_eq!(loss(running, 4, Some(log((10, 99), 11))), None, "committed and not recorded yet");
        assert_eq!(loss(running, 5, Some(log((11, 7), 2))), None, "started over after a checkpoint");
        assert_eq!(loss(WalState::Emptying(POSITION), 5, None), None);
        assert_eq!(loss(WalState::Emptying(POSITION), 5, Some(log((77, 7), 2))), None, "emptied, and a new one begun");
        assert_eq!(loss(WalState::Stopped, 5, None), None);
        assert_eq!(loss(WalState::Unknown, 5, Some(log((77, 7), 2))), None);
    }

    #[test]
    fn what_does_not_fit_together_is_a_loss() {
        let running = WalState::Running(POSITION);
        assert_eq!(loss(running, 5, None), Some(Loss::LogMissing { frames: 8 }));
        assert_eq!(loss(WalState::Emptying(POSITION), 4, None), Some(Loss::LogMissing { frames: 8 }));
        assert_eq!(loss(running, 4, Some(log((10, 99), 7))), Some(Loss::LogCut { found: 7, expected: 8 }));
        assert_eq!(loss(running, 4, Some(log((11, 7), 2))), Some(Loss::LogForeign), "no checkpoint was completed");
        assert_eq!(loss(running, 5, Some(log((12, 7), 2))), Some(Loss::LogForeign));
        let other = WalScan { checksum: Some((3, 4)), ..log((10, 99), 8) };
        assert_eq!(loss(running, 4, Some(other)), Some(Loss::LogForeign));
        let broken = WalScan { broken_at: Some(9), ..log((10, 99), 8) };
        assert_eq!(loss(running, 4, Some(broken)), Some(Loss::LogBroken { at: 9 }));
        assert_eq!(loss(running, 3, None), Some(Loss::DatabaseOlder { found: Some(3), expected: 4 }));
        assert_eq!(loss(running, 6, None), Some(Loss::StateOlder { found: 5, expected: 6 }));
        assert_eq!(loss(WalState::Stopped, 5, Some(log((10, 99), 8))), Some(Loss::LogAfterStop));
    }
}
