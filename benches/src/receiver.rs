//! The receiver of push deliveries: HTTP/1.1 with keep-alive, hand-written, on the generator's own thread and clock. It
//! reads a request to its end, shows the body to the scenario and answers as the scenario says, with an empty body.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::connection;
use crate::load::Meter;

/// Larger than any delivery of the scenarios.
const BUFFER_BYTES: usize = 16 * 1024;

/// What a delivery is answered with.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    /// The job is done.
    Ok,
    /// The outcome comes later.
    Accepted,
}

impl Reply {
    fn bytes(self) -> &'static [u8] {
        match self {
            Self::Ok => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Self::Accepted => b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
        }
    }
}

pub(crate) struct Receiver {
    listener: TcpListener,
    pub(crate) url: String,
}

impl Receiver {
    /// Listens on a free port of an address of this machine.
    pub(crate) async fn bind(address: impl Into<IpAddr>) -> Result<Self> {
        let listener = TcpListener::bind((address.into(), 0)).await.context("the receiver cannot listen")?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        Ok(Self { listener, url })
    }

    /// Answers deliveries without end; fails with the first request that the receiver or the scenario does not accept.
    pub(crate) async fn serve<S>(self, show: S) -> Result<()>
    where
        S: Fn(&[u8]) -> Result<Reply> + Clone + Send + Sync + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    connections.spawn(answer_all(accepted?.0, show.clone()));
                }
                Some(ended) = connections.join_next() => ended.context("a connection's task stopped")??,
            }
        }
    }

    /// Takes connections and requests without end and answers none; counts the requests whose first bytes came.
    pub(crate) async fn swallow(self, requests: Meter) -> Result<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    connections.spawn(hold(accepted?.0, requests.clone()));
                }
                Some(ended) = connections.join_next() => ended.context("a connection's task stopped")?,
            }
        }
    }
}

/// Serves one connection until the server closes it between two requests.
async fn answer_all<S>(mut stream: TcpStream, show: S) -> Result<()>
where
    S: Fn(&[u8]) -> Result<Reply>,
{
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let free = buffer.get_mut(filled..).unwrap_or_default();
        ensure!(!free.is_empty(), "a delivery is larger than any the scenarios ask for");
        let count = stream.read(free).await?;
        if count == 0 {
            ensure!(filled == 0, "the server closed a connection within a delivery");
            return Ok(());
        }
        filled += count;
        let read = buffer.get(..filled).unwrap_or_default();
        let Some((head_bytes, body_bytes)) = parse_head(read)? else {
            continue;
        };
        let total = head_bytes + body_bytes;
        ensure!(filled <= total, "the server sent a request before it had the answer to the one before");
        if filled == total {
            let reply = show(read.get(head_bytes..).unwrap_or_default())?;
            stream.write_all(reply.bytes()).await?;
            filled = 0;
        }
    }
}

/// Ends when the server gives up.
async fn hold(mut stream: TcpStream, requests: Meter) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut is_first = true;
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
        if is_first {
            requests.add(1);
            is_first = false;
        }
    }
}

/// Length of head and body; `None` while the head is not complete.
fn parse_head(read: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(head) = connection::head(read) else {
        return Ok(None);
    };
    ensure!(head.starts_with(b"POST /hook HTTP/1.1\r\n"), "a delivery is not a POST to the URL of the queue");
    let body_bytes = connection::body_bytes(head)?.context("a delivery has no content-length")?;
    Ok(Some((head.len(), body_bytes)))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A receiver that keeps the bodies it saw, and a connection to it.
    async fn listen() -> (TcpStream, Arc<Mutex<Vec<Vec<u8>>>>, JoinSet<Result<()>>) {
        let receiver = Receiver::bind(Ipv4Addr::LOCALHOST).await.unwrap();
        let address = receiver.listener.local_addr().unwrap();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = bodies.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(receiver.serve(move |body: &[u8]| {
            kept.lock().unwrap().push(body.to_vec());
            Ok(Reply::Accepted)
        }));
        #[expect(clippy::disallowed_methods, reason = "a test calls the receiver it has started")]
        let stream = TcpStream::connect(address).await.unwrap();
        (stream, bodies, tasks)
    }

    #[tokio::test]
    async fn a_delivery_in_two_pieces_is_answered_once_and_the_connection_stays() {
        let (mut stream, bodies, _tasks) = listen().await;
        let mut answer = vec![0; Reply::Accepted.bytes().len()];

        for _ in 0..2 {
            stream.write_all(b"POST /hook HTTP/1.1\r\nContent-Length: 4\r\n\r\nab").await.unwrap();
            stream.write_all(b"cd").await.unwrap();
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, Reply::Accepted.bytes());
        }

        assert_eq!(*bodies.lock().unwrap(), [b"abcd", b"abcd"]);
    }

    #[tokio::test]
    async fn a_request_to_another_path_fails_the_receiver() {
        let (mut stream, _bodies, mut tasks) = listen().await;

        stream.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").await.unwrap();

        assert!(tasks.join_next().await.unwrap().unwrap().is_err());
    }
}
