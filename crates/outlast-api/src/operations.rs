//! Operations on many jobs: start, show, stop.

use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use outlast_store::jobs::Reach;
use outlast_store::operations::{NewOperation, Operation, OperationFilter, OperationId, OperationKind};

use crate::answers::Weight;
use crate::call::Call;
use crate::error::{Code, Problem};
use crate::queues::namespace;
use crate::wire;

const PAGE_DEFAULT: usize = 50;

pub(crate) async fn purge(call: Call) -> Result<Response, Problem> {
    let operation = everything(&call, OperationKind::Purge)?;
    start(&call, operation).await
}

/// An operation on all jobs of the URL's queue.
pub(crate) fn everything(call: &Call, kind: OperationKind) -> Result<NewOperation, Problem> {
    let queue = call.tended_queue()?.to_owned();
    Ok(NewOperation {
        namespace: namespace(call)?,
        queue,
        kind,
        filter: OperationFilter::default(),
        limit: None,
        rate_per_second: None,
    })
}

pub(crate) async fn start(call: &Call, operation: NewOperation) -> Result<Response, Problem> {
    let queue = operation.queue.clone();
    let started = call.rooms.jobs.start_operation(operation).await?.ok_or_else(|| Problem::queue_not_found(&queue))?;
    let mut response = wire::json_ok(StatusCode::ACCEPTED, &wire::operation(&started));
    if let Ok(location) = HeaderValue::try_from(format!("/v1/operations/{}", started.id.0)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

pub(crate) async fn list(mut call: Call) -> Result<Response, Problem> {
    let limit = call.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let _turn = call.turn(Weight::Page).await?;
    let operations = call.rooms.jobs.operations(namespace(&call)?, limit).await?;
    let visible = operations.iter().filter(|operation| visible(&call, operation));
    let items = visible.map(|operation| wire::operation(operation).to_string());
    Ok(wire::ok(StatusCode::OK, wire::list_page(items, None)))
}

pub(crate) async fn show(call: Call) -> Result<Response, Problem> {
    let operation = call.rooms.jobs.operation(namespace(&call)?, id(&call)?).await?;
    let operation = operation.filter(|operation| visible(&call, operation)).ok_or_else(not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &wire::operation(&operation)))
}

pub(crate) async fn stop(call: Call) -> Result<Response, Problem> {
    let (namespace, id) = (namespace(&call)?, id(&call)?);
    let present = call.rooms.jobs.operation(namespace, id).await?;
    present.filter(|operation| visible(&call, operation)).ok_or_else(not_found)?;
    let stopped = call.rooms.jobs.stop_operation(namespace, id).await?.ok_or_else(not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &wire::operation(&stopped)))
}

fn visible(call: &Call, operation: &Operation) -> bool {
    match &call.reach {
        Reach::Everything | Reach::Namespace(_) => true,
        Reach::Queues(_, names) => names.contains(&operation.queue_name),
    }
}

fn id(call: &Call) -> Result<OperationId, Problem> {
    call.parameter("id").parse().map(OperationId).map_err(|_| not_found())
}

fn not_found() -> Problem {
    Problem::new(Code::OperationNotFound, "no operation with this id")
}
