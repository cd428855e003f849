//! A client that speaks TLS to this port, where plain HTTP is spoken: it is answered in plain HTTP, since nothing else can
//! be said to it. Clients that look at such an answer tell their users; the log tells the operator.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The first byte of a TLS handshake. No method of HTTP begins with it.
const HANDSHAKE: u8 = 0x16;
/// Longer than it takes to hand a few bytes to the system.
const WRITE_MAX: Duration = Duration::from_secs(2);
const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 103\r\n\
    connection: close\r\n\r\n\
    this port speaks plain HTTP: use http:// instead of https://, or put a proxy that speaks TLS before it\n";

/// Whether a client that begins with this byte speaks TLS.
pub(super) fn is_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// Says why, and gives the connection back, since its peer may still be sending.
pub(super) async fn refuse(mut stream: TcpStream) -> Option<TcpStream> {
    tracing::info!("a client tried TLS on this port, which speaks plain HTTP; its URL must begin with http://");
    let written = timeout(WRITE_MAX, stream.write_all(ANSWER.as_bytes())).await;
    matches!(written, Ok(Ok(()))).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_as_long_as_it_says() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();

        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
