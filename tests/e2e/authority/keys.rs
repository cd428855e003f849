//! Every kind of key the matrix needs, and every way to come without one.

use std::fmt;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::text;

/// A key that expires after a second is refused well within this.
const EXPIRY_DEADLINE: Duration = Duration::from_secs(10);

const WORDS: [&str; 4] = ["publish", "consume", "read", "manage"];

/// The queues that the scopes of a key are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Free,
    /// To the queue that the requests are about.
    Here,
    /// To another queue of the same namespace.
    Elsewhere,
    /// Free, in another namespace.
    Neighbour,
}

/// A key and what it may do.
pub(crate) struct Holder {
    pub key: String,
    pub words: Vec<&'static str>,
    pub bound: Bound,
}

impl Holder {
    /// The rule in one place: admin includes all, manage includes read.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|own| *own == word || *own == "admin" || (*own == "manage" && word == "read"))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.words.join("+"), self.bound)
    }
}

/// Every set of scopes, free and bound, in the namespace of the client's key.
pub(crate) async fn every_holder(client: &Client) -> Vec<Holder> {
    let mut holders = Vec::new();
    for words in sets_of_words() {
        holders.push(make(client, words.clone(), Bound::Free).await);
        // The admin scope cannot be bound.
        if !words.contains(&"admin") {
            holders.push(make(client, words.clone(), Bound::Here).await);
            holders.push(make(client, words, Bound::Elsewhere).await);
        }
    }
    holders
}

/// Every set of scopes in another namespace, whose admin asks.
pub(crate) async fn of_namespace(admin: &Client) -> Vec<Holder> {
    let mut holders = Vec::new();
    for words in sets_of_words() {
        holders.push(make(admin, words, Bound::Neighbour).await);
    }
    holders
}

/// All fifteen sets of the four words that can be bound, and admin with and without them.
fn sets_of_words() -> Vec<Vec<&'static str>> {
    let mut sets = vec![vec!["admin"]];
    for bits in 1..1u32 << WORDS.len() {
        let set: Vec<_> =
            WORDS.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0).map(|(_, word)| *word).collect();
        sets.push([set.clone(), vec!["admin"]].concat());
        sets.push(set);
    }
    sets
}

async fn make(client: &Client, words: Vec<&'static str>, bound: Bound) -> Holder {
    let queue = match bound {
        Bound::Free | Bound::Neighbour => "",
        Bound::Here => ":mail",
        Bound::Elsewhere => ":elsewhere",
    };
    let scopes: Vec<String> = words.iter().map(|word| format!("{word}{queue}")).collect();
    let key = create(client, json!({"name": "matrix", "scopes": scopes})).await;
    Holder { key: text(&key["key"]), words, bound }
}

async fn create(client: &Client, request: Value) -> Value {
    client.post("/v1/keys", request).await.unwrap().expect(201)
}

/// Ways to come without a valid key: what it is, and the values of the header `Authorization`.
pub(crate) async fn bad_headers(client: &Client) -> Vec<(&'static str, Vec<String>)> {
    let good = &client.key;
    let (revoked, expired) = (revoked(client).await, expired(client).await);
    let last = if good.ends_with('x') { "y" } else { "x" };
    let wrong_secret = format!("{}{last}", &good[..good.len() - 1]);
    let bearer = |key: &str| vec![format!("Bearer {key}")];
    vec![
        ("no key", vec![]),
        ("an empty header", vec![String::new()]),
        ("a scheme alone", vec!["Bearer".to_owned()]),
        ("a scheme and a space", vec!["Bearer ".to_owned()]),
        ("the key without a scheme", vec![good.clone()]),
        ("another scheme", vec![format!("Basic {good}")]),
        ("a made-up scheme", vec![format!("Token {good}")]),
        ("an unknown key", bearer(&format!("ol_{}_{}", "a".repeat(12), "b".repeat(43)))),
        ("a key with another ending", bearer(&wrong_secret)),
        ("a key cut short", bearer(&good[..good.len() - 1])),
        ("its public prefix", bearer(&good[..15])),
        ("a key with something behind it", bearer(&format!("{good}x"))),
        ("a key and a word", bearer(&format!("{good} x"))),
        ("a key in capitals", bearer(&good.to_uppercase())),
        ("a key in quotes", bearer(&format!("\"{good}\""))),
        ("two headers", vec![format!("Bearer {good}"), format!("Bearer {good}")]),
        ("two keys in one header", bearer(&format!("{good}, Bearer {good}"))),
        ("letters that are not ASCII", bearer("ol_äöüäöüäöü_xyz")),
        ("a revoked key", bearer(&revoked)),
        ("an expired key", bearer(&expired)),
    ]
}

// A mistake locks no admin out: without an admin key there is no way to make one.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_admin_key_is_revoked_only_by_force() {
    let server = Server::fresh().await;
    let client = server.client();
    let keys = client.get("/v1/keys").await.unwrap().expect(200);
    let own = text(&keys["items"][0]["id"]);
    create(&client, json!({"name": "reader", "scopes": ["read", "manage"]})).await;
    create(&client, json!({"name": "elsewhere", "scopes": ["admin"], "namespace": "other"})).await;

    let refused = client.delete(&format!("/v1/keys/{own}")).await.unwrap();

    refused.expect_problem(409, "last_admin_key");
    client.get("/v1/keys").await.unwrap().expect(200);
    let second = create(&client, json!({"name": "second", "scopes": ["admin"]})).await;
    client.delete(&format!("/v1/keys/{own}")).await.unwrap().expect(200);
    let second_client = Client::new(&client.base, &text(&second["key"]));
    let path = format!("/v1/keys/{}", text(&second["id"]));
    second_client.delete(&path).await.unwrap().expect_problem(409, "last_admin_key");
    second_client.delete(&format!("{path}?force=true")).await.unwrap().expect(200);
    second_client.get("/v1/keys").await.unwrap().expect_problem(401, "unauthorized");
}

async fn revoked(client: &Client) -> String {
    let key = create(client, json!({"name": "revoked", "scopes": ["admin"]})).await;
    let theirs = Client::new(&client.base, &text(&key["key"]));
    theirs.get("/v1/queues").await.unwrap().expect(200);
    let gone = client.delete(&format!("/v1/keys/{}", text(&key["id"]))).await.unwrap().expect(200);
    assert!(gone["revokedAt"].is_string());
    theirs.key
}

async fn expired(client: &Client) -> String {
    let key = create(client, json!({"name": "expired", "scopes": ["admin"], "expiresIn": 1})).await;
    let theirs = Client::new(&client.base, &text(&key["key"]));
    wait::until("the key to expire", EXPIRY_DEADLINE, async || {
        let reply = theirs.send(theirs.request(Method::GET, "/v1/queues")).await.unwrap();
        (reply.status == 401).then_some(())
    })
    .await;
    theirs.key
}
