//! Scenarios that load the server as hard as 64 connections can: publish, the lifecycle of a job one by one and in batches,
//! and polls of the status of one job. Each is a ratio to the ceiling, measured right before and right after it.

use anyhow::Result;

use crate::connection;
use crate::load::{self, Meter, Rate, Watched};
use crate::process::{Ceiling, Server};
use crate::report::{Limit, Report};
use crate::request::Publish;
use crate::settings::{Scenario, Settings};
use crate::work::Work;

pub(crate) const CONNECTIONS: usize = 64;
/// Two measurements of one reference further apart than this say that the machine was not left alone.
const NOISE_MAX: f64 = 0.2;

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let scenarios = [
        (Scenario::Publish, Work::Publish, "publish / ceiling", 0.55),
        (Scenario::Lifecycle, Work::Lifecycle, "lifecycle / ceiling", 0.18),
        (Scenario::LifecycleBatch, Work::MixedLifecycle, "lifecycle in batches / ceiling", 0.35),
        (Scenario::Polls, Work::Polls, "status polls of one job / ceiling", 0.5),
    ];
    let ceiling = Ceiling::start()?;
    note_answer_sizes(&ceiling, settings, report).await?;
    let mut before = None;
    for (scenario, work, name, limit) in scenarios {
        if !settings.wants(scenario) {
            continue;
        }
        let ceiling_before = match before {
            Some(rate) => rate,
            None => ceiling_rate(&ceiling, settings, report).await?,
        };
        let rate = server_rate(work, settings).await?;
        report.note(name, rate.describe());
        let ceiling_after = ceiling_rate(&ceiling, settings, report).await?;
        before = Some(ceiling_after);
        report_ratio(report, name, &[rate], &[ceiling_before, ceiling_after], limit);
    }
    Ok(())
}

/// The mean of some rates divided by the mean of a reference that was measured before, between and after them.
pub(crate) fn report_ratio(report: &mut Report, name: &str, rates: &[Rate], references: &[Rate], limit: f64) {
    let by = mean(references);
    let (least, most) = references
        .iter()
        .map(|reference| reference.per_second)
        .fold((by, by), |(least, most), one| (one.min(least), one.max(most)));
    let change = (most - least) / by;
    if change > NOISE_MAX {
        report.note("warning", format!("what it is divided by changed by {:.0} %: noise", change * 100.0));
    }
    report.figure(name, mean(rates) / by, "", Limit::AtLeast(limit));
}

fn mean(rates: &[Rate]) -> f64 {
    rates.iter().map(|rate| rate.per_second).sum::<f64>() / rates.len() as f64
}

/// The ceiling is fair only if it sends as much as a publish does.
async fn note_answer_sizes(ceiling: &Ceiling, settings: &Settings, report: &mut Report) -> Result<()> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let mut sizes = Vec::new();
    for target in [&server.target, &ceiling.target] {
        let mut request = Publish::new(target);
        let answer = connection::call_once(target, request.numbered(0), &[202]).await?;
        sizes.push(answer.total_bytes.to_string());
    }
    report.note("answer bytes, publish and ceiling", sizes.join(" and "));
    Ok(())
}

pub(crate) async fn ceiling_rate(ceiling: &Ceiling, settings: &Settings, report: &mut Report) -> Result<Rate> {
    let meter = Meter::default();
    let workers = Work::Publish.start(std::slice::from_ref(&ceiling.target), CONNECTIONS, &meter).await?;
    let watched = Watched { servers: vec![ceiling.pid()], ..Watched::default() };
    let rate = load::measure(workers, &meter, settings.span, &watched).await?;
    report.note("ceiling", rate.describe());
    Ok(rate)
}

async fn server_rate(work: Work, settings: &Settings) -> Result<Rate> {
    let server = Server::start(&settings.server, &settings.dir).await?;
    let meter = Meter::default();
    let workers = work.start(std::slice::from_ref(&server.target), CONNECTIONS, &meter).await?;
    let watched = Watched { servers: vec![server.pid()], ..Watched::default() };
    load::measure(workers, &meter, settings.span, &watched).await
}
