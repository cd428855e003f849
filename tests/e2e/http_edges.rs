//! HTTP as no client library speaks it: connections that are silent or slow, heads that are too large, bytes that are
//! no HTTP, and requests that try to hide another one. (T21, T26)

mod smuggling;

use std::fs;
use std::time::{Duration, Instant};

use outlast_tests::server::{Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish};
use crate::raw::{Raw, exchange};

/// Short, so that the tests are; far enough apart to tell which one struck; and long enough for a client that is not
/// slow on a machine that pauses for a moment.
const SHORT_TIMEOUTS: &str = "
timeouts:
  first_byte: 1s
  head: 2s
  body_idle: 2s
  body_total: 5s
  keep_alive: 3s
";
/// Between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(100);
/// Every deadline above has struck by then, also on a busy machine.
const LATE: Duration = Duration::from_secs(15);

/// A server with a configuration file of its own.
pub(crate) async fn configured(yaml: &str) -> Server {
    Launch::fresh().with_config(yaml).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed_after_the_first_byte_deadline() {
    let server = configured(SHORT_TIMEOUTS).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    let started = Instant::now();

    let rest = raw.rest(LATE).await;

    let taken = started.elapsed();
    assert!(rest.is_empty());
    assert!(taken >= Duration::from_millis(990), "closed after {taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_drips_in_is_cut_off() {
    let server = configured(SHORT_TIMEOUTS).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    let started = Instant::now();

    let closed =
        drip(&mut raw, b"GET /healthz HTTP/1.1\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").await;

    let taken = started.elapsed();
    assert!(closed, "still open after {taken:?}");
    assert!(taken >= Duration::from_millis(1990), "closed after {taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_deadline_holds_for_the_second_request_too() {
    let server = configured(SHORT_TIMEOUTS).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(raw.answer().await.unwrap().status, 200);

    let closed =
        drip(&mut raw, b"GET /healthz HTTP/1.1\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").await;

    assert!(closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_gets_408() {
    let server = configured(SHORT_TIMEOUTS).await;
    make_queue(&server.client(), "mail", json!({})).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    let started = Stopwatch::start();

    raw.send(format!("{}{{\"payload\":", publish_head(&server, 1000))).await;
    let answer = raw.answer().await.unwrap();

    let (taken, charged) = (started.elapsed(), started.charged());
    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
    assert!(taken >= Duration::from_millis(1990) && charged < LATE, "after {taken:?}");
    assert_eq!(answer.header("connection"), Some("close"));
    raw.rest(LATE).await;
    assert_nothing_stored(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_in_gets_408_after_its_total_time() {
    let server = configured(SHORT_TIMEOUTS).await;
    make_queue(&server.client(), "mail", json!({})).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    raw.send(publish_head(&server, 1000)).await;
    let started = Instant::now();

    let slow =
        "{\"payload\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    drip(&mut raw, slow.as_bytes()).await;
    let answer = raw.answer().await.unwrap();

    let taken = started.elapsed();
    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
    assert!(taken >= Duration::from_millis(4990), "after {taken:?}");
    assert_nothing_stored(&server).await;
}

// However fast it drips: a look at each byte after the end of its time would be no end.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_in_fast_gets_408_after_its_total_time_too() {
    let server = configured(SHORT_TIMEOUTS).await;
    make_queue(&server.client(), "mail", json!({})).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    raw.send(publish_head(&server, 60_000)).await;
    let started = Stopwatch::start();

    let answer = loop {
        for _ in 0..100 {
            raw.send(b" ").await;
            // Shorter than the timers of the runtime can be.
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_micros(500)));
        }
        if raw.has_news_within(Duration::ZERO).await {
            break raw.answer().await.unwrap();
        }
        assert!(!started.has_passed(LATE), "still being read");
    };

    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
    assert_nothing_stored(&server).await;
}

// F14: a process that was paused sees its timers before the bytes that arrived meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_arrive_while_the_server_is_paused_are_not_too_late() {
    let server = configured(SHORT_TIMEOUTS).await;
    make_queue(&server.client(), "mail", json!({})).await;
    let (head, body) = (publish_head(&server, 13), "{\"payload\":1}");
    let mut waiting = Vec::new();
    for number in 0..60 {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        // Between two requests, in the middle of one, and before the first.
        let rest = match number % 3 {
            0 => {
                raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
                assert_eq!(raw.answer().await.unwrap().status, 200);
                format!("{head}{body}")
            }
            1 => {
                raw.send(&head).await;
                body.to_owned()
            }
            _ => format!("{head}{body}"),
        };
        waiting.push((raw, rest));
    }
    server.freeze().await;
    for (raw, rest) in &mut waiting {
        raw.send(rest).await;
    }

    // Not a wait for anything: the length of the pause is the input of the rig.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for node in &server.nodes {
        node.resume();
    }

    for (number, (raw, _)) in waiting.iter_mut().enumerate() {
        assert_eq!(raw.answer().await.map(|answer| answer.status), Some(202), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_a_used_one_is_not() {
    let server = configured(SHORT_TIMEOUTS).await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    let started = Instant::now();
    let mut last_sent = started;
    for _ in 0..40 {
        tokio::time::sleep(DRIP).await;
        last_sent = Instant::now();
        raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(raw.answer().await.unwrap().status, 200, "after {:?}", started.elapsed());
    }

    let rest = raw.rest(LATE).await;

    // The connection is idle from the answer on, and that came after the request.
    let taken = last_sent.elapsed();
    assert!(rest.is_empty());
    assert!(taken >= Duration::from_millis(2990), "closed after {taken:?}");
}

// A long poll outlives all of these deadlines: it is the server that takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_is_not_cut_by_the_deadlines_of_connections() {
    let server = configured(SHORT_TIMEOUTS).await;
    make_queue(&server.client(), "mail", json!({})).await;
    let started = Instant::now();

    let reply = server.client().get("/api/queues/mail/messages?wait=6s").await.unwrap();

    assert_eq!(reply.expect(200), json!({"messages": []}));
    assert!(started.elapsed() >= Duration::from_millis(5990));
}

// 3.1: 16 KiB of head.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_the_limit_gets_431() {
    let server = Server::fresh().await;
    let padded = |bytes: usize| format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-padding: {}\r\n\r\n", "a".repeat(bytes));
    let many = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200));
    let endless = format!("GET /healthz HTTP/1.1\r\n{}", "a".repeat(1 << 20));

    assert_eq!(exchange(&server.base, padded(15 << 10)).await.unwrap().status, 200);
    for (what, request) in [("long", padded(17 << 10)), ("many", many), ("endless", endless)] {
        let answer = exchange(&server.base, request).await.unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(answer.status, 431, "{what}");
    }
    server.client().get("/readyz").await.unwrap().expect(200);
}

// The answer to a request that is refused early must arrive, and must not cost the next request on the connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_refusal_is_read_before_the_connection_ends() {
    let server = Server::fresh().await;
    let large = "x".repeat(2 << 20);
    let head = |length: usize| format!("POST /v1/queues HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");

    for round in 0..20 {
        let refused = exchange(&server.base, format!("{}{large}", head(large.len()))).await;
        let refused = refused.unwrap_or_else(|| panic!("round {round}: the answer was lost"));
        assert_eq!((refused.status, refused.header("connection")), (401, Some("close")));
        let mut raw = Raw::connect(&server.base).await.unwrap();
        for _ in 0..3 {
            raw.send(head(2)).await;
            tokio::task::yield_now().await;
            raw.send("{}").await;
            let answer = raw.answer().await.unwrap_or_else(|| panic!("round {round}: the connection has ended"));
            assert_eq!((answer.status, answer.header("connection")), (401, None));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_continue_is_answered_or_refused_before_the_body() {
    let server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    let ask = publish_head(&server, 13).replace("host: x", "host: x\r\nexpect: 100-continue");
    let mut good = Raw::connect(&server.base).await.unwrap();
    good.send(&ask).await;
    let go_on = good.answer().await.unwrap();
    good.send("{\"payload\":1}").await;
    let done = good.answer().await.unwrap();
    let refused = exchange(&server.base, ask.replace("Bearer", "Nobody")).await.unwrap();

    assert_eq!((go_on.status, done.status), (100, 202));
    assert_eq!((refused.status, refused.header("connection")), (401, Some("close")));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed_and_room_is_made_again() {
    for limit in ["connections", "connections_per_address"] {
        let server = configured(&format!("limits:\n  {limit}: 4\n")).await;
        // A limit is that of one process, so there is no balancer in between.
        let base = &server.nodes[0].base;
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut raw = Raw::connect(base).await.unwrap();
            raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
            assert_eq!(raw.answer().await.unwrap().status, 200, "{limit}");
            held.push(raw);
        }

        assert!(exchange(base, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.is_none(), "{limit}");
        held.pop();
        wait::until("room for another connection", LATE, async || {
            let answer = exchange(base, "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            answer.filter(|answer| answer.status == 200)
        })
        .await;
    }
}

// The kernel accepts them while the server cannot, so no client retries a second later.
#[tokio::test(flavor = "multi_thread")]
async fn many_connections_at_once_do_not_stall() {
    let server = Server::fresh().await;
    let node = &server.nodes[0];
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("the kernel says how many may wait");
    let count = 3000.min(allowed.trim().parse::<usize>().unwrap() * 3 / 4);
    let address = node.address();
    node.freeze().await;

    let mut connecting = JoinSet::new();
    for _ in 0..count {
        connecting.spawn(async move { tokio::net::TcpStream::connect(address).await });
    }
    let connected = wait::within(LATE * 4, connecting.join_all()).await;
    node.resume();

    let connected = connected.expect("the kernel takes all connections while the server is paused");
    assert!(connected.iter().all(Result::is_ok), "{count} connections");
}

// T21 in small: hundreds of silent and slow connections affect no other client, and none of them stays.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_bad_connections_do_no_harm_and_leave_nothing_behind() {
    let server = configured(SHORT_TIMEOUTS).await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let before = connections(&server);
    let (mut bad, mut most) = (Vec::new(), 0);
    for number in 0..300 {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        match number % 3 {
            0 => {}
            1 => raw.send("GET /healthz HTTP/1.1\r\nx-never-ends: ").await,
            _ => raw.send(publish_head(&server, 1000)).await,
        }
        bad.push(raw);
        // The first ones are closed while the last ones come.
        if number % 20 == 0 {
            most = most.max(connections(&server));
        }
    }

    let started = Stopwatch::start();
    for number in 0..50 {
        publish(&client, "mail", json!(number)).await;
    }
    let taken = started.charged();
    assert!(most >= before + 20, "the bad ones were there, {most} at most");
    wait::until_now("all bad connections to be closed", LATE * 2, || {
        (connections(&server) <= before + 5).then_some(())
    })
    .await;

    assert!(taken < LATE, "50 publishes took {taken:?}");
    drop(bad);
}

/// Connections from clients that the server's processes hold open, as the kernel lists them.
fn connections(server: &Server) -> usize {
    let listed = fs::read_to_string("/proc/net/tcp").expect("the kernel lists its connections");
    let ports: Vec<String> = server.nodes.iter().map(|node| format!(":{:04X}", node.address().port())).collect();
    let held = listed.lines().skip(1).filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The local address, the state, which is 0A for the listener, and the inode, which is 0 when no process holds
        // it.
        ports.iter().any(|port| words[1].ends_with(port)) && words[3] != "0A" && words[9] != "0"
    });
    held.count()
}

/// Sends one byte at a time until the server closes or answers, or all bytes are sent.
async fn drip(raw: &mut Raw, bytes: &[u8]) -> bool {
    for byte in bytes {
        raw.send([*byte]).await;
        if raw.has_news_within(DRIP).await {
            return true;
        }
    }
    false
}

fn publish_head(server: &Server, length: usize) -> String {
    format!(
        "POST /v1/queues/mail/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {length}\r\n\r\n",
        server.launch().key
    )
}

async fn assert_nothing_stored(server: &Server) {
    let queue = server.client().get("/v1/queues/mail").await.unwrap().expect(200);
    assert_eq!(queue["counts"]["queued"], json!(0));
}
