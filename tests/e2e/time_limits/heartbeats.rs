//! I-21: a heartbeat extends its own lease and no other, never beyond the limits, never shortens one, and always says
//! whether a cancel was asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::server::Server;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::time;
use crate::api::{job, make_queue, publish_many, receive, settle, text};

const JOBS: usize = 40;
/// The server's clock is ours, carried on by another one, or the database's as it last said it, which may have been
/// held up on its way.
const CLOCKS_APART: Duration = Duration::from_secs(1);
/// Far longer than the test, far shorter than what its workers ask for.
const HARD_SECONDS: u64 = 2400;
const WHOLE_SECONDS: u64 = 1800;

/// A running job as its worker knows it.
struct Held {
    id: String,
    lease: String,
    /// The end of the lease in the last answer.
    told: jiff::Timestamp,
    /// No lease may reach beyond this.
    limit: jiff::Timestamp,
    is_cancelled: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_extends_its_own_lease_only_and_never_beyond_the_limits() {
    let server = Server::fresh().await;
    let clients = server.clients();
    let seed = seed("heartbeats");
    let beats = volume(100, 25_000);
    make_queue(
        &clients[0],
        "hard",
        json!({"visibilityTimeout": 600, "drainTimeout": 3600, "hardTimeLimit": HARD_SECONDS}),
    )
    .await;
    make_queue(
        &clients[0],
        "whole",
        json!({"visibilityTimeout": 600, "drainTimeout": 3600, "jobTimeout": WHOLE_SECONDS}),
    )
    .await;

    let mut workers = JoinSet::new();
    for (number, (queue, limit)) in [("hard", HARD_SECONDS), ("whole", WHOLE_SECONDS)].into_iter().enumerate() {
        publish_many(&clients[0], queue, JOBS).await;
        let held = hold(&clients[0], queue, Duration::from_secs(limit)).await;
        let clients = clients.clone();
        let chance = Chance::seeded(seed.wrapping_add(number as u64));
        workers.spawn(beat_at_random(clients, held, beats, chance));
    }
    let capped: usize = workers.join_all().await.into_iter().sum();

    println!("heartbeats: {} of {} were held back by a limit", capped, 2 * beats);
    assert!(capped > beats / 10, "only {capped} heartbeats asked for more than there is");
}

async fn hold(client: &Client, queue: &str, limit: Duration) -> BTreeMap<String, Held> {
    let mut held = BTreeMap::new();
    for taken in receive(client, queue, json!({ "batch": JOBS })).await {
        let id = text(&taken["id"]);
        let limit = time(&job(client, &id).await["startedAt"]) + limit;
        let told = time(&taken["leaseExpiresAt"]);
        held.insert(id.clone(), Held { id, lease: text(&taken["lease"]), told, limit, is_cancelled: false });
    }
    held
}

/// Random workers report, sometimes with another worker's lease; now and then all leases are looked at. Returns how
/// many heartbeats got less than they asked for.
async fn beat_at_random(
    clients: Vec<Client>,
    mut held: BTreeMap<String, Held>,
    beats: usize,
    mut chance: Chance,
) -> usize {
    let ids: Vec<String> = held.keys().cloned().collect();
    let mut capped = 0;
    for _ in 0..beats {
        let client = &clients[chance.below(clients.len() as u64) as usize];
        let id = &ids[chance.below(ids.len() as u64) as usize];
        match chance.below(10) {
            0 => {
                let other = ids.iter().find(|other| *other != id).expect("there are several");
                let stolen = json!({"lease": held[other].lease, "extend": 6000});
                let reply = client.post(&format!("/v1/jobs/{id}/heartbeat"), stolen).await.unwrap();
                reply.expect_problem(409, "lease_lost");
            }
            1 if !held[id].is_cancelled => {
                client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
                held.get_mut(id).expect("it is held").is_cancelled = true;
            }
            _ => capped += usize::from(beat(client, held.get_mut(id).expect("it is held"), &mut chance).await),
        }
        let looked_at = &held[&ids[chance.below(ids.len() as u64) as usize]];
        let shown = job(client, &looked_at.id).await;
        assert_eq!(time(&shown["leaseExpiresAt"]), looked_at.told, "a lease that its own worker did not extend");
    }
    capped
}

/// One heartbeat, and whether it was held back by a limit.
async fn beat(client: &Client, held: &mut Held, chance: &mut Chance) -> bool {
    let extend = chance.between(1, 6000);
    let sent_at = jiff::Timestamp::now();
    let answer: Value = settle(client, &held.id, "heartbeat", json!({"lease": held.lease, "extend": extend})).await;
    let got_at = jiff::Timestamp::now();
    let ends = time(&answer["leaseExpiresAt"]);
    let asked = Duration::from_secs(extend);
    assert!(ends <= held.limit, "a lease beyond the limit {}: {answer}", held.limit);
    assert!(ends >= held.told, "a shorter lease than {}: {answer}", held.told);
    let least = (sent_at + asked - CLOCKS_APART).min(held.limit).max(held.told);
    let most = (got_at + asked + CLOCKS_APART).min(held.limit).max(held.told);
    assert!(ends >= least && ends <= most, "asked for {extend} s, not between {least} and {most}: {answer}");
    assert_eq!(answer["cancelRequested"], held.is_cancelled, "{answer}");
    held.told = ends;
    got_at + asked > held.limit
}
