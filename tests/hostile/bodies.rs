//! Bodies that are announced and come slowly: with no key at the path of a source, and with a key as a batch.

use std::time::Duration;

use crate::arena::{Arena, SOURCE_PATH, addresses, volume};
use crate::attack::{Attack, Behaviour};

/// One that keeps just above the least rate, so that no deadline helps but that of the whole body.
fn drip(head: String, at_once: usize) -> Behaviour {
    let first = [head.as_bytes(), &vec![b' '; at_once]].concat();
    Behaviour { first: first.into(), then: vec![b' '; 1100].into(), every: Duration::from_secs(1), is_silent: false }
}

fn webhook() -> Behaviour {
    drip(format!("POST {SOURCE_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n"), 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_webhooks_of_one_address_harm_no_other_sender() {
    let arena = Arena::open().await;
    let attack = Attack::plan("slow webhooks from one address", &addresses(1), volume(400, 2700), webhook());

    let siege = arena.besiege(attack, volume(200, 400)).await;

    siege.assert_unnoticed();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_webhooks_of_a_dozen_addresses_harm_no_other_sender() {
    let arena = Arena::open().await;
    let attack = Attack::plan("slow webhooks from twelve addresses", &addresses(12), volume(600, 2700), webhook());

    let siege = arena.besiege(attack, volume(400, 800)).await;

    siege.assert_unnoticed();
}

// The control: the same attack where one sender may have everything.
#[tokio::test(flavor = "multi_thread")]
async fn without_shares_the_victim_suffers_and_with_them_it_does_not() {
    for (yaml, suffers) in [
        ("limits: {in_flight_requests: 200, key_share_percent: 100}\n", true),
        ("limits: {in_flight_requests: 200}\n", false),
    ] {
        let arena = Arena::with(yaml).await;
        let name = if suffers { "slow webhooks without shares" } else { "slow webhooks with shares" };
        let attack = Attack::plan(name, &addresses(12), 300, webhook());

        // Without shares, the attackers get all but the reserved slots.
        let siege = arena.besiege(attack, if suffers { 170 } else { 30 }).await;

        assert_eq!(!siege.under_attack.refusals.is_empty(), suffers, "{:?}", siege.under_attack.refusals);
        assert!(siege.held >= 30);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_batches_of_a_tenant_harm_no_other_tenant() {
    for count in [1, 12] {
        let arena = Arena::open().await;
        let head = format!(
            "POST /v1/queues/work/jobs/batch HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 8388608\r\n\r\n",
            arena.attacker.key
        );
        // Most of the announced length comes at once in all, far more than the share of a key.
        let behaviour = drip(head, 1 << 20);
        let name = if count == 1 { "slow batches from one address" } else { "slow batches from twelve addresses" };
        let attack = Attack::plan(name, &addresses(count), volume(160, 320), behaviour);

        let siege = arena.besiege(attack, 60).await;

        siege.assert_unnoticed();
    }
}
