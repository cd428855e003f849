//! Readers that do not read.

use std::fs;
use std::time::Duration;

use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::job_with_output;
use crate::api::{job, make_queue, text};
use crate::http_edges::configured;

const READERS: usize = 400;
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection that has asked and has a small buffer for the answer.
async fn asked(address: std::net::SocketAddr, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// The status of an answer, and whether all of it came.
async fn read_on(mut stream: TcpStream) -> (u16, bool) {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, length == Some(body.len()))
}

// A2: one token, many connections that ask for the largest answer and do not read it.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_do_not_read_hold_their_share_and_are_cut() {
    // Long enough to open all connections before the first one is cut.
    let server = configured("timeouts: {write_idle: 10s}\n").await;
    let node = &server.nodes[0];
    let client = node.client();
    make_queue(&client, "work", json!({})).await;
    let (id, _) = job_with_output(&client, "work", 60).await;
    let token = client.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read"]})).await.unwrap().expect(201);
    let request = format!(
        "GET /v1/jobs/{id}/events?limit=1000&token={} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        text(&token["token"])
    );
    let before = memory_kib(node.process_id());

    let mut silent = Vec::new();
    for _ in 0..READERS {
        silent.push(asked(node.address(), &request).await);
    }
    let metric = |page: &str| -> usize {
        page.lines().find_map(|line| line.strip_prefix("outlast_answer_bytes ")?.trim().parse().ok()).unwrap()
    };
    let stopwatch = Stopwatch::start();
    let (mut most, mut unsent) = (0, 0);
    while !stopwatch.has_passed(Duration::from_secs(2)) {
        most = most.max(memory_kib(node.process_id()));
        unsent = unsent.max(metric(client.get("/metrics").await.unwrap().expect(200).as_str().unwrap()));
        // The key itself is not harmed by its token.
        assert_eq!(job(&client, &id).await["status"], "running");
    }
    assert!(unsent > 0, "the attack took place");
    wait::until("the readers to be cut", DEADLINE, async || {
        let page = client.get("/metrics").await.unwrap().expect(200);
        (metric(page.as_str().unwrap()) == 0).then_some(())
    })
    .await;
    let mut answers = Vec::new();
    for stream in silent {
        answers.push(read_on(stream).await);
    }

    assert!(most < before + (100 << 10), "{before} KiB before, {most} KiB with {READERS} silent readers");
    let refused = answers.iter().filter(|(status, _)| *status == 429).count();
    let cut = answers.iter().filter(|(status, is_whole)| *status == 200 && !is_whole).count();
    println!("{refused} refused, {cut} cut, {unsent} bytes unsent, {before} KiB before, {most} KiB at most");
    assert!(refused > READERS / 2, "{refused} of {READERS} were refused");
    assert!(cut > 0, "{answers:?}");
    // An honest reader gets all of it afterwards.
    let (status, is_whole) = read_on(asked(node.address(), &request).await).await;
    assert_eq!((status, is_whole), (200, true));
}

// A reader that takes a little now and then is cut too: it is slower than the least rate.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_below_the_least_rate_is_cut() {
    let server = configured("limits: {answer_bytes_per_second: 1MiB}\ntimeouts: {write_idle: 2s}\n").await;
    let node = &server.nodes[0];
    let client = node.client();
    make_queue(&client, "work", json!({})).await;
    let (id, _) = job_with_output(&client, "work", 60).await;
    let request = format!(
        "GET /v1/jobs/{id}/events?limit=1000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        client.key
    );

    let mut stream = asked(node.address(), &request).await;
    let stopwatch = Stopwatch::start();
    let (mut taken, mut piece) = (0, [0; 512]);
    let cut = loop {
        assert!(!stopwatch.has_passed(DEADLINE), "still served after {taken} bytes");
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => break true,
            Ok(length) => taken += length,
        }
        if taken > super::PAGE_BYTES {
            break false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };

    assert!(cut, "{taken} bytes were served at 10 KiB/s");
}
