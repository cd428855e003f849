//! Applies the declarations of the configuration file: creates or changes its queues and opens its sources. From then on
//! only the file can change them. Done at the start and whenever the file is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use outlast_core::{NamespaceId, Subscription};
use outlast_engine::Rooms;
use outlast_engine::inbound::catalog::{Catalog, DeclaredQueue, Schema, Source, Subscriber};
use outlast_engine::keys::scope::DEFAULT_NAMESPACE;
use outlast_engine::queues::QueueChange;
use outlast_store::queues::ExpectedVersion;

use crate::config::Config;
use crate::config::queues::QueueConfig;
use crate::config::sources::SourceConfig;

/// All of it or, if something cannot be done, as little as possible: sources stay as they were.
pub(crate) async fn declare(rooms: &Rooms, config: &Config) -> anyhow::Result<()> {
    if config.queues.is_empty() && config.sources.is_empty() && rooms.inbound.catalog().is_empty() {
        return Ok(());
    }
    let namespace = rooms.keys.namespace(DEFAULT_NAMESPACE).await?;
    for queue in &config.queues {
        if let Some(url) = &queue.change.settings.webhook_url {
            rooms.push.check_url(url).with_context(|| format!("queues.{}.webhook_url", queue.name))?;
        }
    }
    let sources =
        config.sources.iter().map(|source| open(source, &config.queues)).collect::<anyhow::Result<Vec<_>>>()?;
    for queue in &config.queues {
        save(rooms, namespace, queue).await.with_context(|| format!("queue {:?} of the file", queue.name))?;
    }
    let queues: BTreeMap<String, DeclaredQueue> =
        config.queues.iter().map(|queue| (queue.name.clone(), declared(queue))).collect();
    tracing::info!(sources = sources.len(), queues = queues.len(), "the file's sources and queues are in force");
    rooms.inbound.declare(Catalog { namespace, sources, queues });
    Ok(())
}

fn open(source: &SourceConfig, queues: &[QueueConfig]) -> anyhow::Result<Arc<Source>> {
    let verifier = source.verifier().with_context(|| format!("sources.{}.secret", source.name))?;
    let mut subscribers: Vec<Subscriber> = queues.iter().filter_map(|queue| subscriber(queue, &source.name)).collect();
    subscribers.sort_by(|one, other| one.queue.cmp(&other.queue));
    let projection = Source::projection(verifier.scheme(), source.schema.is_some(), &subscribers);
    Ok(Arc::new(Source {
        name: source.name.as_str().into(),
        path: source.path.clone(),
        url: source.url.clone(),
        verifier,
        allowed: source.allowed_ips.clone(),
        schema: source.schema.as_ref().map(|schema| compiled(schema, &source.name)).transpose()?,
        body_max: source.max_body,
        projection,
        subscribers,
    }))
}

fn subscriber(queue: &QueueConfig, source: &str) -> Option<Subscriber> {
    let subscription = queue.subscription.as_ref().filter(|subscription| subscription.source == source)?;
    let wants = Subscription {
        events: subscription.events.iter().map(ToString::to_string).collect(),
        filter: subscription.filter.clone(),
        key: subscription.idempotency_key.clone(),
    };
    Some(Subscriber { queue: queue.name.as_str().into(), wants })
}

/// Says where an event does not fit and why.
fn compiled(schema: &serde_json::Value, source: &str) -> anyhow::Result<Schema> {
    let validator = jsonschema::validator_for(schema)
        .map_err(|error| anyhow::anyhow!("sources.{source}.schema is not a JSON Schema: {error}"))?;
    Ok(Box::new(move |event| {
        validator.validate(event).map_err(|error| match error.instance_path().as_str() {
            "" => error.to_string(),
            place => format!("{place}: {error}"),
        })
    }))
}

/// The queue as the file has it; what the file does not say stays as it is.
async fn save(rooms: &Rooms, namespace: NamespaceId, queue: &QueueConfig) -> anyhow::Result<()> {
    let present = rooms.queues.get(namespace, &queue.name).await?;
    let settings = match &present {
        Some((present, _)) => present.settings.with(&queue.settings, &queue.change.settings),
        None => queue.change.settings.clone(),
    };
    if let Some((present, _)) = &present
        && queue.change.secret.is_none()
    {
        let sealed = rooms.queues.seal_headers(namespace, &queue.name, Some(present), settings.clone()).await?;
        if present.settings == sealed {
            return Ok(());
        }
    }
    let change = QueueChange { settings, secret: queue.change.secret.clone() };
    let saved = rooms.queues.save(namespace, &queue.name, change, ExpectedVersion::Anything).await?;
    saved.map_err(|refusal| anyhow::anyhow!("others keep changing it: {refusal:?}"))?;
    Ok(())
}

fn declared(queue: &QueueConfig) -> DeclaredQueue {
    let subscription = queue.subscription.as_ref();
    DeclaredQueue {
        settings: queue.settings.clone(),
        key: queue.api_key.as_ref().map(|key| DeclaredQueue::digest(key.expose())),
        source: subscription.map(|subscription| subscription.source.clone()),
        events: subscription
            .map(|subscription| subscription.events.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        filter: subscription.and_then(|subscription| subscription.filter.as_ref()).map(ToString::to_string),
        idempotency_key: subscription
            .and_then(|subscription| subscription.idempotency_key.as_ref())
            .map(ToString::to_string),
    }
}
