//! Histograms of durations for the metrics: plain atomics, so that recording takes neither a lock nor memory. A reading may
//! miss what is being recorded at the same moment; never needed for correctness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of a histogram and the bucket above them.
const BUCKETS_MAX: usize = 16;

const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;

/// For one write and its sync: from a fast disk to one that is too slow.
pub const COMMIT_BOUNDS: &[u64] =
    &[250, 500, MS, 2_500, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, S, 2_500 * MS, 5 * S];
/// For waiting and working, which take from milliseconds to a day.
pub const JOB_BOUNDS: &[u64] = &[
    5 * MS,
    25 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
    15 * S,
    60 * S,
    300 * S,
    900 * S,
    3_600 * S,
    4 * 3_600 * S,
    12 * 3_600 * S,
    24 * 3_600 * S,
];

#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds in microseconds, ascending; fewer than [`BUCKETS_MAX`].
    bounds: &'static [u64],
    buckets: [AtomicU64; BUCKETS_MAX],
    sum_micros: AtomicU64,
}

/// A histogram as it was at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramReading {
    /// Upper bound in seconds and how many were at most that long, ascending. The last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    pub sum_seconds: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [u64]) -> Histogram {
        assert!(bounds.len() < BUCKETS_MAX && bounds.is_sorted(), "bounds of a histogram fit and are sorted");
        Histogram { bounds, buckets: Default::default(), sum_micros: AtomicU64::new(0) }
    }

    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let at = self.bounds.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    #[allow(clippy::cast_precision_loss, reason = "seconds with microseconds fit for 285 years")]
    pub fn read(&self) -> HistogramReading {
        let seconds = |micros: u64| micros as f64 / S as f64;
        let bounds = self.bounds.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let (mut buckets, mut count) = (Vec::with_capacity(self.bounds.len() + 1), 0);
        for (bound, bucket) in bounds.zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            buckets.push((bound, count));
        }
        HistogramReading { buckets, sum_seconds: seconds(self.sum_micros.load(Ordering::Relaxed)) }
    }
}

impl HistogramReading {
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_bucket_and_all_above() {
        let histogram = Histogram::new(&[1_000, 5_000]);
        for micros in [1, 1_000, 1_001, 5_000, 9_000_000] {
            histogram.record(Duration::from_micros(micros));
        }

        let read = histogram.read();

        assert_eq!(read.buckets, [(0.001, 2), (0.005, 4), (f64::INFINITY, 5)]);
        assert_eq!(read.count(), 5);
        assert!((read.sum_seconds - 9.007_002).abs() < 1e-9, "{}", read.sum_seconds);
    }

    #[test]
    fn the_bounds_in_use_fit() {
        assert_eq!(Histogram::new(COMMIT_BOUNDS).read().count(), 0);
        assert_eq!(Histogram::new(JOB_BOUNDS).read().count(), 0);
    }
}
