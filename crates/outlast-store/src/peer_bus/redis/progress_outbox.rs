//! Progress on its way to the other nodes: the latest of each job, all of them once a second. A report comes far more often
//! than anybody looks; the last one of a job leaves within a second, and stays here until it has left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::{JobId, Lease, Progress};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::peer_bus::codec::progress::{JOBS_MAX, VALUES_BYTES_MAX, encode_value};
use crate::peer_bus::signals::{PROGRESS_MAX, ReportedProgress};
use crate::peer_bus::{LeaseDigest, SignalSet};

/// The progress of a job is published at most once per round.
const ROUND: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct ProgressOutbox {
    state: Mutex<OutboxState>,
    filled: Notify,
}

#[derive(Default)]
struct OutboxState {
    /// For the next round, at most [`PROGRESS_MAX`].
    latest: BTreeMap<JobId, ReportedProgress>,
    /// Of this round, not yet published, at most [`PROGRESS_MAX`].
    due: BTreeMap<JobId, ReportedProgress>,
    round_began: Option<Instant>,
}

/// Values for one message.
pub(super) type ProgressBatch = Vec<OutboxEntry>;

pub(super) struct OutboxEntry {
    pub(super) id: JobId,
    /// In the form of the message and of the stored value.
    pub(super) bytes: Vec<u8>,
    progress: Arc<Progress>,
}

impl ProgressOutbox {
    /// Never waits. Beyond the bound a job is left out, until there is room again.
    pub(super) fn add(&self, id: JobId, lease: Lease, progress: &Arc<Progress>) {
        let told = ReportedProgress { hand_out: LeaseDigest::of(lease), progress: Arc::clone(progress) };
        let mut state = self.lock();
        if state.latest.len() < PROGRESS_MAX || state.latest.contains_key(&id) {
            state.latest.insert(id, told);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// A peer published a later report of the same job, since a worker may report to several nodes. The waiting report
    /// must not undo it: it is published only if it is further, merged with the peer's.
    pub(super) fn heard(&self, news: &SignalSet) {
        if news.progress.is_empty() {
            return;
        }
        let mut state = self.lock();
        let OutboxState { latest, due, .. } = &mut *state;
        for (id, told) in &news.progress {
            for waiting in [&mut *latest, &mut *due] {
                let Some(own) = waiting.get_mut(id).filter(|own| own.progress.at <= told.progress.at) else {
                    continue;
                };
                let joined = own.progress.joined(&told.progress);
                if own.hand_out == told.hand_out && joined.has_moved_since(&told.progress) {
                    own.progress = Arc::new(joined);
                } else {
                    waiting.remove(id);
                }
            }
        }
    }

    /// The job has changed, perhaps ended: its waiting report is published before that signal. While disconnected, no
    /// more than the bound waits.
    pub(super) fn hurry(&self, id: JobId) {
        let mut state = self.lock();
        if let Some(told) = state.latest.remove(&id)
            && state.due.len() < PROGRESS_MAX
        {
            state.due.insert(id, told);
        }
    }

    /// Ends when there is something to tell and its time has come. For one taker; cancel-safe.
    pub(super) async fn wait(&self) {
        loop {
            let next_round = {
                let state = self.lock();
                match (state.due.is_empty(), state.latest.is_empty()) {
                    (false, _) => return,
                    (true, false) => Some(state.round_began.map_or_else(Instant::now, |began| began + ROUND)),
                    (true, true) => None,
                }
            };
            match next_round {
                Some(at) => return sleep_until(at).await,
                None => self.filled.notified().await,
            }
        }
    }

    /// The content of the next message, perhaps none. It stays here until [`ProgressOutbox::sent`].
    pub(super) fn batch(&self, now: Instant) -> ProgressBatch {
        let mut state = self.lock();
        let is_time = state.round_began.is_none_or(|began| now >= began + ROUND);
        if state.due.is_empty() && is_time && !state.latest.is_empty() {
            state.due = std::mem::take(&mut state.latest);
            state.round_began = Some(now);
        }
        let (mut batch, mut length) = (ProgressBatch::new(), 0);
        for (id, told) in state.due.iter().take(JOBS_MAX) {
            let bytes = encode_value(told);
            length += bytes.len();
            if length > VALUES_BYTES_MAX {
                break;
            }
            batch.push(OutboxEntry { id: *id, bytes, progress: Arc::clone(&told.progress) });
        }
        batch
    }

    /// These have left; what came in their place meanwhile has not.
    pub(super) fn sent(&self, batch: &ProgressBatch) {
        let mut state = self.lock();
        for value in batch {
            if state.due.get(&value.id).is_some_and(|told| Arc::ptr_eq(&told.progress, &value.progress)) {
                state.due.remove(&value.id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{ProgressReport, Timestamp};

    use super::*;
    use crate::peer_bus::codec::progress::decode_value;

    fn job(number: u64) -> JobId {
        JobId::new(Timestamp::from_millis(1), u128::from(number))
    }

    fn progress(at: i64, words: usize) -> Arc<Progress> {
        let report = ProgressReport { message: Some("m".repeat(words).into()), ..ProgressReport::default() };
        let at = Timestamp::from_millis(at);
        Arc::new(Progress::restored(report, at, at, None))
    }

    fn report(outbox: &ProgressOutbox, number: u64, at: i64) {
        outbox.add(job(number), Lease::from_u128(1), &progress(at, 3));
    }

    fn times(batch: &ProgressBatch) -> Vec<i64> {
        batch.iter().map(|value| decode_value(&value.bytes).unwrap().progress.at.as_millis()).collect()
    }

    #[tokio::test]
    async fn each_job_is_told_of_once_a_second_with_its_latest_report() {
        let outbox = ProgressOutbox::default();
        let began = Instant::now();
        report(&outbox, 1, 10);
        outbox.wait().await;
        let first = outbox.batch(Instant::now());
        outbox.sent(&first);
        for at in 11..100 {
            report(&outbox, 1, at);
            assert!(outbox.batch(Instant::now()).is_empty(), "its second is not over");
        }

        outbox.wait().await;
        let second = outbox.batch(Instant::now());
        outbox.sent(&second);

        assert_eq!((times(&first), times(&second)), (vec![10], vec![99]));
        assert!(began.elapsed() >= ROUND && began.elapsed() < 2 * ROUND, "{:?}", began.elapsed());
        assert!(outbox.batch(Instant::now() + ROUND).is_empty());
    }

    #[tokio::test]
    async fn what_was_not_sent_is_told_again() {
        let outbox = ProgressOutbox::default();
        report(&outbox, 1, 10);
        let lost = outbox.batch(Instant::now());
        report(&outbox, 2, 20);

        outbox.wait().await;
        let again = outbox.batch(Instant::now());
        outbox.sent(&again);
        outbox.wait().await;

        assert_eq!((times(&lost), times(&again)), (vec![10], vec![10]));
        assert_eq!(times(&outbox.batch(Instant::now())), [20], "and nothing is lost behind it");
    }

    #[tokio::test]
    async fn many_jobs_go_out_in_bounded_messages_within_their_round() {
        let outbox = ProgressOutbox::default();
        for number in 0..3000 {
            outbox.add(job(number), Lease::from_u128(1), &progress(1, 1000));
        }
        let (mut told, mut messages) = (0, 0);
        loop {
            let batch = outbox.batch(Instant::now());
            if batch.is_empty() {
                break;
            }
            assert!(batch.len() <= JOBS_MAX);
            assert!(batch.iter().map(|value| value.bytes.len()).sum::<usize>() <= VALUES_BYTES_MAX);
            (told, messages) = (told + batch.len(), messages + 1);
            outbox.sent(&batch);
        }

        assert_eq!(told, 3000);
        assert!(messages > 10, "{messages}");
    }

    #[test]
    fn reports_are_bounded_and_the_known_ones_stay_fresh() {
        let outbox = ProgressOutbox::default();
        for number in 0..100_000 {
            report(&outbox, number, 1);
        }
        report(&outbox, 5, 2);

        let state = outbox.lock();
        assert_eq!(state.latest.len(), PROGRESS_MAX);
        assert_eq!(state.latest[&job(5)].progress.at.as_millis(), 2);
    }

    #[test]
    fn what_is_further_than_others_know_is_told_together_with_theirs() {
        let outbox = ProgressOutbox::default();
        let pct = |pct: f64, at: i64| {
            let report = ProgressReport { pct: Some(pct), ..ProgressReport::default() };
            Arc::new(Progress::restored(report, Timestamp::from_millis(1), Timestamp::from_millis(at), None))
        };
        outbox.add(job(1), Lease::from_u128(1), &pct(70.0, 10));
        outbox.add(job(2), Lease::from_u128(1), &pct(70.0, 10));
        let mut news = SignalSet::default();
        let later =
            |lease| ReportedProgress { hand_out: LeaseDigest::of(Lease::from_u128(lease)), progress: pct(60.0, 11) };
        news.add_progress(job(1), later(1));
        news.add_progress(job(2), later(2));

        outbox.heard(&news);

        let state = outbox.lock();
        assert_eq!(state.latest[&job(1)].progress.settled(), *pct(70.0, 11));
        assert!(!state.latest.contains_key(&job(2)), "another hand-out has begun since");
    }

    #[tokio::test]
    async fn a_job_that_has_changed_is_told_of_at_once() {
        let outbox = ProgressOutbox::default();
        report(&outbox, 1, 10);
        outbox.sent(&outbox.batch(Instant::now()));
        report(&outbox, 1, 11);
        report(&outbox, 2, 12);

        outbox.hurry(job(1));
        outbox.hurry(job(9));

        outbox.wait().await;
        let under_way = outbox.batch(Instant::now());
        assert_eq!(times(&under_way), [11], "and the others wait for their round");
        report(&outbox, 1, 13);
        outbox.hurry(job(1));
        outbox.sent(&under_way);
        assert_eq!(times(&outbox.batch(Instant::now())), [13], "what came meanwhile has not left");
    }

    #[tokio::test]
    async fn what_others_know_better_is_not_told() {
        let outbox = ProgressOutbox::default();
        report(&outbox, 1, 10);
        report(&outbox, 2, 10);
        let mut news = SignalSet::default();
        let told = |at| ReportedProgress { hand_out: LeaseDigest::of(Lease::from_u128(1)), progress: progress(at, 1) };
        news.add_progress(job(1), told(11));
        news.add_progress(job(2), told(9));

        outbox.heard(&news);

        assert_eq!(outbox.batch(Instant::now()).iter().map(|value| value.id).collect::<Vec<_>>(), [job(2)]);
    }
}
