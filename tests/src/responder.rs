//! A server that says exactly what a test wants: reads requests, keeps what it saw, and answers with given bytes or
//! hands the connection over to the test. Ends with the value that holds it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A port may be taken on one of the addresses, by a connection of some other test.
const PORTS_TRIED_MAX: usize = 50;

type Handler = dyn Fn(TcpStream, Arc<Seen>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

pub struct Responder {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

/// The requests so far.
#[derive(Default)]
pub struct Seen {
    connections: Mutex<usize>,
    requests: Mutex<Vec<Request>>,
}

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub struct Request {
    /// Up to and without the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this name, without regard to its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }
}

impl Seen {
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn add(&self, request: Request) {
        self.requests.lock().unwrap().push(request);
    }
}

impl Responder {
    /// Answers every request on every connection with the same bytes.
    pub async fn answering(address: &str, answer: impl Into<Vec<u8>>) -> Responder {
        Responder::answering_on(bind(address).await, answer)
    }

    /// The same on a listener that is bound.
    pub fn answering_on(listener: TcpListener, answer: impl Into<Vec<u8>>) -> Responder {
        let answer: Arc<[u8]> = answer.into().into();
        Responder::handling_on(listener, move |mut stream, seen| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    seen.add(request);
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
    }

    /// Hands each connection over; it is closed when the future ends.
    pub async fn handling<F, Fut>(address: &str, handler: F) -> Responder
    where
        F: Fn(TcpStream, Arc<Seen>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Responder::handling_on(bind(address).await, handler)
    }

    fn handling_on<F, Fut>(listener: TcpListener, handler: F) -> Responder
    where
        F: Fn(TcpStream, Arc<Seen>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Seen::default());
        let handler: Arc<Handler> = Arc::new(move |stream, seen| Box::pin(handler(stream, seen)));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&seen), handler));
        Responder { address, seen, accepting }
    }

    pub fn url(&self, path: &str) -> Arc<str> {
        format!("http://{}{path}", self.address).into()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // The connections are tasks of the accept loop's set and go with it.
        self.accepting.abort();
    }
}

async fn bind(address: &str) -> TcpListener {
    TcpListener::bind(address).await.unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// Listeners on one port of several addresses, which is free on all of them.
pub async fn on_one_port(hosts: &[&str]) -> Vec<TcpListener> {
    for _ in 0..PORTS_TRIED_MAX {
        let first = bind(&format!("{}:0", hosts[0])).await;
        let port = first.local_addr().expect("it is bound").port();
        let mut listeners = vec![first];
        for host in &hosts[1..] {
            if let Ok(listener) = TcpListener::bind(format!("{host}:{port}")).await {
                listeners.push(listener);
            }
        }
        if listeners.len() == hosts.len() {
            return listeners;
        }
    }
    panic!("no port was free on all of {hosts:?}")
}

async fn accept(listener: TcpListener, seen: Arc<Seen>, handler: Arc<Handler>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        *seen.connections.lock().unwrap() += 1;
        let _ = stream.set_nodelay(true);
        connections.spawn(handler(stream, Arc::clone(&seen)));
        while connections.try_join_next().is_some() {}
    }
}

/// One request with a `content-length` body; `None` at the end of the connection.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut body = bytes.split_off(end + 4);
            let request = Request { head, body: Vec::new() };
            let length = request.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            while body.len() < length {
                let mut chunk = vec![0; length - body.len()];
                let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
                body.extend_from_slice(&chunk[..count]);
            }
            return Some(Request { body, ..request });
        }
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
}
