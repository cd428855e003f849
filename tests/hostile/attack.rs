//! Attackers: many connections from some addresses that each send a beginning, then go on slowly or wait, and come
//! again when they are refused or cut. A connection counts as held when it has sent its request and has no answer yet.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_tests::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Opening thousands of connections to a debug build takes a while.
const RAMP_MAX: Duration = Duration::from_secs(120);
/// After a refusal, times the thousands of attackers: the flood is about what is held, not about burning the processors
/// that the victim shares with a debug build and the attackers themselves.
const PAUSE: Duration = Duration::from_secs(2);
/// Connections are opened so many at a time and that far apart: a debug build accepts some hundred a second.
const STEP: usize = 50;
const STEP_PAUSE: Duration = Duration::from_millis(100);

/// The receive buffer of a silent reader's kernel.
const SILENT_BUFFER: u32 = 4096;

/// The bytes that one attacking connection sends.
#[derive(Clone)]
pub(crate) struct Behaviour {
    /// At once.
    pub(crate) first: Arc<[u8]>,
    /// Again and again.
    pub(crate) then: Arc<[u8]>,
    pub(crate) every: Duration,
    /// Leaves the answer where it is, and has little room for it; after `every` it comes again.
    pub(crate) is_silent: bool,
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// One for each connection.
    from: Vec<IpAddr>,
    behaviour: Behaviour,
    held: Arc<Held>,
    attackers: JoinSet<()>,
}

#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Held {
    fn count(&self) -> GiveBack<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        GiveBack(&self.now)
    }
}

impl Attack {
    /// So many connections, spread over these addresses, once it begins.
    pub(crate) fn plan(name: &'static str, from: &[IpAddr], count: usize, behaviour: Behaviour) -> Attack {
        let from = from.iter().copied().cycle().take(count).collect();
        Attack { name, from, behaviour, held: Arc::default(), attackers: JoinSet::new() }
    }

    pub(crate) fn begin(&mut self, server: SocketAddr) {
        let pause = PAUSE * u32::try_from(1 + self.from.len() / 1000).unwrap();
        for (number, address) in self.from.iter().copied().enumerate() {
            let (behaviour, held) = (self.behaviour.clone(), Arc::clone(&self.held));
            let delay = STEP_PAUSE * u32::try_from(number / STEP).unwrap();
            self.attackers.spawn(async move {
                sleep(delay).await;
                loop {
                    let _ = strike(server, address, &behaviour, &held).await;
                    sleep(pause).await;
                }
            });
        }
    }

    pub(crate) async fn wait_until_held(&self, count: usize) {
        let what = format!("{} connections to be held", count);
        wait::until_now(&what, RAMP_MAX, || (self.held.now.load(Ordering::SeqCst) >= count).then_some(())).await;
    }

    pub(crate) fn most_held(&self) -> usize {
        self.held.most.load(Ordering::SeqCst)
    }

    pub(crate) async fn stop(mut self) {
        self.attackers.shutdown().await;
    }
}

/// One connection, until it is answered or cut.
async fn strike(server: SocketAddr, from: IpAddr, behaviour: &Behaviour, held: &Held) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    if behaviour.is_silent {
        socket.set_recv_buffer_size(SILENT_BUFFER)?;
    }
    let mut stream = socket.connect(server).await?;
    stream.write_all(&behaviour.first).await?;
    if behaviour.is_silent {
        let _given_back = held.count();
        sleep(behaviour.every).await;
        return Ok(());
    }
    // A refusal comes soon.
    if has_news(&mut stream, Duration::from_millis(500)).await {
        return Ok(());
    }
    let _given_back = held.count();
    while !has_news(&mut stream, behaviour.every).await {
        stream.write_all(&behaviour.then).await?;
    }
    Ok(())
}

struct GiveBack<'a>(&'a AtomicUsize);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the server answers or closes within this time.
async fn has_news(stream: &mut TcpStream, time: Duration) -> bool {
    let mut byte = [0; 1];
    timeout(time, stream.read(&mut byte)).await.is_ok()
}
