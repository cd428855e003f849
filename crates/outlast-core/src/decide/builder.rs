//! A job being changed: collects the new state, events and effects, and numbers the events.

use crate::change::{Change, Effect, OutboxContent, ScheduledDelete, Update};
use crate::event::{Event, EventKind, Reason};
use crate::job::Job;
use crate::object::Role;
use crate::queue::{Mode, Queue};
use crate::state::{CancelReason, FailReason, PendingReason, ResultMeta, Running, State};
use crate::system_queue::CALLBACKS;
use crate::time::Timestamp;

use std::time::Duration;

pub(super) struct TransitionBuilder<'a> {
    pub(super) job: Job,
    pub(super) queue: &'a Queue,
    pub(super) now: Timestamp,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl<'a> TransitionBuilder<'a> {
    pub(super) fn new(job: &Job, queue: &'a Queue, now: Timestamp) -> TransitionBuilder<'a> {
        TransitionBuilder { job: job.clone(), queue, now, events: Vec::new(), effects: Vec::new() }
    }

    /// The hand-out in progress, if there is one.
    pub(super) fn running(&self) -> Option<Running> {
        match &self.job.state {
            State::Running(running) => Some(running.clone()),
            _ => None,
        }
    }

    pub(super) fn event(&mut self, kind: EventKind) {
        self.job.events += 1;
        self.events.push(Event { seq: self.job.events, at: self.now, kind });
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Forgets what attempts saved for the next one.
    pub(super) fn drop_checkpoints(&mut self) {
        let work_summary = &mut self.job.work_summary;
        if !work_summary.has_checkpoint && !work_summary.has_sections {
            return;
        }
        (work_summary.has_checkpoint, work_summary.has_sections) = (false, false);
        self.effect(Effect::DropCheckpoints);
        self.effect(Effect::ScheduleDelete(ScheduledDelete {
            role: Some(Role::Checkpoint),
            attached: true,
            at: self.now,
        }));
    }

    /// Moves the job and logs the move. The move to an end is always the last entry until a replay.
    pub(super) fn go(&mut self, to: State, reason: Reason) {
        let from = Some(self.job.status());
        if ends_job(&to) && self.job.spec.callback_url.is_some() && self.queue.settings.mode != Mode::Callback {
            self.event(EventKind::Callback);
            self.effect(Effect::Publish { queue: CALLBACKS.into(), content: OutboxContent::Notice });
        }
        if let State::Queued { .. } = to {
            self.job.queued_at = Some(self.now);
        }
        self.job.state = to;
        self.event(EventKind::State { from, to: self.job.status(), reason, replays: self.job.replays });
    }

    /// Back to waiting: at once, or pending for a while.
    pub(super) fn wait(&mut self, wait: Duration, pending: PendingReason, reason: Reason) {
        if wait.is_zero() {
            let ready_at = self.now;
            return self.go(State::Queued { ready_at }, reason);
        }
        let until = self.now.plus(wait);
        self.go(State::Pending { reason: pending, until }, reason);
    }

    pub(super) fn succeeded(&mut self, result: Option<ResultMeta>, reason: Reason) {
        if let Some(result) = &result {
            let length = result.length;
            self.event(EventKind::Result { length });
        }
        if !self.queue.settings.keep_checkpoints {
            self.drop_checkpoints();
        }
        self.job.work_summary.has_upload = false;
        let at = self.now;
        self.go(State::Succeeded { at, result }, reason);
    }

    pub(super) fn failed(&mut self, reason: FailReason) {
        let at = self.now;
        let logged = match reason {
            FailReason::AttemptsExhausted => Reason::AttemptsExhausted,
            FailReason::NotRetryable => Reason::NotRetryable,
            FailReason::AckTimeout => Reason::AckTimeout,
            FailReason::DeferralExhausted => Reason::DeferralExhausted,
            FailReason::MaxAgeExceeded => Reason::MaxAgeExceeded,
            FailReason::SetAside => Reason::SetAside,
        };
        self.go(State::Failed { at, reason }, logged);
    }

    pub(super) fn cancelled(&mut self, reason: CancelReason) {
        let at = self.now;
        let logged = match reason {
            CancelReason::User => Reason::CancelledByUser,
            CancelReason::Timeout => Reason::CancelledByTimeout,
            CancelReason::Pipeline => Reason::CancelledByPipeline,
        };
        self.go(State::Cancelled { at, reason }, logged);
    }

    pub(super) fn change(mut self) -> Change {
        self.job.version += 1;
        Change::Update(Box::new(Update { job: self.job, events: self.events, effects: self.effects }))
    }
}

fn ends_job(state: &State) -> bool {
    matches!(state, State::Succeeded { .. } | State::Failed { .. } | State::Cancelled { .. })
}
