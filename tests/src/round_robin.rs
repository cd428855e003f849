//! A dumb TCP load balancer: each connection goes to the next node, a node that does not take it is skipped. It knows
//! nothing of HTTP and passes bytes and the ends of both directions on as they come.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// How long what a client still sends is read and thrown away after its node has closed: a closed socket with unread
/// bytes resets the connection, and the node's last words would be lost on their way.
const LINGER: Duration = Duration::from_secs(2);

pub struct RoundRobin {
    pub base: String,
    rota: Arc<Mutex<Rota>>,
    accepting: JoinHandle<()>,
}

struct Rota {
    /// `None` for a node that gets no new connections.
    nodes: Vec<Option<SocketAddr>>,
    next: usize,
}

impl RoundRobin {
    /// Listens on a free port in front of these (`http://host:port`).
    pub async fn before(bases: &[String]) -> RoundRobin {
        let nodes = bases.iter().map(|base| Some(address(base))).collect();
        let rota = Arc::new(Mutex::new(Rota { nodes, next: 0 }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&rota)));
        RoundRobin { base, rota, accepting }
    }

    /// The node gets new connections, at this address.
    pub fn take_in(&self, node: usize, base: &str) {
        self.rota.lock().expect("no thread panics with the lock").nodes[node] = Some(address(base));
    }

    /// The node gets no new connections; those it has stay.
    pub fn leave_out(&self, node: usize) {
        self.rota.lock().expect("no thread panics with the lock").nodes[node] = None;
    }
}

impl Drop for RoundRobin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Rota {
    /// All nodes in rotation, beginning with the one whose turn it is.
    fn turn(&mut self) -> Vec<SocketAddr> {
        let first = self.next;
        self.next = (self.next + 1) % self.nodes.len();
        (0..self.nodes.len()).filter_map(|step| self.nodes[(first + step) % self.nodes.len()]).collect()
    }
}

fn address(base: &str) -> SocketAddr {
    let address = base.strip_prefix("http://").and_then(|address| address.parse().ok());
    address.unwrap_or_else(|| panic!("{base:?} is not http://address:port"))
}

/// The connections are in a set that goes with this task.
async fn accept(listener: TcpListener, rota: Arc<Mutex<Rota>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let turn = rota.lock().expect("no thread panics with the lock").turn();
        connections.spawn(async move {
            if let Some(node) = connect(&turn).await {
                let _ = client.set_nodelay(true);
                let _ = node.set_nodelay(true);
                pass(client, node).await;
            }
        });
    }
}

async fn connect(turn: &[SocketAddr]) -> Option<TcpStream> {
    for node in turn {
        if let Ok(stream) = TcpStream::connect(node).await {
            return Some(stream);
        }
    }
    None
}

async fn pass(client: TcpStream, node: TcpStream) {
    let (from_client, to_client) = client.into_split();
    let (from_node, to_node) = node.into_split();
    let mut requests = std::pin::pin!(copy(from_client, to_node));
    let mut answers = std::pin::pin!(copy(from_node, to_client));
    tokio::select! {
        sent = &mut requests => if sent.is_ok() {
            let _ = answers.await;
        },
        _ = &mut answers => {
            let _ = tokio::time::timeout(LINGER, requests).await;
        }
    }
}

/// Until the end of `from`, which is passed on. Bytes that `to` no longer accepts are read all the same.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut is_taken = true;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            let _ = to.shutdown().await;
            return Ok(());
        }
        is_taken = is_taken && to.write_all(&buffer[..read]).await.is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says its name to everyone who connects.
    async fn node(name: &'static str) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let _ = socket.write_all(name.as_bytes()).await;
            }
        });
        (base, serving)
    }

    async fn ask(front: &RoundRobin) -> String {
        let mut socket = TcpStream::connect(address(&front.base)).await.unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).await.unwrap();
        said
    }

    #[tokio::test]
    async fn connections_take_turns_and_who_is_down_or_left_out_is_skipped() {
        let (mut bases, mut tasks) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c"] {
            let (base, task) = node(name).await;
            bases.push(base);
            tasks.push(task);
        }
        let front = RoundRobin::before(&bases).await;
        let mut heard = String::new();
        for _ in 0..6 {
            heard += &ask(&front).await;
        }
        assert_eq!(heard, "abcabc");

        tasks[1].abort();
        let _ = (&mut tasks[1]).await;
        front.leave_out(0);
        for _ in 0..3 {
            assert_eq!(ask(&front).await, "c");
        }

        front.take_in(0, &bases[0]);
        let heard = [ask(&front).await, ask(&front).await, ask(&front).await];
        assert!(heard.contains(&"a".to_owned()), "{heard:?}");
    }
}
