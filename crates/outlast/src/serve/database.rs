//! Opens PostgreSQL as the store, checks it, and logs its version and settings.

use std::sync::Arc;

use anyhow::Context;
use outlast_core::Clock;
use outlast_engine::ports::SystemEntropy;
use outlast_store::JobStore;
use outlast_store::postgres::{Options, PostgresStore, Prepared};

use crate::config::sections::PreparedStatements;
use crate::config::{Config, Secret};

pub(super) struct Opened {
    pub store: Arc<dyn JobStore>,
    /// The database's: all nodes go by it.
    pub clock: Arc<dyn Clock>,
    /// Tells this store from others that share a Redis.
    pub identity: u64,
}

/// Migrates if needed. Says what it found; never the URL, which may hold a password.
pub(super) async fn open(config: &Config, url: &Secret) -> anyhow::Result<Opened> {
    let mut options = Options::new(url.expose(), Box::new(SystemEntropy::seed()?), outlast_api::callback::compose);
    options.connections = config.store.database_connections;
    options.waiting_writes_max = config.store.waiting_writes;
    options.namespace_waiting_max = u64::try_from(config.limits.namespace_queued)?;
    options.allow_unsafe = config.store.allow_unsafe_database;
    options.prepared = match config.store.prepared_statements {
        PreparedStatements::Auto => Prepared::Auto,
        PreparedStatements::On => Prepared::On,
        PreparedStatements::Off => Prepared::Off,
    };
    let store = PostgresStore::open(options).await.context("cannot use database_url")?;
    let findings = store.findings();
    if findings.unsafe_settings().is_empty() {
        tracing::info!(database = %findings, "the database is connected");
    } else {
        tracing::warn!(database = %findings, "the database is connected and may lose what it has confirmed");
    }
    Ok(Opened { clock: store.clock(), identity: store.identity(), store: Arc::new(store) })
}
