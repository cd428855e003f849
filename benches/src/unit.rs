//! The unit of latency: what the machine itself needs for one local HTTP exchange at the same rate plus one synced append
//! to the same file system.

use std::time::Duration;

use anyhow::Result;

use crate::disk;
use crate::open_loop::{self, Plan, Quantiles};
use crate::process::Ceiling;
use crate::report::Report;
use crate::settings::Settings;

const SYNCED_APPENDS: usize = 500;

/// Samples are taken before and after what is measured in this unit.
#[derive(Default)]
pub(crate) struct Unit {
    exchanges: Vec<Duration>,
    appends: Vec<Duration>,
}

impl Unit {
    pub(crate) async fn sample(&mut self, ceiling: &Ceiling, plan: Plan, settings: &Settings) -> Result<()> {
        self.appends.extend(disk::synced_appends(&settings.dir, SYNCED_APPENDS)?);
        self.exchanges.extend(open_loop::exchange_times(&ceiling.target, plan).await?);
        Ok(())
    }

    /// Both medians together, in seconds.
    pub(crate) fn seconds(self, report: &mut Report) -> Result<f64> {
        let exchange = Quantiles::of(self.exchanges)?;
        let append = Quantiles::of(self.appends)?;
        report.note("one HTTP exchange with the ceiling", exchange.describe());
        report.note("one synced append of 4 KiB", append.describe());
        Ok((exchange.median + append.median).as_secs_f64())
    }
}
