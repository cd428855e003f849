//! Scenarios of push: the server delivers to a receiver that stands in the generator, so that what is sent and what
//! arrives is seen with one clock. Every scenario has a server and receivers of its own.

mod throughput;
mod timed;
mod latency;
mod awaiting;
mod fair;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::answer::Counts;
use crate::backlog;
use crate::clock;
use crate::report::Report;
use crate::request::Target;
use crate::settings::{Scenario, Settings};

/// After the last publish; what has not come to rest by then never will.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Between two questions to the server while waiting for it.
const ASK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    if settings.wants(Scenario::Push) {
        throughput::run(settings, report).await?;
    }
    if settings.wants(Scenario::PushLatency) {
        latency::run(settings, report).await?;
    }
    if settings.wants(Scenario::PushAwaiting) {
        awaiting::run(settings, report).await?;
    }
    if settings.wants(Scenario::PushFair) {
        fair::run(settings, report).await?;
    }
    Ok(())
}

/// Asks for the counts of a queue until they are as wanted.
async fn wait_for_counts(target: &Target, queue: &str, are_reached: impl Fn(&Counts) -> bool) -> Result<Counts> {
    let start = clock::now();
    loop {
        let counts = backlog::counts(target, queue).await?;
        if are_reached(&counts) {
            return Ok(counts);
        }
        ensure!(start.elapsed() < SETTLED_WITHIN, "queue {queue:?} did not come to rest: {counts:?}");
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
