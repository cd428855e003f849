//! A TCP proxy that cuts: it passes bytes on until one direction has had its allowance, then closes both sides.
//! One plan holds for every connection made while it is set.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An allowance that no test reaches.
const EVERYTHING: u64 = u64::MAX;

pub struct Proxy {
    pub base: String,
    plan: Arc<Plan>,
    accepting: JoinHandle<()>,
}

struct Plan {
    request_bytes_max: AtomicU64,
    reply_bytes_max: AtomicU64,
    /// Bytes that the latest connection passed to the client.
    reply_bytes_seen: AtomicU64,
    /// Bytes that the latest connection passed to the server.
    request_bytes_seen: AtomicU64,
}

impl Proxy {
    /// Listens on a free port in front of `base` (`http://host:port`).
    pub async fn before(base: &str) -> Proxy {
        let server: SocketAddr = base
            .strip_prefix("http://")
            .and_then(|address| address.parse().ok())
            .expect("the base is http://address:port");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let plan = Arc::new(Plan {
            request_bytes_max: AtomicU64::new(EVERYTHING),
            reply_bytes_max: AtomicU64::new(EVERYTHING),
            reply_bytes_seen: AtomicU64::new(0),
            request_bytes_seen: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&plan)));
        Proxy { base: format!("http://{address}"), plan, accepting }
    }

    /// The client gets the first `bytes` of a reply and then a closed connection.
    pub fn cut_reply_after(&self, bytes: u64) {
        self.plan.reply_bytes_max.store(bytes, Ordering::SeqCst);
    }

    /// The server gets the first `bytes` of a request and then a closed connection.
    pub fn cut_request_after(&self, bytes: u64) {
        self.plan.request_bytes_max.store(bytes, Ordering::SeqCst);
    }

    pub fn pass_everything(&self) {
        self.cut_reply_after(EVERYTHING);
        self.cut_request_after(EVERYTHING);
    }

    /// (request, reply) bytes that the latest connection let through.
    pub fn bytes_seen(&self) -> (u64, u64) {
        let request = self.plan.request_bytes_seen.load(Ordering::SeqCst);
        (request, self.plan.reply_bytes_seen.load(Ordering::SeqCst))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, plan: Arc<Plan>) {
    while let Ok((client, _)) = listener.accept().await {
        let plan = Arc::clone(&plan);
        // Ends with its connection; the connections end with the client and the server of the test.
        tokio::spawn(async move {
            if let Ok(upstream) = TcpStream::connect(server).await {
                pass(client, upstream, &plan).await;
            }
        });
    }
}

/// Runs until either side closes or an allowance is used up, then drops both sockets.
async fn pass(client: TcpStream, server: TcpStream, plan: &Plan) {
    plan.request_bytes_seen.store(0, Ordering::SeqCst);
    plan.reply_bytes_seen.store(0, Ordering::SeqCst);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = copy(from_client, to_server, &plan.request_bytes_max, &plan.request_bytes_seen);
    let replies = copy(from_server, to_client, &plan.reply_bytes_max, &plan.reply_bytes_seen);
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}

/// Cutting at 0 still waits for the first byte: the other side must have begun to answer.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, allowance: &AtomicU64, seen: &AtomicU64) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let left = allowance.load(Ordering::SeqCst).saturating_sub(seen.load(Ordering::SeqCst));
        let passed = read.min(usize::try_from(left).unwrap_or(usize::MAX));
        if to.write_all(&buffer[..passed]).await.is_err() {
            return;
        }
        seen.fetch_add(passed as u64, Ordering::SeqCst);
        if passed < read {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each connection's first request with the bytes it got, then ten letters.
    async fn echo_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = [0; 64];
                let read = socket.read(&mut buffer).await.unwrap();
                socket.write_all(&buffer[..read]).await.unwrap();
                socket.write_all(b"abcdefghij").await.unwrap();
            }
        });
        format!("http://{address}")
    }

    async fn exchange(proxy: &Proxy, request: &[u8]) -> Vec<u8> {
        let address = proxy.base.strip_prefix("http://").unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request).await.unwrap();
        let mut reply = Vec::new();
        let _ = socket.read_to_end(&mut reply).await;
        reply
    }

    #[tokio::test]
    async fn without_a_plan_everything_passes() {
        let proxy = Proxy::before(&echo_server().await).await;

        assert_eq!(exchange(&proxy, b"123").await, b"123abcdefghij");
        assert_eq!(proxy.bytes_seen(), (3, 13));
    }

    #[tokio::test]
    async fn a_reply_is_cut_after_exactly_k_bytes() {
        let proxy = Proxy::before(&echo_server().await).await;

        for k in 0..13 {
            proxy.cut_reply_after(k);
            assert_eq!(exchange(&proxy, b"123").await, b"123abcdefghij"[..k as usize], "k = {k}");
        }

        proxy.pass_everything();
        assert_eq!(exchange(&proxy, b"123").await, b"123abcdefghij");
    }

    #[tokio::test]
    async fn a_request_is_cut_after_exactly_k_bytes() {
        let proxy = Proxy::before(&echo_server().await).await;

        proxy.cut_request_after(2);
        exchange(&proxy, b"123").await;

        assert_eq!(proxy.bytes_seen().0, 2);
    }
}
