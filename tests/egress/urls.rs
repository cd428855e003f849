//! Hostile URLs: each is refused when it is stored or when it is called, and no listener sees a connection. The name
//! server answers every name with this machine, so a name that gets through would arrive. (T01, T04, T05)

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use outlast_engine::egress::{Egress, EgressSettings, HttpEgress, SendPhase};
use outlast_tests::dns::{NameServer, addresses};

use crate::scene::{allowing, egress, request, send};
use crate::traps::Traps;

/// One per line; `{port}` is the port of the traps. Lines with `#` are headings.
const WRITTEN: &str = include_str!("hostile_urls.txt");

const TRAPPED: [&str; 5] = ["127.0.0.1", "127.0.0.2", "127.1.1.1", "127.255.255.254", "[::1]"];

/// Addresses of somebody's own network, spelt in every way below.
const PRIVATE: [[u8; 4]; 13] = [
    [127, 0, 0, 1],
    [127, 0, 0, 2],
    [127, 1, 1, 1],
    [127, 255, 255, 254],
    [0, 0, 0, 0],
    [10, 0, 0, 1],
    [100, 64, 0, 1],
    [169, 254, 169, 254],
    [172, 16, 0, 1],
    [192, 168, 0, 1],
    [192, 0, 0, 192],
    [198, 18, 0, 1],
    [224, 0, 0, 1],
];

/// The ways to write an IPv4 address that programs somewhere understand.
fn spellings([a, b, c, d]: [u8; 4]) -> Vec<String> {
    let number = u32::from(Ipv4Addr::new(a, b, c, d));
    let (high, low) = (number >> 16, number & 0xffff);
    let wide: String = format!("{a}.{b}.{c}.{d}").chars().map(full_width).collect();
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0X{number:08X}"),
        format!("0{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.0x{b:x}.{c}.{d}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a}.{b}.{}", low),
        format!("%{:02x}{}.{b}.{c}.{d}", a.to_string().as_bytes()[0], &a.to_string()[1..]),
        wide,
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:ffff:{high:04x}:{low:04x}]"),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[64:ff9b:1::{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::]"),
        format!("{a}.{b}.{c}.{d}.nip.example"),
    ]
}

fn full_width(c: char) -> char {
    match c {
        '0'..='9' => char::from_u32(0xff10 + u32::from(c) - u32::from('0')).expect("a digit"),
        '.' => '。',
        other => other,
    }
}

fn corpus(port: u16) -> BTreeSet<String> {
    let written = WRITTEN.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut urls: BTreeSet<String> = written.map(|line| line.replace("{port}", &port.to_string())).collect();
    for address in PRIVATE {
        for host in spellings(address) {
            urls.insert(format!("http://{host}:{port}/"));
        }
    }
    urls
}

/// With the traps' port among the allowed ones: it is the address that has to be refused.
async fn closed(port: u16) -> (HttpEgress, NameServer) {
    let server = NameServer::start(0, |_| addresses(&["127.0.0.1", "::1"])).await;
    let ports = [&[port][..], &outlast_engine::egress::settings::PORTS].concat();
    (egress(EgressSettings { ports, nameservers: vec![server.address], ..EgressSettings::default() }), server)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hostile_url_reaches_a_listener() {
    let traps = Traps::set(&TRAPPED).await;
    let (egress, _server) = closed(traps.port()).await;
    let urls = corpus(traps.port());
    let mut refused_early = 0;
    for url in &urls {
        refused_early += usize::from(egress.check(url).is_err());

        let error = send(&egress, url).await.expect_err(url);

        assert_eq!((error.phase, &*error.message), (SendPhase::Blocked, "blocked destination"), "{url}");
        assert_eq!(traps.connections(), 0, "{url}");
    }
    assert!(urls.len() >= 400, "{} URLs", urls.len());
    assert!(refused_early >= 300, "{refused_early} of {} were refused when stored", urls.len());
}

// The control: the listeners are there and are reached by the same URLs where the operator allows it.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_urls_reach_the_listeners_where_they_are_allowed() {
    let traps = Traps::set(&TRAPPED).await;
    let server = NameServer::start(0, |_| addresses(&["127.0.0.1"])).await;
    let egress = egress(EgressSettings {
        allow_private_targets: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        nameservers: vec![server.address],
        ..EgressSettings::default()
    });
    let mut reached = 0;
    for url in corpus(traps.port()) {
        let mut outgoing = request(&url);
        outgoing.timeout = Duration::from_millis(500);
        reached += usize::from(egress.send(outgoing).await.is_ok_and(|answer| answer.status == 200));
    }

    assert!(reached >= 60, "{reached}");
    // Some speak TLS to listeners that do not.
    assert!(traps.connections() >= reached);
    let untouched = traps.0.iter().filter(|trap| trap.seen.requests().is_empty()).map(|trap| trap.address);
    assert_eq!(untouched.collect::<Vec<_>>(), []);
}

// (T05) Nothing can be learnt about a blocked port: open or closed, known or unknown, the answer is one.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_destinations_look_alike_whether_something_listens_or_not() {
    let traps = Traps::set(&["127.0.0.1"]).await;
    let (egress, _server) = closed(traps.port()).await;
    let mut texts = BTreeSet::new();
    for url in [
        format!("http://127.0.0.1:{}/", traps.port()),
        "http://127.0.0.1:8443/".to_owned(),
        "http://127.0.0.1:1/".to_owned(),
        format!("http://hooks.example.test:{}/", traps.port()),
        "http://hooks.example.test/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://localhost/".to_owned(),
        "ftp://127.0.0.1/".to_owned(),
    ] {
        texts.insert(format!("{:?}", send(&egress, &url).await.unwrap_err()));
    }

    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(traps.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_listeners_are_not_called_also_where_loopback_is_allowed() {
    let own = Traps::set(&["127.0.0.1", "[::1]"]).await;
    let other = Traps::set(&["127.0.0.1"]).await;
    let server = NameServer::start(0, |_| addresses(&["127.0.0.1"])).await;
    let egress = egress(EgressSettings {
        own: vec![format!("0.0.0.0:{}", own.port()).parse().unwrap()],
        nameservers: vec![server.address],
        ..allowing(&["127.0.0.1", "127.0.0.2", "::1"])
    });

    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.2", "own.example.test", "localhost", "2130706433"]
    {
        let error = send(&egress, &format!("http://{host}:{}/v1/queues", own.port())).await.unwrap_err();
        assert_eq!(error.phase, SendPhase::Blocked, "{host}");
    }

    assert_eq!(own.connections(), 0);
    assert_eq!(send(&egress, &format!("http://127.0.0.1:{}/", other.port())).await.unwrap().status, 200, "the control");
}

// The refusal of a stored URL says what is allowed, and nothing about the target.
#[tokio::test]
async fn the_refusal_of_a_url_says_what_is_allowed() {
    let strict = egress(EgressSettings { https_only: true, ..EgressSettings::default() });
    let usual = egress(EgressSettings::default());
    let dev = egress(allowing(&["127.0.0.1"]));
    let text = |egress: &HttpEgress, url: &str| egress.check(url).unwrap_err().to_string();

    assert_eq!(text(&usual, "ftp://example.com/"), "must be a complete http or https URL");
    assert_eq!(
        text(&usual, "http://user:secret@example.com/"),
        "must not contain a user name or password; set a header instead"
    );
    let private = |host: &str| {
        format!(
            "must lead to a public host: \"{host}\" is not one, nor a private one that is allowed (egress.allow_private_targets)"
        )
    };
    let port = "must use one of the ports 80, 443, 8080, 8443, not 22 (egress.ports)";
    for egress in [&usual, &dev] {
        assert_eq!(text(egress, "http://10.0.0.1/"), private("10.0.0.1"));
        assert_eq!(text(egress, "http://10.0.0.1:22/"), private("10.0.0.1"), "another port would not help");
        assert_eq!(text(egress, "http://93.184.215.14:22/"), port);
    }
    assert_eq!(text(&usual, "http://localhost:22/"), private("localhost"));
    assert_eq!(text(&usual, "http://example.com:22/"), port);
    assert_eq!(text(&strict, "http://example.com/"), "must be an https URL (egress.https_only)");
    let denying = EgressSettings { denied_hosts: vec!["*.evil.example".to_owned()], ..EgressSettings::default() };
    assert_eq!(
        text(&egress(denying), "http://a.evil.example/"),
        "must not lead to \"a.evil.example\", which the operator has denied (egress.denied_hosts)"
    );
    for url in ["https://example.com/hook", "http://example.com:8080/", "https://93.184.215.14/"] {
        assert_eq!(usual.check(url), Ok(()), "{url}");
    }
    for url in ["http://127.0.0.1:3000/", "http://localhost:3000/", "http://worker:3000/"] {
        assert_eq!(dev.check(url), Ok(()), "{url}");
    }
}
