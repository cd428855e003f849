//! A server with two tenants, the one that is attacked and the one that attacks, and what an attack is judged by.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::attack::Attack;
use crate::victim::{Report, Victim};

/// The memory limit of the server under any attack.
const MEMORY_KIB_MAX: u64 = 300 << 10;
/// The victim's calls may become slower by this factor.
const SLOWDOWN_MAX: u32 = 5;
/// Below this a difference says more about the machine than about the server: debug builds share two cores with
/// attackers.
const SLOW: Duration = Duration::from_millis(400);
/// How long the victim is measured, at rest and under attack.
const REST: Duration = Duration::from_millis(1500);
const SIEGE: Duration = Duration::from_secs(3);
const SIEGE_IN_SOAK: Duration = Duration::from_secs(40);

/// Sieges of one test process would disturb each other's measurements.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A path that takes bodies without a key.
pub(crate) const SOURCE_PATH: &str = "/webhooks/shop";
const SOURCE: &str = "sources: {shop: {verify: stripe, secret: whsec_0123456789abcdef}}\n";

pub(crate) struct Arena {
    pub(crate) server: Server,
    /// Admin of the attacker's own namespace.
    pub(crate) attacker: Client,
    pub(crate) victim: Client,
    operator: Client,
}

impl Arena {
    pub(crate) async fn open() -> Arena {
        Arena::with("").await
    }

    /// With these lines of configuration.
    pub(crate) async fn with(yaml: &str) -> Arena {
        let server = Launch::fresh().with_config(&format!("{SOURCE}{yaml}")).start().await;
        // The limits are those of one process.
        let base = server.nodes[0].base.clone();
        let operator = server.nodes[0].client();
        let victim = tenant(&operator, "victim").await;
        let attacker = tenant(&operator, "attacker").await;
        // A dozen addresses below are the attackers'.
        let victim = Client::from_address(&base, &victim, loopback(99));
        Arena { server, attacker: Client::new(&base, &attacker), victim, operator }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.nodes[0].address()
    }

    /// Measures the victim at rest and under the attack, which must hold at least `held` at some moment.
    pub(crate) async fn besiege(&self, mut attack: Attack, held: usize) -> Siege {
        let _alone = ONE_AT_A_TIME.lock().await;
        let victim = Victim::begin(self.victim.clone()).await;
        let at_rest = victim.watch(REST).await;
        let before = self.memory_kib();
        attack.begin(self.address());
        attack.wait_until_held(held).await;
        let siege = if is_soak() { SIEGE_IN_SOAK } else { SIEGE };
        let stopwatch = Stopwatch::start();
        let mut under_attack = Report::default();
        let (mut memory_kib, mut waiting, mut unsent) = (self.memory_kib(), 0, 0);
        while !stopwatch.has_passed(siege) {
            under_attack.add(victim.watch(Duration::from_millis(500)).await);
            memory_kib = memory_kib.max(self.memory_kib());
            waiting = waiting.max(self.metric("outlast_waiting_requests").await);
            unsent = unsent.max(self.metric("outlast_answer_bytes").await);
        }
        let siege =
            Siege { name: attack.name, held: attack.most_held(), waiting, unsent, at_rest, under_attack, memory_kib };
        println!(
            "{}: {} held and {} waiting at most; victim made {} calls, {} refused, p99 {:?} at rest and {:?} under attack; {before} KiB \
             before, {} KiB at most",
            siege.name,
            siege.held,
            siege.waiting,
            siege.under_attack.calls(),
            siege.under_attack.refusals.len(),
            siege.at_rest.p99(),
            siege.under_attack.p99(),
            siege.memory_kib,
        );
        attack.stop().await;
        victim.end().await;
        siege
    }

    pub(crate) async fn metric(&self, name: &str) -> usize {
        let page = self.operator.get("/metrics").await.unwrap().expect(200);
        let value = page.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} is among the metrics"))
    }

    fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.nodes[0].process_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }
}

/// How an attack went.
pub(crate) struct Siege {
    name: &'static str,
    pub(crate) held: usize,
    /// The most requests that waited at once, those of the victim included.
    pub(crate) waiting: usize,
    /// The most bytes of large answers that were not sent yet.
    pub(crate) unsent: usize,
    at_rest: Report,
    pub(crate) under_attack: Report,
    memory_kib: u64,
}

impl Siege {
    #[track_caller]
    pub(crate) fn assert_unnoticed(&self) {
        assert!(self.at_rest.refusals.is_empty(), "{}, at rest: {:?}", self.name, self.at_rest.refusals);
        assert!(self.under_attack.refusals.is_empty(), "{}: {:?}", self.name, self.under_attack.refusals);
        assert!(self.under_attack.calls() >= 20, "{}: the victim made no calls", self.name);
        let allowed = (self.at_rest.p99() * SLOWDOWN_MAX).max(SLOW);
        assert!(self.under_attack.p99() <= allowed, "{}: {:?} at p99", self.name, self.under_attack.p99());
        assert!(self.memory_kib <= MEMORY_KIB_MAX, "{}: {} KiB in memory", self.name, self.memory_kib);
    }
}

/// The whole number in a soak, else the reduced one.
pub(crate) fn volume(reduced: usize, whole: usize) -> usize {
    if is_soak() { whole } else { reduced }
}

pub(crate) fn is_soak() -> bool {
    std::env::var("OUTLAST_SOAK").is_ok_and(|value| value == "1")
}

/// So many addresses of this machine.
pub(crate) fn addresses(count: u8) -> Vec<IpAddr> {
    (2..2 + count).map(loopback).collect()
}

fn loopback(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// A namespace with a queue; its admin key.
async fn tenant(operator: &Client, namespace: &str) -> String {
    let request = json!({"name": namespace, "scopes": ["admin"], "namespace": namespace});
    let issued = operator.post("/v1/keys", request).await.unwrap().expect(201);
    let key = text(&issued["key"]);
    let client = Client::new(&operator.base, &key);
    client.put("/v1/queues/work", json!({})).await.unwrap().expect(201);
    key
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is text")).to_owned()
}
