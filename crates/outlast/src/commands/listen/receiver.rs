//! The HTTP side of `outlast listen`: takes connections, reads each delivery whole within a time and a size, shows it,
//! answers by the plan, and reports the outcome where that was asked for. Counts deliveries until it is stopped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use outlast_core::{Clock, Timestamp};
use outlast_engine::ports::SystemClock;
use outlast_engine::sign::Secret;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{Answer, Plan, is_success};
use super::delivery::{Checker, Delivery, PLAIN_HEADER, Verdict};
use super::outcome::Report;
use super::show::Printer;
use crate::commands::Session;
use crate::output;

/// Above the largest delivery: a payload of 1 MiB and what is around it.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Above the default concurrency of a queue; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// Deadline for the head and for the body of a request; slower clients are cut off.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long answers and outcomes may take after the signal to end.
const DRAIN: Duration = Duration::from_secs(5);
/// The pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Receiver {
    plan: Plan,
    checker: Checker,
    printer: Printer,
    later: Option<Later>,
    tally: Mutex<Tally>,
}

/// Outcomes that are reported after the answer.
struct Later {
    report: Arc<Report>,
    session: Arc<Session>,
    /// Those under way; ended ones are taken out when the next begins.
    running: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Tally {
    deliveries: usize,
    wrong_signatures: usize,
    by_status: BTreeMap<u16, usize>,
}

impl Receiver {
    pub(crate) fn new(plan: Plan, secrets: Vec<Secret>, header: Option<String>, printer: Printer) -> Receiver {
        let plain_header = header.unwrap_or_else(|| PLAIN_HEADER.to_owned());
        Receiver { plan, checker: Checker { secrets, plain_header }, printer, later: None, tally: Mutex::default() }
    }

    /// The same, reporting the outcome of each delivery.
    pub(crate) fn reporting(self, report: Report, session: Arc<Session>) -> Receiver {
        Receiver { later: Some(Later { report: Arc::new(report), session, running: Mutex::default() }), ..self }
    }

    /// The counts, in one line.
    pub(crate) fn summary(&self) -> String {
        let tally = locked(&self.tally);
        let mut text = match tally.deliveries {
            1 => "1 delivery".to_owned(),
            count => format!("{count} deliveries"),
        };
        let answers = tally.by_status.iter().map(|(status, count)| format!("{count} answered {status}"));
        let answers: Vec<String> = answers.collect();
        if !answers.is_empty() {
            text.push_str(&format!(": {}", answers.join(", ")));
        }
        match (self.checker.secrets.is_empty(), tally.wrong_signatures) {
            (true, _) => text.push_str("; signatures not checked"),
            (false, 0) => text.push_str("; no wrong signature"),
            (false, count) => text.push_str(&format!("; {count} with a wrong signature")),
        }
        text
    }

    /// The number of this delivery, from 0, and the answer to it.
    fn count(&self, delivery: &Delivery) -> Answer {
        let mut tally = locked(&self.tally);
        let answer = self.plan.answer(tally.deliveries);
        tally.deliveries += 1;
        tally.wrong_signatures += usize::from(matches!(delivery.verdict, Verdict::Wrong(_)));
        *tally.by_status.entry(answer.status).or_default() += 1;
        answer
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "deliveries are sent with POST\n"));
        }
        let body = match timeout(READ_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
            Ok(Ok(whole)) => whole.to_bytes(),
            Ok(Err(error)) => {
                output::note(&format!("a request was not read: {error}"));
                return Ok(refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is broken or too large\n"));
            }
            Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n")),
        };
        let delivery = Delivery::read(&parts, body, &self.checker, now());
        let answer = self.count(&delivery);
        self.printer.delivery(&delivery, &answer);
        tokio::time::sleep(answer.delay).await;
        if is_success(answer.status) && !delivery.is_callback() {
            self.report_later(delivery);
        }
        Ok(response(&answer))
    }

    fn report_later(&self, delivery: Delivery) {
        let Some(later) = &self.later else { return };
        let (report, session) = (Arc::clone(&later.report), Arc::clone(&later.session));
        let printer = self.printer;
        let mut running = locked(&later.running);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            if let Some(reported) = report.send(&session, &delivery).await {
                printer.reported(&reported, now());
            }
        });
    }

    /// Waits for the outcomes under way.
    async fn finish(&self) {
        let Some(later) = &self.later else { return };
        let mut running = std::mem::take(&mut *locked(&later.running));
        while running.join_next().await.is_some() {}
    }
}

/// Takes deliveries until `stop` is done, then waits for what is under way, at most [`DRAIN`].
pub(crate) async fn serve(listener: TcpListener, receiver: Arc<Receiver>, stop: impl Future<Output = ()>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let seat = Arc::clone(&seats).acquire_owned().await;
            (seat, listener.accept().await)
        };
        let (seat, accepted) = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            both = accept => both,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let task = connection(stream, Arc::clone(&receiver), stopping.subscribe());
        connections.spawn(async move {
            task.await;
            drop(seat);
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let all = async {
        while connections.join_next().await.is_some() {}
        receiver.finish().await;
    };
    if timeout(DRAIN, all).await.is_err() {
        output::note("some deliveries were cut off");
    }
}

async fn connection(stream: TcpStream, receiver: Arc<Receiver>, mut stopping: watch::Receiver<bool>) {
    // Answers are small: waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| Arc::clone(&receiver).answer(request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut is_asked = false;
    loop {
        tokio::select! {
            // A broken connection cannot be answered.
            _ = &mut connection => return,
            _ = stopping.wait_for(|stopping| *stopping), if !is_asked => {
                is_asked = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

fn response(answer: &Answer) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(answer.status);
    if let Some(retry_after) = &answer.retry_after {
        response = response.header("retry-after", retry_after);
    }
    if answer.forbids_retry {
        response = response.header("x-outlast-retry", "false");
    }
    let body = answer.body.clone().unwrap_or_default();
    if !body.is_empty() {
        response = response.header("content-type", "application/json");
    }
    response
        .body(Full::new(Bytes::from(body)))
        .unwrap_or_else(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written\n"))
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// The time of the wall: a clock started at the beginning would stand still while the machine sleeps.
fn now() -> Timestamp {
    SystemClock::start().now()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
