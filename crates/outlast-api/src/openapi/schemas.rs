//! Schemas of the answers, for the OpenAPI document. Written by hand beside `wire`, and held to it by the tests: the
//! fuzzer checks every answer it gets against these. Members may be added in later versions, so others are not
//! forbidden.

use serde_json::{Map, Value, json};

use super::schema_of;
use crate::fields;
use crate::schema::{Field, Kind};

/// Every schema by name.
pub(super) fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for (name, schema) in [jobs(), reports(), events(), work(), operations_and_keys(), simple_form()]
        .into_iter()
        .flatten()
        .chain([("Queue", queue())])
    {
        schemas.insert(name.to_owned(), schema);
    }
    for (page, of) in
        [("QueuePage", "Queue"), ("JobPage", "JobSummary"), ("OperationPage", "Operation"), ("KeyPage", "Key")]
    {
        let about = "A page may be short or empty while nextCursor is set: follow it to the end.";
        let schema = object(json!({"items": list(refer(of)), "nextCursor": maybe(text())}), &[]);
        schemas.insert(page.to_owned(), described(schema, about));
    }
    schemas
}

fn jobs() -> Vec<(&'static str, Value)> {
    vec![
        ("Status", json!({"type": "string", "enum": STATUSES})),
        ("PublishedJob", object(published(), &["payloadMismatch"])),
        ("PublishResult", json!({"anyOf": [refer("PublishedJob"), refer("Job")]})),
        ("PublishedJobBatch", object(json!({"jobs": list(json!({"anyOf": [batch_entry(), failed_entry()]}))}), &[])),
        ("JobSummary", object(summary(), WHILE_RUNNING)),
        ("Job", {
            let whole = json!({"payload": {}, "events": list(refer("JobEvent")), "transitions": list(refer("JobEvent")), "attempts": list(refer("JobEvent"))});
            json!({"allOf": [refer("JobSummary"), object(whole, &[])]})
        }),
        ("JobEvent", {
            let members = json!({
                "seq": count(), "at": time(),
                "type": {"type": "string", "enum": ["state", "attempt", "checkpoint", "output", "result", "callback", "note"]},
            });
            described(object(members, &[]), "One entry of a job's log. The other members depend on the type.")
        }),
        ("JobEventPage", object(json!({"items": list(refer("JobEvent")), "nextAfter": count()}), &[])),
        ("ChangedJobs", {
            let unknown = object(json!({"id": id(), "error": refer("Problem")}), &[]);
            object(json!({"jobs": list(json!({"anyOf": [refer("JobSummary"), unknown]}))}), &[])
        }),
        ("WorkerList", {
            let agent = object(json!({"host": maybe(text()), "pid": maybe(count()), "sdk": maybe(text())}), &[]);
            let worker = json!({
                "worker": maybe(text()), "agent": agent, "queues": list(text()), "seenAt": maybe(time()),
                "holds": count(), "jobs": list(id()),
            });
            object(json!({"items": list(object(worker, &[])), "complete": flag()}), &[])
        }),
        ("ReceivedJobs", object(json!({"jobs": list(refer("ReceivedJob"))}), &[])),
        ("ReceivedJob", object(lease(), &[])),
    ]
}

const STATUSES: [&str; 7] = ["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"];
/// Members that only a running job has.
const WHILE_RUNNING: &[&str] =
    &["runningPhase", "leaseExpiresAt", "lastHeartbeatAt", "cancelRequested", "worker", "liveness", "stalled"];

fn published() -> Value {
    json!({
        "id": id(), "queue": text(), "status": refer("Status"), "createdAt": time(), "statusUrl": text(),
        "streamUrl": text(), "cancelUrl": text(), "duplicate": flag(), "dedupeBy": dedupe_by(), "payloadMismatch": flag(),
    })
}

fn dedupe_by() -> Value {
    json!({"type": "string", "enum": ["key", "payload"]})
}

fn batch_entry() -> Value {
    let members = json!({
        "id": id(), "status": refer("Status"), "createdAt": time(), "statusUrl": text(), "streamUrl": text(),
        "duplicate": flag(), "dedupeBy": dedupe_by(), "payloadMismatch": flag(),
    });
    object(members, &["payloadMismatch"])
}

fn failed_entry() -> Value {
    object(json!({"error": refer("Problem")}), &[])
}

fn summary() -> Value {
    json!({
        "id": id(), "queue": text(), "status": refer("Status"), "replays": count(), "attempt": count(),
        "maxAttempts": count(), "deferCount": count(), "version": count(),
        "priority": {"type": "integer", "minimum": -100, "maximum": 100},
        "key": maybe(text()), "tags": tags(),
        "idempotencyKey": maybe(text()), "progress": maybe(refer("Progress")),
        "checkpoint": maybe(checkpoint_meta()), "resultUrl": maybe(text()), "resultMeta": maybe(result_meta()),
        "error": maybe(object(json!({"reason": text(), "message": maybe(text())}), &[])), "lastError": maybe(text()),
        "createdAt": time(), "queuedAt": maybe(time()), "startedAt": maybe(time()), "finishedAt": maybe(time()),
        "scheduledFor": maybe(time()), "pendingReason": maybe(text()), "cancelReason": maybe(text()),
        "callback": maybe(callback()), "pipeline": maybe(json!({"type": "object"})),
        "runningPhase": {"type": "string", "enum": ["delivering", "awaiting_ack", "leased"]},
        "leaseExpiresAt": time(), "lastHeartbeatAt": maybe(time()), "cancelRequested": flag(), "worker": maybe(text()),
        "liveness": {"type": "string", "enum": ["working", "slow", "stuck", "dead"]}, "stalled": flag(),
    })
}

fn lease() -> Value {
    json!({
        "id": id(), "queue": text(), "mode": mode(), "lease": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "leaseExpiresAt": time(), "deadline": maybe(time()), "key": maybe(text()), "tags": tags(),
        "heartbeatTimeout": maybe(seconds()), "drainTimeout": seconds(),
        "attempt": count(), "maxAttempts": count(), "deferCount": count(), "replays": count(), "createdAt": time(),
        "checkpoint": maybe(refer("Checkpoint")), "checkpointIncompatible": flag(), "sections": list(text()),
        "softTimeLimit": maybe(seconds()), "hardTimeLimit": maybe(seconds()),
        "traceparent": maybe(text()), "payload": {},
    })
}

fn mode() -> Value {
    json!({"type": "string", "enum": ["standard", "ack", "pull"]})
}

fn tags() -> Value {
    json!({"type": "object", "additionalProperties": text()})
}

fn reports() -> Vec<(&'static str, Value)> {
    vec![
        ("ReportResult", {
            let members =
                json!({"id": id(), "accepted": {"const": true}, "status": refer("Status"), "version": count()});
            object(members, &[])
        }),
        ("HeartbeatResult", {
            let directive = json!({"type": "string", "enum": ["cancel", "checkpoint_now", "hand_over", "slow_down"]});
            let members = json!({
                "id": id(), "accepted": {"const": true}, "leaseExpiresAt": maybe(time()), "deadline": maybe(time()),
                "directives": list(directive), "cancelRequested": flag(), "softLimitReached": flag(),
            });
            object(members, &[])
        }),
        ("ReportResults", results_of(refer("ReportResult"))),
        ("HeartbeatResults", results_of(refer("HeartbeatResult"))),
        ("ProgressResults", results_of(refer("ProgressResult"))),
    ]
}

/// The answer to a call about many jobs: each was taken or refused.
fn results_of(taken: Value) -> Value {
    let refused = object(json!({"id": maybe(id()), "accepted": {"const": false}, "error": refer("Problem")}), &[]);
    object(json!({"results": list(json!({"anyOf": [taken, refused]}))}), &[])
}

/// Events of sources.
fn events() -> Vec<(&'static str, Value)> {
    let summary = || {
        json!({
            "id": id(), "source": text(), "type": text(), "providerEventId": maybe(text()), "receivedAt": time(),
            "jobsCreated": count(), "headers": {"type": "object", "additionalProperties": text()},
        })
    };
    let mut whole = summary();
    if let Some(members) = whole.as_object_mut() {
        members.insert("payload".to_owned(), json!({}));
    }
    let made = object(json!({"queue": text(), "id": id(), "status": refer("Status")}), &[]);
    let refused = object(json!({"queue": text(), "error": refer("Problem")}), &[]);
    let job = json!({"anyOf": [made, refused]});
    vec![
        ("InboundEventReceipt", object(json!({"event_id": id(), "duplicate": flag(), "jobs_created": count()}), &[])),
        ("InboundEventPage", object(json!({"items": list(object(summary(), &[])), "nextCursor": maybe(text())}), &[])),
        ("InboundEvent", object(whole, &[])),
        ("ReloadResult", object(json!({"sources": count(), "queues": count(), "needsRestart": list(text())}), &[])),
        ("InboundEventReplay", object(json!({"event_id": id(), "jobs": list(job)}), &[])),
    ]
}

/// Long-running work.
fn work() -> Vec<(&'static str, Value)> {
    let share = || maybe(json!({"type": "number", "minimum": 0, "maximum": 100}));
    let progress = json!({
        "pct": share(), "stage": maybe(text()), "stagePct": share(), "stagesDone": maybe(count()),
        "stagesTotal": maybe(count()), "itemsDone": maybe(count()), "itemsTotal": maybe(count()),
        "message": maybe(text()), "startedAt": time(), "at": time(), "eta": maybe(time()),
    });
    let checkpoint = json!({
        "schemaVersion": count(), "data": {}, "length": count(), "at": time(), "replays": count(), "attempt": count(),
        "blobUrl": maybe(text()), "sha256": maybe(text()),
    });
    let section = object(json!({"name": text(), "at": time(), "length": count(), "value": {}}), &[]);
    let accepted = json!({"const": true});
    vec![
        ("Progress", object(progress, &[])),
        ("ProgressResult", object(json!({"id": id(), "accepted": accepted, "progress": refer("Progress")}), &[])),
        ("OutputResult", {
            let members = json!({
                "id": id(), "accepted": accepted, "status": refer("Status"), "version": count(),
                "seq": maybe(count()),
            });
            object(members, &[])
        }),
        ("UploadedResult", {
            let members = json!({
                "id": id(), "accepted": accepted, "length": count(), "sha256": text(), "filename": maybe(text()),
                "contentType": maybe(text()), "version": count(),
            });
            object(members, &[])
        }),
        ("UploadLinks", {
            let part = object(json!({"number": count(), "url": text()}), &[]);
            let members = json!({
                "uploadId": text(), "method": {"const": "PUT"}, "url": text(), "parts": list(part), "expiresAt": time(),
                "headers": {"type": "object", "additionalProperties": text()},
            });
            object(members, &[])
        }),
        ("UploadedBytes", object(json!({"length": count(), "sha256": text()}), &[])),
        ("Checkpoint", object(checkpoint, &[])),
        ("SectionPage", object(json!({"items": list(section), "nextCursor": maybe(text())}), &[])),
    ]
}

fn checkpoint_meta() -> Value {
    let members = json!({
        "schemaVersion": maybe(count()), "length": maybe(count()), "at": maybe(time()), "attempt": maybe(count()),
        "sections": count(),
    });
    object(members, &[])
}

fn result_meta() -> Value {
    let members = json!({
        "length": count(), "contentType": maybe(text()), "filename": maybe(text()), "sha256": maybe(text()),
        "downloadCount": count(), "partial": flag(),
    });
    object(members, &["filename", "sha256", "downloadCount", "partial"])
}

fn operations_and_keys() -> Vec<(&'static str, Value)> {
    let operation = json!({
        "id": text(), "kind": {"type": "string", "enum": ["replay", "purge", "discard", "delete"]}, "queue": text(),
        "status": {"type": "string", "enum": ["running", "done", "stopped", "stuck"]}, "processed": count(), "skipped": count(),
        "limit": maybe(count()), "ratePerSecond": maybe(count()), "createdAt": time(), "finishedAt": maybe(time()),
    });
    let key = json!({
        "id": text(), "prefix": text(), "name": text(), "namespace": text(), "scopes": list(text()),
        "createdAt": time(), "expiresAt": maybe(time()), "revokedAt": maybe(time()),
    });
    let once = described(text(), "the key itself; it is shown only this once");
    vec![
        ("Operation", object(operation, &[])),
        ("ReplayDryRun", object(json!({"dryRun": {"const": true}, "matched": count()}), &[])),
        ("Key", object(key, &[])),
        ("RotatedSecret", rotated()),
        ("Delivery", delivery()),
        ("Callback", completion()),
        ("IssuedKey", json!({"allOf": [refer("Key"), object(json!({"key": once}), &[])]})),
        ("Token", token()),
        ("Health", object(json!({"status": text()}), &[])),
    ]
}

fn simple_form() -> Vec<(&'static str, Value)> {
    let message = json!({
        "id": id(), "event_id": text(), "event_type": maybe(text()), "payload": {}, "headers": {"type": "object"},
        "attempt": count(), "created_at": time(), "receipt": text(),
    });
    let queue = json!({
        "name": text(), "source": maybe(text()), "events": list(text()), "visibility_timeout": text(), "depth": count(),
    });
    vec![
        ("SimpleMessages", object(json!({"messages": list(object(message, &[]))}), &[])),
        ("SimpleQueues", object(json!({"queues": list(object(queue, &[]))}), &[])),
        ("SimpleAckResult", object(json!({"acked": count()}), &[])),
        ("SimpleNackResult", object(json!({"retried": count(), "dead": count()}), &[])),
    ]
}

/// Every setting as it was set or by default, durations in seconds, and what the queue is like at the moment.
fn queue() -> Value {
    let mut members = Map::new();
    for field in fields::QUEUE.fields {
        members.insert(field.name.to_owned(), setting(field));
    }
    let counts: Map<String, Value> = STATUSES.iter().map(|status| ((*status).to_owned(), count())).collect();
    let state = json!({
        "paused": flag(), "hold": maybe(hold()), "version": count(),
        "createdAt": time(), "updatedAt": time(), "counts": object(Value::Object(counts), &[]),
        "declared": maybe(object(json!({
            "settings": list(text()), "source": maybe(text()), "events": list(text()), "filter": maybe(text()),
            "idempotencyKey": maybe(text()),
        }), &[])),
    });
    if let Value::Object(state) = state {
        members.extend(state);
    }
    object(Value::Object(members), &["signingSecret"])
}

fn setting(field: &Field) -> Value {
    let schema = match &field.kind {
        Kind::Duration { .. } => seconds(),
        // Omitted members have defaults, and durations are numbers: only the names of the members are listed.
        Kind::Object(object) => {
            let properties = object.fields.iter().map(|field| (field.name.to_owned(), json!({}))).collect();
            json!({"type": "object", "properties": Value::Object(properties)})
        }
        kind => schema_of(kind),
    };
    let schema = if field.nullable { maybe(schema) } else { schema };
    described(schema, field.about)
}

/// An object with these members, all of them present but the optional ones.
fn object(properties: Value, optional: &[&str]) -> Value {
    let names = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let required: Vec<String> = names.filter(|name| !optional.contains(&name.as_str())).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn described(mut schema: Value, about: &str) -> Value {
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(about));
    }
    schema
}

fn refer(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

fn token() -> Value {
    let can = list(json!({"type": "string", "enum": ["read", "watch", "output", "cancel", "download"]}));
    let members = json!({
        "token": text(), "can": can, "expiresAt": time(), "statusUrl": text(), "streamUrl": text(),
    });
    object(members, &[])
}

fn rotated() -> Value {
    let secret = json!({"type": "string", "description": "shown this once"});
    let members = json!({
        "queue": text(), "signingSecret": secret, "previousValidUntil": maybe(time()), "version": count(),
    });
    object(members, &[])
}

fn delivery() -> Value {
    let members = json!({
        "id": id(), "queue": text(), "mode": mode(), "key": maybe(text()), "tags": tags(), "deadline": maybe(time()),
        "webhookTimeout": seconds(), "heartbeatTimeout": maybe(seconds()), "drainTimeout": seconds(),
        "checkpoint": maybe(refer("Checkpoint")), "sections": list(text()),
        "payload": {}, "attempt": count(), "maxAttempts": count(), "deferCount": count(),
        "replays": count(), "createdAt": time(), "lease": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "leaseExpiresAt": time(),
    });
    object(members, &[])
}

fn completion() -> Value {
    let members = json!({
        "id": id(), "queue": text(), "status": refer("Status"), "replays": count(), "result": {}, "resultUrl": text(),
        "error": maybe(object(json!({"reason": text(), "message": maybe(text())}), &[])), "finishedAt": time(),
    });
    object(members, &["result", "resultUrl"])
}

/// Of the job that tells how this one ended; in lists only the URL.
fn callback() -> Value {
    let members = json!({
        "url": text(), "status": text(), "id": id(), "attempt": count(), "maxAttempts": count(), "deferCount": count(),
        "lastError": maybe(text()), "scheduledFor": maybe(time()), "finishedAt": maybe(time()),
    });
    let beside_url =
        ["status", "id", "attempt", "maxAttempts", "deferCount", "lastError", "scheduledFor", "finishedAt"];
    object(members, &beside_url)
}

fn hold() -> Value {
    let reason = json!({"type": "string", "enum": ["backpressure", "circuit", "deferred"]});
    object(
        json!({
            "reason": reason, "until": time(), "probing": flag(), "probe": maybe(id()), "round": count(),
        }),
        &[],
    )
}

fn maybe(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn id() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn seconds() -> Value {
    json!({"type": "number", "minimum": 0})
}
