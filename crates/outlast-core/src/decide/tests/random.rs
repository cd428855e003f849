//! Random sequences of commands, at random times, with right, old and foreign leases, under random settings. The walk
//! checks the promises after every step: I-14, I-15, I-16, I-17, I-18, I-19, I-22.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::stage::{BEGINNING, Stage, ack, report, settings};
use super::walk::{Act, Pause, Walk, Whose, check_log};
use crate::change::Change;
use crate::command::{Command, Outcome};
use crate::gate::HoldCause;
use crate::job::{Overrides, Spec};
use crate::queue::{AckTimeoutAction, DeferScope, Fencing, QueueSettings};
use crate::retry::{Backoff, Seconds};
use crate::state::{CancelReason, Phase, Status};
use crate::time::Timestamp;

fn millis(most: u64) -> BoxedStrategy<Duration> {
    prop_oneof![Just(0), 1..=most].prop_map(Duration::from_millis).boxed()
}

fn seconds(most: u64) -> BoxedStrategy<Duration> {
    (1..=most * 1000).prop_map(Duration::from_millis).boxed()
}

fn backoff() -> impl Strategy<Value = Backoff> {
    let jitter = || prop_oneof![Just(0.0), 0.0..=1.0];
    prop_oneof![
        (millis(9000), 1.0..=10.0, seconds(60), jitter()).prop_map(|(delay, factor, more, jitter)| {
            Backoff::Exponential { delay, factor, max_delay: delay + more, jitter }
        }),
        (millis(9000), jitter()).prop_map(|(delay, jitter)| Backoff::Fixed { delay, jitter }),
        (vec(millis(9000).prop_map(Seconds), 0..4), jitter())
            .prop_map(|(delays, jitter)| Backoff::Schedule { delays, jitter }),
    ]
}

fn limits() -> impl Strategy<Value = QueueSettings> {
    let times = (seconds(30), seconds(30), option::of(seconds(20)), option::of(seconds(40)), option::of(seconds(90)));
    let budgets = (1u32..=4, 0u32..=5, seconds(120), millis(5000));
    let choices = (any::<bool>(), any::<bool>(), any::<bool>());
    (times, budgets, choices, backoff()).prop_map(|(times, budgets, choices, backoff)| QueueSettings {
        visibility_timeout: times.0,
        ack_timeout: times.1,
        heartbeat_timeout: times.2,
        hard_time_limit: times.3,
        job_timeout: times.4,
        max_attempts: budgets.0,
        max_deferrals: budgets.1,
        max_age: budgets.2,
        drain_timeout: budgets.3,
        ack_timeout_action: if choices.0 { AckTimeoutAction::Dead } else { AckTimeoutAction::Retry },
        fencing: if choices.1 { Fencing::Required } else { Fencing::Optional },
        backpressure_scope: if choices.2 { DeferScope::Queue } else { DeferScope::Job },
        backoff,
        ..settings()
    })
}

fn spec() -> impl Strategy<Value = Spec> {
    let after =
        |most: i64| option::weighted(0.2, (0..most).prop_map(|millis| Timestamp::from_millis(BEGINNING + millis)));
    let overrides = (option::of(1u32..=3), option::of(0u32..=2), option::of(seconds(20)));
    let callback_url = option::of(Just("https://example.com/done".into()));
    (after(20_000), after(40_000), overrides, callback_url).prop_map(
        |(not_before, start_by, overrides, callback_url)| Spec {
            payload: "{}".into(),
            not_before,
            start_by,
            callback_url,
            overrides: Overrides {
                max_attempts: overrides.0,
                max_deferrals: overrides.1,
                visibility_timeout: overrides.2,
                ..Overrides::default()
            },
            ..Spec::default()
        },
    )
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![
        6 => Just(Whose::Present),
        2 => Just(Whose::Unnamed),
        2 => any::<u8>().prop_map(Whose::Earlier),
        1 => Just(Whose::Foreign),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let scope = option::of(select(vec![DeferScope::Queue, DeferScope::Job]));
    prop_oneof![
        2 => option::of(Just("[1]".into())).prop_map(|result| Outcome::Ack { result }),
        4 => (any::<bool>(), option::weighted(0.3, millis(9000)))
            .prop_map(|(retryable, delay)| Outcome::Nack { retryable, delay }),
        4 => (option::of(millis(20_000)), scope, select(HoldCause::ALL.to_vec()))
            .prop_map(|(retry_after, scope, cause)| Outcome::Defer { retry_after, scope, cause }),
        3 => Just(Outcome::Release),
        2 => Just(Outcome::Cancelled),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let phase = select(vec![Phase::Leased, Phase::Leased, Phase::Delivering]);
    let reason = select(vec![CancelReason::User, CancelReason::Pipeline]);
    prop_oneof![
        8 => (phase, option::of(seconds(30))).prop_map(|(phase, visibility)| Act::Claim(phase, visibility)),
        2 => whose().prop_map(Act::Receipt),
        8 => (whose(), outcome()).prop_map(|(whose, outcome)| Act::Report(whose, outcome)),
        2 => (whose(), option::of(seconds(20))).prop_map(|(whose, extend)| Act::Heartbeat(whose, extend)),
        1 => whose().prop_map(Act::Finalize),
        1 => reason.prop_map(Act::Cancel),
        2 => any::<bool>().prop_map(Act::Replay),
        6 => Just(Act::Wake),
        2 => Just(Act::Abandon),
    ]
}

fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        4 => millis(3000).prop_map(Pause::For),
        3 => Just(Pause::UntilAlarm),
        1 => Just(Pause::JustBeforeAlarm),
    ]
}

fn config(cases: u32) -> ProptestConfig {
    // A failing case is printed in full, which is enough to write it down as a test.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(1500))]

    /// I-14, I-15, I-16, I-17, I-18, I-19, I-22.
    #[test]
    fn the_promises_hold_over_any_sequence_of_commands(
        settings in limits(), spec in spec(), seed in any::<u64>(), steps in vec((pause(), act()), 1..60),
    ) {
        let mut stage = Stage::published(spec, settings);
        stage.seed(seed);
        let mut walk = Walk::new(stage);

        for (pause, act) in &steps {
            walk.step(*pause, act);
        }

        check_log(&walk.stage);
    }

    /// I-16: whatever came before, an ack and a cancel of the same running job leave one winner, whichever came first.
    #[test]
    fn cancel_racing_ack_leaves_one_winner_after_any_history(
        settings in limits(), seed in any::<u64>(), steps in vec((pause(), act()), 0..30), cancel_first in any::<bool>(),
    ) {
        let mut stage = Stage::queued(settings);
        stage.seed(seed);
        let mut walk = Walk::new(stage);
        for (pause, act) in &steps {
            walk.step(*pause, act);
        }
        let mut stage = walk.stage;
        if stage.deleted || stage.job.status() != Status::Running {
            return Ok(());
        }

        let lease = Some(stage.lease());
        let cancel = Command::Cancel { reason: CancelReason::User };
        let confirm = report(lease, Outcome::Cancelled);
        let order = if cancel_first { [cancel, confirm, report(lease, ack())] } else { [report(lease, ack()), cancel, confirm] };
        let mut ends = 0;
        for command in order {
            if let Ok(Change::Update(update)) = stage.act(command) {
                ends += u32::from(update.job.status().is_terminal());
            }
        }

        assert_eq!(ends, 1);
        let expected = if cancel_first { Status::Cancelled } else { Status::Succeeded };
        assert_eq!(stage.job.status(), expected);
    }

    /// The same job, command, time and chance always give the same decision.
    #[test]
    fn a_decision_depends_on_nothing_but_its_arguments(
        settings in limits(), seed in any::<u64>(), steps in vec((pause(), act()), 1..20),
    ) {
        let run = || {
            let mut stage = Stage::queued(settings.clone());
            stage.seed(seed);
            let mut walk = Walk::new(stage);
            for (pause, act) in &steps {
                walk.step(*pause, act);
            }
            (walk.stage.job, walk.stage.log)
        };

        assert_eq!(run(), run());
    }
}
