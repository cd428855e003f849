//! The server with its promise broken on purpose, for the negative controls of the crash rigs: the same flags as
//! `outlast serve`, and `OUTLAST_TEST_DURABILITY` = `answer-first`, `normal` or `full`. `OUTLAST_TEST_PANICS` = how
//! often the loop that receives signals of other nodes panics before it works. Never shipped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use outlast_api::{Api, Limits, listen};
use outlast_core::{JobId, Lease, Progress};
use outlast_engine::Engine;
use outlast_engine::egress::{EgressSettings, HttpEgress};
use outlast_engine::engine::Ports;
use outlast_engine::ports::{SystemClock, SystemEntropy};
use outlast_engine::push::PushSettings;
use outlast_engine::seal::Seal;
use outlast_store::peer_bus::{LeaseDigest, NoPeers, PeerBus, PeerLink, Signal, SignalSet};
use outlast_store::sqlite::{Durability, Options, SqliteStore};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (directory, address) = arguments()?;
    let durability = match std::env::var("OUTLAST_TEST_DURABILITY").as_deref() {
        Ok("answer-first") => Durability::AnswerFirst,
        Ok("normal") => Durability::Normal,
        Ok("full") => Durability::Full,
        other => bail!("OUTLAST_TEST_DURABILITY is {other:?}"),
    };
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let clock = Arc::new(SystemClock::start());
    let options = Options {
        durability,
        ..Options::new(
            directory,
            Arc::clone(&clock) as _,
            Box::new(SystemEntropy::seed()?),
            outlast_api::callback::compose,
        )
    };
    let store = SqliteStore::open(options)?;
    let panics = std::env::var("OUTLAST_TEST_PANICS").ok().map(|panics| panics.parse()).transpose()?;
    let peer_bus: Arc<dyn PeerBus> = match panics {
        Some(panics) => Arc::new(Panicking { inner: NoPeers::unlinked(), left: AtomicU64::new(panics) }),
        None => Arc::new(NoPeers::embedded()),
    };
    let allow_private_targets = vec!["127.0.0.0/8".parse()?];
    let engine = Engine::new(
        Ports {
            store: Arc::new(store),
            peer_bus,
            clock,
            entropy: Box::new(SystemEntropy::seed()?),
            egress: Arc::new(HttpEgress::new(EgressSettings { allow_private_targets, ..EgressSettings::default() })?),
            blobs: outlast_tests::objects::no_blobs(),
            seal: Seal::new(&[1; 32], &[]),
        },
        PushSettings::default(),
    );
    engine.keys.use_admin_key(&std::env::var("OUTLAST_ADMIN_KEY")?).await?;
    engine.keys.load().await?;
    let _loops = engine.start();
    println!("outlast listening on http://{}", listener.local_addr()?);
    let router = Api::new(Arc::clone(engine.rooms()), Limits::default()).router();
    listen::serve(listener, router, listen::Settings::default(), std::future::pending()).await;
    Ok(())
}

/// A link whose first words make its listener panic.
struct Panicking {
    inner: NoPeers,
    left: AtomicU64,
}

#[async_trait]
impl PeerBus for Panicking {
    fn publish(&self, signal: Signal<'_>) {
        self.inner.publish(signal);
    }

    fn report(&self, id: JobId, lease: Lease, progress: &Arc<Progress>) {
        self.inner.report(id, lease, progress);
    }

    async fn progress(&self, id: JobId) -> Option<(LeaseDigest, Progress)> {
        self.inner.progress(id).await
    }

    async fn recv(&self) -> SignalSet {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a planted panic");
        self.inner.recv().await
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.inner.poll_interval()
    }

    fn link(&self) -> Option<PeerLink> {
        self.inner.link()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// `serve --data DIR --listen HOST:PORT`.
fn arguments() -> anyhow::Result<(PathBuf, String)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag);
        place.and_then(|place| arguments.get(place + 1)).cloned().with_context(|| format!("{flag} is missing"))
    };
    Ok((value("--data")?.into(), value("--listen")?))
}
