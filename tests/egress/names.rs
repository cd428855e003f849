//! Hostile name servers: whatever they answer, in whatever order, only the allowed address is ever connected to. (T02,
//! F34)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_engine::egress::{Egress, EgressSettings, HttpEgress, SendPhase};
use outlast_tests::dns::{NameServer, Question, Record, Reply, addresses, record};
use outlast_tests::responder::Responder;
use outlast_tests::stopwatch::Stopwatch;

use crate::scene::{OK, OK_AND_CLOSE, allowing, egress, request, send};
use crate::traps::Traps;

const PUBLIC: &str = "127.0.0.2";
const PRIVATE: &str = "127.0.0.3";
/// Rounds per pattern; each is a fresh lookup and, where it is let through, a fresh connection.
const ROUNDS: usize = 100;

/// A responder on the allowed address, and traps on the same port of the others.
struct Scene {
    public: Responder,
    traps: Traps,
}

impl Scene {
    async fn start() -> Scene {
        let (public, traps) = Traps::beside(PUBLIC, OK_AND_CLOSE, &["127.0.0.1", PRIVATE, "127.9.9.9", "[::1]"]).await;
        Scene { public, traps }
    }

    fn url(&self) -> String {
        format!("http://hooks.example.test:{}/", self.public.address.port())
    }
}

fn with(server: &NameServer) -> EgressSettings {
    EgressSettings { nameservers: vec![server.address], ..allowing(&[PUBLIC]) }
}

/// Every second question of a type gets the second answer.
fn in_turn(first: &'static [&'static str], second: &'static [&'static str]) -> impl Fn(&Question) -> Reply {
    move |question| addresses(if question.number.is_multiple_of(2) { first } else { second })
}

type Script = Box<dyn Fn(&Question) -> Reply + Send + Sync>;

fn patterns() -> Vec<(&'static str, Script)> {
    let fixed = |texts: &'static [&'static str]| move |_: &Question| addresses(texts);
    let alias = |records: Vec<Record>| move |_: &Question| Reply::Records(records.clone());
    vec![
        ("rebinding: public, then private", Box::new(in_turn(&[PUBLIC], &[PRIVATE]))),
        ("rebinding: private, then public", Box::new(in_turn(&[PRIVATE], &[PUBLIC]))),
        (
            "first fails, then private",
            Box::new(|question| match question.number {
                0 => Reply::Fails,
                _ => addresses(&[PRIVATE]),
            }),
        ),
        (
            "every second fails, else private",
            Box::new(|question| match question.number.is_multiple_of(2) {
                true => Reply::Fails,
                false => addresses(&[PRIVATE]),
            }),
        ),
        (
            "no such name, then private",
            Box::new(|question| match question.number.is_multiple_of(2) {
                true => Reply::NoSuchName,
                false => addresses(&[PRIVATE]),
            }),
        ),
        ("mixed, public first", Box::new(fixed(&[PUBLIC, PRIVATE]))),
        ("mixed, private first", Box::new(fixed(&[PRIVATE, PUBLIC]))),
        ("many public, one private", Box::new(fixed(&[PUBLIC, PUBLIC, PUBLIC, PUBLIC, PRIVATE]))),
        ("public A, private AAAA", Box::new(fixed(&[PUBLIC, "::1"]))),
        ("public A, mapped private AAAA", Box::new(fixed(&[PUBLIC, "::ffff:127.0.0.3"]))),
        ("only mapped private AAAA", Box::new(fixed(&["::ffff:127.0.0.3"]))),
        ("only compatible private AAAA", Box::new(fixed(&["::127.0.0.3"]))),
        ("NAT64 of a private address", Box::new(fixed(&["64:ff9b::7f00:3"]))),
        ("6to4 of a private address", Box::new(fixed(&["2002:7f00:3::1"]))),
        ("unspecified", Box::new(fixed(&["0.0.0.0"]))),
        ("unspecified AAAA", Box::new(fixed(&["::"]))),
        ("loopback", Box::new(fixed(&["127.0.0.1", "::1"]))),
        ("alias to a private name", Box::new(alias(vec![Record::Alias("db.internal"), record(PRIVATE)]))),
        (
            "chain of aliases",
            Box::new(alias(vec![Record::Alias("a.example.test"), Record::Alias("localhost"), record("127.0.0.1")])),
        ),
        ("metadata service", Box::new(fixed(&["169.254.169.254"]))),
        ("cut short, then private", Box::new(|_| Reply::CutShort(vec![record(PUBLIC), record(PRIVATE)]))),
        (
            "AAAA fails, A private",
            Box::new(|question| match question.is_ipv6 {
                true => Reply::Fails,
                false => addresses(&[PRIVATE]),
            }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pattern_of_answers_leads_to_a_refused_address() {
    let scene = Scene::start().await;
    let mut races = 0;
    for (pattern, script) in patterns() {
        let server = NameServer::start(0, script).await;
        let egress = egress(with(&server));
        for _ in 0..ROUNDS {
            let outcome = send(&egress, &scene.url()).await;
            races += 1;
            if let Err(error) = outcome {
                let is_expected = matches!(error.phase, SendPhase::Blocked | SendPhase::Resolve);
                assert!(is_expected, "{pattern}: {error:?}");
            }
        }
        assert!(server.asked().len() >= ROUNDS, "{pattern}: the name server was hardly asked");
        assert_eq!(scene.traps.connections(), 0, "{pattern}");
    }
    assert!(races >= 2000, "{races}");
    let reached = scene.public.seen.requests().len();
    assert!(reached >= ROUNDS / 2, "the allowed address was reached {reached} times: is anything let through at all?");
}

// The control of the traps: with everything allowed, the same answers do lead there.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_answers_reach_the_traps_where_they_are_allowed() {
    let scene = Scene::start().await;
    for text in ["127.0.0.1", PRIVATE, "::1", "::ffff:127.0.0.3"] {
        let server = NameServer::start(0, move |_| addresses(&[text])).await;
        let open =
            EgressSettings { nameservers: vec![server.address], ..allowing(&[PUBLIC, PRIVATE, "127.0.0.1", "::1"]) };
        let before = scene.traps.connections();

        assert_eq!(send(&egress(open), &scene.url()).await.unwrap().status, 200, "{text}");

        assert_eq!(scene.traps.connections(), before + 1, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_is_kept_and_a_new_one_is_checked_again() {
    let (public, traps) = Traps::beside(PUBLIC, OK, &[PRIVATE]).await;
    let is_turned = Arc::new(AtomicBool::new(false));
    let turned = Arc::clone(&is_turned);
    let server =
        NameServer::start(0, move |_| addresses(if turned.load(Ordering::SeqCst) { &[PRIVATE] } else { &[PUBLIC] }))
            .await;
    let egress = egress(with(&server));
    let url = format!("http://hooks.example.test:{}/", public.address.port());
    send(&egress, &url).await.unwrap();
    is_turned.store(true, Ordering::SeqCst);

    let reused = send(&egress, &url).await.unwrap();
    let (one, two) = tokio::join!(send(&egress, &url), send(&egress, &url));

    assert_eq!(reused.status, 200);
    assert_eq!(public.seen.connections(), 1, "the open connection was used again");
    let blocked = [one, two].into_iter().filter_map(Result::err).next().expect("two at once need a second connection");
    assert_eq!(blocked.phase, SendPhase::Blocked);
    assert_eq!(traps.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_were_cut_short_are_asked_for_again_in_full() {
    let scene = Scene::start().await;
    let server = NameServer::start(0, |_| Reply::CutShort(vec![record(PUBLIC)])).await;

    assert_eq!(send(&egress(with(&server)), &scene.url()).await.unwrap().status, 200);

    assert!(server.asked().len() >= 3, "over UDP and then over TCP");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_is_down_is_distinguished_from_a_name_that_does_not_exist() {
    let scene = Scene::start().await;
    let missing = NameServer::start(0, |_| Reply::NoSuchName).await;
    let failing = NameServer::start(0, |_| Reply::Fails).await;
    let empty = NameServer::start(0, |_| addresses(&[])).await;
    let silent = NameServer::start(0, |_| Reply::Silence).await;
    let garbled = NameServer::start(0, |_| Reply::Garbage).await;
    let gone = NameServer::start(0, |_| Reply::Silence).await;
    let gone_settings = with(&gone);
    drop(gone);
    for (server, is_outage) in [
        ("missing", with(&missing), false),
        ("failing", with(&failing), false),
        ("empty", with(&empty), false),
        ("silent", with(&silent), true),
        ("garbled", with(&garbled), true),
        ("gone", gone_settings, true),
    ]
    .map(|(name, settings, is_outage)| ((name, settings), is_outage))
    {
        let (name, settings) = server;
        let began = Stopwatch::start();
        let error = send(&egress(settings), &scene.url()).await.unwrap_err();

        assert_eq!((error.phase, error.is_resolver_outage()), (SendPhase::Resolve, is_outage), "{name}: {error}");
        assert!(began.charged() < Duration::from_secs(6), "{name}: {}", began.reading());
    }
    assert_eq!((scene.public.seen.connections(), scene.traps.connections()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_resolver_costs_no_more_than_the_requests_own_timeout() {
    let silent = NameServer::start(0, |_| Reply::Silence).await;
    let egress: HttpEgress = egress(with(&silent));
    let mut outgoing = request("http://hooks.example.test/");
    outgoing.timeout = Duration::from_millis(300);
    let began = Stopwatch::start();

    let error = egress.send(outgoing).await.unwrap_err();

    assert_eq!(error.phase, SendPhase::Resolve);
    assert!(began.charged() < Duration::from_secs(2), "{}", began.reading());
    assert!(!silent.asked().is_empty(), "it was asked");
}

// Answers are kept for as long as they say, so that a busy queue does not ask for every connection.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_kept_for_their_time_and_checked_each_time() {
    let scene = Scene::start().await;
    let server = NameServer::start(60, |_| addresses(&[PUBLIC])).await;
    let egress = egress(with(&server));

    for _ in 0..20 {
        assert_eq!(send(&egress, &scene.url()).await.unwrap().status, 200);
    }

    assert_eq!(scene.public.seen.connections(), 20, "it closes after each answer");
    // An empty answer without an authority may not be kept, so only the questions that had an answer count.
    let asked = server.asked().iter().filter(|question| !question.is_ipv6).count();
    assert_eq!(asked, 1);
}
