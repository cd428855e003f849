//! T17, I-37: a link is one object, one method, some minutes, and dies with the key that asked for it. Whatever is done to
//! it, it opens nothing else; and it is in no log.

use std::sync::Arc;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::text;
use crate::results::{Rig, header};

/// Nodes that hear nothing of each other look at the keys this often, and a bit.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A result, a link to read it, and a link to write another one.
async fn two_links(rig: &Rig) -> (String, String) {
    let held = rig.succeeded("work", "a hidden text").await;
    let read = rig.link(&held.id).await;
    let other = rig.held().await;
    let begun = rig.client.post(&format!("/v1/jobs/{}/result/upload", other.id), json!({"lease": other.lease})).await;
    (read, rig.whole(&text(&begun.unwrap().expect(201)["url"])))
}

// T17: every letter changed to every other one, and thousands of other changes, open nothing and say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_was_tampered_with_opens_nothing() {
    let rig = Arc::new(Rig::on_folder().await);
    let (link, _) = two_links(&rig).await;
    let (base, sealed) = link.rsplit_once('/').map(|(base, sealed)| (base.to_owned(), sealed.to_owned())).unwrap();
    let mut chance = Chance::seeded(seed("links"));
    let mut changed: Vec<String> = Vec::new();
    for at in 0..sealed.len() {
        for _ in 0..volume(6, 63) {
            changed.push(with_letter(&sealed, at, &mut chance));
        }
        changed.push(sealed[..at].to_owned());
        changed.push(format!("{}{}", &sealed[..at], &sealed[at + 1..]));
    }
    changed.push(format!("{sealed}A"));
    changed.push(format!("{sealed}{sealed}"));
    changed.push("A".repeat(512));
    // The last letter has bits that mean nothing; those that only differ there are the same link.
    changed.retain(|text| !text.is_empty() && *text != sealed);
    let total = changed.len();
    let mut running = JoinSet::new();
    for lane in 0..8 {
        let mine: Vec<String> = changed.iter().skip(lane).step_by(8).cloned().collect();
        let (rig, base) = (Arc::clone(&rig), base.clone());
        running.spawn(async move {
            for text in mine {
                let got = rig.open(&format!("{base}/{text}")).await;
                assert_eq!(got.status, 404, "{text}");
                assert!(!got.body.windows(13).any(|window| window == b"a hidden text"));
            }
        });
    }

    running.join_all().await;

    println!("{total} tampered links");
    assert_eq!(rig.open(&link).await.status, 200, "the control: unchanged, it opens");
    assert!(!rig.server.log().contains("panicked"));
}

fn with_letter(sealed: &str, at: usize, chance: &mut Chance) -> String {
    let mut letters = sealed.as_bytes().to_vec();
    while letters[at] == sealed.as_bytes()[at] {
        letters[at] = LETTERS[chance.below(LETTERS.len() as u64) as usize];
    }
    String::from_utf8(letters).expect("letters are text")
}

// T17: to read is not to write, nor the other way round; and nothing can be listed or deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_good_for_one_method() {
    let rig = Rig::on_folder().await;
    let (read, write) = two_links(&rig).await;

    assert_eq!(rig.send(&read, "changed").await.status, 404);
    assert_eq!(rig.open(&write).await.status, 404);
    assert_eq!(rig.send(&write, "sent").await.status, 200);
    assert_eq!(rig.open(&write).await.status, 404, "not even when there is something");
    for method in [Method::POST, Method::DELETE, Method::PATCH] {
        for link in [&read, &write] {
            assert_eq!(rig.fetch(method.clone(), link, &[], Some(&rig.client.key)).await.status, 405);
        }
    }
    for path in ["/v1/objects", "/v1/objects/", "/v1/objects/1", "/v1/objects/..%2f..%2fetc%2fpasswd"] {
        let got = rig.fetch(Method::GET, &format!("{}{path}", rig.client.base), &[], Some(&rig.client.key)).await;
        assert!(matches!(got.status, 400 | 404), "{path}: {}", got.status);
    }
    assert_eq!(&rig.open(&read).await.body[..], b"a hidden text");
}

// I-37: no new links after a revocation, and the old ones of that key are over.
#[tokio::test(flavor = "multi_thread")]
async fn the_links_of_a_revoked_key_stop() {
    let rig = Rig::on_folder().await;
    let held = rig.succeeded("work", "a hidden text").await;
    let lasting = rig.link(&held.id).await;
    let issued = rig.client.post("/v1/keys", json!({"name": "reader", "scopes": ["read"]})).await.unwrap().expect(201);
    let path = format!("{}/v1/jobs/{}/result", rig.client.base, held.id);
    let key = text(&issued["key"]);
    let link = wait::until("the key to be known", REVOKED_WITHIN, async || {
        let answer = rig.fetch(Method::GET, &path, &[], Some(&key)).await;
        (answer.status == 307).then(|| rig.whole(header(&answer, "location")))
    })
    .await;
    assert_eq!(rig.open(&link).await.status, 200);

    rig.client.delete(&format!("/v1/keys/{}", text(&issued["id"]))).await.unwrap();

    wait::until("the link to stop", REVOKED_WITHIN, async || (rig.open(&link).await.status == 404).then_some(())).await;
    let nodes = rig.server.nodes.iter().map(|node| node.base.clone());
    for base in nodes {
        let refused = async || {
            let path = path.replace(&rig.client.base, &base);
            (rig.fetch(Method::GET, &path, &[], Some(&key)).await.status == 401).then_some(())
        };
        wait::until("the key to be refused", REVOKED_WITHIN, refused).await;
    }
    assert_eq!(rig.open(&lasting).await.status, 200, "the control: the link of another key");
}

// T17: keys are no links, and nothing that opens something is in a URL that is logged.
#[tokio::test(flavor = "multi_thread")]
async fn links_and_keys_are_in_no_log() {
    let rig = Rig::with(Launch::fresh().with_env("OUTLAST_LOG", "trace")).await;
    let (read, write) = two_links(&rig).await;
    assert_eq!(rig.open(&read).await.status, 200);
    assert_eq!(rig.send(&write, "sent").await.status, 200);
    let tampered = format!("{}x", &read[..read.len() - 1]);
    rig.open(&tampered).await;
    let by_query = format!("{}/v1/jobs?key={}", rig.client.base, rig.client.key);
    assert_eq!(rig.fetch(Method::GET, &by_query, &[], None).await.status, 401, "a key in a query opens nothing");

    let log = rig.server.log();

    assert!(log.contains("outlast"), "the search must be able to find what is there");
    for link in [&read, &write] {
        let sealed = link.rsplit_once('/').unwrap().1;
        assert!(!log.contains(sealed) && !log.contains(&sealed[..40]), "a link is in the log");
    }
    assert!(!log.contains(&rig.client.key[16..]), "a key is in the log");
}

// A link made by one node opens at every other; a stranger's server knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn links_hold_on_every_node_and_on_no_other_server() {
    let (rig, other) = (Rig::on_folder().await, Rig::with(Launch::embedded()).await);
    let (read, _) = two_links(&rig).await;
    let sealed = read.rsplit_once('/').unwrap().1;

    for node in &rig.server.nodes {
        let at_node = Client::new(&node.base, "none");
        let got = at_node.send(at_node.keyless(Method::GET, &format!("/v1/objects/{sealed}"))).await.unwrap();
        assert_eq!((got.status, got.body), (200, json!("a hidden text")));
    }
    assert_eq!(other.open(&format!("{}/v1/objects/{sealed}", other.client.base)).await.status, 404);
}
