//! A proxy between a node and its database (or its Redis) that misbehaves on demand: it cuts, refuses, delays,
//! swallows, resets after k bytes, and loses the answer to a COMMIT that has been carried out. It counts what it did,
//! so that a test can show that its fault has struck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use answers::Commits;

mod answers;

/// The text in the messages of the protocol, of a query or of a statement to be prepared.
const COMMIT: &[u8] = b"COMMIT\0";

pub struct FaultProxy {
    pub address: String,
    plan: watch::Sender<Plan>,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

/// The fault of connections; a change affects open ones as well.
#[derive(Clone, Copy)]
struct Plan {
    /// Connections made under another number are reset.
    generation: u64,
    refuses: bool,
    holds: bool,
    /// Only what carries a COMMIT to the server is held.
    holds_commits: bool,
    delay: Duration,
    /// Bytes that a connection may send to the server from the moment this is set.
    request_bytes_max: Option<u64>,
    /// Of so many answers to a COMMIT one is lost together with its connection; 0 loses none.
    lost_commit_in: u64,
    /// As long as not so many have been lost in all.
    lost_commits_max: u64,
}

#[derive(Default)]
struct Counts {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    held: AtomicU64,
    commits_held: AtomicU64,
    commits: AtomicU64,
    commits_lost: AtomicU64,
}

impl FaultProxy {
    /// Listens on a free port in front of `host:port`.
    pub async fn before(server: &str) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address").to_string();
        let (plan, watching) = watch::channel(Plan {
            generation: 0,
            refuses: false,
            holds: false,
            holds_commits: false,
            delay: Duration::ZERO,
            request_bytes_max: None,
            lost_commit_in: 0,
            lost_commits_max: 0,
        });
        let counts = Arc::<Counts>::default();
        let accepting = tokio::spawn(accept(listener, server.to_owned(), watching, Arc::clone(&counts)));
        FaultProxy { address, plan, counts, accepting }
    }

    /// Resets every open connection, once. Tells how many there were.
    pub fn cut(&self) -> u64 {
        let open = self.counts.open.load(Ordering::SeqCst);
        self.plan.send_modify(|plan| plan.generation += 1);
        open
    }

    /// Resets every open connection and every new one, until it is healed.
    pub fn cut_off(&self) {
        self.plan.send_modify(|plan| {
            plan.generation += 1;
            plan.refuses = true;
        });
    }

    /// Passes nothing on, in either direction, and closes nothing, until it is healed.
    pub fn hold(&self) {
        self.plan.send_modify(|plan| plan.holds = true);
    }

    /// Holds every COMMIT on its way to the server, together with what is sent with it, until it is healed or cut.
    pub fn hold_commits(&self) {
        self.plan.send_modify(|plan| plan.holds_commits = true);
    }

    /// Every piece waits this long, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.plan.send_modify(|plan| plan.delay = delay);
    }

    /// Each connection is reset when it has sent `bytes` more to the server.
    pub fn reset_after(&self, bytes: u64) {
        self.plan.send_modify(|plan| plan.request_bytes_max = Some(bytes));
    }

    /// Of `count` COMMITs that the server has carried out, one loses its answer and its connection.
    pub fn lose_one_commit_in(&self, count: u64) {
        self.plan.send_modify(|plan| (plan.lost_commit_in, plan.lost_commits_max) = (count, u64::MAX));
    }

    /// The next COMMIT that the server carries out loses its answer and its connection.
    pub fn lose_next_commit(&self) {
        let lost = self.commits_lost();
        self.plan.send_modify(|plan| (plan.lost_commit_in, plan.lost_commits_max) = (1, lost + 1));
    }

    /// Everything passes again; connections that are still open go on.
    pub fn heal(&self) {
        self.plan.send_modify(|plan| {
            *plan = Plan {
                generation: plan.generation,
                refuses: false,
                holds: false,
                holds_commits: false,
                delay: Duration::ZERO,
                request_bytes_max: None,
                lost_commit_in: 0,
                lost_commits_max: 0,
            };
        });
    }

    pub fn open(&self) -> u64 {
        self.counts.open.load(Ordering::SeqCst)
    }

    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::SeqCst)
    }

    /// Connections that were reset while they were open.
    pub fn connections_cut(&self) -> u64 {
        self.counts.cut.load(Ordering::SeqCst)
    }

    /// Pieces that were held back.
    pub fn pieces_held(&self) -> u64 {
        self.counts.held.load(Ordering::SeqCst)
    }

    /// COMMITs that were held back on their way to the server.
    pub fn commits_held(&self) -> u64 {
        self.counts.commits_held.load(Ordering::SeqCst)
    }

    pub fn commits(&self) -> u64 {
        self.counts.commits.load(Ordering::SeqCst)
    }

    /// Answers to COMMITs that were lost on the way back.
    pub fn commits_lost(&self) -> u64 {
        self.counts.commits_lost.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections are in a set that goes with this task.
async fn accept(listener: TcpListener, server: String, plan: watch::Receiver<Plan>, counts: Arc<Counts>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let _ = client.set_zero_linger();
        if plan.borrow().refuses {
            counts.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        let (server, plan, counts) = (server.clone(), plan.clone(), Arc::clone(&counts));
        connections.spawn(async move {
            counts.open.fetch_add(1, Ordering::SeqCst);
            connect_and_pass(client, &server, plan, &counts).await;
            counts.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Ends with either side, by dropping both. Both are reset then, not closed in order.
async fn connect_and_pass(client: TcpStream, server: &str, mut plan: watch::Receiver<Plan>, counts: &Counts) {
    let generation = plan.borrow().generation;
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pass_requests(from_client, to_server, plan.clone(), counts);
    let answers = pass_answers(from_server, to_client, plan.clone(), counts);
    tokio::select! {
        () = requests => {}
        () = answers => {}
        _ = plan.wait_for(|plan| plan.generation != generation) => {
            counts.cut.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn pass_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut plan: watch::Receiver<Plan>,
    counts: &Counts,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut sent = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        wait_as_planned(&mut plan, counts).await;
        if plan.borrow().holds_commits && buffer[..read].windows(COMMIT.len()).any(|window| window == COMMIT) {
            counts.commits_held.fetch_add(1, Ordering::SeqCst);
            let _ = plan.wait_for(|plan| !plan.holds_commits).await;
        }
        let left = match plan.borrow().request_bytes_max {
            None => {
                sent = 0;
                u64::MAX
            }
            Some(bytes) => bytes.saturating_sub(sent),
        };
        let passed = read.min(usize::try_from(left).unwrap_or(usize::MAX));
        if to.write_all(&buffer[..passed]).await.is_err() {
            return;
        }
        sent += passed as u64;
        if passed < read {
            counts.cut.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
}

async fn pass_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut plan: watch::Receiver<Plan>,
    counts: &Counts,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut commits = Commits::default();
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        wait_as_planned(&mut plan, counts).await;
        for _ in 0..commits.count(&buffer[..read]) {
            let number = counts.commits.fetch_add(1, Ordering::SeqCst) + 1;
            let Plan { lost_commit_in: one_in, lost_commits_max, .. } = *plan.borrow();
            let is_next = one_in > 0 && number.is_multiple_of(one_in);
            if is_next && counts.commits_lost.load(Ordering::SeqCst) < lost_commits_max {
                // Nothing of this piece is passed on: the server has committed and the node will not hear of it.
                counts.commits_lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn wait_as_planned(plan: &mut watch::Receiver<Plan>, counts: &Counts) {
    let Plan { holds, delay, .. } = *plan.borrow_and_update();
    if holds {
        counts.held.fetch_add(1, Ordering::SeqCst);
        let _ = plan.wait_for(|plan| !plan.holds).await;
    }
    // The fault itself, not a wait for anything.
    tokio::time::sleep(delay).await;
}

#[cfg(test)]
mod tests;
