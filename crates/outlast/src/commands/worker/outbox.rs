//! Reports of a program that the server does not have yet. Progress is one slot in which the latest wins; everything
//! else keeps its order. When it is full, the pipe is not read, and a program that goes on writing has to wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::protocol::{Durable, Progress, Report};

/// Reports and bytes that wait at most; one report is taken whatever its size.
const REPORTS_MAX: usize = 1_000;
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Between two progress reports. The server keeps one frame a second.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct Waiting {
    kept: VecDeque<Durable>,
    bytes: usize,
    progress: Option<Progress>,
    next_progress_at: Option<Instant>,
    is_closed: bool,
}

impl Outbox {
    /// Takes a report in, as soon as there is room. Cancel-safe, but for the report itself. For one task only.
    pub(crate) async fn put(&self, report: Report) {
        let mut report = Some(report);
        loop {
            report = match report {
                Some(report) => self.locked().put(report).err(),
                None => break,
            };
            if report.is_some() {
                self.emptied.notified().await;
            }
        }
        self.filled.notify_one();
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.locked().is_closed = true;
        self.filled.notify_one();
    }

    /// The next report that is to be sent; `None` after the last one. Cancel-safe. For one task only.
    pub(crate) async fn take(&self) -> Option<Report> {
        loop {
            let (next, wake_at) = {
                let mut waiting = self.locked();
                let next = waiting.take(Instant::now());
                if next.is_none() && waiting.is_closed {
                    return None;
                }
                (next, waiting.progress.as_ref().and(waiting.next_progress_at))
            };
            if next.is_some() {
                self.emptied.notify_one();
                return next;
            }
            tokio::select! {
                () = self.filled.notified() => {}
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Gives the report back when there is no room.
    fn put(&mut self, report: Report) -> Result<(), Report> {
        let kept = match report {
            Report::Progress(newer) => {
                self.progress.get_or_insert_default().extend(newer);
                return Ok(());
            }
            Report::Durable(kept) => kept,
        };
        if matches!(kept, Durable::Checkpoint { .. }) {
            // The next attempt gets the last one only.
            self.drop_checkpoints();
        }
        let bytes = size(&kept);
        let is_full = self.kept.len() >= REPORTS_MAX || self.bytes.saturating_add(bytes) > BYTES_MAX;
        if is_full && !self.kept.is_empty() {
            return Err(Report::Durable(kept));
        }
        self.bytes += bytes;
        self.kept.push_back(kept);
        Ok(())
    }

    fn take(&mut self, now: Instant) -> Option<Report> {
        if let Some(kept) = self.kept.pop_front() {
            self.bytes -= size(&kept);
            return Some(Report::Durable(kept));
        }
        let is_due = self.is_closed || self.next_progress_at.is_none_or(|at| at <= now);
        let progress = if is_due { self.progress.take() } else { None };
        if progress.is_some() {
            self.next_progress_at = Some(now + PROGRESS_PAUSE);
        }
        progress.map(Report::Progress)
    }

    fn drop_checkpoints(&mut self) {
        self.kept.retain(|kept| !matches!(kept, Durable::Checkpoint { .. }));
        self.bytes = self.kept.iter().map(size).sum();
    }
}

fn size(kept: &Durable) -> usize {
    match kept {
        Durable::Checkpoint { data, .. } => data.get().len(),
        Durable::Section { name, value } => name.len() + value.get().len(),
        Durable::Output { text } => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol;
    use super::*;

    fn report(text: &str) -> Report {
        protocol::read(text).unwrap().unwrap()
    }

    async fn rest(outbox: &Outbox) -> Vec<String> {
        let mut shown = Vec::new();
        while let Some(report) = outbox.take().await {
            shown.push(match report {
                Report::Progress(fields) => serde_json::to_string(&fields).unwrap(),
                Report::Durable(Durable::Checkpoint { data, .. }) => format!("checkpoint {data}"),
                Report::Durable(Durable::Section { name, .. }) => name,
                Report::Durable(Durable::Output { text }) => text,
            });
        }
        shown
    }

    #[tokio::test]
    async fn progress_is_merged_and_the_last_checkpoint_follows_the_reports_it_covers() {
        let outbox = Outbox::default();
        for line in [
            "progress 1 render",
            "section a 1",
            "checkpoint 1",
            "progress 2",
            "section b 2",
            "checkpoint 2",
            "output x",
        ] {
            outbox.put(report(line)).await;
        }
        outbox.close();

        assert_eq!(rest(&outbox).await, ["a", "b", "checkpoint 2", "x\n", r#"{"pct":2.0,"stage":"render"}"#]);
    }

    #[tokio::test]
    async fn a_full_outbox_makes_the_reader_wait_but_never_for_progress() {
        let outbox = Outbox::default();
        for number in 0..REPORTS_MAX {
            outbox.put(report(&format!("section s{number} 1"))).await;
        }

        let mut one_more = std::pin::pin!(outbox.put(report("section late 1")));
        let early = tokio::time::timeout(Duration::from_millis(20), &mut one_more).await;
        outbox.put(report("progress 5")).await;
        outbox.take().await;
        one_more.await;
        outbox.close();

        assert!(early.is_err(), "there was room");
        let rest = rest(&outbox).await;
        assert_eq!((rest.len(), rest[REPORTS_MAX - 1].as_str()), (REPORTS_MAX + 1, "late"));
    }
}
