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
use crate::call::Call;
use crate::error::{Code, Problem};
use crate::schema::Values;
use crate::{fields, operations, settings, wire};

/// A patch without `If-Match` is tried again when somebody else was faster, so often.
const PATCH_TRIES: u32 = 5;
const PAGE_DEFAULT: usize = 50;
/// Queues of a page that are read at once.
const QUEUES_AT_ONCE: usize = 50;
const SIGNING_SECRET: &str = "signingSecret";

pub(crate) async fn create(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::QUEUE_NEW)?;
    let name = values.text("name").ok_or_else(|| Problem::field("name", "is required"))?;
    // A key bound to one queue may make that queue and no other.
    if let Reach::Queues(_, names) = &call.reach
        && !names.contains(&name)
    {
        return Err(Problem::new(Code::Forbidden, "the key's scope is bound to other queues"));
    }
    let change = change(&call, None, values)?;
    let saved = save(&call, &name, change, ExpectedVersion::Absent).await?;
    answer(&call, &saved).await
}

pub(crate) async fn put(call: Call) -> Result<Response, Problem> {
    let name = own_name(&call)?;
    let present = call.rooms.queues.get(namespace(&call)?, &name).await?;
    let values = body(&call, &fields::QUEUE, &name)?;
    let change = match &present {
        Some((queue, _)) => kept_by_file(&call, queue, values, |values| change(&call, None, values))?,
        None => change(&call, None, values)?,
    };
    let saved = save(&call, &name, change, expect(&call)?).await?;
    answer(&call, &saved).await
}

pub(crate) async fn patch(call: Call) -> Result<Response, Problem> {
    let name = match system_queue(call.parameter("queue")) {
        Some(_) => call.tended_queue()?.to_owned(),
        None => own_name(&call)?,
    };
    let asked = expect(&call)?;
    for _ in 0..PATCH_TRIES {
        let (queue, _) = find_to_change(&call, &name).await?;
        let values = body(&call, &fields::QUEUE_PATCH, &name)?;
        let change = kept_by_file(&call, &queue, values, |values| change(&call, Some(&queue), values))?;
        let expect = if asked == ExpectedVersion::Anything { ExpectedVersion::Version(queue.version) } else { asked };
        match call.rooms.queues.save(namespace(&call)?, &name, change, expect).await? {
            Ok(saved) => return answer(&call, &saved).await,
            Err(SaveRefusal::VersionMismatch { .. }) if asked == ExpectedVersion::Anything => {}
            Err(refusal) => return Err(refused(refusal, &name)),
        }
    }
    Err(Problem::new(Code::Overloaded, "other requests keep changing this queue; nothing was stored, retry"))
}

pub(crate) async fn show(call: Call) -> Result<Response, Problem> {
    let (queue, counts) = find(&call, call.tended_queue()?).await?;
    Ok(shown(&call, &queue, &counts))
}

pub(crate) async fn list(mut call: Call) -> Result<Response, Problem> {
    let limit = call.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let after = match call.query.text("cursor") {
        None => None,
        Some(text) => Some(
            text.strip_prefix('q')
                .filter(|name| is_name(name) || system_queue(name).is_some())
                .map(str::to_owned)
                .ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))?,
        ),
    };
    let _turn = call.turn(Weight::Page).await?;
    let (items, next) = list_some(&call, after, limit).await?;
    Ok(wire::ok(StatusCode::OK, wire::list_page(items.into_iter(), next.map(|name| format!("q{name}")))))
}

/// Queues after that name, as many as asked for and fit, and the last one that was looked at if there may be more.
async fn list_some(
    call: &Call,
    mut after: Option<String>,
    limit: usize,
) -> Result<(Vec<String>, Option<String>), Problem> {
    let (mut items, mut size, mut left) = (Vec::new(), PageSize::default(), limit);
    while left > 0 {
        let wanted = left.min(QUEUES_AT_ONCE);
        let queues = call.rooms.queues.list(namespace(call)?, after.as_deref(), wanted).await?;
        for (queue, counts) in &queues {
            if size.is_full() {
                return Ok((items, after));
            }
            if call.reach.covers(queue) {
                let item = view(call, queue, counts).to_string();
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

pub(crate) async fn pause(call: Call) -> Result<Response, Problem> {
    set_paused(&call, true).await
}

pub(crate) async fn resume(call: Call) -> Result<Response, Problem> {
    set_paused(&call, false).await
}

async fn set_paused(call: &Call, paused: bool) -> Result<Response, Problem> {
    let name = call.tended_queue()?;
    find_to_change(call, name).await?;
    call.rooms
        .queues
        .set_paused(namespace(call)?, name, paused)
        .await?
        .ok_or_else(|| Problem::queue_not_found(name))?;
    let (queue, counts) = find(call, name).await.map_err(Problem::after_commit)?;
    Ok(shown(call, &queue, &counts))
}

/// A new secret, shown this once; the one before it signs a while longer.
pub(crate) async fn rotate_secret(call: Call) -> Result<Response, Problem> {
    let name = call.tended_queue()?;
    let mut values = call.read(&fields::ROTATE)?;
    let secret = settings::signing_secret(&mut values)?;
    let overlap = values.duration("overlap").unwrap_or(OVERLAP_DEFAULT);
    check_secret_is_free(&declared(&call, name)?.unwrap_or_default(), name)?;
    let (queue, _) = find_to_change(&call, name).await?;
    if !queue.settings.is_push() {
        return Err(Problem::field("queue", "must deliver to a webhook; nothing is signed for pullers"));
    }
    let rotated = call.rooms.queues.rotate_secret(namespace(&call)?, name, secret, overlap).await?;
    let rotated = rotated.ok_or_else(|| Problem::queue_not_found(name))?;
    Ok(wire::json_ok(StatusCode::OK, &wire::rotated(&rotated)))
}

pub(crate) async fn delete(mut call: Call) -> Result<Response, Problem> {
    let force = call.query.bool("force").unwrap_or(false);
    let name = call.queue()?.to_owned();
    if declared(&call, &name)?.is_some() {
        let detail = format!("queue \"{name}\" is declared in the configuration file; remove it there first");
        return Err(Problem::new(Code::SetByFile, detail));
    }
    match call.rooms.queues.delete(namespace(&call)?, &name).await? {
        Ok(()) => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Err(DeleteRefusal::NotFound) => Err(Problem::queue_not_found(&name)),
        Err(DeleteRefusal::NotEmpty) if force => {
            let operation = NewOperation {
                namespace: namespace(&call)?,
                queue: name,
                kind: OperationKind::Delete,
                filter: OperationFilter::default(),
                limit: None,
                rate_per_second: None,
            };
            operations::start(&call, operation).await
        }
        Err(DeleteRefusal::NotEmpty) => Err(Problem::new(
            Code::QueueNotEmpty,
            format!("queue \"{name}\" has jobs; add ?force=true to delete them too"),
        )),
    }
}

pub(crate) fn namespace(call: &Call) -> Result<NamespaceId, Problem> {
    Ok(call.caller()?.namespace)
}

async fn find(call: &Call, name: &str) -> Result<(std::sync::Arc<Queue>, QueueCounts), Problem> {
    call.rooms.queues.get(namespace(call)?, name).await?.ok_or_else(|| Problem::queue_not_found(name))
}

/// To be changed: a system queue may be set up before its first job makes it.
async fn find_to_change(call: &Call, name: &str) -> Result<(std::sync::Arc<Queue>, QueueCounts), Problem> {
    let found = call.rooms.queues.get(namespace(call)?, name).await?;
    match (found, system_queue(name)) {
        (None, Some(own)) => {
            call.rooms.queues.make_system_queue(namespace(call)?, own).await?;
            find(call, name).await
        }
        (found, _) => found.ok_or_else(|| Problem::queue_not_found(name)),
    }
}

/// The name in the URL must be one that can be made; a bad one is the sender's mistake, not a missing queue.
fn own_name(call: &Call) -> Result<String, Problem> {
    let name = call.parameter("queue");
    if !is_name(name) {
        return Err(Problem::field(
            "queue",
            "must be a name: letters, digits, \".\", \"_\", \"-\", starting with a letter or digit, at most 128",
        ));
    }
    call.queue().map(str::to_owned)
}

/// The settings of the body, whose name, if given, must be the URL's.
fn body<'a>(call: &'a Call, object: &'static crate::schema::Object, name: &str) -> Result<Values<'a>, Problem> {
    let mut values = call.read(object)?;
    match values.text("name") {
        Some(other) if other != name => {
            Err(Problem::field("name", format!("must be \"{name}\" as in the URL; queues cannot be renamed")))
        }
        _ => Ok(values),
    }
}

/// The configuration file's declaration of a queue of the caller.
fn declared(call: &Call, name: &str) -> Result<Option<Vec<String>>, Problem> {
    let declared = call.rooms.inbound.catalog();
    let is_ours = declared.namespace == namespace(call)?;
    Ok(declared.queues.get(name).filter(|_| is_ours).map(|queue| queue.settings.clone()))
}

/// The change with what the file says left as it is; a request that says otherwise is refused.
fn kept_by_file(
    call: &Call,
    queue: &Queue,
    values: Values<'_>,
    change: impl FnOnce(Values<'_>) -> Result<QueueChange, Problem>,
) -> Result<QueueChange, Problem> {
    let Some(names) = declared(call, &queue.name)? else {
        return change(values);
    };
    if values.contains(SIGNING_SECRET) {
        check_secret_is_free(&names, &queue.name)?;
    }
    let given: Vec<String> = names.iter().filter(|name| values.contains(name)).cloned().collect();
    let mut asked = change(values)?;
    call.rooms.queues.mask_known_headers(queue, &mut asked.settings);
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
fn change(call: &Call, present: Option<&Queue>, mut values: Values<'_>) -> Result<QueueChange, Problem> {
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
        call.rooms.push.check_url(url).map_err(|refused| Problem::field("webhookUrl", refused.to_string()))?;
    }
    if present.is_some_and(|queue| queue.settings.mode == Mode::Callback) && settings.mode != Mode::Callback {
        return Err(Problem::field("mode", "cannot be set here: this queue delivers callbacks"));
    }
    settings::check_use(secret.as_ref(), &settings)?;
    Ok(QueueChange { settings, secret })
}

async fn save(call: &Call, name: &str, change: QueueChange, expect: ExpectedVersion) -> Result<SavedQueue, Problem> {
    call.rooms.queues.save(namespace(call)?, name, change, expect).await?.map_err(|refusal| refused(refusal, name))
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
fn expect(call: &Call) -> Result<ExpectedVersion, Problem> {
    match call.header(IF_NONE_MATCH.as_str()).map(str::trim) {
        None => {}
        Some("*") => return Ok(ExpectedVersion::Absent),
        Some(_) => {
            return Err(header_problem(&IF_NONE_MATCH, "must be *; to change what you have read, send If-Match"));
        }
    }
    match call.header(IF_MATCH.as_str()).map(str::trim) {
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

async fn answer(call: &Call, done: &SavedQueue) -> Result<Response, Problem> {
    let saved = &done.saved;
    let (queue, counts) = find(call, &saved.queue.name).await.map_err(Problem::after_commit)?;
    let status = if saved.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut body = view(call, &queue, &counts);
    if let (Some(secret), Value::Object(map)) = (&done.new_secret, &mut body) {
        map.insert("signingSecret".to_owned(), Value::String(secret.expose().to_owned()));
    }
    let mut response = with_etag(wire::json_ok(status, &body), &queue);
    if let (true, Ok(location)) = (saved.created, HeaderValue::try_from(format!("/v1/queues/{}", queue.name))) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

fn shown(call: &Call, queue: &Queue, counts: &QueueCounts) -> Response {
    with_etag(wire::json_ok(StatusCode::OK, &view(call, queue, counts)), queue)
}

fn view(call: &Call, queue: &Queue, counts: &QueueCounts) -> Value {
    view_for(&call.rooms.inbound, queue, counts)
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
