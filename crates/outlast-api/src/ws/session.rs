//! One open WebSocket: sends the log, pings, handles the client's messages, and closes with a reason. It ends with the
//! job, with its key, after its life, when the server stops, and when the other side is gone, silent or too slow.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use outlast_core::state::CancelReason;
use outlast_core::{Command, JobId, Progress};
use outlast_engine::Rooms;
use outlast_engine::feeds::stream::{Events, Follower, Frame, JobEnd};
use outlast_engine::keys::scope::{Principal, Word};
use outlast_engine::keys::token::{Can, JobSight, Token};
use outlast_store::jobs::JobCommand;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::answers::Answers;
use crate::auth::authorize;
use crate::budget::{Charge, Holder};
use crate::error::{Code, Problem};
use crate::listen::upgrade::Upgraded;
use crate::wire;

/// The longest accepted message; the only valid one is far shorter.
const HEARD_BYTES_MAX: usize = 4 << 10;
/// So often the other side is pinged. When nothing has come from it until the next time, it is gone.
const PING: Duration = Duration::from_secs(15);
/// How long the other side may take to close after us.
const CLOSE_MAX: Duration = Duration::from_secs(2);

type Socket = WebSocketStream<TcpStream>;
type KeyEnded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Dropping it frees its place among the streams.
pub(super) struct Session {
    pub(super) rooms: Arc<Rooms>,
    pub(super) caller: Principal,
    /// The token that was sent in place of a key.
    pub(super) token: Option<Token>,
    pub(super) id: JobId,
    pub(super) ends_at: Instant,
    pub(super) answers: Arc<Answers>,
    /// Whose share the unsent frames are counted against.
    pub(super) holder: Holder,
    pub(super) _place: Charge,
}

/// Why the session ended.
enum SessionEnd {
    Close(CloseCode, &'static str),
    /// The client is gone, so no close frame is sent.
    Gone,
}

const OVER: SessionEnd = SessionEnd::Close(CloseCode::Normal, "the job has ended");
const STOPPING: SessionEnd = SessionEnd::Close(CloseCode::Away, "the server is shutting down");
const LIVED: SessionEnd = SessionEnd::Close(CloseCode::Away, "come back and go on after the last event");
const CROWDED: SessionEnd =
    SessionEnd::Close(CloseCode::Again, "too much is unsent; come back and go on after the last event");
const KEYLESS: SessionEnd = SessionEnd::Close(CloseCode::Policy, "the key has ended");
const UNREADABLE: SessionEnd = SessionEnd::Close(CloseCode::Error, "the log can be followed no further");
const TOO_LONG: SessionEnd = SessionEnd::Close(CloseCode::Size, "a message has more than 4096 bytes");
const NO_PROTOCOL: SessionEnd = SessionEnd::Close(CloseCode::Protocol, "this is not the WebSocket protocol");
const NO_TEXT: SessionEnd = SessionEnd::Close(CloseCode::Invalid, "a text is not UTF-8");

impl Session {
    /// Until the socket is closed. `follower` is `None` when there is nothing to send.
    pub(super) async fn run(self, follower: Result<Follower, JobEnd>, upgraded: Upgraded) {
        let Upgraded { stream, read, write_idle } = upgraded;
        let config = WebSocketConfig::default()
            .read_buffer_size(HEARD_BYTES_MAX)
            .write_buffer_size(HEARD_BYTES_MAX)
            .max_message_size(Some(HEARD_BYTES_MAX))
            .max_frame_size(Some(HEARD_BYTES_MAX));
        let socket = Socket::from_partially_read(stream, read.to_vec(), Role::Server, Some(config)).await;
        let (keys, caller) = (Arc::clone(&self.rooms.keys), self.caller.clone());
        let key_ended: KeyEnded = Box::pin(async move { keys.key_ended(&caller).await });
        let mut open_socket = OpenSocket { socket, key_ended, write_idle };
        let end = match follower {
            Ok(follower) => self.converse(follower, &mut open_socket).await,
            Err(end) => open_socket.over(end).await,
        };
        if let SessionEnd::Close(code, reason) = end {
            open_socket.close(code, reason).await;
        }
    }

    async fn converse(&self, mut follower: Follower, open_socket: &mut OpenSocket) -> SessionEnd {
        let mut keepalive = Keepalive { heard_at: Instant::now(), pinged_at: None };
        loop {
            let done = tokio::select! {
                biased;
                () = &mut open_socket.key_ended => return KEYLESS,
                () = sleep_until(self.ends_at) => return LIVED,
                frame = follower.next() => match frame {
                    Some(Frame::Events(events)) => self.send_events(events, open_socket).await,
                    Some(Frame::Progress(progress)) => open_socket.send(Message::text(progress_frame(&progress))).await,
                    Some(Frame::End(end)) => return open_socket.over(end).await,
                    None if self.rooms.status.is_draining() => return STOPPING,
                    None => return UNREADABLE,
                },
                message = open_socket.socket.next() => {
                    keepalive.heard_at = Instant::now();
                    self.hear(message, open_socket).await
                }
                () = sleep_until(keepalive.due()) => match keepalive.beat() {
                    true => open_socket.send(Message::Ping(Default::default())).await,
                    false => return SessionEnd::Gone,
                },
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// The page of the log is let go before the first event is sent: a slow reader holds only what is written for it.
    async fn send_events(&self, events: Events, open_socket: &mut OpenSocket) -> Result<(), SessionEnd> {
        let mut texts = Vec::with_capacity(events.len());
        let sight = self.token.as_ref().map_or(JobSight::Whole, Token::sight);
        for event in events.iter().filter_map(|event| wire::seen_event(event, sight)) {
            let text = Bytes::from(event.to_string());
            texts.push(self.answers.frame(self.holder, text).map_err(|_| CROWDED)?);
        }
        drop(events);
        for text in texts {
            // It is JSON, so it is UTF-8.
            let text = Utf8Bytes::try_from(text).map_err(|_| UNREADABLE)?;
            open_socket.send(Message::Text(text)).await?;
        }
        Ok(())
    }

    async fn hear(
        &self,
        message: Option<Result<Message, Error>>,
        open_socket: &mut OpenSocket,
    ) -> Result<(), SessionEnd> {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => Default::default(),
            // The socket answers a close automatically and then ends.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => return Ok(()),
            Some(Err(Error::Capacity(_))) => return Err(TOO_LONG),
            Some(Err(Error::Protocol(_))) => return Err(NO_PROTOCOL),
            Some(Err(Error::Utf8(_))) => return Err(NO_TEXT),
            Some(Err(_)) | None => return Err(SessionEnd::Gone),
        };
        let wanted: Option<Value> = serde_json::from_str(&text).ok();
        let answer = match wanted.as_ref().and_then(|wanted| wanted.get("type")).and_then(Value::as_str) {
            Some("cancel") => self.cancel().await,
            _ => Err(Problem::field("type", "must be \"cancel\"; no other message is accepted")),
        };
        open_socket.send_all([answer.unwrap_or_else(|problem| error_frame(&problem))].into_iter()).await
    }

    /// The scope is asked for each time: to see a job is not to end it.
    async fn cancel(&self) -> Result<Value, Problem> {
        if self.token.as_ref().is_some_and(|token| !token.can.contains(&Can::Cancel)) {
            return Err(Problem::new(Code::Forbidden, "this token does not allow to cancel"));
        }
        let reach = authorize(&self.caller, Word::Manage)?;
        let command = Command::Cancel { reason: CancelReason::User };
        let applied = self.rooms.jobs.apply_one(JobCommand { id: self.id, reach, command }).await??;
        Ok(json!({
            "type": "cancelled_requested",
            "id": self.id.to_string(),
            "status": applied.status.as_str(),
            "version": applied.version,
        }))
    }
}

fn progress_frame(progress: &Progress) -> String {
    let mut text = String::from("{\"type\":\"progress\",");
    let start = text.len();
    wire::progress(&mut text, progress);
    // Its own opening brace.
    text.remove(start);
    text
}

fn error_frame(problem: &Problem) -> Value {
    let mut frame = problem.to_json();
    if let Value::Object(map) = &mut frame {
        map.insert("type".to_owned(), json!("error"));
    }
    frame
}

/// Is the other side alive?
struct Keepalive {
    heard_at: Instant,
    pinged_at: Option<Instant>,
}

impl Keepalive {
    fn due(&self) -> Instant {
        self.pinged_at.unwrap_or(self.heard_at) + PING
    }

    /// False when nothing has come since the last ping.
    fn beat(&mut self) -> bool {
        let is_alive = self.pinged_at.is_none_or(|pinged_at| self.heard_at >= pinged_at);
        self.pinged_at = Some(Instant::now());
        is_alive
    }
}

/// The socket with what bounds each write.
struct OpenSocket {
    socket: Socket,
    key_ended: KeyEnded,
    write_idle: Duration,
}

impl OpenSocket {
    async fn send_all(&mut self, values: impl Iterator<Item = Value>) -> Result<(), SessionEnd> {
        for value in values {
            self.send(Message::text(value.to_string())).await?;
        }
        Ok(())
    }

    /// Says how the job has ended, as the last frame.
    async fn over(&mut self, end: JobEnd) -> SessionEnd {
        let said = self.send(Message::text(wire::end_json(end).to_string())).await;
        said.err().unwrap_or(OVER)
    }

    /// Ends early when the key does: one who does not read keeps nothing open.
    async fn send(&mut self, message: Message) -> Result<(), SessionEnd> {
        tokio::select! {
            biased;
            () = &mut self.key_ended => Err(KEYLESS),
            sent = timeout(self.write_idle, self.socket.send(message)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(SessionEnd::Gone),
            },
        }
    }

    /// Sends the reason, and waits briefly for the client to read it.
    async fn close(mut self, code: CloseCode, reason: &'static str) {
        let closing = async {
            let frame = CloseFrame { code, reason: reason.into() };
            if self.socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        // A slower client is disconnected.
        let _ = timeout(CLOSE_MAX, closing).await;
    }
}
