//! Nothing in a header, URL or body adds a line to the request or a request to the connection: the sink looks at the raw
//! bytes. (T27)

use outlast_engine::egress::Egress;
use outlast_engine::egress::headers::custom_header;
use outlast_tests::responder::Responder;

use crate::scene::{OK, allowing, egress, request};

/// Pieces that would end a line, a head or a request somewhere.
const PIECES: [&str; 14] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    "\r\n\r\n",
    "\u{85}",
    "\u{2028}",
    "\u{560a}\u{560d}",
    "%0d%0a",
    "%0D%0A",
    "\\r\\n",
    "\t",
    "\u{b}",
    "\u{7f}",
];

#[tokio::test]
async fn no_header_of_a_queue_adds_a_line_to_the_request() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let (mut tried, mut sent) = (0, 0);
    for piece in PIECES {
        for (name, value) in [
            ("x-mine".to_owned(), format!("a{piece}x-planted: 1")),
            ("x-mine".to_owned(), format!("{piece}x-planted: 1")),
            ("x-mine".to_owned(), format!("a{piece}")),
            ("x-mine".to_owned(), format!("a{piece}{piece}POST /planted HTTP/1.1{piece}host: x{piece}{piece}")),
            (format!("x-mine{piece}x-planted"), "1".to_owned()),
            (format!("x-mine: a{piece}x-planted"), "1".to_owned()),
            (format!("{piece}x-planted"), "1".to_owned()),
        ] {
            tried += 1;
            let Ok((name, value)) = custom_header(&name, &value) else { continue };
            let mut outgoing = request(&responder.url("/"));
            outgoing.headers.insert(name, value);
            sent += 1;
            assert_eq!(egress.send(outgoing).await.unwrap().status, 200);
        }
    }

    let requests = responder.seen.requests();
    assert_eq!(requests.len(), sent, "as many requests as were sent, of {tried} that were tried");
    assert!(sent > 0, "some were let through to be looked at");
    for request in requests {
        // The request line, our four headers and the one of the queue.
        assert_eq!(request.head.split("\r\n").count(), 6, "{:?}", request.head);
        assert!(!request.head.bytes().any(|byte| byte == b'\n' || byte == 0) || request.head.lines().count() == 6);
        assert!(request.head.lines().all(|line| !line.starts_with("x-planted")), "{:?}", request.head);
    }
}

#[tokio::test]
async fn no_url_adds_a_line_to_the_request() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let mut sent = 0;
    for piece in PIECES {
        for path in [
            format!("/a{piece}x-planted: 1"),
            format!("/?a={piece}x-planted: 1"),
            format!("/a HTTP/1.1{piece}x-planted: 1"),
            format!("/?{piece}{piece}POST /planted HTTP/1.1"),
            format!("/ü{piece}"),
        ] {
            let outgoing = request(&responder.url(&path));
            if egress.check(&outgoing.url).is_err() {
                assert!(egress.send(outgoing).await.is_err(), "{path:?}");
                continue;
            }
            sent += 1;
            assert_eq!(egress.send(outgoing).await.unwrap().status, 200, "{path:?}");
        }
    }

    let requests = responder.seen.requests();
    assert_eq!(requests.len(), sent);
    assert!(sent > 0, "some were let through to be looked at");
    for request in requests {
        let line = request.head.lines().next().unwrap();
        assert_eq!((line.split(' ').count(), request.head.lines().count()), (3, 5), "{:?}", request.head);
        assert!(line.is_ascii(), "{line}");
    }
}

// A caller's headers cannot make the request two requests.
#[tokio::test]
async fn headers_that_frame_the_request_are_the_connectors_own() {
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let egress = egress(allowing(&["127.0.0.2"]));
    let mut outgoing = request(&responder.url("/"));
    for (name, value) in [
        ("content-length", "0"),
        ("transfer-encoding", "chunked"),
        ("connection", "close, upgrade"),
        ("upgrade", "h2c"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("expect", "100-continue"),
        ("host", "elsewhere.example"),
        ("accept-encoding", "gzip"),
    ] {
        outgoing.headers.insert(name, value.parse().unwrap());
    }

    for _ in 0..2 {
        assert_eq!(egress.send(outgoing.clone()).await.unwrap().status, 200);
    }

    assert_eq!(responder.seen.connections(), 1);
    for request in responder.seen.requests() {
        let mut lines: Vec<&str> = request.head.lines().skip(1).collect();
        lines.sort_unstable();
        let host = format!("host: {}", responder.address);
        assert_eq!(lines[..3], ["accept-encoding: identity", "content-length: 17", &host], "{lines:?}");
        assert_eq!((lines.len(), request.body.len()), (4, 17));
    }
}
