//! The latency from publish to receiver at a fixed rate, in units of what the machine itself needs.

use anyhow::Result;

use crate::open_loop::{Plan, Quantiles};
use crate::process::{Ceiling, Server};
use crate::report::{Limit, Report};
use crate::request::QUEUE;
use crate::settings::Settings;
use crate::unit::Unit;

use super::timed;

pub(super) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let ceiling = Ceiling::start()?;
    let plan = Plan::new(settings.span);
    let mut unit = Unit::default();

    unit.sample(&ceiling, plan, settings).await?;
    let server = Server::start_push(&settings.server, &settings.dir)?;
    let times = timed::deliveries(&server, QUEUE, plan).await?;
    drop(server);
    unit.sample(&ceiling, plan, settings).await?;

    let unit = unit.seconds(report)?;
    let delivery = Quantiles::of(times.deliveries)?;
    report.note("publish answered at 500/s", Quantiles::of(times.publishes)?.describe());
    report.note("publish to receiver at 500/s", delivery.describe());
    let p50 = delivery.median.as_secs_f64() / unit;
    let p99 = delivery.p99.as_secs_f64() / unit;
    report.figure("push latency p50 / (exchange + sync)", p50, "", Limit::AtMost(5.0));
    report.figure("push latency p99 / (exchange + sync)", p99, "", Limit::AtMost(20.0));
    Ok(())
}
