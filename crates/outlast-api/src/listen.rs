//! The accept loop: HTTP/1.1 on hyper, with deadlines for the first byte, the head and an idle connection, bounds on
//! connections in all and per address, and a graceful end. Bodies have their own deadlines where they are read.

mod pulse;
pub(crate) mod takeover;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use crate::patience::{heard_by, look_again};
use crate::sources::Peer;

use pulse::{Doing, Pulse, Watchdog};
use takeover::{Next, Upgraded};

#[derive(Clone, Debug)]
pub struct Settings {
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    pub head_bytes_max: usize,
    /// From accept to the first byte.
    pub first_byte: Duration,
    /// From the first byte of a request to the end of its head.
    pub head: Duration,
    /// Between two requests.
    pub keep_alive: Duration,
    /// For a stream: how long its reader may take nothing of what is to be written.
    pub write_idle: Duration,
    /// How long requests in flight may take after the stop signal.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections_max: 15_000,
            connections_per_address_max: 1000,
            head_bytes_max: 16 << 10,
            first_byte: Duration::from_secs(5),
            head: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            write_idle: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

/// The pause after a failed accept: out of file descriptors, most likely, and then spinning helps nobody.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long, and how much, is read from a client that was refused in the middle of its request.
const LINGER_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 32 << 20;
/// What the system keeps for a reader of a stream, who may be slow for long; by itself it would keep megabytes.
const STREAM_SEND_BUFFER: usize = 64 << 10;
/// hyper's least buffer.
const BUFFER_MIN: usize = 8192;

/// Serves until `stop` is done, then waits for requests in flight, at most `settings.drain`.
pub async fn serve(listener: TcpListener, router: Router, settings: Settings, stop: impl Future<Output = ()>) {
    let settings = Arc::new(settings);
    let (stopping, _) = watch::channel(false);
    let addresses = Arc::new(Addresses::default());
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if connections.len() >= settings.connections_max {
            tracing::debug!("too many connections; one was closed");
            continue;
        }
        let Some(seat) = addresses.seat(peer.ip(), settings.connections_per_address_max) else {
            continue;
        };
        let peer = Peer(peer.ip());
        let task = connection((stream, peer), router.clone(), Arc::clone(&settings), stopping.subscribe());
        connections.spawn(async move {
            task.await;
            drop(seat);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.drain, all).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut");
        connections.shutdown().await;
    }
}

async fn connection(
    (stream, peer): (TcpStream, Peer),
    router: Router,
    settings: Arc<Settings>,
    mut stopping: watch::Receiver<bool>,
) {
    // Answers are small and written whole: waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    tokio::select! {
        first = heard_by(Instant::now() + settings.first_byte, stream.readable()) => if !matches!(first, Some(Ok(()))) { return },
        _ = stopping.wait_for(|stopping| *stopping) => return,
    }
    let pulse = Arc::new(Pulse::new());
    let io = Watched { stream: TokioIo::new(stream), pulse: Arc::clone(&pulse), is_bounded: false };
    let next = Next::default();
    let (counted, noted) = (Arc::clone(&pulse), next.clone());
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        counted.set(Doing::Answering);
        let (pulse, next) = (Arc::clone(&counted), noted.clone());
        let answer = router.clone().call(request.map(Body::new));
        async move {
            let answer = answer.await?;
            next.note(answer.extensions());
            // Most answers are whole. What is not is a download, if it says how long it will be, or else a stream.
            if answer.body().size_hint().exact().is_some() {
                pulse.set(Doing::Idle);
                return Ok::<_, Infallible>(answer);
            }
            let has_end = answer.headers().contains_key(CONTENT_LENGTH);
            pulse.set(if has_end { Doing::Sending } else { Doing::Streaming });
            Ok(answer.map(|body| Body::new(Streamed { body, pulse })))
        }
    });
    let mut builder = http1::Builder::new();
    // Without `pipeline_flush`: it would hold back the 400 or 431 for a head that is refused with bytes left unread.
    builder.max_buf_size(settings.head_bytes_max.max(BUFFER_MIN));
    let mut connection = builder.serve_connection(io, service);
    let mut watchdog = std::pin::pin!(Watchdog::new(&pulse, &settings));
    let (mut told, mut overdue_since) = (false, None);
    loop {
        let overdue = tokio::select! {
            // The connection first: the watchdog judges what it has come to.
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                    // What it was to become, it will not be.
                    drop(next.take());
                }
                break;
            }
            deadline = watchdog.as_mut() => Some(deadline),
            _ = stopping.wait_for(|stopping| *stopping), if !told => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
                None
            }
        };
        if overdue.is_some() {
            if overdue == overdue_since {
                return;
            }
            overdue_since = overdue;
            look_again().await;
        }
    }
    let parts = connection.into_parts();
    let stream = parts.io.stream.into_inner();
    if let Some(run) = next.take() {
        let _ = set_socket_send_buffer_size(&stream, STREAM_SEND_BUFFER);
        run(Upgraded { stream, read: parts.read_buf, write_idle: settings.write_idle }).await;
    } else if !told {
        linger(stream).await;
    }
}

/// Reads on after the last answer until the other side has closed too. Closing with bytes unread would reset the
/// connection, and a client that is refused in the middle of its request would lose the answer that says why.
async fn linger(mut stream: TcpStream) {
    // On the heap: in the future itself it would cost every connection its size from the beginning.
    let mut scratch = vec![0; BUFFER_MIN];
    let mut left = LINGER_BYTES_MAX;
    let discard = async {
        let _ = stream.shutdown().await;
        while let Ok(length @ 1..) = stream.read(&mut scratch).await
            && length <= left
        {
            left -= length;
        }
    };
    // Whoever takes longer is cut off.
    let _ = timeout(LINGER_MAX, discard).await;
}

/// A stream that reports when bytes come and go.
struct Watched {
    stream: TokioIo<TcpStream>,
    pulse: Arc<Pulse>,
    /// It has carried a stream, and its buffer is bounded from then on.
    is_bounded: bool,
}

impl Watched {
    fn before_write(&mut self) {
        if !self.is_bounded && self.pulse.is_streaming() {
            self.is_bounded = true;
            // Where the system does not take it, its own bound holds.
            let _ = set_socket_send_buffer_size(self.stream.inner(), STREAM_SEND_BUFFER);
        }
    }
}

impl Read for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.pulse.bytes_read();
        }
        polled
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write();
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.pulse.bytes_written(polled.is_ready());
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write();
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.pulse.bytes_written(polled.is_ready());
        polled
    }
}

/// The body of a stream: when it has ended, the connection waits for the next request.
struct Streamed {
    body: Body,
    pulse: Arc<Pulse>,
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.pulse.set(Doing::Idle);
    }
}

/// Connections per source address.
#[derive(Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

impl Addresses {
    fn seat(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Seat> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Seat { addresses: Arc::clone(self), address })
    }
}

struct Seat {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}
