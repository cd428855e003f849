//! An endpoint for deliveries: answers by a script per path, keeps every request as it came over the wire with the time
//! of its arrival, and counts how many are under way at once. When it goes, every request must have been signed with a
//! secret that was announced to it; any other request fails the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_engine::sign::{self, Secret};
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::responder::{Request, Responder, read_request};
use crate::wait;

const PLAIN_SIGNATURE: &str = "x-outlast-signature";

pub struct Receiver {
    responder: Responder,
    board: Arc<Mutex<Board>>,
}

/// A request that has arrived.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub path: String,
    /// Request line and headers, as they came.
    pub head: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub arrived_at: Instant,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    bytes: Vec<u8>,
    /// The connection is closed behind it; by force if true.
    closes: Option<bool>,
    delay: Duration,
    gate: Option<Gate>,
}

/// Keeps answers back until it is opened.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

#[derive(Default)]
struct Board {
    deliveries: Vec<Delivery>,
    scripts: BTreeMap<String, Script>,
    secrets: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Script {
    /// The last one repeats.
    answers: Vec<Answer>,
    under_way: usize,
    most_under_way: usize,
}

impl Receiver {
    /// Answers 200 to everything it has no script for.
    pub async fn start() -> Receiver {
        Receiver::at("127.0.0.1:0").await
    }

    /// The same at a given address, for an endpoint that comes back.
    pub async fn at(address: &str) -> Receiver {
        let board = Arc::new(Mutex::new(Board::default()));
        let shared = Arc::clone(&board);
        let responder = Responder::handling(address, move |stream, _| serve(stream, Arc::clone(&shared))).await;
        Receiver { responder, board }
    }

    pub fn address(&self) -> String {
        self.responder.address.to_string()
    }

    pub fn url(&self, path: &str) -> String {
        self.responder.url(path).to_string()
    }

    /// From now on requests for the path get these answers, one after the other; the last one repeats.
    pub fn answer(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let mut answers: Vec<Answer> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "something must be said");
        answers.reverse();
        self.lock().scripts.entry(path.to_owned()).or_default().answers = answers;
    }

    /// Requests for the path may be signed with this secret.
    pub fn trust(&self, path: &str, secret: &str) {
        self.lock().secrets.entry(path.to_owned()).or_default().push(secret.to_owned());
    }

    /// The requests for a path so far, in order.
    pub fn deliveries(&self, path: &str) -> Vec<Delivery> {
        self.lock().deliveries.iter().filter(|delivery| delivery.path == path).cloned().collect()
    }

    pub fn count(&self, path: &str) -> usize {
        self.lock().deliveries.iter().filter(|delivery| delivery.path == path).count()
    }

    /// How many requests for the path were waiting for their answers at once, at most.
    pub fn most_under_way(&self, path: &str) -> usize {
        self.lock().scripts.get(path).map_or(0, |script| script.most_under_way)
    }

    /// Connections that were opened to it, whether or not a request came over them.
    pub fn connections(&self) -> usize {
        self.responder.seen.connections()
    }

    /// Waits until so many have arrived for a path.
    pub async fn arrivals(&self, path: &str, count: usize, deadline: Duration) -> Vec<Delivery> {
        let what = format!("{count} deliveries to {path}");
        wait::until_now(&what, deadline, || {
            let deliveries = self.deliveries(path);
            (deliveries.len() >= count).then_some(deliveries)
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let board = self.lock();
        for delivery in &board.deliveries {
            let secrets = board.secrets.get(&delivery.path).map_or(&[][..], Vec::as_slice);
            let is_signed = secrets.iter().any(|secret| delivery.is_signed_with(secret));
            assert!(is_signed, "this was not signed with a secret of its queue:\n{}", delivery.head);
        }
    }
}

impl Delivery {
    fn new(request: Request) -> Delivery {
        let mut lines = request.head.split("\r\n");
        let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let name = HeaderName::try_from(name).unwrap_or_else(|_| panic!("{name:?} is no header name"));
            let value = HeaderValue::try_from(value.trim()).unwrap_or_else(|_| panic!("{value:?} is no header value"));
            headers.append(name, value);
        }
        Delivery { path, head: request.head, headers, body: request.body, arrived_at: Instant::now() }
    }

    /// The one value of a header.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let values: Vec<&HeaderValue> = self.headers.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name} comes once in\n{}", self.head);
        values[0].to_str().expect("headers are text")
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a delivery is JSON")
    }

    #[track_caller]
    pub fn lease(&self) -> String {
        self.header("x-outlast-lease").to_owned()
    }

    /// In both forms. The plain header may have another name, and with two live secrets it is made with the newer one.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let is_open = !self.headers.contains_key(PLAIN_SIGNATURE) || self.signatures() > 1;
        self.has_standard_signature(secret) && (is_open || self.has_plain_signature(PLAIN_SIGNATURE, secret))
    }

    /// As the independent implementation sees it. A secret without mark is a key by its own bytes.
    pub fn has_standard_signature(&self, secret: &str) -> bool {
        let webhook = match secret.starts_with("whsec_") {
            true => Webhook::new(secret),
            false => Webhook::from_bytes(secret.as_bytes().to_vec()),
        };
        webhook.expect("a usable secret").verify(&self.body, &self.headers).is_ok()
    }

    pub fn has_plain_signature(&self, name: &str, secret: &str) -> bool {
        let secret = Secret::from_text(secret).expect("a usable secret");
        sign::verify_plain(&[secret], self.header(name).as_bytes(), &self.body).is_ok()
    }

    /// One per live secret.
    pub fn signatures(&self) -> usize {
        self.header("webhook-signature").split(' ').count()
    }
}

impl Answer {
    pub fn status(status: u16) -> Answer {
        Answer::with(status, &[], b"")
    }

    pub fn with(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut head = format!("HTTP/1.1 {status} Scripted\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if status != 204 {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let bytes = [head.as_bytes(), body].concat();
        Answer { bytes, closes: None, delay: Duration::ZERO, gate: None }
    }

    pub fn json(status: u16, body: &Value) -> Answer {
        Answer::with(status, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// These bytes and then the end of the connection.
    pub fn cut(bytes: &[u8]) -> Answer {
        Answer { bytes: bytes.to_vec(), closes: Some(false), delay: Duration::ZERO, gate: None }
    }

    /// No byte, and the connection is reset.
    pub fn reset() -> Answer {
        Answer { closes: Some(true), ..Answer::cut(b"") }
    }

    pub fn after(self, delay: Duration) -> Answer {
        Answer { delay, ..self }
    }

    pub fn once_open(self, gate: &Gate) -> Answer {
        Answer { gate: Some(gate.clone()), ..self }
    }

    pub fn times(self, count: usize) -> impl Iterator<Item = Answer> {
        std::iter::repeat_n(self, count)
    }
}

impl Gate {
    pub fn shut() -> Gate {
        Gate(Arc::new(watch::channel(false).0))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        // The sender is held by the gate itself.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

async fn serve(mut stream: TcpStream, board: Arc<Mutex<Board>>) {
    while let Some(request) = read_request(&mut stream).await {
        let delivery = Delivery::new(request);
        let (answer, under_way) = begin(&board, delivery);
        tokio::time::sleep(answer.delay).await;
        if let Some(gate) = &answer.gate {
            gate.passed().await;
        }
        drop(under_way);
        let sent = stream.write_all(&answer.bytes).await;
        match answer.closes {
            None if sent.is_ok() => {}
            Some(true) => return stream.set_zero_linger().expect("a connection can be reset"),
            _ => return,
        }
    }
}

/// Counted as under way until it is dropped, also when the other side gives up.
struct UnderWay(Arc<Mutex<Board>>, String);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.scripts.entry(self.1.clone()).or_default().under_way -= 1;
    }
}

fn begin(board: &Arc<Mutex<Board>>, delivery: Delivery) -> (Answer, UnderWay) {
    let path = delivery.path.clone();
    let mut open = board.lock().unwrap_or_else(PoisonError::into_inner);
    open.deliveries.push(delivery);
    let script = open.scripts.entry(path.clone()).or_default();
    script.under_way += 1;
    script.most_under_way = script.most_under_way.max(script.under_way);
    let answer = match script.answers.len() {
        0 => Answer::status(200),
        1 => script.answers[0].clone(),
        _ => script.answers.pop().expect("there are several"),
    };
    drop(open);
    (answer, UnderWay(Arc::clone(board), path))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const SECRETS: [&str; 2] = ["sixteen-characters-and-more", "another-one-of-that-kind"];

    /// One request, signed with the first secret, to a receiver that trusts another.
    async fn send_to_one_that_trusts(secret: &str) {
        let receiver = Receiver::start().await;
        receiver.trust("/", secret);
        let now = jiff::Timestamp::now().as_second();
        let signing = Secret::from_text(SECRETS[0]).unwrap();
        let (standard, plain) =
            (sign::standard(std::slice::from_ref(&signing), "id", now, b"{}"), sign::plain(&signing, b"{}"));
        let request = format!(
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nwebhook-id: id\r\nwebhook-timestamp: {now}\r\n\
             webhook-signature: {standard}\r\n{PLAIN_SIGNATURE}: {plain}\r\n\r\n{{}}"
        );
        let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!((&answer, receiver.count("/")), (b"HTTP/1.1 200", 1));
    }

    #[tokio::test]
    async fn a_signed_request_is_fine() {
        send_to_one_that_trusts(SECRETS[0]).await;
    }

    #[tokio::test]
    #[should_panic(expected = "was not signed with a secret of its queue")]
    async fn a_request_with_another_signature_fails_the_test() {
        send_to_one_that_trusts(SECRETS[1]).await;
    }
}
