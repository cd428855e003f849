//! One connection to Redis from its start to its end: a subscriber and a publisher. It lives as long as the node's own
//! messages return, which is the one proof that both directions work.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubStream};
use redis::{AsyncConnectionConfig, Client, Msg, RedisResult};
use tokio::time::{Instant, sleep_until, timeout};

use super::{BusState, Error};
use crate::peer_bus::codec::progress::encode_values;
use crate::peer_bus::codec::{decode, encode};

/// Connecting, greeting, subscribing: longer is as good as never.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A Redis that takes longer over a message is slower than polling.
const SEND_MAX: Duration = Duration::from_secs(1);
/// The least time between two messages; signals in between go into the next one.
const GAP: Duration = Duration::from_millis(3);
/// A message goes out this often even if there is nothing to tell.
const BEAT: Duration = Duration::from_secs(1);
/// After so long without a message of its own the node takes the link for dead.
const ECHO_MAX: Duration = Duration::from_secs(3);

impl BusState {
    /// Connects and stays connected; returns why it ended. May be dropped at any time: what was not sent is lost, as the
    /// port allows.
    pub(super) async fn session(&self, client: &Client) -> Error {
        let (stream, connection) = match self.connect(client).await {
            Ok(ends) => ends,
            Err(error) => return error,
        };
        self.kv.connect(connection.clone());
        self.connected();
        tokio::select! {
            error = self.speak(connection) => error,
            error = self.hear(stream) => error,
        }
    }

    async fn connect(&self, client: &Client) -> Result<(PubSubStream, MultiplexedConnection), Error> {
        let mut subscriber = within(CONNECT_MAX, client.get_async_pubsub()).await?;
        within(CONNECT_MAX, subscriber.subscribe(&self.channel)).await?;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_MAX)).set_response_timeout(Some(SEND_MAX));
        let connection = within(CONNECT_MAX, client.get_multiplexed_async_connection_with_config(&config)).await?;
        Ok((subscriber.into_on_message(), connection))
    }

    /// One message at a time. The first goes at once; under load the gap bounds their number, not their content.
    async fn speak(&self, mut connection: MultiplexedConnection) -> Error {
        loop {
            let sent_at = Instant::now();
            // Taken first and sent last: a peer that learns of a job's end has received its last progress.
            let news = self.outbox.take();
            if let Err(error) = self.speak_of_progress(&mut connection).await {
                return error;
            }
            if let Err(error) = self.publish(&mut connection, encode(self.node, &news)).await {
                return error;
            }
            if let Err(error) = within(SEND_MAX, self.worker_kv.keep(&mut connection)).await {
                return error;
            }
            sleep_until(sent_at + GAP).await;
            tokio::select! {
                () = self.outbox.wait() => {}
                () = self.progress_outbox.wait() => {}
                () = sleep_until(sent_at + BEAT) => {}
            }
        }
    }

    /// Progress has its own message type, which older nodes ignore. Nodes that missed it find the value in Redis.
    async fn speak_of_progress(&self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        let batch = self.progress_outbox.batch(Instant::now());
        if batch.is_empty() {
            return Ok(());
        }
        let message = encode_values(self.node, batch.iter().map(|value| (value.id, value.bytes.as_slice())));
        let mut keeper = connection.clone();
        // Both are under way at once: one way to Redis and back, not two.
        let (told, kept) =
            tokio::join!(self.publish(connection, message), within(SEND_MAX, self.kv.keep(&mut keeper, &batch)),);
        told.and(kept)?;
        self.progress_outbox.sent(&batch);
        Ok(())
    }

    async fn publish(&self, connection: &mut MultiplexedConnection, message: Vec<u8>) -> Result<(), Error> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg(message);
        within(SEND_MAX, publish.query_async::<i64>(connection)).await?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn hear(&self, mut stream: PubSubStream) -> Error {
        let mut echoed_at = Instant::now();
        loop {
            let message = tokio::select! {
                message = stream.next() => message,
                () = sleep_until(echoed_at + ECHO_MAX) => return Error::Silent,
            };
            match message {
                Some(message) if self.take_in(&message) => echoed_at = Instant::now(),
                Some(_) => {}
                None => return Error::Closed,
            }
        }
    }

    /// Returns whether it was this node's own.
    fn take_in(&self, message: &Msg) -> bool {
        match decode(message.get_payload_bytes()) {
            Some(own) if own.node == self.node => true,
            Some(other) => {
                self.received.fetch_add(1, Ordering::Relaxed);
                self.progress_outbox.heard(&other.news);
                if !other.news.is_empty() {
                    self.inbox.merge(other.news);
                }
                false
            }
            None => {
                self.garbage.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

pub(super) async fn within<T>(most: Duration, call: impl Future<Output = RedisResult<T>>) -> Result<T, Error> {
    match timeout(most, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout(most)),
    }
}
