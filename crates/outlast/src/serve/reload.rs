//! Reading the configuration again without a restart: sources and queues come into force; what else has changed is named,
//! since it needs a restart. A file that is not sound changes nothing.

use std::pin::Pin;
use std::sync::Arc;

use outlast_api::reload::{InvalidConfiguration, Reload, ReloadSummary};
use outlast_engine::Rooms;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

use super::declare::declare;
use crate::config::Config;
use crate::config::problem::Problem;

/// Reads the configuration as the start did.
pub(crate) type Load = Box<dyn Fn() -> Result<Config, Vec<Problem>> + Send + Sync>;

pub(crate) struct Reloader {
    rooms: Arc<Rooms>,
    load: Load,
    /// As it was at the start; only sources and queues have changed since.
    started_with: Config,
    /// One at a time: an older file must not win over a newer one.
    turn: Mutex<()>,
}

impl Reloader {
    pub(crate) fn new(rooms: Arc<Rooms>, load: Load, started_with: Config) -> Arc<Reloader> {
        Arc::new(Reloader { rooms, load, started_with, turn: Mutex::new(()) })
    }

    async fn reload(&self) -> Result<ReloadSummary, InvalidConfiguration> {
        let _turn = self.turn.lock().await;
        let config = (self.load)().map_err(|problems| InvalidConfiguration {
            problems: problems.iter().map(ToString::to_string).collect(),
        })?;
        declare(&self.rooms, &config)
            .await
            .map_err(|error| InvalidConfiguration { problems: vec![format!("{error:#}")] })?;
        Ok(ReloadSummary {
            sources: config.sources.len(),
            queues: config.queues.len(),
            needs_restart: config.differing(&self.started_with),
        })
    }

    /// For the API.
    pub(crate) fn hook(self: &Arc<Self>) -> Reload {
        let reloader = Arc::clone(self);
        Arc::new(move || {
            let reloader = Arc::clone(&reloader);
            Box::pin(async move { reloader.reload().await }) as Pin<Box<_>>
        })
    }

    /// Reloads at every SIGHUP and logs the result. Signals are caught from this call on; before it a SIGHUP ends the
    /// process.
    pub(crate) fn run(self: Arc<Self>) -> anyhow::Result<impl Future<Output = ()>> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(self.reload_at(hangup))
    }

    async fn reload_at(self: Arc<Self>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            match self.reload().await {
                Ok(reloaded) => {
                    tracing::info!(
                        sources = reloaded.sources,
                        queues = reloaded.queues,
                        "the configuration was read again"
                    );
                    for section in reloaded.needs_restart {
                        tracing::warn!(section, "has changed in the configuration; it needs a restart to count");
                    }
                }
                Err(refused) => {
                    for problem in refused.problems {
                        tracing::error!(problem, "the configuration was not read again; everything stays as it was");
                    }
                }
            }
        }
    }
}
