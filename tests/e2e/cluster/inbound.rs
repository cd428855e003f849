//! I-30: webhooks while the way to the database breaks: in the middle of an event, after its COMMIT, and for long.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::fault::FaultProxy;
use outlast_tests::http::{Client, Reply};
use outlast_tests::postgres::Postgres;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;

use crate::api::text;
use crate::inbound::provider::{Stripe, event};
use crate::inbound::{PATH, SECRET, drain, shop_on, stored};

const QUEUES: [&str; 3] = ["one", "two", "three"];
const CONFIG: &str = "queues:
  one: {source: shop, visibility_timeout: 12h}
  two: {source: shop, visibility_timeout: 12h}
  three: {source: shop, visibility_timeout: 12h}";
const RECOVERY_DEADLINE: Duration = Duration::from_secs(30);

/// One node that reaches its database through a proxy.
async fn behind_a_proxy() -> (FaultProxy, Server) {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let url = database.url_through(&proxy.address);
    let launch = Launch::on_database(database, None, 1).with_env("OUTLAST_DATABASE_URL", &url);
    (proxy, shop_on(launch, CONFIG).start().await)
}

// F16: the event is in the database, and the node got no answer: it looks it up, and the provider gets one success.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_commit_answer_was_lost_is_stored_once() {
    let (proxy, server) = behind_a_proxy().await;
    let stripe = Stripe::before(&server, PATH, SECRET);
    let mut taken = BTreeSet::new();

    for number in 0..volume(15, 1000) {
        let lost = proxy.commits_lost();
        proxy.lose_next_commit();
        let answer = stripe.send(&event(&format!("evt_{number}"), "t", 1)).await.expect("an answer");
        proxy.heal();
        assert!(proxy.commits_lost() > lost, "the answer to a COMMIT was lost on the way");
        let told = answer.expect(200);
        taken.insert(text(&told["event_id"]));
    }

    assert_eq!(taken.len(), volume(15, 1000));
    assert_taken(&server.client(), &taken).await;
}

// I-30: connections break after any number of bytes. Nothing is lost, doubled or halved.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_cut_in_the_middle_is_whole_when_it_is_tried_again() {
    let (proxy, server) = behind_a_proxy().await;
    let stripe = Stripe::before(&server, PATH, SECRET);
    let mut chance = Chance::seeded(seed("inbound cut"));
    let mut taken = BTreeSet::new();

    for number in 0..volume(40, 3000) {
        let body = event(&format!("evt_{number}"), "t", 1);
        proxy.reset_after(chance.between(1, 6000));
        let first = send_over_one_cut(&stripe, &body, &proxy).await;
        assert!(
            first.status == 200 || first.status >= 500,
            "a provider would give up: {} {}",
            first.status,
            first.body
        );
        proxy.heal();
        let told = until_taken(&stripe, &body).await;
        taken.insert(told);
    }

    println!("inbound cut: {} connections broke", proxy.connections_cut());
    assert!(proxy.connections_cut() >= 20, "only {} connections broke", proxy.connections_cut());
    assert_eq!(taken.len(), volume(40, 3000));
    assert_taken(&server.client(), &taken).await;
}

// I-30: our outage is no fault of the provider's.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_providers_get_a_retryable_answer() {
    let (proxy, server) = behind_a_proxy().await;
    let stripe = Stripe::before(&server, PATH, SECRET);
    let first = until_taken(&stripe, &event("evt_0", "t", 1)).await;

    proxy.cut_off();
    let refused = stripe.send(&event("evt_1", "t", 1)).await.expect("an answer");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    refused.expect_problem(503, "store_unavailable");
    let forged = stripe.with_secret("another-secret").send(&event("evt_1", "t", 1)).await.expect("an answer");
    forged.expect_problem(401, "unauthorized");
    proxy.heal();
    let second = until_taken(&stripe, &event("evt_1", "t", 1)).await;

    assert_taken(&server.client(), &BTreeSet::from([first, second])).await;
}

/// Sends a webhook; the first connection that breaks meanwhile is the last one to.
async fn send_over_one_cut(stripe: &Stripe, body: &str, proxy: &FaultProxy) -> Reply {
    let broken = proxy.connections_cut();
    let mut sending = pin!(stripe.send(body));
    loop {
        tokio::select! {
            answer = &mut sending => return answer.expect("an answer"),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                if proxy.connections_cut() > broken {
                    proxy.heal();
                }
            }
        }
    }
}

async fn until_taken(stripe: &Stripe, body: &str) -> String {
    wait::until("a webhook to be taken", RECOVERY_DEADLINE, async || {
        let answer = stripe.send(body).await.ok()?;
        (answer.status == 200).then(|| text(&answer.body["event_id"]))
    })
    .await
}

async fn assert_taken(client: &Client, taken: &BTreeSet<String>) {
    for queue in QUEUES {
        let messages = drain(client, queue).await;
        let ids: BTreeSet<String> = messages.iter().map(|message| text(&message["event_id"])).collect();
        assert_eq!((messages.len(), &ids), (taken.len(), taken), "one job per event in {queue}");
    }
    let ids: BTreeSet<String> = stored(client, "").await.iter().map(|event| text(&event["id"])).collect();
    assert_eq!(&ids, taken);
}
