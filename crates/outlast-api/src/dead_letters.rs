//! Dead letters of a queue: list, replay in bulk, discard.

use axum::response::Response;
use http::StatusCode;
use outlast_core::Timestamp;
use outlast_store::dead_letters::{Failure, ListDeadLetters};
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use serde_json::json;

use crate::answers::Weight;
use crate::error::Problem;
use crate::queues::namespace;
use crate::request::RequestContext;
use crate::schema::{Value, Values};
use crate::{fields, jobs, operations, wire};

const LIMIT_DEFAULT: usize = 50;
/// A dry run counts no further than this.
const COUNT_MAX: usize = 1_000_000;

pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let before = cursor(&mut request)?;
    let limit = request.query.usize("limit").unwrap_or(LIMIT_DEFAULT);
    let name = request.tended_queue()?;
    request.rooms.queues.get(namespace(&request)?, name).await?.ok_or_else(|| Problem::queue_not_found(name))?;
    let list = ListDeadLetters { reach: request.reach.clone(), queue: name.to_owned(), before, limit };
    let _turn = request.turn(Weight::Page).await?;
    let page = request.rooms.jobs.dead_letters(list).await?;
    let items = page.jobs.iter().map(|found| jobs::summary(&request, found));
    let next = page.next.map(|next| format!("d{:x}-{:x}", next.at.as_millis(), next.position));
    Ok(wire::ok(StatusCode::OK, wire::list_page(items, next)))
}

/// Where the list goes on.
fn cursor(request: &mut RequestContext) -> Result<Option<Failure>, Problem> {
    let Some(text) = request.query.text("cursor") else {
        return Ok(None);
    };
    let parts = text.strip_prefix('d').and_then(|digits| digits.split_once('-'));
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok().filter(|number| i64::try_from(*number).is_ok());
    let failure = parts.and_then(|(at, position)| {
        let at = Timestamp::from_millis(number(at)?.cast_signed());
        Some(Failure { at, position: number(position)? })
    });
    failure.map(Some).ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))
}

pub(crate) async fn replay(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::DEAD_REPLAY)?;
    let operation = NewOperation {
        filter: filter(&mut values),
        limit: values.int("limit").and_then(|limit| u64::try_from(limit).ok()),
        rate_per_second: values.u32("ratePerSecond"),
        ..operations::everything(&request, OperationKind::Replay)?
    };
    if values.bool("dryRun") != Some(true) {
        return operations::start(&request, operation).await;
    }
    let name = &operation.queue;
    request.rooms.queues.get(operation.namespace, name).await?.ok_or_else(|| Problem::queue_not_found(name))?;
    let matched = request.rooms.jobs.count_operation(&operation, COUNT_MAX).await?;
    let matched = operation.limit.map_or(matched, |limit| matched.min(limit));
    Ok(wire::json_ok(StatusCode::OK, &json!({"dryRun": true, "matched": matched})))
}

pub(crate) async fn discard(request: RequestContext) -> Result<Response, Problem> {
    let operation = operations::everything(&request, OperationKind::Discard)?;
    operations::start(&request, operation).await
}

fn filter(values: &mut Values<'_>) -> OperationFilter {
    let ids = values.list("ids").map(texts);
    let mut given = values.object("filter").unwrap_or_default();
    OperationFilter {
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
