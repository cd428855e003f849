//! Hostile responders: slow, dripping, endless, compressed, flooding, lying, broken. The deadline is kept, what is kept
//! of an answer is bounded, and others are not harmed. (F23, F24, T04, T23)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_engine::egress::{Egress, EgressSettings, HttpEgress, Incoming, SendError, SendPhase};
use outlast_tests::responder::{Responder, read_request};
use outlast_tests::stopwatch::Stopwatch;
use tokio::io::AsyncWriteExt;

use crate::hostile::{Hostile, KINDS};
use crate::scene::{BODY_MAX, OK, allowing, egress, request, send};

/// The time a delivery to a hostile responder may take, and how much later a busy machine may notice. Without a
/// deadline most of them would never end.
const TIMEOUT: Duration = Duration::from_millis(700);
const SLACK: Duration = Duration::from_millis(2500);

async fn send_to(responder: &Responder, egress: &HttpEgress) -> (Result<Incoming, SendError>, Duration) {
    let mut outgoing = request(&responder.url("/"));
    outgoing.timeout = TIMEOUT;
    let began = Stopwatch::start();
    let outcome = egress.send(outgoing).await;
    (outcome, began.charged())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_answer_ends_in_time_and_as_it_should() {
    let egress = egress(allowing(&["127.0.0.2"]));
    for kind in KINDS {
        let responder = kind.start().await;

        let (outcome, took) = send_to(&responder, &egress).await;

        assert!(took < TIMEOUT + SLACK, "{kind:?} took {took:?}");
        check(kind, outcome);
        assert!(responder.seen.connections() >= 1, "{kind:?}: it was called");
    }
}

fn check(kind: Hostile, outcome: Result<Incoming, SendError>) {
    let shown = format!("{kind:?}: {outcome:?}").chars().take(300).collect::<String>();
    match kind.expected() {
        Ok((status, is_cut)) => {
            let answer = outcome.unwrap_or_else(|_| panic!("{shown}"));
            assert_eq!((answer.status, answer.is_cut), (status, is_cut), "{shown}");
            assert!(answer.body.len() <= BODY_MAX, "{kind:?} kept {} bytes", answer.body.len());
        }
        Err(phase) => {
            let error = outcome.err().unwrap_or_else(|| panic!("{shown}"));
            assert_eq!(error.phase, phase, "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_to_others_are_not_harmed_meanwhile() {
    let egress = Arc::new(egress(allowing(&["127.0.0.2"])));
    let healthy = Responder::answering("127.0.0.2:0", OK).await;
    let mut hostile = Vec::new();
    let mut sending = tokio::task::JoinSet::new();
    for kind in KINDS {
        let responder = Arc::new(kind.start().await);
        for _ in 0..5 {
            let (egress, responder) = (Arc::clone(&egress), Arc::clone(&responder));
            sending.spawn(async move { send_to(&responder, &egress).await.1 });
        }
        hostile.push(responder);
    }
    let mut took = Vec::new();
    for _ in 0..200 {
        let began = Stopwatch::start();
        assert_eq!(send(&egress, &healthy.url("/")).await.unwrap().status, 200);
        took.push(began.charged());
    }

    while let Some(took) = sending.join_next().await {
        assert!(took.unwrap() < TIMEOUT + SLACK * 2);
    }
    // A delivery to a hostile responder lasts until its timeout. The machine itself is busy, too, so the one in the
    // middle counts.
    took.sort_unstable();
    assert!(took[100] < TIMEOUT / 2, "healthy deliveries took {:?} and at most {:?}", took[100], took[199]);
    assert!(hostile.iter().all(|responder| responder.seen.connections() >= 5), "the hostile ones were called");
}

// A compressed answer arrives as it was sent: the connector neither asks for one nor unpacks it.
#[tokio::test]
async fn a_compressed_answer_is_not_unpacked() {
    // The beginning of a gzip stream of zeros.
    let packed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xed\xc1\x01\x0d\x00\x00\x00\xc2\xa0\xf7Om\x0e7\xa0";
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n", packed.len());
        let responder = Responder::answering("127.0.0.2:0", [head.as_bytes(), packed].concat()).await;

        let answer = send(&egress(allowing(&["127.0.0.2"])), &responder.url("/")).await.unwrap();

        assert_eq!((&answer.body[..], answer.is_cut), (&packed[..], false));
        assert_eq!(answer.headers["content-encoding"], encoding);
        assert!(responder.seen.requests()[0].head.contains("accept-encoding: identity"));
    }
}

#[tokio::test]
async fn of_a_body_exactly_so_much_is_kept_as_was_asked_for() {
    let egress = egress(allowing(&["127.0.0.2"]));
    for (length, is_cut) in [(BODY_MAX - 1, false), (BODY_MAX, false), (BODY_MAX + 1, true), (BODY_MAX * 4, true)] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length));
        let responder = Responder::answering("127.0.0.2:0", answer).await;

        for _ in 0..2 {
            let answer = send(&egress, &responder.url("/")).await.unwrap();
            assert_eq!((answer.body.len(), answer.is_cut), (length.min(BODY_MAX), is_cut));
        }

        let connections = if is_cut { 2 } else { 1 };
        assert_eq!(responder.seen.connections(), connections, "a connection with unread bytes is not used again");
    }
}

// After a confusing answer the connection may hold bytes that would be taken for the next one.
#[tokio::test]
async fn connections_with_bytes_out_of_turn_are_not_used_again() {
    let egress = egress(allowing(&["127.0.0.2"]));
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 Planted\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let responder = Responder::answering("127.0.0.2:0", answer).await;

        for _ in 0..5 {
            assert_eq!(send(&egress, &responder.url("/")).await.unwrap().status, 200, "{answer:?}");
        }

        assert_eq!(responder.seen.connections(), 5, "{answer:?}");
    }
}

// (F23)
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_the_connection_is_said_to_have_done_so() {
    let closed = Responder::answering("127.0.0.2:0", OK).await;
    let url = closed.url("/");
    let address = closed.address;
    drop(closed);
    outlast_tests::wait::until("the port is closed", TIMEOUT * 5, async || {
        tokio::net::TcpStream::connect(address).await.is_err().then_some(())
    })
    .await;

    let error = send(&egress(allowing(&["127.0.0.2"])), &url).await.unwrap_err();

    assert_eq!((error.phase, &*error.message), (SendPhase::Connect, "the host refused the connection"));
}

/// How many of 30 requests were at a slow host at once.
async fn at_once(cap: usize) -> usize {
    let (present, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let reported = Arc::clone(&most);
    let responder = Responder::handling("127.0.0.2:0", move |mut stream, _| {
        let (present, most) = (Arc::clone(&present), Arc::clone(&most));
        async move {
            while read_request(&mut stream).await.is_some() {
                most.fetch_max(present.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // A slow host; only its own request waits.
                tokio::time::sleep(Duration::from_millis(20)).await;
                present.fetch_sub(1, Ordering::SeqCst);
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    })
    .await;
    let egress = Arc::new(egress(EgressSettings { per_host_concurrency: cap, ..allowing(&["127.0.0.2"]) }));
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let (egress, url) = (Arc::clone(&egress), responder.url("/"));
        sending.spawn(async move { assert_eq!(send(&egress, &url).await.unwrap().status, 200) });
    }
    sending.join_all().await;
    reported.load(Ordering::SeqCst)
}

// (T06, one node)
#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_than_the_cap_are_at_one_host_at_once() {
    assert_eq!(at_once(3).await, 3);
    assert!(at_once(30).await > 3, "the control: without the cap there are more");
}
