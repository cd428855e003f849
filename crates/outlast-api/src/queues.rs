//! Queues: create, replace, change, show, pause, delete.

use axum::response::Response;
use http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::{HeaderValue, StatusCode};
use outlast_core::queue::{Mode, is_name};
use outlast_core::system_queue;
use outlast_core::{NamespaceId, Queue};
use outlast_engine::inbound::Inbound;
use outlast_engine::queues::header_values::masked;
use outlast_engine::queues::secrets::OVERLAP_DEFAULT;
use outlast_engine::queues::{QueueChange, SavedQueue, moves};
use outlast_store::jobs::Reach;
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use outlast_store::page::PageSize;
use outlast_store::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, SaveRefusal};
use serde_json::{Value, json};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::Values;
use crate::{fields, operations, settings, wire};

/// A patch without `If-Match` is tried again when somebody else was faster, so often.
const PATCH_TRIES: u32 = 5;
const PAGE_DEFAULT: usize = 50;
/// Queues of a page that are read at once.
const QUEUES_AT_ONCE: usize = 50;
const SIGNING_SECRET: &str = "signingSecret";

pub(crate) async fn create(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::QUEUE_NEW)?;
    let name = values.text("name").ok_or_else(|| Problem::field("name", "is required"))?;
    // A key bound to one queue may make that queue and no other.
    if let Reach::Queues(_, names) = &request.reach
        && !names.contains(&name)
    {
        return Err(Problem::new(Code::Forbidden, "the key's scope is bound to other queues"));
    }
    let change = change(&request, None, values)?;
    let saved = save(&request, &name, change, ExpectedVersion::Absent).await?;
    answer(&request, &saved).await
}

pub(crate) async fn put(request: RequestContext) -> Result<Response, Problem> {
    let name = own_name(&request)?;
    let present = request.rooms.queues.get(namespace(&request)?, &name).await?;
    let values = body(&request, &fields::QUEUE, &name)?;
    let change = match &present {
        Some((queue, _)) => kept_by_file(&request, queue, values, |values| change(&request, None, values))?,
        None => change(&request, None, values)?,
    };
    let saved = save(&request, &name, change, expect(&request)?).await?;
    answer(&request, &saved).await
}

pub(crate) async fn patch(request: RequestContext) -> Result<Response, Problem> {
    let name = match system_queue(request.parameter("queue")) {
        Some(_) => request.tended_queue()?.to_owned(),
        None => own_name(&request)?,
    };
    let asked = expect(&request)?;
    for _ in 0..PATCH_TRIES {
        let (queue, _) = find_to_change(&request, &name).await?;
        let values = body(&request, &fields::QUEUE_PATCH, &name)?;
        let change = kept_by_file(&request, &queue, values, |values| change(&request, Some(&queue), values))?;
        let expect = if asked == ExpectedVersion::Anything { ExpectedVersion::Version(queue.version) } else { asked };
        match request.rooms.queues.save(namespace(&request)?, &name, change, expect).await? {
            Ok(saved) => return answer(&request, &saved).await,
            Err(SaveRefusal::VersionMismatch { .. }) if asked == ExpectedVersion::Anything => {}
            Err(refusal) => return Err(refused(refusal, &name)),
        }
    }
    Err(Problem::new(Code::Overloaded, "other requests keep changing this queue; nothing was stored, retry"))
}

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let (queue, counts) = find(&request, request.tended_queue()?).await?;
    Ok(shown(&request, &queue, &counts))
}

pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let limit = request.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let after = match request.query.text("cursor") {
        None => None,
        Some(text) => Some(
            text.strip_prefix('q')
                .filter(|name| is_name(name) || system_queue(name).is_some())
                .map(str::to_owned)
                .ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))?,
        ),
    };
    let _turn = request.turn(Weight::Page).await?;
    let (items, next) = list_some(&request, after, limit).await?;
    Ok(wire::ok(StatusCode::OK, wire::list_page(items.into_iter(), next.map(|name| format!("q{name}")))))
}

/// Queues after that name, as many as asked for and fit, and the last one that was looked at if there may be more.
async fn list_some(
    request: &RequestContext,
    mut after: Option<String>,
    limit: usize,
) -> Result<(Vec<String>, Option<String>), Problem> {
    let (mut items, mut size, mut left) = (Vec::new(), PageSize::default(), limit);
    while left > 0 {
        let wanted = left.min(QUEUES_AT_ONCE);
        let queues = request.rooms.queues.list(namespace(request)?, after.as_deref(), wanted).await?;
        for (queue, counts) in &queues {
            if size.is_full() {
                return Ok((items, after));
            }
            if request.reach.covers(queue) {
                let item = view(request, queue, counts).to_string();
                size.add(item.len());
                items.push(item);
            }
            after = Some(queue.name.clone());
        }
        if queues.len() < wanted {
            return Ok((items, None));
        }
        left -= wanted;
    }
    Ok((items, after))
}

pub(crate) async fn pause(request: RequestContext) -> Result<Response, Problem> {
    set_paused(&request, true).await
}

pub(crate) async fn resume(request: RequestContext) -> Result<Response, Problem> {
    set_paused(&request, false).await
}

async fn set_paused(request: &RequestContext, paused: bool) -> Result<Response, Problem> {
    let name = request.tended_queue()?;
    find_to_change(request, name).await?;
    request
        .rooms
        .queues
        .set_paused(namespace(request)?, name, paused)
        .await?
        .ok_or_else(|| Problem::queue_not_found(name))?;
    let (queue, counts) = find(request, name).await.map_err(Problem::after_commit)?;
    Ok(shown(request, &queue, &counts))
}

/// A new secret, shown this once; the one before it signs a while longer.
pub(crate) async fn rotate_secret(request: RequestContext) -> Result<Response, Problem> {
    let name = request.tended_queue()?;
    let mut values = request.read(&fields::ROTATE)?;
    let secret = settings::signing_secret(&mut values)?;
    let overlap = values.duration("overlap").unwrap_or(OVERLAP_DEFAULT);
    check_secret_is_free(&declared(&request, name)?.unwrap_or_default(), name)?;
    let (queue, _) = find_to_change(&request, name).await?;
    if !queue.settings.is_push() {
        return Err(Problem::field("queue", "must deliver to a webhook; nothing is signed for pullers"));
    }
    let rotated = request.rooms.queues.rotate_secret(namespace(&request)?, name, secret, overlap).await?;
    let rotated = rotated.ok_or_else(|| Problem::queue_not_found(name))?;
    Ok(wire::json_ok(StatusCode::OK, &wire::rotated(&rotated)))
}

pub(crate) async fn delete(mut request: RequestContext) -> Result<Response, Problem> {
    let force = request.query.bool("force").unwrap_or(false);
    let name = request.queue()?.to_owned();
    if declared(&request, &name)?.is_some() {
        let detail = format!("queue \"{name}\" is declared in the configuration file; remove it there first");
        return Err(Problem::new(Code::SetByFile, detail));
    }
    match request.rooms.queues.delete(namespace(&request)?, &name).await? {
        Ok(()) => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Err(DeleteRefusal::NotFound) => Err(Problem::queue_not_found(&name)),
        Err(DeleteRefusal::NotEmpty) if force => {
            let operation = NewOperation {
                namespace: namespace(&request)?,
                queue: name,
                kind: OperationKind::Delete,
                filter: OperationFilter::default(),
                limit: None,
                rate_per_second: None,
            };
            operations::start(&request, operation).await
        }
        Err(DeleteRefusal::NotEmpty) => Err(Problem::new(
            Code::QueueNotEmpty,
            format!("queue \"{name}\" has jobs; add ?force=true to delete them too"),
        )),
    }
}

pub(crate) fn namespace(request: &RequestContext) -> Result<NamespaceId, Problem> {
    Ok(request.caller()?.namespace)
}

async fn find(request: &RequestContext, name: &str) -> Result<(std::sync::Arc<Queue>, QueueCounts), Problem> {
    request.rooms.queues.get(namespace(request)?, name).await?.ok_or_else(|| Problem::queue_not_found(name))
}

/// To be changed: a system queue may be set up before its first job makes it.
async fn find_to_change(request: &RequestContext, name: &str) -> Result<(std::sync::Arc<Queue>, QueueCounts), Problem> {
    let found = request.rooms.queues.get(namespace(request)?, name).await?;
    match (found, system_queue(name)) {
        (None, Some(own)) => {
            request.rooms.queues.make_system_queue(namespace(request)?, own).await?;
            find(request, name).await
        }
        (found, _) => found.ok_or_else(|| Problem::queue_not_found(name)),
    }
}

/// The name in the URL must be one that can be made; a bad one is the sender's mistake, not a missing queue.
fn own_name(request: &RequestContext) -> Result<String, Problem> {
    let name = request.parameter("queue");
    if !is_name(name) {
        return Err(Problem::field(
            "queue",
            "must be a name: letters, digits, \".\", \"_\", \"-\", starting with a letter or digit, at most 128",
        ));
    }
    request.queue().map(str::to_owned)
}

/// The settings of the body, whose name, if given, must be the URL's.
fn body<'a>(
    request: &'a RequestContext,
    object: &'static crate::schema::Object,
    name: &str,
) -> Result<Values<'a>, Problem> {
    let mut values = request.read(object)?;
    match values.text("name") {
        Some(other) if other != name => {
            Err(Problem::field("name", format!("must be \"{name}\" as in the URL; queues cannot be renamed")))
        }
        _ => Ok(values),
    }
}

/// The configuration file's declaration of a queue of the caller.
fn declared(request: &RequestContext, name: &str) -> Result<Option<Vec<String>>, Problem> {
    let declared = request.rooms.inbound.catalog();
    let is_ours = declared.namespace == namespace(request)?;
    Ok(declared.queues.get(name).filter(|_| is_ours).map(|queue| queue.settings.clone()))
}

/// The change with what the file says left as it is; a request that says otherwise is refused.
fn kept_by_file(
    request: &RequestContext,
    queue: &Queue,
    values: Values<'_>,
    change: impl FnOnce(Values<'_>) -> Result<QueueChange, Problem>,
) -> Result<QueueChange, Problem> {
    let Some(names) = declared(request, &queue.name)? else {
        return change(values);
    };
    if values.contains(SIGNING_SECRET) {
        check_secret_is_free(&names, &queue.name)?;
    }
    let given: Vec<String> = names.iter().filter(|name| values.contains(name)).cloned().collect();
    let mut asked = change(values)?;
    request.rooms.queues.mask_known_headers(queue, &mut asked.settings);
    let kept = asked.settings.with(&names, &masked(&queue.settings));
    if let Some(name) = asked.settings.differing(&kept).into_iter().find(|name| given.contains(name)) {
        return Err(set_by_file(&name, &queue.name));
    }
    Ok(QueueChange { settings: kept, ..asked })
}

/// A secret cannot be compared with a stored one, so a secret in the file excludes any other.
fn check_secret_is_free(names: &[String], queue: &str) -> Result<(), Problem> {
    match names.iter().any(|name| name == SIGNING_SECRET) {
        true => Err(set_by_file(SIGNING_SECRET, queue)),
        false => Ok(()),
    }
}

fn set_by_file(name: &str, queue: &str) -> Problem {
    let detail = format!("{name} of queue \"{queue}\" is set by the configuration file; change it there");
    Problem::new(Code::SetByFile, detail)
}

/// The change that the fields describe, over the current settings or from the defaults.
fn change(request: &RequestContext, present: Option<&Queue>, mut values: Values<'_>) -> Result<QueueChange, Problem> {
    let secret = settings::signing_secret(&mut values)?;
    let has_headers = values.contains("headers");
    let mut settings = match present {
        Some(queue) => settings::from_present(masked(&queue.settings), values)?,
        None => settings::from_nothing(values)?,
    };
    if present.is_some_and(|queue| moves(&queue.settings, &settings)) && !has_headers {
        // They may hold credentials of the old host. A request that moves the endpoint must give the headers again.
        settings.headers.clear();
    }
    if let Some(url) = &settings.webhook_url
        && present.is_none_or(|queue| queue.settings.webhook_url.as_ref() != Some(url))
    {
        request.rooms.push.check_url(url).map_err(|refused| Problem::field("webhookUrl", refused.to_string()))?;
    }
    if present.is_some_and(|queue| queue.settings.mode == Mode::Callback) && settings.mode != Mode::Callback {
        return Err(Problem::field("mode", "cannot be set here: this queue delivers callbacks"));
    }
    settings::check_use(secret.as_ref(), &settings)?;
    Ok(QueueChange { settings, secret })
}

async fn save(
    request: &RequestContext,
    name: &str,
    change: QueueChange,
    expect: ExpectedVersion,
) -> Result<SavedQueue, Problem> {
    request
        .rooms
        .queues
        .save(namespace(request)?, name, change, expect)
        .await?
        .map_err(|refusal| refused(refusal, name))
}

fn refused(refusal: SaveRefusal, name: &str) -> Problem {
    match refusal {
        SaveRefusal::Exists => {
            Problem::new(Code::QueueExists, format!("queue \"{name}\" exists; use PUT or PATCH to change it"))
        }
        SaveRefusal::NotFound => Problem::queue_not_found(name),
        SaveRefusal::VersionMismatch { present } => Problem::new(
            Code::VersionMismatch,
            format!("queue \"{name}\" is at version {present}; read it again and repeat your change"),
        ),
    }
}

/// `If-Match: "7"` and `If-None-Match: *`.
fn expect(request: &RequestContext) -> Result<ExpectedVersion, Problem> {
    match request.header(IF_NONE_MATCH.as_str()).map(str::trim) {
        None => {}
        Some("*") => return Ok(ExpectedVersion::Absent),
        Some(_) => {
            return Err(header_problem(&IF_NONE_MATCH, "must be *; to change what you have read, send If-Match"));
        }
    }
    match request.header(IF_MATCH.as_str()).map(str::trim) {
        None | Some("*") => Ok(ExpectedVersion::Anything),
        Some(text) => {
            let version = text.trim_start_matches("W/").trim_matches('"').parse();
            version
                .map(ExpectedVersion::Version)
                .map_err(|_| header_problem(&IF_MATCH, "must be the ETag of the queue, like \"3\""))
        }
    }
}

fn header_problem(name: &HeaderName, message: &str) -> Problem {
    Problem::field(name.as_str(), message)
}

async fn answer(request: &RequestContext, done: &SavedQueue) -> Result<Response, Problem> {
    let saved = &done.saved;
    let (queue, counts) = find(request, &saved.queue.name).await.map_err(Problem::after_commit)?;
    let status = if saved.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut body = view(request, &queue, &counts);
    if let (Some(secret), Value::Object(map)) = (&done.new_secret, &mut body) {
        map.insert("signingSecret".to_owned(), Value::String(secret.expose().to_owned()));
    }
    let mut response = with_etag(wire::json_ok(status, &body), &queue);
    if let (true, Ok(location)) = (saved.created, HeaderValue::try_from(format!("/v1/queues/{}", queue.name))) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn shown(request: &RequestContext, queue: &Queue, counts: &QueueCounts) -> Response {
    with_etag(wire::json_ok(StatusCode::OK, &view(request, queue, counts)), queue)
}

fn view(request: &RequestContext, queue: &Queue, counts: &QueueCounts) -> Value {
    view_for(&request.rooms.inbound, queue, counts)
}

/// The queue as it is shown.
pub(crate) fn view_for(inbound: &Inbound, queue: &Queue, counts: &QueueCounts) -> Value {
    let mut body = wire::queue(queue, counts);
    if let Value::Object(members) = &mut body {
        members.insert("declared".to_owned(), shown_declared(inbound, queue));
    }
    body
}

/// The configuration file's declaration, or null.
fn shown_declared(inbound: &Inbound, queue: &Queue) -> Value {
    let declared = inbound.catalog();
    let Some(found) = declared.queues.get(&queue.name).filter(|_| declared.namespace == queue.namespace) else {
        return Value::Null;
    };
    json!({
        "settings": found.settings, "source": found.source, "events": found.events, "filter": found.filter,
        "idempotencyKey": found.idempotency_key,
    })
}

fn with_etag(mut response: Response, queue: &Queue) -> Response {
    if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", queue.version)) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}
