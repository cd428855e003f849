//! The connector follows no reference in an answer, and uses no proxy of the environment. (T03, T04, F25)

use std::process::Command;

use outlast_tests::responder::Responder;

use crate::scene::{OK, allowing, egress, send};
use crate::traps::Traps;

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_point_elsewhere_are_answers_and_are_not_followed() {
    let traps = Traps::set(&["127.0.0.3"]).await;
    let elsewhere = format!("http://127.0.0.3:{}/", traps.port());
    // Everything is allowed: what keeps us away is that nothing is followed.
    let egress = egress(allowing(&["127.0.0.2", "127.0.0.3"]));
    let mut cases = Vec::new();
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        cases.push((status, format!("location: {elsewhere}\r\n")));
    }
    for (status, header) in [
        (200, format!("refresh: 0; url={elsewhere}\r\n")),
        (200, format!("alt-svc: http/1.1=\"127.0.0.3:{}\"; ma=3600\r\n", traps.port())),
        (200, format!("link: <{elsewhere}>; rel=preload\r\n")),
        (201, format!("location: {elsewhere}\r\n")),
        (401, "www-authenticate: Basic realm=x\r\n".to_owned()),
        (407, "proxy-authenticate: Basic realm=x\r\n".to_owned()),
        (408, "connection: close\r\n".to_owned()),
        (421, format!("location: {elsewhere}\r\n")),
        (425, String::new()),
        (426, "upgrade: h2c\r\nconnection: upgrade\r\n".to_owned()),
        (503, "retry-after: 0\r\n".to_owned()),
    ] {
        cases.push((status, header));
    }
    for (status, header) in cases {
        let length = if status == 304 { "" } else { "content-length: 0\r\n" };
        let answer = format!("HTTP/1.1 {status} X\r\n{header}{length}set-cookie: a=b\r\n\r\n");
        let responder = Responder::answering("127.0.0.2:0", answer).await;

        for _ in 0..2 {
            assert_eq!(send(&egress, &responder.url("/")).await.unwrap().status, status, "{header}");
        }

        let requests = responder.seen.requests();
        assert_eq!(requests.len(), 2, "{status} {header}: one request for each that was asked for");
        assert!(!requests[1].head.to_ascii_lowercase().contains("cookie"), "{}", requests[1].head);
        assert_eq!(traps.connections(), 0, "{status} {header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_environment_are_not_used() {
    let proxy = Traps::set(&["127.0.0.3"]).await;
    let responder = Responder::answering("127.0.0.2:0", OK).await;
    let environment = |command: &mut Command| {
        let place = format!("http://127.0.0.3:{}", proxy.port());
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, &place);
        }
        command.env("no_proxy", "").env("NO_PROXY", "").env_remove("REQUEST_METHOD");
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast-send"));
    command.args([&*responder.url("/"), "--count", "3"]);
    environment(&mut command);

    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();

    assert!(output.status.success(), "{output:?}");
    assert_eq!(responder.seen.requests().len(), 3);
    assert_eq!(proxy.connections(), 0);

    // The control: a client that goes by the environment does end up at the proxy.
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast-send"));
    command.args([&*responder.url("/"), "--by-environment"]);
    environment(&mut command);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((responder.seen.requests().len(), proxy.connections()), (3, 1));
}
