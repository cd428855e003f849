//! The accept loop: HTTP/1.1 on hyper, with deadlines for the first byte, the head and an idle connection, bounds on
//! connections in all and per address, and a graceful end. Bodies have their own deadlines where they are read.

mod head;
mod tls;
mod watchdog;
pub(crate) mod upgrade;

use std::convert::Infallible;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tower::Service;

use crate::answers::is_small;
use crate::budget::{Budget, Holder, Priority, Share, Shares};
use crate::budgets::discards;
use crate::read_deadline::{look_again, ready_by};
use crate::sources::Peer;

use head::HeadScan;
use upgrade::{PendingUpgrade, Upgraded};
use watchdog::{Activity, Doing, Watchdog};

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
    /// How long a reader may take nothing of what is to be written.
    pub write_idle: Duration,
    /// The least rate of reading a large answer, over its life and after `write_idle`.
    pub write_bytes_per_second: usize,
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
            write_bytes_per_second: 4 << 10,
            drain: Duration::from_secs(30),
        }
    }
}

/// The pause after a failed accept: most likely out of file descriptors, so retrying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long, and how much, is read from a client that was refused in the middle of its request.
const LINGER_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 32 << 20;
/// Send buffer of a stream or a large answer, whose reader may be slow for long; the system's default would be
/// megabytes.
const STREAM_SEND_BUFFER: usize = 64 << 10;
/// Send buffer of a download, which is read at full speed.
const DOWNLOAD_SEND_BUFFER: usize = 256 << 10;
/// hyper's least buffer.
const BUFFER_MIN: usize = 8192;
/// The most of all connections that one address may have, in percent. It shrinks as the whole fills, so that an address
/// without a connection gets in however many others there are; a proxy in front may still have nearly all.
const ADDRESS_PERCENT: usize = 88;
/// Connections that an address may always have.
const ADDRESS_LEAST: usize = 16;

/// Serves until `stop` is done, then waits for requests in flight, at most `settings.drain`.
pub async fn serve(listener: TcpListener, router: Router, settings: Settings, stop: impl Future<Output = ()>) {
    let settings = Arc::new(settings);
    let (stopping, _) = watch::channel(false);
    let (places, lingering) = (places(&settings), discards());
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
                tracing::warn!(%error, "accepting a connection failed; retrying; check the limit of open files");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.take(Holder::Address(peer.ip()), Priority::Ordinary, 1) else {
            tracing::debug!(address = %peer.ip(), "too many connections; one was closed");
            continue;
        };
        let peer = Peer(peer.ip());
        let (router, settings, stopping) = (router.clone(), Arc::clone(&settings), stopping.subscribe());
        let lingering = Arc::clone(&lingering);
        connections.spawn(async move {
            // Made in here: as a variable from outside it would be in the task twice.
            let rest = connection((stream, peer), router, settings, stopping).await;
            // Reading on is a courtesy: an address that is refused much gets it for some of its connections.
            if let Some(stream) = rest
                && let Ok(_place) = lingering.take(Holder::Address(peer.0), Priority::Ordinary, 1)
            {
                Box::pin(linger(stream)).await;
            }
            drop(place);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.drain, all).await.is_err() {
        tracing::warn!("requests did not finish within timeouts.drain; closing their connections");
        connections.shutdown().await;
    }
}

/// The places of connections, in all and per address.
fn places(settings: &Settings) -> Arc<Budget> {
    let address = Share::percent(ADDRESS_PERCENT).at_least(ADDRESS_LEAST).at_most(settings.connections_per_address_max);
    Budget::new("connections", settings.connections_max, 0, Shares { address, ..Shares::of_key(100) })
}

/// Serves one connection. Gives it back if its peer may still be sending.
async fn connection(
    (stream, peer): (TcpStream, Peer),
    router: Router,
    settings: Arc<Settings>,
    mut stopping: watch::Receiver<bool>,
) -> Option<TcpStream> {
    // Answers are small and written whole: waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    let first = tokio::select! {
        // A read, not a look at readiness: a socket may be called readable before a byte has come.
        first = ready_by(Instant::now() + settings.first_byte, first_byte(&stream)) => first.flatten()?,
        _ = stopping.wait_for(|stopping| *stopping) => return None,
    };
    if tls::is_tls(first) {
        return tls::refuse(stream).await;
    }
    let activity = Arc::new(Activity::new());
    let io = MonitoredStream::new(stream, &activity);
    let next = PendingUpgrade::default();
    let (counted, noted) = (Arc::clone(&activity), next.clone());
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        counted.set(Doing::Answering);
        let (activity, next) = (Arc::clone(&counted), noted.clone());
        let answer = match head::refusal(&request, counted.take_faults()) {
            Some(refusal) => Err(refusal),
            None => Ok(router.clone().call(request.map(Body::new))),
        };
        async move {
            let answer = match answer {
                Ok(answer) => answer.await?,
                Err(refusal) => refusal,
            };
            next.note(answer.extensions());
            Ok::<_, Infallible>(followed(answer, activity))
        }
    });
    let mut builder = http1::Builder::new();
    // Without `pipeline_flush`: it would hold back the 400 or 431 for a head that is refused with bytes left unread.
    builder.max_buf_size(settings.head_bytes_max.max(BUFFER_MIN));
    let mut connection = builder.serve_connection(io, service);
    let mut watchdog = std::pin::pin!(Watchdog::new(&activity, &settings));
    let (mut is_stopping, mut overdue_since) = (false, None);
    loop {
        let overdue = tokio::select! {
            // The connection first: the watchdog judges what it has come to.
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                    // The connection is not upgraded.
                    drop(next.take());
                }
                break;
            }
            deadline = watchdog.as_mut() => Some(deadline),
            _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
                None
            }
        };
        if overdue.is_some() {
            if overdue == overdue_since {
                return None;
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
        return None;
    }
    (!is_stopping).then_some(stream)
}

/// Waits for the first byte and leaves it in the socket; `None` when the client has closed.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut first = [0];
    let length = stream.peek(&mut first).await.ok()?;
    first.into_iter().take(length).next()
}

/// Records the activity of the connection from here on. Most answers are small and complete. Any other is a large
/// answer or a download, if it says how long it will be, or else a stream.
fn followed(answer: Response, activity: Arc<Activity>) -> Response {
    let length = answer.body().size_hint().exact();
    if length.is_some_and(is_small) {
        activity.set(Doing::Idle);
        return answer;
    }
    activity.set(match length {
        Some(_) => Doing::Sending,
        None if answer.headers().contains_key(CONTENT_LENGTH) => Doing::Downloading,
        None => Doing::Streaming,
    });
    answer.map(|body| Body::new(MonitoredBody { body, activity }))
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
    // A slower client is disconnected.
    let _ = timeout(LINGER_MAX, discard).await;
}

/// A stream that reports when bytes come and go.
struct MonitoredStream {
    stream: TokioIo<TcpStream>,
    activity: Arc<Activity>,
    /// It has carried a stream or a large answer, and its buffer is bounded from then on.
    is_bounded: bool,
    scan: HeadScan,
}

impl MonitoredStream {
    fn new(stream: TcpStream, activity: &Arc<Activity>) -> MonitoredStream {
        let (stream, activity) = (TokioIo::new(stream), Arc::clone(activity));
        MonitoredStream { stream, activity, is_bounded: false, scan: HeadScan::default() }
    }

    /// Reads by way of a buffer of our own, since what is read into hyper's cannot be looked at.
    fn poll_head(&mut self, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>, is_new: bool) -> Poll<io::Result<()>> {
        let mut scratch = [const { MaybeUninit::uninit() }; BUFFER_MIN];
        let room = into.remaining().min(BUFFER_MIN);
        let mut buffer = ReadBuf::uninit(scratch.get_mut(..room).unwrap_or_default());
        let polled = Pin::new(self.stream.inner_mut()).poll_read(cx, &mut buffer);
        if matches!(polled, Poll::Ready(Ok(()))) {
            if is_new {
                self.scan = HeadScan::default();
            }
            self.scan.read(buffer.filled());
            self.activity.note(self.scan.faults());
            into.put_slice(buffer.filled());
        }
        polled
    }

    fn before_write(&mut self) {
        let buffer = match self.activity.doing() {
            Doing::Streaming | Doing::Sending => STREAM_SEND_BUFFER,
            Doing::Downloading => DOWNLOAD_SEND_BUFFER,
            Doing::Idle | Doing::Head | Doing::Answering => return,
        };
        if !self.is_bounded {
            self.is_bounded = true;
            // Where the system does not take it, its own bound holds.
            let _ = set_socket_send_buffer_size(self.stream.inner(), buffer);
        }
    }
}

impl Read for MonitoredStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let is_new = self.activity.is_idle();
        if self.scan.is_complete() && !is_new {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let polled = self.poll_head(cx, buffer, is_new);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.activity.bytes_read();
        }
        polled
    }
}

impl Write for MonitoredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write();
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.bytes_written(written(&polled));
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
        self.activity.bytes_written(written(&polled));
        polled
    }
}

/// How much a write took; `None` when the other side takes nothing.
fn written(polled: &Poll<io::Result<usize>>) -> Option<usize> {
    match polled {
        Poll::Pending => None,
        Poll::Ready(taken) => Some(taken.as_ref().copied().unwrap_or(0)),
    }
}

/// The body of a stream: when it has ended, the connection waits for the next request.
struct MonitoredBody {
    body: Body,
    activity: Arc<Activity>,
}

impl HttpBody for MonitoredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for MonitoredBody {
    fn drop(&mut self) {
        self.activity.set(Doing::Idle);
    }
}
