//! Events of providers are kept for a week, and then no longer, whatever happens to the store.

use std::sync::Arc;

use outlast_core::Subscription;
use outlast_core::inbound_event::EVENT_RETENTION;
use outlast_engine::inbound::catalog::{Source, Subscriber};
use outlast_engine::inbound::ingest::{IncomingEvent, IngestReceipt};
use outlast_engine::inbound::verify::{Scheme, Verifier};
use outlast_store::Error;
use outlast_store::inbound_events::ListInboundEvents;
use serde_json::json;

use super::*;

fn shop() -> Source {
    let wants = Subscription { events: vec!["*".to_owned()], ..Subscription::default() };
    let subscribers = vec![Subscriber { queue: QUEUE.into(), wants }];
    Source {
        name: "shop".into(),
        path: "/webhooks/shop".to_owned(),
        url: String::new(),
        verifier: Verifier::new(Scheme::Stripe, &["a-secret-of-theirs"], 300 * SECOND).unwrap(),
        allowed: Vec::new(),
        schema: None,
        body_max: 1024,
        projection: Source::projection(&Scheme::Stripe, false, &subscribers),
        subscribers,
    }
}

impl Rig {
    async fn tell(&self, key: &str) -> Result<IngestReceipt, Error> {
        let told = IncomingEvent {
            kind: "paid".to_owned(),
            key: Some(key.to_owned()),
            headers: Vec::new(),
            body: Arc::from("{}"),
            value: json!({}),
        };
        self.engine.inbound.ingest(self.namespace, &shop(), told).await
    }

    async fn stored(&self) -> Vec<String> {
        let list = ListInboundEvents { namespace: self.namespace, source: None, kind: None, before: None, limit: 100 };
        let page = self.engine.inbound.list_events(list).await.unwrap();
        page.inbound_events.iter().map(|inbound_event| inbound_event.key.as_deref().unwrap().to_owned()).collect()
    }
}

#[test]
fn events_are_forgotten_a_week_after_they_came() {
    case(QueueSettings::default(), async |rig| {
        rig.tell("old").await.unwrap();
        sleep(EVENT_RETENTION - LONG).await;
        rig.tell("young").await.unwrap();
        sleep(LONG / 2).await;
        assert_eq!(rig.stored().await, ["young", "old"]);
        assert!(rig.tell("old").await.unwrap().duplicate);

        sleep(LONG).await;
        rig.tell("new").await.unwrap();
        sleep(LONG / 2).await;
        assert_eq!(rig.stored().await, ["new", "young"]);
        assert!(!rig.tell("old").await.unwrap().duplicate, "the event is forgotten");
    });
}

#[test]
fn events_are_forgotten_although_the_store_fails_at_first() {
    case(QueueSettings::default(), async |rig| {
        for round in 0..40 {
            rig.tell(&format!("round {round}")).await.unwrap();
            sleep(EVENT_RETENTION - SECOND).await;
            assert_eq!(rig.stored().await, [format!("round {round}")]);
            rig.server.faults.stir_up();
            sleep(2 * SECOND).await;
            rig.server.faults.calm_down();
            sleep(LONG).await;
            assert_eq!(rig.stored().await, [] as [&str; 0]);
        }
        assert!(rig.engine.status.counters.loop_failures.get() > 0, "nothing ever failed");
    });
}
