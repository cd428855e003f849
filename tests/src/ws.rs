//! A WebSocket client: opens a job's socket, gives its frames one by one, and tells how it was closed. Dropping it
//! breaks the connection.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::http::Client;
use crate::wait::within;

/// No test lets a reader wait this long for what is to come.
const NEXT_MAX: Duration = Duration::from_secs(60);

pub struct Ws {
    socket: WebSocketStream<TcpStream>,
    /// The frame `end`; only the end of the socket comes after it.
    pub end: Option<Value>,
}

/// Why there is no socket.
#[derive(Debug, PartialEq)]
pub enum Refused {
    Status(u16),
    Broken,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Frame(Value),
    /// The server has closed, with this code.
    Closed(u16),
    Broken,
}

impl Ws {
    /// Asks for the socket of a job, after an event if one is given.
    pub async fn ask(client: &Client, id: &str, after: Option<u64>) -> Result<Ws, Refused> {
        let address = client.base.strip_prefix("http://").expect("the server speaks plain HTTP");
        let stream = TcpStream::connect(address).await.map_err(|_| Refused::Broken)?;
        Ws::over(stream, client, id, after).await.map(|socket| Ws { socket, end: None })
    }

    /// The same over a connection that is there.
    pub async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        stream: S,
        client: &Client,
        id: &str,
        after: Option<u64>,
    ) -> Result<WebSocketStream<S>, Refused> {
        let query = after.map(|after| format!("?after={after}")).unwrap_or_default();
        let url = format!("{}/v1/jobs/{id}/ws{query}", client.base.replacen("http", "ws", 1));
        let mut request = url.into_client_request().expect("a URL");
        let key = HeaderValue::try_from(format!("Bearer {}", client.key)).expect("a key is plain text");
        request.headers_mut().insert("authorization", key);
        match within(NEXT_MAX, client_async(request, stream)).await.expect("an answer to the handshake") {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(answer)) => Err(Refused::Status(answer.status().as_u16())),
            Err(_) => Err(Refused::Broken),
        }
    }

    /// The same where it must open.
    pub async fn open(client: &Client, id: &str, after: Option<u64>) -> Ws {
        Ws::ask(client, id, after).await.unwrap_or_else(|refused| panic!("no socket: {refused:?}"))
    }

    pub async fn send(&mut self, message: Message) {
        // Errors show up when reading: a server may close while the test sends.
        let _ = self.socket.send(message).await;
    }

    /// The next frame or the end; panics when neither comes.
    pub async fn next(&mut self) -> Heard {
        within(NEXT_MAX, self.read()).await.unwrap_or_else(|| panic!("neither a frame nor an end for {NEXT_MAX:?}"))
    }

    async fn read(&mut self) -> Heard {
        loop {
            return match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    assert!(self.end.is_none(), "after the end comes {text}");
                    let frame: Value = serde_json::from_str(&text).expect("a frame is JSON");
                    if frame["type"] == "end" {
                        self.end = Some(frame);
                        continue;
                    }
                    Heard::Frame(frame)
                }
                Some(Ok(Message::Close(Some(frame)))) => Heard::Closed(frame.code.into()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(_) | Err(_)) | None => Heard::Broken,
            };
        }
    }

    /// The next frame where there must be one.
    pub async fn frame(&mut self) -> Value {
        match self.next().await {
            Heard::Frame(frame) => frame,
            other => panic!("a frame is expected, not {other:?}"),
        }
    }

    /// All frames up to the end, and its code.
    pub async fn rest(&mut self) -> (Vec<Value>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Heard::Frame(frame) => frames.push(frame),
                Heard::Closed(code) => return (frames, code),
                Heard::Broken => panic!("the socket broke after {} frames", frames.len()),
            }
        }
    }
}
