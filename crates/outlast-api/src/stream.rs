//! `GET /v1/jobs/{id}/stream` and `GET /v1/queues/{queue}/stream`: a job's log, or what changes in a queue, as server-sent
//! events. The engine decides about content and end; this file adds format, keepalives and bounds: a place per
//! stream, a life of one hour, and no longer than its key or token.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use outlast_core::Event;
use outlast_engine::feeds::queue_feed::{QueueEvent, QueueFollower};
use outlast_engine::feeds::stream::{Follower, Frame, Opened};
use outlast_engine::inbound::Inbound;
use outlast_engine::keys::scope::Principal;
use outlast_engine::keys::token::JobSight;
use outlast_engine::random::Random;
use outlast_engine::status::Status;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::answers::Answers;
use crate::budget::{Charge, Holder};
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::{queues, wire};

/// After so much silence a comment is sent: proxies close what is silent for long, and a dead reader is found out.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long a stream lasts; the reader comes back and goes on. Spread, so that readers who came together leave apart.
const LIFE: (Duration, Duration) = (Duration::from_secs(57 * 60), Duration::from_secs(60 * 60));
/// How long a reader is asked to wait before coming back: many who lost the same server do not come back together.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

const LAST_EVENT_ID: &str = "Last-Event-ID";
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) async fn job(mut request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let (after, given_as) = position(&mut request)?;
    no_stream_while_draining(&request.rooms.status)?;
    let caller = request.caller()?.clone();
    let place = request.open_stream()?;
    let opened =
        request.rooms.feeds.follow(request.reach.clone(), id, after).await?.ok_or_else(Problem::job_not_found)?;
    let follower = match opened {
        Opened::Following(follower) => follower,
        Opened::Finished(_) => return Ok(empty()),
        Opened::Beyond { last } => return Err(Problem::beyond(given_as, last)),
    };
    Ok(answer(Frames::new(&request, FrameSource::Job(follower, request.sight()), caller, place)))
}

pub(crate) async fn queue(request: RequestContext) -> Result<Response, Problem> {
    let name = request.tended_queue()?;
    no_stream_while_draining(&request.rooms.status)?;
    let caller = request.caller()?.clone();
    let place = request.open_stream()?;
    let follower = request.rooms.feeds.follow_queue(caller.namespace, name).await?;
    let follower = follower.ok_or_else(|| Problem::queue_not_found(name))?;
    Ok(answer(Frames::new(&request, FrameSource::Queue(follower, Arc::clone(&request.rooms.inbound)), caller, place)))
}

pub(crate) fn no_stream_while_draining(status: &Status) -> Result<(), Problem> {
    match status.is_draining() {
        true => Err(Problem::new(Code::Draining, "the server is shutting down; open the stream again")),
        false => Ok(()),
    }
}

/// When a stream that begins now ends: no later than the token it was opened with.
pub(crate) fn life(request: &RequestContext) -> Instant {
    Instant::now() + request.life(request.rooms.random.between(LIFE.0, LIFE.1))
}

/// After which event to begin, and where that was said. The header wins: a browser sends it when it comes back.
fn position(request: &mut RequestContext) -> Result<(u64, &'static str), Problem> {
    let Some(text) = request.header(LAST_EVENT_ID) else {
        return Ok((request.query.int("after").and_then(|after| u64::try_from(after).ok()).unwrap_or(0), "after"));
    };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let after = text.parse::<i64>().ok().filter(|_| is_number).and_then(|after| u64::try_from(after).ok());
    let wrong = || Problem::field(LAST_EVENT_ID, "must be the id of the last event that was seen, such as 7");
    after.map(|after| (after, LAST_EVENT_ID)).ok_or_else(wrong)
}

/// There is nothing after that event and will not be: this status tells a browser not to come back.
fn empty() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn answer(frames: Frames) -> Response {
    let body = unfold(frames, |mut frames| async move {
        let frame = frames.next().await?;
        Some((Ok::<Bytes, Infallible>(frame), frames))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Asks nginx, and those who copied it, to pass on each event as it comes.
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

fn retry(random: &Random) -> Bytes {
    format!("retry: {}\n\n", random.between(RETRY.0, RETRY.1).as_millis()).into()
}

/// Where the events of a stream come from.
enum FrameSource {
    /// With as much as the caller sees of it.
    Job(Follower, JobSight),
    /// For this caller.
    Queue(QueueFollower, Arc<Inbound>),
}

impl FrameSource {
    /// Cancel-safe, as what it follows is: frames that the caller does not see may be left out at any time.
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            FrameSource::Job(follower, sight) => loop {
                let bytes = frame_bytes(&follower.next().await?, *sight);
                if !bytes.is_empty() {
                    return Some(bytes);
                }
            },
            FrameSource::Queue(follower, inbound) => follower.next().await.map(|event| show(&event, inbound)),
        }
    }
}

/// An open stream. Dropping it frees its place among the streams.
struct Frames {
    first: Option<Bytes>,
    source: FrameSource,
    key_ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    ends_at: Instant,
    answers: Arc<Answers>,
    holder: Holder,
    _place: Charge,
}

impl Frames {
    fn new(request: &RequestContext, source: FrameSource, caller: Principal, place: Charge) -> Frames {
        let (first, ends_at, keys) =
            (Some(retry(&request.rooms.random)), life(request), Arc::clone(&request.rooms.keys));
        let key_ended = Box::pin(async move { keys.key_ended(&caller).await });
        let (answers, holder) = (Arc::clone(&request.answers), request.holder());
        Frames { first, source, key_ended, ends_at, answers, holder, _place: place }
    }

    /// The next frame; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let keepalive_at = Instant::now() + KEEPALIVE;
        let frame = tokio::select! {
            biased;
            () = &mut self.key_ended => None,
            () = sleep_until(self.ends_at) => None,
            frame = self.source.next() => frame,
            () = sleep_until(keepalive_at) => Some(Bytes::from_static(b": keepalive\n\n")),
        }?;
        // The readers of this caller hold as much as they may: this one comes back and goes on after its last event.
        self.answers.frame(self.holder, frame).ok()
    }
}

/// Empty where the caller sees nothing of it.
fn frame_bytes(frame: &Frame, sight: JobSight) -> Bytes {
    match frame {
        Frame::Events(events) => page(events, sight),
        // Without an id, so that a reader who comes back names the last event of the log.
        Frame::End(end) => format!("event: end\ndata: {}\n\n", wire::end_json(*end)).into(),
        Frame::Progress(progress) => {
            let mut text = String::from("event: progress\ndata: ");
            wire::progress(&mut text, progress);
            text.push_str("\n\n");
            text.into()
        }
    }
}

/// The JSON of an event has no line breaks, so it is one line of data.
fn page(events: &[Event], sight: JobSight) -> Bytes {
    let mut text = String::new();
    for event in events {
        if let Some(data) = wire::seen_event(event, sight) {
            let _ = write!(text, "id: {}\nevent: {}\ndata: {data}\n\n", event.seq, event.kind.as_str());
        }
    }
    text.into()
}

/// Without an id: nothing of it can be asked for again.
fn show(event: &QueueEvent, inbound: &Inbound) -> Bytes {
    let (name, data) = match event {
        QueueEvent::Queue(queue, counts) => ("queue", queues::view_for(inbound, queue, counts)),
        QueueEvent::Job(job) => ("job", wire::queue_feed_job(job)),
        QueueEvent::Counts(counts) => ("counts", wire::counts(counts)),
        QueueEvent::Resync => ("resync", json!({})),
    };
    format!("event: {name}\ndata: {data}\n\n").into()
}
