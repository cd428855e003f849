//! The ordinary way: a request and its answer, connections used again, connections that went stale.

use std::sync::Arc;
use std::time::Duration;

use outlast_engine::egress::{Egress, Outgoing, SendPhase};
use outlast_tests::responder::{Responder, read_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scene::{OK, allowing, egress, request, send};

#[tokio::test]
async fn a_request_arrives_as_it_was_given_and_the_answer_comes_back() {
    let responder =
        Responder::answering("127.0.0.2:0", "HTTP/1.1 201 Created\r\nx-one: 1\r\ncontent-length: 5\r\n\r\nhello").await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let mut outgoing = request(&responder.url("/a/b?c=d"));
    outgoing.headers.insert("x-mine", "yes".parse().unwrap());

    let answer = egress.send(outgoing).await.unwrap();

    assert_eq!((answer.status, &answer.body[..], answer.is_cut), (201, &b"hello"[..], false));
    assert_eq!(answer.headers["x-one"], "1");
    let seen = responder.seen.requests();
    let mut lines: Vec<String> = seen[0].head.lines().map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "POST /a/b?c=d HTTP/1.1");
    lines.sort();
    let version = env!("CARGO_PKG_VERSION");
    let wanted = [
        "accept-encoding: identity".to_owned(),
        "content-length: 17".to_owned(),
        format!("host: {}", responder.address),
        format!("user-agent: outlast/{version}"),
        "x-mine: yes".to_owned(),
    ];
    assert_eq!(lines, wanted);
    assert_eq!(seen[0].body, b"{\"hello\":\"world\"}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = egress(allowing(&["127.0.0.2"]));

    for _ in 0..100 {
        assert_eq!(send(&egress, &responder.url("/")).await.unwrap().status, 200);
    }

    assert_eq!((responder.seen.connections(), responder.seen.requests().len()), (1, 100));
}

// A server may close an idle connection at any time; that must not cost an attempt.
#[tokio::test]
async fn a_connection_that_the_other_side_closed_while_idle_is_replaced() {
    let responder = Responder::handling("127.0.0.2:0", |mut stream, seen| async move {
        if let Some(request) = read_request(&mut stream).await {
            seen.add(request);
            let _ = stream.write_all(OK.as_bytes()).await;
        }
    })
    .await;
    let egress = egress(allowing(&["127.0.0.2"]));

    for _ in 0..50 {
        assert_eq!(send(&egress, &responder.url("/")).await.unwrap().status, 200);
    }

    assert_eq!((responder.seen.connections(), responder.seen.requests().len()), (50, 50));
}

/// Answers the first request of each connection; takes a second one and closes without a word.
async fn closing_at_the_second() -> Responder {
    Responder::handling("127.0.0.2:0", |mut stream, seen| async move {
        for answer in [OK, ""] {
            let Some(request) = read_request(&mut stream).await else { return };
            seen.add(request);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await
}

// I-17: the endpoint may have acted on it, so it is for the job's attempts to say whether it is sent again.
#[tokio::test]
async fn a_request_on_a_used_connection_that_breaks_is_not_repeated() {
    let responder = closing_at_the_second().await;
    let egress = egress(allowing(&["127.0.0.2"]));

    for _ in 0..5 {
        assert_eq!(send(&egress, &responder.url("/")).await.unwrap().status, 200);
        let error = send(&egress, &responder.url("/")).await.unwrap_err();
        assert_eq!(error.phase, SendPhase::FirstByte, "{error}");
        assert!(error.broke_used_connection());
    }

    assert_eq!((responder.seen.connections(), responder.seen.requests().len()), (5, 10));
}

#[tokio::test]
async fn a_request_that_asks_for_a_fresh_connection_gets_one() {
    let responder = closing_at_the_second().await;
    let egress = egress(allowing(&["127.0.0.2"]));

    for _ in 0..5 {
        let outgoing = Outgoing { fresh: true, ..request(&responder.url("/")) };
        assert_eq!(egress.send(outgoing).await.unwrap().status, 200);
    }

    assert_eq!(responder.seen.connections(), 5);
}

#[tokio::test]
async fn a_request_on_a_fresh_connection_that_breaks_is_not_repeated() {
    let responder = Responder::handling("127.0.0.2:0", |mut stream, seen| async move {
        if let Some(request) = read_request(&mut stream).await {
            seen.add(request);
        }
    })
    .await;

    let error = send(&egress(allowing(&["127.0.0.2"])), &responder.url("/")).await.unwrap_err();

    assert_eq!(error.phase, SendPhase::FirstByte, "{error}");
    assert!(!error.broke_used_connection());
    assert_eq!((responder.seen.connections(), responder.seen.requests().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_need_no_more_connections_than_there_are_at_once() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = Arc::new(egress(allowing(&["127.0.0.2"])));
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (egress, url) = (Arc::clone(&egress), responder.url("/"));
        sending.spawn(async move {
            for _ in 0..50 {
                assert_eq!(send(&egress, &url).await.unwrap().status, 200);
            }
        });
    }
    sending.join_all().await;

    assert_eq!(responder.seen.requests().len(), 1000);
    assert!(responder.seen.connections() <= 20, "{} connections", responder.seen.connections());
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_was_read_is_taken() {
    let answer = "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
    let responder = Responder::handling("127.0.0.2:0", move |mut stream, _| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        until_closed(&stream).await;
    })
    .await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let mut outgoing = request(&responder.url("/"));
    outgoing.body = vec![b'x'; 16 * 1024 * 1024].into();

    assert_eq!(egress.send(outgoing).await.unwrap().status, 413);
}

#[tokio::test]
async fn a_host_that_does_not_take_the_request_is_left_in_time() {
    let responder = Responder::handling("127.0.0.2:0", |stream, _| async move { until_closed(&stream).await }).await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let mut outgoing = request(&responder.url("/"));
    outgoing.body = vec![b'x'; 16 * 1024 * 1024].into();
    outgoing.timeout = Duration::from_millis(300);

    let error = egress.send(outgoing).await.unwrap_err();

    assert_eq!((error.phase, &*error.message), (SendPhase::Send, "the host did not take the request in time"));
}

// (T02) A name may lead elsewhere after a while, so a connection is not kept for long.
#[tokio::test]
async fn idle_connections_are_closed_and_old_ones_not_used() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = egress(allowing(&["127.0.0.2"]));
    send(&egress, &responder.url("/")).await.unwrap();

    pass(Duration::from_secs(3)).await;
    send(&egress, &responder.url("/")).await.unwrap();
    assert_eq!(responder.seen.connections(), 1, "idle for less than four seconds");
    pass(Duration::from_secs(5)).await;
    send(&egress, &responder.url("/")).await.unwrap();
    assert_eq!(responder.seen.connections(), 2, "idle for longer");
    for _ in 0..21 {
        pass(Duration::from_secs(3)).await;
        send(&egress, &responder.url("/")).await.unwrap();
    }
    assert_eq!(responder.seen.connections(), 3, "open for more than a minute, though never idle for long");
}

// A request that is sent while the server closes the connection would cost an attempt.
#[tokio::test]
async fn a_connection_is_let_go_before_the_time_that_the_server_gives_it() {
    let answer = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=3\r\ncontent-length: 0\r\n\r\n";
    let responder = Responder::answering("127.0.0.2:0", answer).await;
    let egress = egress(allowing(&["127.0.0.2"]));

    for (seconds, connections) in [(0, 1), (1, 1), (2, 2), (1, 2)] {
        pass(Duration::from_secs(seconds)).await;
        send(&egress, &responder.url("/")).await.unwrap();
        assert_eq!(responder.seen.connections(), connections, "after {seconds} s");
    }
}

/// Reads nothing, and ends when the other side has gone.
async fn until_closed(stream: &TcpStream) {
    let _ = stream.ready(tokio::io::Interest::ERROR).await;
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
