//! Which seeds a suite in virtual time runs: the same ones in every `make test`, fresh ones in `make soak`, or the single
//! one that is to be repeated.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// `OUTLAST_SEED`: run this one and no other.
pub fn only() -> Option<u64> {
    let text = std::env::var("OUTLAST_SEED").ok()?;
    Some(text.parse().expect("OUTLAST_SEED is a whole number"))
}

/// `count` seeds in a row.
pub fn range(count: usize) -> Range<u64> {
    let is_soak = std::env::var("OUTLAST_SOAK").is_ok_and(|value| value == "1");
    let first = match is_soak {
        true => SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_micros() as u64,
        false => 1,
    };
    first..first + count as u64
}

/// Runs `count` seeds, or the single one that is to be repeated; panics with what the first violation says.
pub fn all_hold(count: usize, run: impl Fn(u64) -> Result<(), String> + Sync) {
    let outcome = match only() {
        Some(seed) => run(seed),
        None => run_all(range(count), run),
    };
    if let Err(violation) = outcome {
        panic!("{violation}");
    }
}

/// Runs each seed until one fails; returns the message of the lowest seed that did. Half of the time a sequence on a
/// database waits, so there are more threads than cores.
pub fn run_all(seeds: Range<u64>, run: impl Fn(u64) -> Result<(), String> + Sync) -> Result<(), String> {
    let next = AtomicU64::new(seeds.start);
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let work = || {
        while failed.lock().expect("no thread panics here").is_none() {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= seeds.end {
                return;
            }
            if let Err(message) = run(seed) {
                let mut failed = failed.lock().expect("no thread panics here");
                if failed.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                    *failed = Some((seed, message));
                }
            }
        }
    };
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    match failed.into_inner().expect("no thread panics here") {
        Some((_, message)) => Err(message),
        None => Ok(()),
    }
}
