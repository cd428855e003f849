//! Runs a set of endless workers for a warm-up and a measured time and counts what they finish.
//! A worker that ends has failed, and fails the phase with it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::clock;
use crate::procfs;

/// Counts finished units of work; shared by the workers of a phase.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<AtomicU64>);

impl Meter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long a phase runs before and while it counts.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The processes that work for a phase, beside the generator.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) servers: Vec<u32>,
    /// With all their children.
    pub(crate) databases: Vec<u32>,
}

/// What one phase gave, with the processor time all sides used for it.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    client_cores: f64,
    server_cores: f64,
    database_cores: f64,
}

impl Rate {
    pub(crate) fn describe(&self) -> String {
        let all_cores = self.client_cores + self.server_cores + self.database_cores;
        let mut used = Vec::new();
        for (name, cores) in [("server", self.server_cores), ("database", self.database_cores)] {
            if cores > 0.0 {
                used.push(format!("{name} {cores:.2}"));
            }
        }
        format!(
            "{:.0}/s (cores used: {}, generator {:.2}; generator's share {:.0} %)",
            self.per_second,
            used.join(", "),
            self.client_cores,
            self.client_cores / all_cores * 100.0
        )
    }
}

/// Processor time used up to one moment.
struct Ticks {
    client: u64,
    servers: u64,
    databases: u64,
}

impl Ticks {
    fn read(watched: &Watched) -> Result<Self> {
        let mut ticks = Self { client: procfs::cpu_ticks(std::process::id())?, servers: 0, databases: 0 };
        for pid in &watched.servers {
            ticks.servers += procfs::cpu_ticks(*pid)?;
        }
        for pid in &watched.databases {
            ticks.databases += procfs::family_cpu_ticks(*pid)?;
        }
        Ok(ticks)
    }
}

/// The workers of one phase. Dropping it stops them all and closes their connections.
#[derive(Default)]
pub(crate) struct Workers(JoinSet<Result<()>>);

impl Workers {
    pub(crate) fn start<F>(&mut self, worker: F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.0.spawn(worker);
    }

    /// Lets the workers run for `time`; returns early with the error of a worker that failed.
    pub(crate) async fn run_for(&mut self, time: Duration) -> Result<()> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            ended = self.0.join_next() => match ended {
                Some(result) => result
                    .context("a worker stopped")?
                    .and_then(|()| bail!("a worker ended before its time")),
                None => bail!("the phase has no workers"),
            },
        }
    }

    /// Waits until every worker has done its part, at most for `time`.
    pub(crate) async fn finish(mut self, time: Duration) -> Result<()> {
        let all = async {
            while let Some(result) = self.0.join_next().await {
                result.context("a worker stopped")??;
            }
            Ok(())
        };
        tokio::time::timeout(time, all).await.context("the workers did not finish in time")?
    }
}

/// Runs the workers through one phase and gives the rate of what they counted in its measured part.
pub(crate) async fn measure(mut workers: Workers, meter: &Meter, span: Span, watched: &Watched) -> Result<Rate> {
    workers.run_for(span.warm_up).await?;
    let ticks_before = Ticks::read(watched)?;
    let (count_before, start) = (meter.total(), clock::now());

    workers.run_for(span.measured).await?;
    let (count_after, seconds) = (meter.total(), start.elapsed().as_secs_f64());
    let ticks_after = Ticks::read(watched)?;

    Ok(Rate {
        per_second: (count_after - count_before) as f64 / seconds,
        client_cores: procfs::cores(ticks_after.client - ticks_before.client, seconds),
        server_cores: procfs::cores(ticks_after.servers - ticks_before.servers, seconds),
        database_cores: procfs::cores(ticks_after.databases.saturating_sub(ticks_before.databases), seconds),
    })
}
