//! Where the latest progress of a job is found by nodes that were not told: one short-lived value per job in Redis. Asking
//! never takes long, and nobody asks a Redis that was slow a moment ago.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::JobId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult};
use tokio::time::{Instant, timeout};

use super::telling::Batch;
use crate::live::codec::progress::{VALUE_BYTES_MAX, decode_value};
use crate::live::news::Told;

/// A value nobody renews is gone after it, as progress is shown for so long.
const LIFE_SECONDS: u64 = 300;
/// A Redis that takes longer is not worth waiting for: what is written down will do.
const ASK_MAX: Duration = Duration::from_millis(150);
/// After such a wait nobody asks for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// The values of one store.
pub(super) struct Keeping {
    store: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// While there is a session.
    connection: Option<MultiplexedConnection>,
    /// Not to be asked before.
    quiet_until: Option<Instant>,
}

impl Keeping {
    pub(super) fn of(store: u64) -> Keeping {
        Keeping { store, state: Mutex::default() }
    }

    pub(super) fn connect(&self, connection: MultiplexedConnection) {
        *self.lock() = State { connection: Some(connection), quiet_until: None };
    }

    pub(super) fn disconnect(&self) {
        *self.lock() = State::default();
    }

    /// Keeps the values. Whatever Redis answers to that is no reason to part: a full one, or one where this user may only
    /// send messages, is still good for messages.
    pub(super) async fn keep(&self, connection: &mut MultiplexedConnection, batch: &Batch) -> RedisResult<()> {
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

    /// What is kept for a job; nothing where nobody can be asked, or where somebody else has written something.
    pub(super) async fn find(&self, id: JobId) -> Option<Told> {
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
    fn asked(&self) -> Option<MultiplexedConnection> {
        let state = self.lock();
        let is_quiet = state.quiet_until.is_some_and(|until| Instant::now() < until);
        state.connection.clone().filter(|_| !is_quiet)
    }

    /// Numbers of fixed length only, as in the name of the channel.
    fn key(&self, id: JobId) -> String {
        format!("outlast:progress:{:016x}:{id}", self.store)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    #[tokio::test]
    async fn a_key_names_store_and_job_and_without_a_session_nobody_is_asked() {
        let keeping = Keeping::of(0xbeef);
        let id = JobId::new(Timestamp::from_millis(1), 2);

        assert_eq!(keeping.key(id), format!("outlast:progress:000000000000beef:{id}"));
        assert_eq!(keeping.find(id).await, None);
    }
}
