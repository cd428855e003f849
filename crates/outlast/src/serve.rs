//! The server: builds store, engine and API from their sections of the configuration, runs them, and ends them in order.

mod backing;
mod database;
mod declare;
mod descriptors;
mod egress;
mod files;
pub(crate) mod reload;
mod sealing;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use outlast_api::{Api, Limits, listen};
use outlast_engine::Engine;
use outlast_engine::engine::Ports;
use outlast_engine::keys::Keys;
use outlast_engine::ports::{ManualClock, SystemEntropy};
use outlast_engine::push::PushSettings;
use outlast_store::blobs::{BlobTimeouts, Blobs};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::backing::Backing;
use self::declare::declare;
use self::files::write_private_new;
use self::reload::{Load, Reloader};
use crate::config::Config;

/// Connections that the kernel keeps until they are accepted, where `net.core.somaxconn` allows as many.
const BACKLOG: u32 = 4096;

/// How the server is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    /// For a developer's machine: the same server, which also says how to begin.
    Dev(DevClock),
}

/// The clock of a developer's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DevClock {
    System,
    Manual,
}

/// The folder is made if it is not there; a bucket is asked when it is needed.
fn open_blobs(config: &Config) -> anyhow::Result<Blobs> {
    let location = config.blobs();
    let shown = location.to_string();
    Blobs::new(location, BlobTimeouts::default())
        .map_err(|error| anyhow::anyhow!("{}", error.with_causes()))
        .with_context(|| format!("cannot use {shown} for results and checkpoints"))
}

/// Runs until a signal asks it to stop, or until the store fails.
pub(crate) async fn run(config: Config, mode: Mode, load: Load) -> anyhow::Result<()> {
    descriptors::raise(config.limits.connections);
    let listener = bind(&config.listen.to_string()).await?;
    let private_listener = match &config.metrics_listen {
        Some(address) => Some(bind(&address.to_string()).await?),
        None => None,
    };
    let own = [Some(&listener), private_listener.as_ref()].into_iter().flatten().map(TcpListener::local_addr);
    let egress = egress::open(&config.egress, mode, own.collect::<Result<_, _>>()?)?;
    let directory = config.data.clone();
    let manual = (mode == Mode::Dev(DevClock::Manual)).then(|| Arc::new(ManualClock::start()));
    let backing = Backing::open(&config, manual.clone()).await?;
    let (seal, new_key) = sealing::keys(&config)?.split();
    let ports = Ports {
        store: Arc::clone(&backing.store),
        peer_bus: Arc::clone(&backing.peer_bus),
        clock: Arc::clone(&backing.clock),
        entropy: Box::new(SystemEntropy::seed()?),
        egress,
        blobs: Arc::new(open_blobs(&config)?),
        seal,
    };
    let engine = Engine::new(ports, push_settings(&config));
    sealing::settle(&engine.queues, new_key, &config).await?;
    let key = admin_key(&engine.keys, &config, &directory).await?;
    declare(&engine, &config).await?;
    let reloader = Reloader::new(Arc::clone(engine.rooms()), load, config.clone());
    let mut api = Api::new(Arc::clone(engine.rooms()), api_limits(&config)).reloading(reloader.hook());
    if let Some(manual) = manual {
        api = api.with_dev_clock(dev_clock(&engine, manual));
    }
    let reloading = tokio::spawn(reloader.run()?);
    let loops = engine.start();

    let (stop, stopped) = watch::channel(false);
    let private = private_listener.map(|listener| serve_private(listener, &api, &config, stopped.clone()));
    // Before the server is announced as ready: from then on it may be asked to stop.
    let stop_signal = stop_signal()?;
    announce(&listener, mode, &key, &directory)?;
    let serving = listen::serve(listener, api.router(), listen_settings(&config), until_true(stopped));
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        why = backing.failed() => fail(&why),
        signal = stop_signal => {
            tracing::info!(signal, "stopping: no new hand-outs, requests and deliveries in flight may finish");
            engine.drain();
            stop.send_replace(true);
            let settled = engine.push.settle(config.timeouts.drain);
            tokio::select! {
                _ = async { tokio::join!(serving, settled) } => {}
                why = backing.failed() => fail(&why),
            }
        }
    }
    if let Some(private) = private {
        let _ = private.await;
    }
    reloading.abort();
    engine.stop();
    loops.finish().await;
    backing.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// Moves the clock and has everybody look at it.
fn dev_clock(engine: &Engine, manual: Arc<ManualClock>) -> outlast_api::dev_clock::DevClock {
    engine.expect_jumps();
    let engine = engine.clone();
    Arc::new(move |by| {
        manual.advance(by);
        engine.clock_jumped();
        engine.clock.now()
    })
}

/// After a failed write the server answers no request, so there is nothing to wait for: connections end with the process.
fn fail(why: &str) -> ! {
    eprintln!("error: the store has failed and the server stops without further answers: {why}");
    std::process::exit(1)
}

async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    listener(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// At the first address that can be used.
async fn listener(address: &str) -> io::Result<TcpListener> {
    let mut failed = None;
    for address in lookup_host(address).await? {
        match listener_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

fn listener_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A start must not wait for connections of the process before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn push_settings(config: &Config) -> PushSettings {
    PushSettings {
        public_url: config.public_url.as_deref().unwrap_or_default().into(),
        in_flight_max: config.push.in_flight,
        keeps_excerpts: config.push.response_excerpts,
        result_bytes_max: config.limits.payload_bytes,
    }
}

fn api_limits(config: &Config) -> Limits {
    Limits {
        payload_bytes: config.limits.payload_bytes,
        batch_jobs: config.limits.batch_jobs,
        batch_bytes: config.limits.batch_bytes,
        in_flight_requests: config.limits.in_flight_requests,
        in_flight_bytes: config.limits.in_flight_bytes,
        key_share_percent: config.limits.key_share_percent,
        waiting_requests: config.limits.waiting_requests,
        waiting_requests_per_key: config.limits.waiting_requests_per_key,
        waiting_requests_per_token: config.limits.waiting_requests_per_token,
        answer_bytes: config.limits.answer_bytes,
        url_bytes: config.limits.url_bytes,
        streams: config.limits.streams,
        streams_per_key: config.limits.streams_per_key,
        failed_keys_per_address: config.limits.failed_keys_per_address,
        body_idle: config.timeouts.body_idle,
        body_total: config.timeouts.body_total,
        body_grace: config.timeouts.body_grace,
        body_bytes_per_second: config.limits.body_bytes_per_second,
    }
}

fn listen_settings(config: &Config) -> listen::Settings {
    listen::Settings {
        connections_max: config.limits.connections,
        connections_per_address_max: config.limits.connections_per_address,
        head_bytes_max: config.limits.request_head_bytes,
        first_byte: config.timeouts.first_byte,
        head: config.timeouts.head,
        keep_alive: config.timeouts.keep_alive,
        write_idle: config.timeouts.write_idle,
        write_bytes_per_second: config.limits.answer_bytes_per_second,
        drain: config.timeouts.drain,
    }
}

fn serve_private(
    listener: TcpListener,
    api: &Api,
    config: &Config,
    stopped: watch::Receiver<bool>,
) -> tokio::task::JoinHandle<()> {
    let (router, settings) = (api.private_router(), listen_settings(config));
    tokio::spawn(listen::serve(listener, router, settings, until_true(stopped)))
}

async fn until_true(mut flag: watch::Receiver<bool>) {
    // An error means the sender is gone, and that means stop as well.
    let _ = flag.wait_for(|stopped| *stopped).await;
}

/// Takes the signals over; gives the name of the one that comes.
fn stop_signal() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}

/// The admin key, as far as this process knows it.
enum AdminKey {
    /// Made by this start, or known from the key file.
    Known { text: String, is_new: bool },
    /// The operator's own, or not known here.
    Elsewhere,
}

/// The first start makes an admin key. It is written to the file before it is valid: a crash in between leaves a key
/// that works, never a store without a known key. Of several nodes that start at once, the key of one becomes valid.
async fn admin_key(keys: &Keys, config: &Config, directory: &Path) -> anyhow::Result<AdminKey> {
    let path = key_path(directory);
    let in_file = fs::read_to_string(&path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if let Some(own) = &config.admin_key {
        keys.use_admin_key(own.expose()).await?;
        keys.load().await?;
        return Ok(AdminKey::Elsewhere);
    }
    if keys.has_any().await? {
        keys.load().await?;
        let Some(text) = in_file else { return Ok(AdminKey::Elsewhere) };
        let works = keys.authenticate(&text).await?.is_some();
        return Ok(if works { AdminKey::Known { text, is_new: false } } else { AdminKey::Elsewhere });
    }
    let (text, is_own) = match in_file {
        Some(text) => (text, false),
        None => first_key(keys, &path).with_context(|| format!("cannot write {}", path.display()))?,
    };
    if keys.use_first_key(&text).await? {
        return Ok(AdminKey::Known { text, is_new: true });
    }
    if is_own {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    tracing::info!("another node has made the admin key");
    Ok(AdminKey::Elsewhere)
}

const KEY_MARK_LENGTH: usize = 15;

/// A new key in its file, and whether it is this process's own: another one may have written the file just before.
fn first_key(keys: &Keys, path: &Path) -> io::Result<(String, bool)> {
    let text = keys.key_text();
    // The part of a key that is no secret.
    let mark = text.get(..KEY_MARK_LENGTH).unwrap_or_default();
    if write_private_new(path, &text, mark)? {
        return Ok((text, true));
    }
    Ok((fs::read_to_string(path)?.trim().to_owned(), false))
}

fn key_path(directory: &Path) -> PathBuf {
    directory.join("admin.key")
}

/// Prints the start message to stdout. Programs wait for the line with the address.
fn announce(listener: &TcpListener, mode: Mode, key: &AdminKey, directory: &Path) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let mut out = io::stdout().lock();
    if let AdminKey::Known { text, is_new: true } = key {
        writeln!(out, "admin key (shown once, kept in {}): {text}", key_path(directory).display())?;
    }
    writeln!(out, "outlast listening on http://{address}")?;
    if matches!(mode, Mode::Dev(_)) {
        let text = match key {
            AdminKey::Known { text, .. } => text.as_str(),
            AdminKey::Elsewhere => "$OUTLAST_KEY",
        };
        writeln!(out, "\n{}", first_steps(&address.to_string(), text))?;
    }
    out.flush()?;
    Ok(())
}

fn first_steps(address: &str, key: &str) -> String {
    format!(
        "  URL  http://{address}\n  key  {key}\n\nTry it:\n\n  \
         export OUTLAST_URL=http://{address} OUTLAST_KEY={key}\n  \
         curl -X PUT $OUTLAST_URL/v1/queues/hello -H \"Authorization: Bearer $OUTLAST_KEY\"\n  \
         curl $OUTLAST_URL/v1/queues/hello/jobs -H \"Authorization: Bearer $OUTLAST_KEY\" -d '{{\"payload\":{{\"hello\":\"world\"}}}}'\n"
    )
}
