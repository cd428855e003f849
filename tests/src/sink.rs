//! A webhook that counts: it keeps every request with its time and its answer, and answers as a script
//! says: a status, late, never, or with a reset. It belongs to the test, so it outlives every server that calls it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::responder::{Request, read_request};

/// One request as the sink saw it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Counted over all requests, from 0.
    pub number: usize,
    pub path: String,
    /// The job's id: that of the delivery, or of the job that a callback is about.
    pub job: String,
    pub webhook_id: String,
    /// Empty for callbacks, which have none.
    pub lease: String,
    pub attempt: u64,
    pub body: Value,
    pub at: Instant,
    /// The status that was sent back, once it was sent.
    pub answered: Option<u16>,
    pub ended: Option<Instant>,
}

/// The reaction of the sink to a request.
#[derive(Debug, Clone)]
pub enum Say {
    Status(u16),
    /// With `Retry-After`.
    Later(u16, u64),
    /// The same after a while.
    Slowly(Duration, u16),
    /// The connection is reset.
    Reset,
    /// Nothing, until the caller gives up.
    Nothing,
}

type Script = dyn Fn(&Arrival) -> Say + Send + Sync;

pub struct Sink {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    arrivals: Mutex<Vec<Arrival>>,
    under_way: Mutex<Traffic>,
}

/// How many requests were open at once.
#[derive(Default)]
struct Traffic {
    open: usize,
    most: usize,
}

impl Sink {
    /// Listens on a free port.
    pub async fn open(script: impl Fn(&Arrival) -> Say + Send + Sync + 'static) -> Sink {
        Sink::open_on("127.0.0.1", script).await
    }

    /// The same on another address of this machine, which counts as another host in limits per host.
    pub async fn open_on(host: &str, script: impl Fn(&Arrival) -> Say + Send + Sync + 'static) -> Sink {
        let listener = TcpListener::bind((host, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::<Seen>::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&seen), Arc::new(script)));
        Sink { address, seen, accepting }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.seen.arrivals().clone()
    }

    /// Those to this path.
    pub fn arrivals_at(&self, path: &str) -> Vec<Arrival> {
        self.seen.arrivals().iter().filter(|arrival| arrival.path == path).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.seen.arrivals().len()
    }

    /// How many requests are open at this moment.
    pub fn open_now(&self) -> usize {
        self.seen.traffic().open
    }

    /// How many requests were open at the same moment, at most.
    pub fn most_at_once(&self) -> usize {
        self.seen.traffic().most
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The connections are tasks of the accept loop's set and go with it.
        self.accepting.abort();
    }
}

impl Seen {
    fn arrivals(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().expect("no thread panics with the lock")
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.under_way.lock().expect("no thread panics with the lock")
    }

    fn arrive(&self, request: &Request) -> Arrival {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let header = |name| request.header(name).unwrap_or_default().to_owned();
        let mut arrivals = self.arrivals();
        let arrival = Arrival {
            number: arrivals.len(),
            path: request.head.split_whitespace().nth(1).unwrap_or_default().to_owned(),
            job: body["id"].as_str().unwrap_or_default().to_owned(),
            webhook_id: header("webhook-id"),
            lease: header("x-outlast-lease"),
            attempt: body["attempt"].as_u64().unwrap_or(0),
            body,
            at: Instant::now(),
            answered: None,
            ended: None,
        };
        arrivals.push(arrival.clone());
        let mut traffic = self.traffic();
        traffic.open += 1;
        traffic.most = traffic.most.max(traffic.open);
        arrival
    }
}

/// Open as long as it lives, also when its connection is dropped in the middle.
struct Open {
    seen: Arc<Seen>,
    number: usize,
    answered: Option<u16>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut arrivals = self.seen.arrivals();
        let arrival = &mut arrivals[self.number];
        (arrival.answered, arrival.ended) = (self.answered, Some(Instant::now()));
        self.seen.traffic().open -= 1;
    }
}

async fn accept(listener: TcpListener, seen: Arc<Seen>, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        connections.spawn(serve(stream, Arc::clone(&seen), Arc::clone(&script)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Seen>, script: Arc<Script>) {
    while let Some(request) = read_request(&mut stream).await {
        let arrival = seen.arrive(&request);
        let mut open = Open { seen: Arc::clone(&seen), number: arrival.number, answered: None };
        let (status, header) = match script(&arrival) {
            Say::Status(status) => (status, String::new()),
            Say::Later(status, seconds) => (status, format!("retry-after: {seconds}\r\n")),
            Say::Slowly(while_, status) => {
                // A slow endpoint notices nothing of a caller that is gone, but this one has to end with it.
                if until_closed(&mut stream, while_).await {
                    return;
                }
                (status, String::new())
            }
            Say::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
            Say::Nothing => {
                until_closed(&mut stream, Duration::MAX).await;
                return;
            }
        };
        let answer = format!("HTTP/1.1 {status} said\r\n{header}content-length: 0\r\n\r\n");
        // Before it is sent: once the caller has read it, it counts as said.
        open.answered = Some(status);
        drop(open);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Waits so long, or until the caller hangs up; says whether he did.
async fn until_closed(stream: &mut (impl AsyncRead + Unpin), at_most: Duration) -> bool {
    let mut byte = [0; 1];
    let hung_up = tokio::io::AsyncReadExt::read(stream, &mut byte);
    tokio::time::timeout(at_most, hung_up).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Client;
    use serde_json::json;

    #[tokio::test]
    async fn it_keeps_requests_and_answers_by_its_script() {
        let sink = Sink::open(|arrival| match arrival.attempt {
            1 => Say::Later(429, 7),
            2 => Say::Reset,
            _ => Say::Slowly(Duration::from_millis(20), 204),
        })
        .await;
        let client = Client::new(&sink.url(""), "none");
        let delivery = |attempt| json!({"id": "j", "attempt": attempt});

        let first = client.post("/work", delivery(1)).await.unwrap();
        let second = client.post("/work", delivery(2)).await;
        let third = client.post("/other", delivery(3)).await.unwrap();

        assert_eq!((first.status, first.headers["retry-after"].to_str().unwrap()), (429, "7"));
        assert!(second.is_err());
        assert_eq!(third.status, 204);
        let answers: Vec<_> = sink.arrivals().iter().map(|arrival| arrival.answered).collect();
        assert_eq!(answers, [Some(429), None, Some(204)]);
        assert_eq!((sink.arrivals_at("/work").len(), sink.most_at_once()), (2, 1));
    }
}
