//! API keys: make, list, revoke. Only for the admin scope.

use axum::response::Response;
use http::StatusCode;
use outlast_engine::keys::KeyRequest;
use outlast_engine::scope::Scope;
use outlast_store::keys::KeyId;
use serde_json::{Value, json};

use crate::call::Call;
use crate::dead::texts;
use crate::error::{Code, Problem};
use crate::{fields, wire};

pub(crate) async fn create(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::KEY)?;
    let caller = call.caller()?;
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
    let expires_at = values.duration("expiresIn").map(|life| call.engine.now().plus(life));
    let request = KeyRequest { name: values.text("name").unwrap_or_default(), namespace, scopes, expires_at };
    let (text, record) = call.engine.create_key(request).await?;
    let mut body = wire::key(&record);
    if let Value::Object(map) = &mut body {
        map.insert("key".to_owned(), json!(text));
    }
    Ok(wire::json_ok(StatusCode::CREATED, &body))
}

pub(crate) async fn list(call: Call) -> Result<Response, Problem> {
    let keys = call.engine.keys(call.caller()?).await?;
    Ok(wire::json_ok(StatusCode::OK, &wire::page(keys.iter().map(wire::key).collect(), None)))
}

pub(crate) async fn revoke(call: Call) -> Result<Response, Problem> {
    let not_found = || Problem::new(Code::KeyNotFound, "no key with this id");
    let id = call.parameter("id").parse().map(KeyId).map_err(|_| not_found())?;
    let revoked = call.engine.revoke_key(call.caller()?, id).await?.ok_or_else(not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &wire::key(&revoked)))
}
