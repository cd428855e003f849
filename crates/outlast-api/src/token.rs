//! `POST /v1/jobs/{id}/token`: a token to one job, for those who must not have a key. It can do no more than the key that
//! makes it.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_engine::keys::token::Can;
use serde_json::json;

use crate::auth::authorize;
use crate::dead_letters::texts;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::{fields, wire};

const LIFE_DEFAULT: Duration = Duration::from_secs(3600);

pub(crate) async fn create(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let mut values = request.read(&fields::TOKEN)?;
    let wanted = texts(values.list("can").unwrap_or_default());
    let can: Vec<Can> = Can::ALL.into_iter().filter(|can| wanted.iter().any(|word| word == can.as_str())).collect();
    if can.is_empty() {
        return Err(Problem::field("can", "must have at least one entry"));
    }
    if can.contains(&Can::Output) && !can.contains(&Can::Watch) {
        return Err(Problem::field("can", "must have \"watch\" where it has \"output\""));
    }
    let caller = request.caller()?;
    request.rooms.jobs.job(&request.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    for can in &can {
        let reach = authorize(caller, can.needs())?;
        if request.rooms.jobs.job(&reach, id).await?.is_none() {
            let detail = format!("the key may not {} this job, so it cannot pass that on", can.as_str());
            return Err(Problem::new(Code::Forbidden, detail));
        }
    }
    let life = values.duration("expiresIn").unwrap_or(LIFE_DEFAULT);
    let (text, token) = request.rooms.keys.mint_token(caller, id, can, life);
    let can: Vec<&str> = token.can.iter().map(|can| can.as_str()).collect();
    let body = json!({
        "token": text,
        "can": can,
        "expiresAt": token.expires_at.to_string(),
        "statusUrl": format!("{}/v1/jobs/{id}?token={text}", request.base()),
        "streamUrl": format!("{}/v1/jobs/{id}/stream?token={text}", request.base()),
    });
    Ok(wire::json_ok(StatusCode::CREATED, &body))
}
