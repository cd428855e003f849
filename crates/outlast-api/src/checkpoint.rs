//! The checkpoint and the sections, which an attempt saves for the next one.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use outlast_core::Timestamp;
use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section, is_section_name};
use outlast_store::page::PageSize;

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::{Values, check_json};
use crate::{fields, outcome, wire, work};

/// Sections per page.
const PAGE_DEFAULT: usize = 50;

pub(crate) async fn put(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::CHECKPOINT)?;
    let worker = work::worker(&request, &mut values)?;
    let report = values.object("progress").map(work::report);
    let checkpoint = inline(&request, values)?;
    let applied = request.rooms.work.checkpoint(&worker, checkpoint, report).await??;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

/// When, and in which attempt, is for the state machine to say.
pub(crate) fn inline(request: &RequestContext, mut saved: Values<'_>) -> Result<Arc<Checkpoint>, Problem> {
    let schema_version = saved.u32("schemaVersion").unwrap_or(0);
    let data = saved.any("data").map(wire::raw).unwrap_or_else(|| "null".into());
    let most = request.limits.payload_bytes;
    if data.len() > most {
        let detail =
            format!("the data has {} bytes, the limit inline is {most}; PUT more to …/checkpoint/blob", data.len());
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let data = CheckpointData::Inline(data);
    Ok(Arc::new(Checkpoint { schema_version, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 }))
}

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let _turn = request.turn(Weight::Single).await?;
    let kept = request.rooms.work.saved(&request.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    let none = || Problem::new(Code::CheckpointNotFound, "no attempt of this job has saved one, or it was dropped");
    let checkpoint = kept.checkpoint.ok_or_else(none)?;
    Ok(wire::ok(StatusCode::OK, wire::checkpoint(request.base(), id, &checkpoint)))
}

pub(crate) async fn put_section(request: RequestContext) -> Result<Response, Problem> {
    let worker = work::worker(&request, &mut Values::default())?;
    let name = section_name(&request)?;
    let body = check_json(&request.body).map_err(Problem::invalid)?;
    if body.len() > request.limits.payload_bytes {
        let detail = format!("the section has {} bytes, the limit is {}", body.len(), request.limits.payload_bytes);
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let section = Section { name: name.into(), body: body.into(), at: Timestamp::EPOCH };
    let applied = request.rooms.work.section(&worker, section).await??;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

pub(crate) async fn sections(mut request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let limit = request.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let after = request.query.text("cursor");
    let _turn = request.turn(Weight::Page).await?;
    let found = request.rooms.work.sections(&request.reach, id, after.as_deref(), limit).await?;
    let found = found.ok_or_else(Problem::job_not_found)?;
    let is_full = found.len() == limit || PageSize::of(&found).is_full();
    let next = found.last().filter(|_| is_full).map(|last| last.name.to_string());
    let written = |section: Section| {
        let mut text = String::new();
        wire::section(&mut text, &section);
        text
    };
    Ok(wire::ok(StatusCode::OK, wire::list_page(found.into_iter().map(written), next)))
}

pub(crate) async fn section(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let name = section_name(&request)?;
    let _turn = request.turn(Weight::Single).await?;
    request.rooms.jobs.job(&request.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    let section = request.rooms.work.one_section(&request.reach, id, name).await?;
    let none = || Problem::new(Code::SectionNotFound, format!("the job has no section \"{name}\""));
    Ok(wire::ok(StatusCode::OK, section.ok_or_else(none)?.body.to_string()))
}

fn section_name(request: &RequestContext) -> Result<&str, Problem> {
    let name = request.parameter("name");
    let wrong = "must be 1 to 128 letters, digits, \".\", \"_\", \":\" or \"-\", starting with a letter or digit";
    if is_section_name(name) { Ok(name) } else { Err(Problem::field("name", wrong)) }
}
