//! API keys: make, list, revoke. Only for the admin scope.

use axum::response::Response;
use http::StatusCode;
use outlast_engine::keys::KeyRequest;
use outlast_engine::keys::scope::Scope;
use outlast_store::keys::{KeyId, Revocation};
use serde_json::{Value, json};

use crate::answers::Weight;
use crate::dead_letters::texts;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::{fields, wire};

const PAGE_DEFAULT: usize = 50;

pub(crate) async fn create(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::KEY)?;
    let caller = request.caller()?;
    let scopes: Vec<Scope> =
        texts(values.list("scopes").unwrap_or_default()).iter().filter_map(|text| Scope::parse(text)).collect();
    if scopes.is_empty() {
        return Err(Problem::field("scopes", "must have at least one entry"));
    }
    let namespace = values.text("namespace").unwrap_or_else(|| caller.namespace_name.to_string());
    if namespace != *caller.namespace_name && !caller.is_operator() {
        return Err(Problem::new(
            Code::Forbidden,
            "only an admin of the default namespace makes keys for other namespaces",
        ));
    }
    let expires_at = values.duration("expiresIn").map(|life| request.rooms.clock.now().plus(life));
    let new_key = KeyRequest { name: values.text("name").unwrap_or_default(), namespace, scopes, expires_at };
    let (text, record) = request.rooms.keys.create(new_key).await?;
    let mut body = wire::key(&record);
    if let Value::Object(map) = &mut body {
        map.insert("key".to_owned(), json!(text));
    }
    Ok(wire::json_ok(StatusCode::CREATED, &body))
}

/// Newest first. Keys are few and all in memory, so a page is cut from the whole list.
pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let limit = request.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let before = match request.query.text("cursor") {
        None => None,
        Some(text) => {
            let id = text.strip_prefix('k').and_then(|digits| digits.parse().ok()).map(KeyId);
            Some(id.ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))?)
        }
    };
    let _turn = request.turn(Weight::Page).await?;
    let mut keys = request.rooms.keys.list(request.caller()?).await?;
    keys.retain(|key| before.is_none_or(|before| key.id < before));
    keys.sort_by_key(|key| std::cmp::Reverse(key.id));
    let more = keys.len() > limit;
    keys.truncate(limit);
    let (page, is_cut) = wire::fill(keys.iter().map(|key| wire::key(key).to_string()));
    let last = page.len().checked_sub(1).and_then(|last| keys.get(last));
    let next = last.filter(|_| more || is_cut).map(|key| format!("k{}", key.id.0));
    Ok(wire::ok(StatusCode::OK, wire::list_page(page.into_iter(), next)))
}

pub(crate) async fn revoke(mut request: RequestContext) -> Result<Response, Problem> {
    let not_found = || Problem::new(Code::KeyNotFound, "no key with this id");
    let id = request.parameter("id").parse().map(KeyId).map_err(|_| not_found())?;
    let force = request.query.bool("force").unwrap_or(false);
    match request.rooms.keys.revoke(request.caller()?, id, force).await? {
        Revocation::Revoked(key) => Ok(wire::json_ok(StatusCode::OK, &wire::key(&key))),
        Revocation::NotFound => Err(not_found()),
        Revocation::LastAdmin => Err(Problem::new(
            Code::LastAdminKey,
            "this is the last admin key of its namespace; make another one first, or repeat with ?force=true",
        )),
    }
}
