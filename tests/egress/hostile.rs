//! The hostile responders, each with what has to come of it.

use std::time::Duration;

use outlast_engine::egress::SendPhase;
use outlast_tests::responder::{Responder, read_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostile {
    Silent,
    /// Never reads, so that a large request would not leave.
    ClosesAtOnce,
    ResetsAfterRequest,
    DripsHead,
    DripsBody,
    EndlessBody,
    EndlessChunks,
    EndlessBodyWithoutLength,
    CompressedBomb,
    TinyChunks,
    EndlessChunkExtension,
    EndlessTrailers,
    ManyHeaders,
    LargeHeaders,
    OneHugeHeader,
    EndlessHeader,
    EndlessStatusLine,
    InterimFlood,
    InterimThenSilence,
    Http09,
    Garbage,
    TlsHello,
    BadStatus,
    BadVersion,
    NegativeLength,
    TwoLengths,
    LengthAndChunks,
    BadChunks,
    LongerThanSent,
    ResetInBody,
    SwitchesProtocols,
    NulInHeader,
    FoldedHeader,
}

pub const KINDS: [Hostile; 33] = [
    Hostile::Silent,
    Hostile::ClosesAtOnce,
    Hostile::ResetsAfterRequest,
    Hostile::DripsHead,
    Hostile::DripsBody,
    Hostile::EndlessBody,
    Hostile::EndlessChunks,
    Hostile::EndlessBodyWithoutLength,
    Hostile::CompressedBomb,
    Hostile::TinyChunks,
    Hostile::EndlessChunkExtension,
    Hostile::EndlessTrailers,
    Hostile::ManyHeaders,
    Hostile::LargeHeaders,
    Hostile::OneHugeHeader,
    Hostile::EndlessHeader,
    Hostile::EndlessStatusLine,
    Hostile::InterimFlood,
    Hostile::InterimThenSilence,
    Hostile::Http09,
    Hostile::Garbage,
    Hostile::TlsHello,
    Hostile::BadStatus,
    Hostile::BadVersion,
    Hostile::NegativeLength,
    Hostile::TwoLengths,
    Hostile::LengthAndChunks,
    Hostile::BadChunks,
    Hostile::LongerThanSent,
    Hostile::ResetInBody,
    Hostile::SwitchesProtocols,
    Hostile::NulInHeader,
    Hostile::FoldedHeader,
];

impl Hostile {
    /// The status and whether the body is cut; or how far the request came.
    pub fn expected(self) -> Result<(u16, bool), SendPhase> {
        use Hostile::*;
        match self {
            Silent | ClosesAtOnce | ResetsAfterRequest => Err(SendPhase::FirstByte),
            DripsBody
            | EndlessBody
            | EndlessChunks
            | EndlessBodyWithoutLength
            | CompressedBomb
            | TinyChunks
            | EndlessChunkExtension
            | EndlessTrailers
            | BadChunks
            | LongerThanSent
            | ResetInBody => Ok((200, true)),
            LengthAndChunks => Ok((200, false)),
            SwitchesProtocols => Ok((101, false)),
            DripsHead | ManyHeaders | LargeHeaders | OneHugeHeader | EndlessHeader | EndlessStatusLine
            | InterimFlood | InterimThenSilence | Http09 | Garbage | TlsHello | BadStatus | BadVersion
            | NegativeLength | TwoLengths | NulInHeader | FoldedHeader => Err(SendPhase::Head),
        }
    }

    pub async fn start(self) -> Responder {
        Responder::handling("127.0.0.2:0", move |mut stream, seen| async move {
            if self == Hostile::ClosesAtOnce {
                // It takes the request's bytes, so that the end is an end and not a reset.
                let _ = stream.read(&mut [0; 4096]).await;
                return;
            }
            if let Some(request) = read_request(&mut stream).await {
                seen.add(request);
                // The peer disconnects at some time; then writing fails and the connection ends.
                let _ = self.answer(&mut stream).await;
            }
        })
        .await
    }

    async fn answer(self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self {
            Hostile::ClosesAtOnce => Ok(()),
            Hostile::Silent => hold(stream).await,
            Hostile::ResetsAfterRequest => reset(stream),
            Hostile::ResetInBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await?;
                reset(stream)
            }
            Hostile::DripsHead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
                drip(stream, b"x").await
            }
            Hostile::DripsBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await?;
                drip(stream, b"x").await
            }
            Hostile::InterimThenSilence => {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n").await?;
                hold(stream).await
            }
            _ => {
                let (first, repeated) = self.bytes();
                stream.write_all(&first).await?;
                while !repeated.is_empty() {
                    stream.write_all(&repeated).await?;
                }
                hold_unless_ended(self, stream).await
            }
        }
    }

    /// The bytes that are sent once, and the bytes that are repeated forever.
    fn bytes(self) -> (Vec<u8>, Vec<u8>) {
        let plain = |text: &str| (text.as_bytes().to_vec(), Vec::new());
        let endless = |first: &str, repeated: Vec<u8>| (first.as_bytes().to_vec(), repeated);
        let block = vec![b'x'; 64 * 1024];
        let chunk = [b"10000\r\n", &block[..], b"\r\n"].concat();
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        match self {
            Hostile::EndlessBody => endless("HTTP/1.1 200 OK\r\ncontent-length: 9000000000000\r\n\r\n", block),
            Hostile::EndlessChunks => endless(chunked, chunk),
            Hostile::EndlessBodyWithoutLength => endless("HTTP/1.1 200 OK\r\n\r\n", block),
            Hostile::CompressedBomb => {
                endless("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n", chunk)
            }
            Hostile::TinyChunks => endless(chunked, b"1\r\nx\r\n".repeat(1000)),
            Hostile::EndlessChunkExtension => endless(&format!("{chunked}1;"), block),
            Hostile::EndlessTrailers => endless(&format!("{chunked}0\r\n"), b"x-trailer: x\r\n".repeat(1000)),
            Hostile::ManyHeaders => (many_headers(101, 10), Vec::new()),
            Hostile::LargeHeaders => (many_headers(100, 8 * 1024), Vec::new()),
            Hostile::OneHugeHeader => (many_headers(1, 64 * 1024), Vec::new()),
            Hostile::EndlessHeader => endless("HTTP/1.1 200 OK\r\nx: ", block),
            Hostile::EndlessStatusLine => endless("HTTP/1.1 200 ", block),
            Hostile::InterimFlood => endless("", b"HTTP/1.1 102 Processing\r\nx: y\r\n\r\n".repeat(1000)),
            Hostile::Http09 => plain("<html>hello</html>"),
            Hostile::Garbage => (vec![0xff; 64], Vec::new()),
            Hostile::TlsHello => (b"\x15\x03\x03\x00\x02\x02\x28\r\n\r\n".to_vec(), Vec::new()),
            Hostile::BadStatus => plain("HTTP/1.1 abc OK\r\n\r\n"),
            Hostile::BadVersion => plain("HTTP/9.9 200 OK\r\n\r\n"),
            Hostile::NegativeLength => plain("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
            Hostile::TwoLengths => plain("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc"),
            Hostile::LengthAndChunks => {
                plain("HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            }
            Hostile::BadChunks => plain(&format!("{chunked}zz\r\nxx\r\n")),
            Hostile::LongerThanSent => plain("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort"),
            Hostile::SwitchesProtocols => {
                plain("HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")
            }
            Hostile::NulInHeader => plain("HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n"),
            Hostile::FoldedHeader => plain("HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n"),
            other => unreachable!("{other:?} is answered by hand"),
        }
    }
}

fn many_headers(count: usize, bytes: usize) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
    for number in 0..count {
        answer.extend_from_slice(format!("x-{number}: {}\r\n", "x".repeat(bytes)).as_bytes());
    }
    answer.extend_from_slice(b"content-length: 0\r\n\r\n");
    answer
}

/// Says nothing until the other side goes away.
async fn hold(stream: &mut TcpStream) -> std::io::Result<()> {
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

async fn hold_unless_ended(kind: Hostile, stream: &mut TcpStream) -> std::io::Result<()> {
    if kind == Hostile::LongerThanSent { Ok(()) } else { hold(stream).await }
}

async fn drip(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    loop {
        beat.tick().await;
        stream.write_all(bytes).await?;
    }
}

/// The connection ends with a reset; what was sent before it can still be read.
fn reset(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_zero_linger()
}
