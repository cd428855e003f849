//! Workers that other nodes have seen: one hash in Redis for each namespace, with one value for each worker. Values gather
//! here and leave with the next message; a value that was not renewed for a day is deleted by a reader.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use outlast_core::NamespaceId;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult};

use crate::peer_bus::WorkerValue;

/// A hash that no node writes to is gone after this time.
const LIFE_SECONDS: u64 = 86_400;
/// Values that wait to be sent; beyond it a worker is left out until its next request.
const WAITING_MAX: usize = 4096;
/// Values that are read of a namespace.
const READ_MAX: usize = 2000;
/// A longer value is of no node.
const VALUE_BYTES_MAX: usize = 32 << 10;

pub(super) struct WorkerKv {
    store: u64,
    waiting: Mutex<BTreeMap<(NamespaceId, u64), Vec<u8>>>,
}

impl WorkerKv {
    pub(super) fn of(store: u64) -> WorkerKv {
        WorkerKv { store, waiting: Mutex::default() }
    }

    /// Never waits.
    pub(super) fn add(&self, namespace: NamespaceId, worker: WorkerValue) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX || waiting.contains_key(&(namespace, worker.id)) {
            waiting.insert((namespace, worker.id), worker.bytes);
        }
    }

    /// Sends what waits. An answer of Redis other than a lost connection is no reason to part.
    pub(super) async fn keep(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if waiting.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(waiting.len() * 2);
        for ((namespace, id), bytes) in waiting {
            let key = self.key(namespace);
            pipeline.cmd("HSET").arg(&key).arg(id).arg(bytes).ignore();
            pipeline.cmd("EXPIRE").arg(&key).arg(LIFE_SECONDS).ignore();
        }
        pipeline.ignore_errors().exec_async(connection).await
    }

    /// The values of a namespace, at most so many; none is believed before it was read.
    pub(super) async fn find(
        &self,
        connection: &mut MultiplexedConnection,
        namespace: NamespaceId,
    ) -> RedisResult<Vec<WorkerValue>> {
        let (key, mut cursor, mut values) = (self.key(namespace), 0u64, Vec::new());
        loop {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(&key).arg(cursor).arg("COUNT").arg(500);
            let (next, page): (u64, Vec<(u64, Vec<u8>)>) = scan.query_async(connection).await?;
            let fitting = page.into_iter().filter(|(_, bytes)| bytes.len() <= VALUE_BYTES_MAX);
            values.extend(fitting.map(|(id, bytes)| WorkerValue { id, bytes }));
            cursor = next;
            if cursor == 0 || values.len() >= READ_MAX {
                values.truncate(READ_MAX);
                return Ok(values);
            }
        }
    }

    pub(super) async fn forget(
        &self,
        connection: &mut MultiplexedConnection,
        namespace: NamespaceId,
        ids: &[u64],
    ) -> RedisResult<()> {
        redis::cmd("HDEL").arg(self.key(namespace)).arg(ids).exec_async(connection).await
    }

    /// Numbers of fixed length only, as in the name of the channel.
    fn key(&self, namespace: NamespaceId) -> String {
        format!("outlast:workers:{:016x}:{:08x}", self.store, namespace.0)
    }
}
