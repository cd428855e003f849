//! Dead letters of a queue: list, replay in bulk, discard.

use axum::response::Response;
use http::StatusCode;
use outlast_core::Status;
use outlast_store::operations::{Filter, NewOperation, OperationKind};
use serde_json::json;

use crate::call::Call;
use crate::error::Problem;
use crate::queues::namespace;
use crate::schema::{Value, Values};
use crate::{fields, jobs, operations, wire};

/// A dry run counts no further than this.
const COUNT_MAX: usize = 1_000_000;

pub(crate) async fn list(mut call: Call) -> Result<Response, Problem> {
    let list = jobs::list_jobs(&mut call, Status::Failed)?;
    let name = call.tended_queue()?;
    call.engine.queue(namespace(&call)?, name).await?.ok_or_else(|| Problem::queue_not_found(name))?;
    jobs::list_page(&call, list).await
}

pub(crate) async fn replay(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::DEAD_REPLAY)?;
    let operation = NewOperation {
        filter: filter(&mut values),
        limit: values.int("limit").and_then(|limit| u64::try_from(limit).ok()),
        rate_per_second: values.u32("ratePerSecond"),
        ..operations::everything(&call, OperationKind::Replay)?
    };
    if values.bool("dryRun") != Some(true) {
        return operations::start(&call, operation).await;
    }
    let name = &operation.queue;
    call.engine.queue(operation.namespace, name).await?.ok_or_else(|| Problem::queue_not_found(name))?;
    let matched = call.engine.count_operation(&operation, COUNT_MAX).await?;
    let matched = operation.limit.map_or(matched, |limit| matched.min(limit));
    Ok(wire::json_ok(StatusCode::OK, &json!({"dryRun": true, "matched": matched})))
}

pub(crate) async fn discard(call: Call) -> Result<Response, Problem> {
    let operation = operations::everything(&call, OperationKind::Discard)?;
    operations::start(&call, operation).await
}

fn filter(values: &mut Values<'_>) -> Filter {
    let ids = values.list("ids").map(texts);
    let mut given = values.object("filter").unwrap_or_default();
    Filter {
        // The stored form of an id is lower case.
        ids: ids.map(|ids| ids.into_iter().map(|id| id.to_ascii_lowercase()).collect()),
        tags: given.map("tags").unwrap_or_default(),
        key: given.text("key"),
        reason: given.text("reason"),
        finished_after: given.time("finishedAfter"),
        finished_before: given.time("finishedBefore"),
    }
}

pub(crate) fn texts(values: Vec<Value<'_>>) -> Vec<String> {
    values
        .into_iter()
        .filter_map(|value| if let Value::Text(text) = value { Some(text.into_owned()) } else { None })
        .collect()
}
