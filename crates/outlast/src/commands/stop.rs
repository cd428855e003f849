//! When a command that goes on without an end is to end.

use tokio::signal::unix::{self, SignalKind};

use crate::failure::{Exit, Failure};

/// Done at Ctrl-C or SIGTERM.
pub(crate) fn signal() -> Result<impl Future<Output = ()>, Failure> {
    let refuse = |error: std::io::Error| Failure::new(Exit::Refused, format!("cannot wait for signals: {error}"));
    let mut interrupt = unix::signal(SignalKind::interrupt()).map_err(refuse)?;
    let mut terminate = unix::signal(SignalKind::terminate()).map_err(refuse)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
