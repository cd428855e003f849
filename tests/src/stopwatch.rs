//! Time that a test measures, without the time that the machine withheld. A bound of the product ("within 2 s") is
//! about the server; on a machine whose disk or processors stall, time passes in which no process can run. A thread
//! does again and again what the server lives on, a short sleep and a small write to disk, and books what it took too
//! long.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The sleep of a round. Small against every bound that a test measures.
const PAUSE: Duration = Duration::from_millis(20);
/// The duration of a round on an idle machine: the sleep, a late wake-up, and what an ordinary disk needs for a write.
const ROUND: Duration = Duration::from_millis(25);
/// However much was withheld, a deadline has passed after so many times its length: a test must end.
const REAL_TIME_FACTOR: u32 = 4;

/// Runs from its start on. `elapsed` is for lower bounds, `charged` for upper ones.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: Instant,
    withheld_before: Duration,
}

impl Stopwatch {
    #[must_use]
    pub fn start() -> Stopwatch {
        let started = Instant::now();
        Stopwatch { started, withheld_before: withheld_until(started) }
    }

    /// The real time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The part of it that the machine has withheld.
    pub fn withheld(&self) -> Duration {
        withheld_until(Instant::now()).saturating_sub(self.withheld_before)
    }

    /// The rest, which may be held against the server.
    pub fn charged(&self) -> Duration {
        let now = Instant::now();
        let withheld = withheld_until(now).saturating_sub(self.withheld_before);
        now.duration_since(self.started).saturating_sub(withheld)
    }

    /// Whether a deadline counted from the start has passed.
    pub fn has_passed(&self, deadline: Duration) -> bool {
        self.charged() >= deadline || self.elapsed() >= deadline.saturating_mul(REAL_TIME_FACTOR)
    }

    /// Both times, for the message of a test that fails.
    pub fn reading(&self) -> String {
        format!("{:?} ({:?} of it withheld by the machine)", self.elapsed(), self.withheld())
    }
}

/// The excess time of the rounds that ended, and the start of the current one.
#[derive(Debug, Clone, Copy)]
struct Account {
    withheld: Duration,
    round_began: Instant,
}

impl Account {
    /// Counts the overdue part of the present round too: a stall is noticed while it lasts.
    fn withheld_until(&self, now: Instant) -> Duration {
        self.withheld + now.saturating_duration_since(self.round_began).saturating_sub(ROUND)
    }

    fn round_ended(&mut self, now: Instant) {
        *self = Account { withheld: self.withheld_until(now), round_began: now };
    }
}

/// One for the process: the machine is one. The thread is never waited for and ends with the process.
static ACCOUNT: OnceLock<Mutex<Account>> = OnceLock::new();

fn withheld_until(now: Instant) -> Duration {
    let account = ACCOUNT.get_or_init(|| {
        thread::spawn(keep_account);
        Mutex::new(Account { withheld: Duration::ZERO, round_began: Instant::now() })
    });
    account.lock().unwrap_or_else(PoisonError::into_inner).withheld_until(now)
}

fn keep_account() {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let account = ACCOUNT.wait();
    loop {
        thread::sleep(PAUSE);
        // A full disk is no stall, and some tests fill one.
        let _ = write_one_byte(&mut file);
        account.lock().unwrap_or_else(PoisonError::into_inner).round_ended(Instant::now());
    }
}

fn write_one_byte(file: &mut File) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(b".")?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::{Account, ROUND, Stopwatch};
    use std::time::{Duration, Instant};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rounds_in_time_withhold_nothing() {
        let mut now = Instant::now();
        let mut account = Account { withheld: Duration::ZERO, round_began: now };

        for _ in 0..50 {
            now += ROUND;
            account.round_ended(now);
        }

        assert_eq!(account.withheld_until(now + ROUND), Duration::ZERO);
    }

    #[test]
    fn the_excess_time_of_rounds_is_withheld() {
        let mut now = Instant::now();
        let mut account = Account { withheld: Duration::ZERO, round_began: now };

        for stall in [SECOND, Duration::ZERO, 2 * SECOND] {
            now += ROUND + stall;
            account.round_ended(now);
        }

        assert_eq!(account.withheld_until(now), 3 * SECOND);
    }

    #[test]
    fn a_stall_is_noticed_while_it_lasts_and_counted_once() {
        let began = Instant::now();
        let mut account = Account { withheld: Duration::ZERO, round_began: began };

        assert_eq!(account.withheld_until(began + ROUND + SECOND), SECOND);
        account.round_ended(began + ROUND + 2 * SECOND);

        assert_eq!(account.withheld_until(began + ROUND + 2 * SECOND), 2 * SECOND);
    }

    #[test]
    fn no_more_is_charged_than_went_by() {
        let stopwatch = Stopwatch::start();

        for _ in 0..100 {
            let charged = stopwatch.charged();
            assert!(charged <= stopwatch.elapsed());
            let withheld = stopwatch.withheld();
            assert!(withheld <= stopwatch.elapsed());
        }
    }

    #[test]
    fn a_deadline_passes_in_the_end_however_much_was_withheld() {
        let stopwatch = Stopwatch { started: Instant::now() - 4 * SECOND, withheld_before: Duration::ZERO };

        assert!(stopwatch.has_passed(SECOND));
        assert!(!stopwatch.has_passed(600 * SECOND));
    }
}
