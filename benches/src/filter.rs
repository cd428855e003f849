//! Judging an event by a filter, in this process: what each subscribed queue costs when an event comes in. Parsing of the
//! filter and of the event is not counted; both happen once.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outlast_core::filter::Filter;
use serde_json::Value;

use crate::clock;
use crate::report::{Limit, Report};
use crate::settings::Settings;

const EVENT: &str = include_str!("filter/event.json");
/// The size that the limit is meant for.
const EVENT_BYTES: std::ops::RangeInclusive<usize> = 2_000..=2_200;
/// So many in a row are timed together: one takes less than reading the clock.
const ROUND: u32 = 10_000;
const LIMIT_NANOSECONDS: f64 = 5_000.0;

const FILTERS: [(&str, &str); 3] = [
    ("one comparison", "$.data.object.amount_due >= 1000"),
    (
        "three terms",
        "$.type == 'invoice.payment_failed' and $.data.object.amount_due >= 1000 \
         and not $.data.object.customer_email ends_with '@example.org'",
    ),
    ("a pattern", "$.data.object.customer_email matches '^[^@]+@example\\\\.com$'"),
];

pub(crate) fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let event: Value = serde_json::from_str(EVENT).context("the event is JSON")?;
    let bytes = serde_json::to_string(&event)?.len();
    ensure!(EVENT_BYTES.contains(&bytes), "the event has {bytes} bytes");
    for (name, text) in FILTERS {
        let filter = Filter::parse(text)?;
        ensure!(filter.matches(&event)?, "the event does not pass {text}");
        let nanoseconds = median_nanoseconds(&filter, &event, settings.span.measured / 4)?;
        report.figure(&format!("filter: {name}"), nanoseconds, "ns", Limit::AtMost(LIMIT_NANOSECONDS));
    }
    let searched = Filter::parse("$..price.id == 'price_1PzTeam'")?;
    let nanoseconds = median_nanoseconds(&searched, &event, settings.span.measured / 4)?;
    report.note("filter that searches the whole event", format!("{nanoseconds:.0} ns"));
    Ok(())
}

fn median_nanoseconds(filter: &Filter, event: &Value, span: Duration) -> Result<f64> {
    let begin = clock::now();
    let mut rounds = Vec::new();
    while rounds.is_empty() || begin.elapsed() < span {
        let started = clock::now();
        for _ in 0..ROUND {
            black_box(black_box(filter).matches(black_box(event))?);
        }
        rounds.push(started.elapsed() / ROUND);
    }
    rounds.sort_unstable();
    let median = rounds.get(rounds.len() / 2).context("a round was timed")?;
    Ok(median.as_secs_f64() * 1e9)
}
