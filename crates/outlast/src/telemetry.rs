//! The log of the server: to stderr, as JSON lines for machines or as text for people. Never in colour, so NO_COLOR has
//! nothing to switch off.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::sections::{Log, LogFormat};

/// Installs the log for the whole process; called once, before the server starts.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let is_json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter(&log.level)?).with_writer(io::stderr).with_ansi(false);
    let started = if is_json { builder.json().flatten_event(true).try_init() } else { builder.try_init() };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// A formatted message may hold what a user sent, so only the place and messages that stand in the code are logged.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let message = panic.payload().downcast_ref::<&'static str>().copied();
    tracing::error!(place, message, "a panic; the part that it came from fails or starts again; report this as a bug");
}

/// The drivers write what they send, payloads and leases included, so they are logged only when something is wrong,
/// whatever the level.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let mut filter = EnvFilter::try_new(level)?;
    for driver in ["tokio_postgres=warn", "postgres_protocol=warn", "redis=warn"] {
        filter = filter.add_directive(driver.parse()?);
    }
    Ok(filter)
}
