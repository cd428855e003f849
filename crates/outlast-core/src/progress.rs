//! How far an attempt has come, as its worker tells it: merged so that it never goes back, with an estimate of when it
//! will be done. Nothing here decides anything but whether work has moved.

use std::time::Duration;

use crate::time::Timestamp;

/// Throughput is looked at over this long.
const WINDOW: Duration = Duration::from_secs(30);
/// Points of the trail are at least this far apart.
const SPACING: Duration = Duration::from_secs(1);
/// Below this much done there is no estimate: it would be a guess.
const ESTIMATE_FROM_PCT: f64 = 10.0;
/// Progress is shown for this long after the last report.
pub const SHOWN_FOR: Duration = Duration::from_secs(300);

/// A worker's progress report, all of it optional.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ProgressReport {
    /// 0 to 100.
    pub pct: Option<f64>,
    pub stage: Option<Box<str>>,
    pub stage_pct: Option<f64>,
    pub stages_done: Option<u64>,
    pub stages_total: Option<u64>,
    pub items_done: Option<u64>,
    pub items_total: Option<u64>,
    pub message: Option<Box<str>>,
}

/// Everything said within an attempt, put together.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub report: ProgressReport,
    /// The first report of the attempt.
    pub started_at: Timestamp,
    /// The last one.
    pub at: Timestamp,
    /// When it will be done, if it goes on as it did lately.
    pub eta: Option<Timestamp>,
    /// How far it was when, oldest first: one point from before the window, and those within it.
    trail: Vec<(Timestamp, f64)>,
}

impl Progress {
    /// The progress after a report, given the progress before it in the same attempt.
    pub fn after(before: Option<&Progress>, report: ProgressReport, now: Timestamp) -> Progress {
        let said = match before {
            None => ProgressReport { pct: report.pct.or_else(|| derived_pct(&report)), ..report },
            Some(before) => merge(&before.report, report),
        };
        let started_at = before.map_or(now, |before| before.started_at);
        let mut trail = before.map(|before| before.trail.clone()).unwrap_or_default();
        if let Some(pct) = said.pct {
            extend(&mut trail, now, pct);
        }
        let eta = estimate(&trail, said.pct, now);
        Progress { report: said, started_at, at: now, eta, trail }
    }

    /// As it was written down; the trail is rebuilt by what comes.
    pub fn restored(report: ProgressReport, started_at: Timestamp, at: Timestamp, eta: Option<Timestamp>) -> Progress {
        let trail = report.pct.map(|pct| (at, pct)).into_iter().collect();
        Progress { report, started_at, at, eta, trail }
    }

    /// Without the trail: as it is written down.
    pub fn settled(&self) -> Progress {
        Progress::restored(self.report.clone(), self.started_at, self.at, self.eta)
    }

    /// Has work been done since `before`? Another message is none.
    pub fn has_moved_since(&self, before: &Progress) -> bool {
        let (new, old) = (&self.report, &before.report);
        new.pct > old.pct
            || new.items_done > old.items_done
            || new.stages_done > old.stages_done
            || new.stage != old.stage
            || new.stage_pct > old.stage_pct
    }

    /// This, or what is known elsewhere where that is further: two nodes may each know a part.
    pub fn joined(&self, other: &Progress) -> Progress {
        let (older, newer) = if other.at > self.at { (self, other) } else { (other, self) };
        let report = merge(&older.report, newer.report.clone());
        Progress { report, started_at: older.started_at.min(newer.started_at), ..newer.clone() }
    }

    /// Shown to a viewer at `now`?
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.since(self.at) < SHOWN_FOR
    }
}

/// Numbers only grow; words are the latest. A new stage begins at its own beginning.
fn merge(old: &ProgressReport, new: ProgressReport) -> ProgressReport {
    let is_new_stage = (new.stage.is_some() && new.stage != old.stage) || new.stages_done > old.stages_done;
    let stage_pct = match is_new_stage {
        true => new.stage_pct,
        false => furthest(old.stage_pct, new.stage_pct),
    };
    let mut said = ProgressReport {
        pct: furthest(old.pct, new.pct),
        stage: new.stage.or_else(|| old.stage.clone()),
        stage_pct,
        stages_done: old.stages_done.max(new.stages_done),
        stages_total: new.stages_total.or(old.stages_total),
        items_done: old.items_done.max(new.items_done),
        items_total: new.items_total.or(old.items_total),
        message: new.message.or_else(|| old.message.clone()),
    };
    if new.pct.is_none() {
        said.pct = furthest(said.pct, derived_pct(&said));
    }
    said
}

fn furthest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

/// From the items, else from the stages.
#[allow(clippy::cast_precision_loss, reason = "a share, shown with a few digits")]
fn derived_pct(report: &ProgressReport) -> Option<f64> {
    let share = |done: f64, total: u64| (total > 0).then(|| (100.0 * done / total as f64).clamp(0.0, 100.0));
    if let (Some(done), Some(total)) = (report.items_done, report.items_total) {
        return share(done as f64, total);
    }
    let (done, total) = (report.stages_done?, report.stages_total?);
    share(done as f64 + report.stage_pct.unwrap_or(0.0) / 100.0, total)
}

fn extend(trail: &mut Vec<(Timestamp, f64)>, now: Timestamp, pct: f64) {
    if trail.last().is_none_or(|(at, _)| now.since(*at) >= SPACING) {
        trail.push((now, pct));
    }
    // The newest point that is older than the window stays: a slow job has only that one to measure by.
    let old = trail.iter().filter(|(at, _)| now.since(*at) > WINDOW).count();
    trail.drain(..old.saturating_sub(1));
}

fn estimate(trail: &[(Timestamp, f64)], pct: Option<f64>, now: Timestamp) -> Option<Timestamp> {
    let pct = pct.filter(|pct| *pct >= ESTIMATE_FROM_PCT)?;
    let (since, from) = trail.first()?;
    let (passed, gained) = (now.since(*since), pct - from);
    if passed < SPACING || gained <= 0.0 {
        return None;
    }
    let left = passed.as_secs_f64() * (100.0 - pct).max(0.0) / gained;
    Duration::try_from_secs_f64(left).ok().map(|left| now.plus(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000).plus(Duration::from_secs(seconds))
    }

    fn pct(pct: f64) -> ProgressReport {
        ProgressReport { pct: Some(pct), ..ProgressReport::default() }
    }

    fn run(reports: impl IntoIterator<Item = (u64, ProgressReport)>) -> Progress {
        let mut progress = None;
        for (seconds, report) in reports {
            progress = Some(Progress::after(progress.as_ref(), report, at(seconds)));
        }
        progress.unwrap()
    }

    #[test]
    fn numbers_never_go_back_and_words_are_the_latest() {
        let items = ProgressReport {
            items_done: Some(5),
            items_total: Some(10),
            stage: Some("a".into()),
            ..ProgressReport::default()
        };
        let fewer = ProgressReport { items_done: Some(3), stage: Some("b".into()), ..ProgressReport::default() };

        let progress = run([(0, items), (1, fewer), (2, pct(20.0))]);

        assert_eq!(progress.report.items_done, Some(5));
        assert_eq!(progress.report.pct, Some(50.0));
        assert_eq!(progress.report.stage.as_deref(), Some("b"));
        assert_eq!((progress.started_at, progress.at), (at(0), at(2)));
    }

    #[test]
    fn a_share_is_worked_out_from_items_or_stages() {
        let stages = ProgressReport {
            stages_done: Some(1),
            stages_total: Some(4),
            stage_pct: Some(50.0),
            ..ProgressReport::default()
        };

        assert_eq!(run([(0, stages)]).report.pct, Some(37.5));
        assert_eq!(run([(0, ProgressReport { items_done: Some(1), ..ProgressReport::default() })]).report.pct, None);
        let none = ProgressReport { items_done: Some(1), items_total: Some(0), ..ProgressReport::default() };
        assert_eq!(run([(0, none)]).report.pct, None);
    }

    #[test]
    fn a_new_stage_begins_at_its_own_beginning() {
        let stage = |name: &str, share: f64| ProgressReport {
            stage: Some(name.into()),
            stage_pct: Some(share),
            ..ProgressReport::default()
        };

        assert_eq!(run([(0, stage("a", 90.0)), (1, stage("a", 10.0))]).report.stage_pct, Some(90.0));
        assert_eq!(run([(0, stage("a", 90.0)), (1, stage("b", 10.0))]).report.stage_pct, Some(10.0));
    }

    #[test]
    fn the_estimate_follows_the_last_half_minute() {
        // One percent a second for 50 s, then two.
        let slow = (0..50).map(|second| (second, second as f64));
        let fast = (50..70).map(|second| (second, 50.0 + 2.0 * (second as f64 - 50.0)));
        let progress = run(slow.chain(fast).map(|(second, share)| (second, pct(share))));

        let left = progress.eta.unwrap().since(at(69)).as_secs_f64();
        assert!((6.0..=8.5).contains(&left), "{left}");
    }

    #[test]
    fn a_slow_job_has_an_estimate_and_a_young_one_has_none() {
        assert_eq!(run([(0, pct(0.0)), (10, pct(9.9))]).eta, None);
        assert_eq!(run([(0, pct(50.0))]).eta, None);

        let slow = run([(0, pct(10.0)), (3600, pct(20.0))]);
        assert_eq!(slow.eta, Some(at(3600 + 8 * 3600)));
        let frozen = run([(0, pct(50.0)), (10, pct(50.0)), (50, pct(50.0)), (90, pct(50.0))]);
        assert_eq!(frozen.eta, None);
    }

    #[test]
    fn a_trail_stays_short() {
        let progress = run((0..100_000).map(|step| (step / 4, pct(f64::from(u32::try_from(step).unwrap()) / 1000.0))));

        assert!(progress.trail.len() <= 33, "{}", progress.trail.len());
    }

    #[test]
    fn another_message_is_no_work() {
        let said = |message: &str| ProgressReport {
            pct: Some(5.0),
            message: Some(message.into()),
            ..ProgressReport::default()
        };
        let first = run([(0, said("a"))]);
        let second = Progress::after(Some(&first), said("b"), at(1));
        let third = Progress::after(Some(&second), pct(5.1), at(2));

        assert!(!second.has_moved_since(&first));
        assert!(third.has_moved_since(&second));
    }

    #[test]
    fn who_falls_silent_is_shown_for_five_minutes_and_not_longer() {
        let progress = run([(0, pct(10.0)), (60, pct(20.0))]);

        for (seconds, is_shown) in [(60, true), (359, true), (360, false), (86_400, false), (0, true)] {
            assert_eq!(progress.is_fresh(at(seconds)), is_shown, "{seconds}");
        }
    }

    #[test]
    fn what_two_nodes_know_is_joined_at_the_furthest() {
        let one = run([(0, pct(40.0))]);
        let other =
            run([(5, ProgressReport { items_done: Some(3), message: Some("x".into()), ..ProgressReport::default() })]);

        for joined in [one.joined(&other), other.joined(&one)] {
            assert_eq!(joined.report.pct, Some(40.0));
            assert_eq!((joined.report.items_done, joined.at, joined.started_at), (Some(3), at(5), at(0)));
        }
    }
}
