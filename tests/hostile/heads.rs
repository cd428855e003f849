//! Heads that two readers may understand differently, many of them, beside a tenant at work.

use std::sync::Arc;
use std::time::Duration;

use outlast_tests::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::arena::{Arena, addresses};
use crate::attack::{Attack, Behaviour};

const DEADLINE: Duration = Duration::from_secs(20);

/// Each hides a request that deletes the victim's queue, if it is understood in the other way.
const AMBIGUOUS: [(&str, u16); 6] = [
    (
        "POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n",
        400,
    ),
    (
        "POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n",
        400,
    ),
    ("POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
    ("POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\nhost: y\r\ncontent-length: 0\r\n\r\n", 400),
    ("POST /v1/queues/work/receive HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 400),
    ("POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\ncontent-length: 0\r\n\r\n", 400),
];

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_heads_are_refused_and_end_their_connection() {
    let arena = Arena::open().await;
    let hidden =
        format!("DELETE /v1/queues/work HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", arena.attacker.key);
    for (head, status) in AMBIGUOUS {
        let mut stream = TcpStream::connect(arena.address()).await.unwrap();
        stream.write_all(format!("{head}0\r\n\r\n{hidden}").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        wait::within(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the connection ends").ok();

        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head}: {answer}");
    }
    arena.attacker.get("/v1/queues/work").await.unwrap().expect(200);
    // Slow and ambiguous: cut in the middle, so that they are looked at over many reads.
    let behaviour = Behaviour {
        first: b"POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\nContent-Le".to_vec().into(),
        then: Arc::from(&b"n"[..]),
        every: Duration::from_secs(1),
        is_silent: false,
    };
    let attack = Attack::plan("slow ambiguous heads", &addresses(12), 200, behaviour);

    let siege = arena.besiege(attack, 100).await;

    siege.assert_unnoticed();
}
