//! The rules of a job's log. Counted from the events alone: moves, hand-outs, endings, charges.

use outlast_core::event::Reason;
use outlast_core::state::Ending;
use outlast_core::{EventKind, Queue, Status};
use outlast_tests::model::Row;

#[derive(Default)]
struct Account {
    at: Option<Status>,
    /// A hand-out that has not ended.
    open: bool,
    hand_outs: u64,
    /// Since the last replay.
    hand_outs_since_replay: u32,
    charged: u32,
    free: u32,
    deferred: u32,
    /// How the hand-out ended whose consequence is the next move.
    ending: Option<Ending>,
}

pub fn check_log(row: &Row, queue: &Queue) -> Result<(), String> {
    let mut account = Account::default();
    for (event, seq) in row.events.iter().zip(1..) {
        if event.seq != seq {
            return Err(format!("the log has a gap at {seq}: {:?}", row.events));
        }
        let fits = match &event.kind {
            EventKind::State { from, to, reason, .. } => account.moves(*from, *to, *reason),
            EventKind::Attempt(attempt) => account.ends(attempt.outcome),
            EventKind::Checkpoint { .. } | EventKind::Output { .. } if !account.open => {
                Err("I-15: work without a hand-out")
            }
            EventKind::Result { .. }
            | EventKind::Checkpoint { .. }
            | EventKind::Output { .. }
            | EventKind::Callback
            | EventKind::Note { .. } => Ok(()),
        };
        fits.map_err(|rule| format!("{rule} at event {seq} of {:?}", row.events))?;
    }
    let job = &row.job;
    let limit = job.max_attempts(queue);
    let rules = [
        ("the log has as many events as the job says", job.events == row.events.len() as u64),
        ("the last move leads to the state", account.at == Some(job.status())),
        ("I-14: as many hand-outs as epochs", account.hand_outs == job.epoch),
        ("I-14: a hand-out is open exactly while the job runs", account.open == (job.status() == Status::Running)),
        ("I-17: no more charges than attempts", account.charged <= limit),
        (
            "I-17: no more hand-outs than attempts and free endings",
            account.hand_outs_since_replay <= limit + account.free,
        ),
        ("I-18: no more deferrals than allowed", account.deferred <= job.max_deferrals(queue) + 1),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err(format!("{rule}: {job:?} {:?}", row.events)),
        None => Ok(()),
    }
}

impl Account {
    fn moves(&mut self, from: Option<Status>, to: Status, reason: Reason) -> Result<(), &'static str> {
        if from != self.at {
            return Err("a move does not start where the last one ended");
        }
        let may_leave = matches!(
            (from, reason),
            (Some(Status::Failed | Status::Cancelled), Reason::Replayed)
                | (Some(Status::Succeeded), Reason::ResultExpired)
        );
        if from.is_some_and(Status::is_terminal) && !may_leave {
            return Err("I-16: a finished job moves");
        }
        if reason == Reason::Replayed {
            *self = Account { hand_outs: self.hand_outs, ..Account::default() };
        }
        if to == Status::Running && from != Some(Status::Running) {
            if self.open {
                return Err("I-14: two hand-outs without an ending between them");
            }
            self.open = true;
            self.hand_outs += 1;
            self.hand_outs_since_replay += 1;
        }
        if let Some(ending) = self.ending.take() {
            self.settle(ending, to);
        }
        self.at = Some(to);
        Ok(())
    }

    fn ends(&mut self, ending: Ending) -> Result<(), &'static str> {
        if !self.open {
            return Err("I-14: an ending without a hand-out");
        }
        self.open = false;
        self.ending = Some(ending);
        Ok(())
    }

    /// Whether an ending was charged shows in where it led.
    fn settle(&mut self, ending: Ending, to: Status) {
        use Ending::{AckTimeout, HardTimeLimit, HeartbeatLost, LeaseExpired, Nacked, Unknown};
        self.deferred += u32::from(ending == Ending::Deferred);
        let charges = matches!(ending, Nacked | LeaseExpired | AckTimeout | HeartbeatLost | HardTimeLimit | Unknown);
        match to {
            Status::Pending | Status::Queued | Status::Failed if charges => self.charged += 1,
            _ => self.free += 1,
        }
    }
}
