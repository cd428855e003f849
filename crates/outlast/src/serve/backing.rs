//! Opens the store, the clock and the link to other nodes that the configuration names.

use std::sync::Arc;

use anyhow::Context;
use outlast_core::{Clock, Entropy};
use outlast_engine::ports::{ManualClock, SystemClock, SystemEntropy};
use outlast_store::JobStore;
use outlast_store::peer_bus::redis::BusOptions as LinkOptions;
use outlast_store::peer_bus::{NoPeers, PeerBus, RedisBus};
use outlast_store::sqlite::{self, SqliteStore};

use super::database;
use crate::config::{Config, Secret};

pub(super) struct Backing {
    pub store: Arc<dyn JobStore>,
    pub peer_bus: Arc<dyn PeerBus>,
    pub clock: Arc<dyn Clock>,
    /// The same store, where it is one that can fail for good.
    embedded: Option<Arc<SqliteStore>>,
}

impl Backing {
    /// A manual clock is for an embedded store; a database has its own.
    pub(super) async fn open(config: &Config, manual: Option<Arc<ManualClock>>) -> anyhow::Result<Backing> {
        match &config.external.database_url {
            Some(url) => Backing::shared(config, url).await,
            None => Backing::embedded(config, manual.map(|clock| clock as _)),
        }
    }

    /// Blocks this thread, which has nothing else to do yet.
    fn embedded(config: &Config, clock: Option<Arc<dyn Clock>>) -> anyhow::Result<Backing> {
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::start()));
        let store = Arc::new(SqliteStore::open(store_options(config, clock)?)?);
        let clock = store.clock();
        let peer_bus = Arc::new(NoPeers::embedded());
        Ok(Backing { store: Arc::clone(&store) as _, peer_bus, clock, embedded: Some(store) })
    }

    async fn shared(config: &Config, url: &Secret) -> anyhow::Result<Backing> {
        let opened = database::open(config, url).await?;
        let peer_bus = link(config, opened.identity)?;
        Ok(Backing { store: opened.store, peer_bus, clock: opened.clock, embedded: None })
    }

    /// Why the store has failed for good. A database that is away is not that: it may come back, so this never ends.
    pub(super) async fn failed(&self) -> String {
        match &self.embedded {
            Some(store) => store.failed().await,
            None => std::future::pending().await,
        }
    }

    pub(super) async fn close(&self) {
        self.peer_bus.close().await;
        self.store.close().await;
    }
}

fn store_options(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<sqlite::Options> {
    let mut options =
        sqlite::Options::new(&config.data, clock, Box::new(SystemEntropy::seed()?), outlast_api::callback::compose);
    options.accepts_loss = config.accepts_loss;
    options.page_cache_bytes = config.store.page_cache_bytes;
    options.job_cache_bytes = config.store.job_cache_bytes;
    options.waiting_writes_max = config.store.waiting_writes;
    options.reserve_bytes = config.store.reserve_bytes;
    options.namespace_waiting_max = u64::try_from(config.limits.namespace_queued)?;
    Ok(options)
}

/// A Redis that is away does not keep a node from starting; a URL that makes no sense does.
fn link(config: &Config, store: u64) -> anyhow::Result<Arc<dyn PeerBus>> {
    let Some(url) = &config.external.redis_url else {
        return Ok(Arc::new(NoPeers::unlinked()));
    };
    let node = SystemEntropy::seed()?.next_u64();
    let options = LinkOptions { url: url.expose().to_owned(), store, node };
    Ok(Arc::new(RedisBus::start(options).context("cannot use redis_url")?))
}
