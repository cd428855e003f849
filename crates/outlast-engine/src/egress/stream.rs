//! A connection as bytes, plain or encrypted, with a meter beside it: what has gone out and come in since a request
//! began, and how much may come in before the answer's head is complete.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Interim answers (1xx) and the head of the answer together; the head alone has a bound of its own.
const BEFORE_HEAD_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Stream {
    transport: Transport,
    meter: Arc<Counter>,
}

pub(super) enum Transport {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Read by the request while the connection has the stream. Counters only, so no order between them is needed.
#[derive(Debug, Default)]
pub(super) struct Counter {
    sent: AtomicUsize,
    received: AtomicUsize,
    has_head: AtomicBool,
}

impl Counter {
    pub(super) fn begin(&self) {
        self.sent.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.has_head.store(false, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    /// From here on it is the body that comes in, which is bounded by whoever reads it.
    pub(super) fn head_is_complete(&self) {
        self.has_head.store(true, Ordering::Relaxed);
    }

    /// More came in than the head of any answer may have.
    pub(super) fn is_flooded(&self) -> bool {
        !self.has_head.load(Ordering::Relaxed) && self.received() > BEFORE_HEAD_BYTES_MAX
    }
}

impl Stream {
    pub(super) fn new(transport: Transport, meter: Arc<Counter>) -> Stream {
        Stream { transport, meter }
    }

    fn transport(&mut self) -> Pin<&mut (dyn Duplex + Send)> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream as &mut (dyn Duplex + Send)),
            Transport::Encrypted(stream) => Pin::new(stream.as_mut() as &mut (dyn Duplex + Send)),
        }
    }

    fn count_sent(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.meter.sent.fetch_add(*count, Ordering::Relaxed);
        }
    }
}

/// Both directions, so that plain and encrypted connections are handled alike.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.transport().poll_read(cx, buffer);
        let count = buffer.filled().len().saturating_sub(before);
        self.meter.received.fetch_add(count, Ordering::Relaxed);
        if self.meter.is_flooded() {
            return Poll::Ready(Err(io::Error::other("more came in than a head may have")));
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.transport().poll_write(cx, bytes);
        self.count_sent(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.transport().poll_write_vectored(cx, slices);
        self.count_sent(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport().poll_shutdown(cx)
    }
}
