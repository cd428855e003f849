//! Operations on many jobs: start, show, stop.

use axum::response::Response;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use outlast_store::jobs::Reach;
use outlast_store::operations::{NewOperation, Operation, OperationFilter, OperationId, OperationKind};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::queues::namespace;
use crate::request::RequestContext;
use crate::wire;

const PAGE_DEFAULT: usize = 50;

pub(crate) async fn purge(request: RequestContext) -> Result<Response, Problem> {
    let operation = everything(&request, OperationKind::Purge)?;
    start(&request, operation).await
}

/// An operation on all jobs of the URL's queue.
pub(crate) fn everything(request: &RequestContext, kind: OperationKind) -> Result<NewOperation, Problem> {
    let queue = request.tended_queue()?.to_owned();
    Ok(NewOperation {
        namespace: namespace(request)?,
        queue,
        kind,
        filter: OperationFilter::default(),
        limit: None,
        rate_per_second: None,
    })
}

pub(crate) async fn start(request: &RequestContext, operation: NewOperation) -> Result<Response, Problem> {
    let queue = operation.queue.clone();
    let started =
        request.rooms.jobs.start_operation(operation).await?.ok_or_else(|| Problem::queue_not_found(&queue))?;
    let mut response = wire::json_ok(StatusCode::ACCEPTED, &wire::operation(&started));
    if let Ok(location) = HeaderValue::try_from(format!("{}/v1/operations/{}", request.base(), started.id.0)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let limit = request.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let _turn = request.turn(Weight::Page).await?;
    let operations = request.rooms.jobs.operations(namespace(&request)?, limit).await?;
    let visible = operations.iter().filter(|operation| visible(&request, operation));
    let items = visible.map(|operation| wire::operation(operation).to_string());
    Ok(wire::ok(StatusCode::OK, wire::list_page(items, None)))
}

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let operation = request.rooms.jobs.operation(namespace(&request)?, id(&request)?).await?;
    let operation = operation.filter(|operation| visible(&request, operation)).ok_or_else(not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &wire::operation(&operation)))
}

pub(crate) async fn stop(request: RequestContext) -> Result<Response, Problem> {
    let (namespace, id) = (namespace(&request)?, id(&request)?);
    let present = request.rooms.jobs.operation(namespace, id).await?;
    present.filter(|operation| visible(&request, operation)).ok_or_else(not_found)?;
    let stopped = request.rooms.jobs.stop_operation(namespace, id).await?.ok_or_else(not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &wire::operation(&stopped)))
}

fn visible(request: &RequestContext, operation: &Operation) -> bool {
    match &request.reach {
        Reach::Everything | Reach::Namespace(_) => true,
        Reach::Queues(_, names) => names.contains(&operation.queue_name),
    }
}

fn id(request: &RequestContext) -> Result<OperationId, Problem> {
    request.parameter("id").parse().map(OperationId).map_err(|_| not_found())
}

fn not_found() -> Problem {
    Problem::new(Code::OperationNotFound, "no operation with this id")
}
