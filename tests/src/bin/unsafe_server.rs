//! The server with its promise broken on purpose, for the negative controls of the crash rigs: the same flags as
//! `outlast serve`, and `OUTLAST_TEST_DURABILITY` = `answer-first`, `normal` or `full`. Never shipped.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use outlast_api::{Api, Limits, listen};
use outlast_engine::Engine;
use outlast_engine::egress::{EgressSettings, HttpEgress};
use outlast_engine::engine::Ports;
use outlast_engine::ports::{SystemClock, SystemEntropy};
use outlast_engine::push::PushSettings;
use outlast_engine::seal::Seal;
use outlast_store::live::Alone;
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
    let live = Arc::new(Alone::embedded());
    let allow_private_targets = vec!["127.0.0.0/8".parse()?];
    let engine = Engine::new(
        Ports {
            store: Arc::new(store),
            live,
            clock,
            entropy: Box::new(SystemEntropy::seed()?),
            egress: Arc::new(HttpEgress::new(EgressSettings { allow_private_targets, ..EgressSettings::default() })?),
            blobs: outlast_tests::objects::no_blobs(),
            seal: Seal::new(&[1; 32], &[]),
        },
        PushSettings::default(),
    );
    engine.use_admin_key(&std::env::var("OUTLAST_ADMIN_KEY")?).await?;
    engine.load_keys().await?;
    let _loops = engine.start();
    println!("outlast listening on http://{}", listener.local_addr()?);
    let router = Api::new(engine, Limits::default()).router();
    listen::serve(listener, router, listen::Settings::default(), std::future::pending()).await;
    Ok(())
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
