//! The latest progress of jobs for nodes that missed the message: one short-lived value per job in Redis. A read never
//! takes long, and is skipped for a while after a slow one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::JobId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult};
use tokio::time::{Instant, timeout};

use super::progress_outbox::ProgressBatch;
use crate::peer_bus::codec::progress::{VALUE_BYTES_MAX, decode_value};
use crate::peer_bus::signals::ReportedProgress;

/// Lifetime of a value that is not renewed: as long as progress is shown.
const LIFE_SECONDS: u64 = 300;
/// A Redis that takes longer is not worth waiting for: what is written down will do.
const ASK_MAX: Duration = Duration::from_millis(150);
/// Reads are skipped for so long after a slow one.
const PAUSE: Duration = Duration::from_secs(1);

/// The values of one store.
pub(super) struct ProgressKv {
    store: u64,
    state: Mutex<KvState>,
}

#[derive(Default)]
struct KvState {
    /// While there is a session.
    connection: Option<MultiplexedConnection>,
    /// Not to be asked before.
    quiet_until: Option<Instant>,
}

impl ProgressKv {
    pub(super) fn of(store: u64) -> ProgressKv {
        ProgressKv { store, state: Mutex::default() }
    }

    pub(super) fn connect(&self, connection: MultiplexedConnection) {
        *self.lock() = KvState { connection: Some(connection), quiet_until: None };
    }

    pub(super) fn disconnect(&self) {
        *self.lock() = KvState::default();
    }

    /// Keeps the values. Whatever Redis answers to that is no reason to part: a full one, or one where this user may only
    /// send messages, is still good for messages.
    pub(super) async fn keep(&self, connection: &mut MultiplexedConnection, batch: &ProgressBatch) -> RedisResult<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(batch.len());
        for value in batch {
            pipeline
                .cmd("SET")
                .arg(self.key(value.id))
                .arg(value.bytes.as_slice())
                .arg("EX")
                .arg(LIFE_SECONDS)
                .ignore();
        }
        pipeline.ignore_errors().exec_async(connection).await
    }

    /// The value of a job; none where Redis cannot be asked, or where another program has written something else.
    pub(super) async fn find(&self, id: JobId) -> Option<ReportedProgress> {
        let mut connection = self.asked()?;
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.key(id)).arg(0).arg(VALUE_BYTES_MAX);
        match timeout(ASK_MAX, command.query_async::<Vec<u8>>(&mut connection)).await {
            Ok(value) => decode_value(&value.ok()?),
            Err(_) => {
                self.lock().quiet_until = Some(Instant::now() + PAUSE);
                None
            }
        }
    }

    /// The connection, if it may be asked.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        self.asked()
    }

    fn asked(&self) -> Option<MultiplexedConnection> {
        let state = self.lock();
        let is_quiet = state.quiet_until.is_some_and(|until| Instant::now() < until);
        state.connection.clone().filter(|_| !is_quiet)
    }

    /// Numbers of fixed length only, as in the name of the channel.
    fn key(&self, id: JobId) -> String {
        format!("outlast:progress:{:016x}:{id}", self.store)
    }

    fn lock(&self) -> MutexGuard<'_, KvState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    #[tokio::test]
    async fn a_key_names_store_and_job_and_without_a_session_nobody_is_asked() {
        let kv = ProgressKv::of(0xbeef);
        let id = JobId::new(Timestamp::from_millis(1), 2);

        assert_eq!(kv.key(id), format!("outlast:progress:000000000000beef:{id}"));
        assert_eq!(kv.find(id).await, None);
    }
}
