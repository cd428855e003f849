//! Reading jobs, and the commands that are not outcomes: cancel and replay.

use axum::response::Response;
use http::{HeaderValue, StatusCode};
use outlast_core::queue::Mode;
use outlast_core::state::CancelReason;
use outlast_core::{Command, State, Status};
use outlast_engine::Rooms;
use outlast_engine::jobs::long_poll::Until;
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::{FoundJob, JobCommand, ListJobs};
use serde_json::{Value, json};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::wire::JobExtras;
use crate::{fields, results, view, wire};

const LIMIT_DEFAULT: usize = 50;
/// How soon a status may be asked for again where nothing better is known, and the latest that is ever named.
pub(crate) const POLL_SECONDS: u64 = 2;
const POLL_SECONDS_MAX: u64 = 60;

pub(crate) async fn show(mut request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    if let Some(wait) = request.query.duration("wait") {
        let version = request.query.int("version").and_then(|version| u64::try_from(version).ok()).unwrap_or(0);
        let waiting = request.begin_wait()?;
        Box::pin(request.rooms.jobs.watch(&request.reach, id, Until::VersionPasses(version), wait)).await?;
        request.end_wait(waiting);
    }
    Ok(view::look(&request, id).await?.answer(&request))
}

/// In how many seconds it is worth asking again: when the work will be done, if that can be said, and within a minute.
pub(crate) fn retry_after(rooms: &Rooms, found: &FoundJob) -> u64 {
    let State::Running(running) = &found.job.state else {
        return POLL_SECONDS;
    };
    let eta = rooms.work.known_progress(found.job.id, running).and_then(|progress| progress.eta);
    eta.map_or(POLL_SECONDS, |eta| eta.since(rooms.clock.now()).as_secs().clamp(1, POLL_SECONDS_MAX))
}

/// The header for that, put off under load: from half of the request slots on it rises, up to half a minute for a full
/// server, so that those who poll are the first to give way.
pub(crate) fn retry_header(seconds: u64, load_percent: u64) -> HeaderValue {
    match load_percent.saturating_sub(50).min(50) * 14 / 50 {
        0 => HeaderValue::from(seconds),
        steps => HeaderValue::from(seconds.max(POLL_SECONDS * (1 + steps))),
    }
}

/// Equal for all callers, because several of them share it.
pub(crate) async fn shown(rooms: &Rooms, detail: &JobDetail) -> String {
    let found = &detail.found;
    let moved_at = match &found.job.state {
        State::Running(running) => rooms.work.moved_at(found.job.id, running),
        _ => None,
    };
    let extras = JobExtras {
        progress: rooms.work.progress(found).await,
        moved_at,
        kept: detail.artifacts.clone(),
        result_meta: detail.result.as_ref().map(|result| results::meta(&found.job, result)),
    };
    wire::job(detail, callback(detail), &extras, rooms.clock.now())
}

/// The same for a list: only what is at hand.
fn at_hand(rooms: &Rooms, found: &FoundJob) -> JobExtras {
    let State::Running(running) = &found.job.state else {
        return JobExtras::default();
    };
    let (id, now) = (found.job.id, rooms.clock.now());
    let progress = rooms.work.known_progress(id, running).filter(|progress| progress.is_fresh(now));
    JobExtras { progress, moved_at: rooms.work.moved_at(id, running), ..JobExtras::default() }
}

/// The state of the job that calls the callback URL, if there is a URL.
fn callback(detail: &JobDetail) -> Option<Value> {
    let is_callback = detail.found.queue.settings.mode == Mode::Callback;
    let url = detail.found.job.spec.callback_url.as_deref().filter(|_| !is_callback)?;
    Some(wire::callback(url, detail.callback.as_ref()))
}

pub(crate) async fn events(mut request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let after = request.query.int("after").and_then(|after| u64::try_from(after).ok()).unwrap_or(0);
    let limit = request.query.usize("limit").unwrap_or(LIMIT_DEFAULT);
    let _turn = request.turn(Weight::Page).await?;
    let events =
        request.rooms.jobs.events(&request.reach, id, after, limit).await?.ok_or_else(Problem::job_not_found)?;
    let next = events.last().map_or(after, |event| event.seq);
    let items = events.into_iter().map(|event| wire::event_json(&event).to_string());
    Ok(wire::ok(StatusCode::OK, wire::list(items, "nextAfter", &json!(next))))
}

pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let list = ListJobs {
        reach: request.reach.clone(),
        queue: request.query.text("queue"),
        status: request.query.text("status").and_then(|word| Status::parse(&word)),
        tags: std::mem::take(&mut request.tags),
        key: request.query.text("key"),
        before: cursor(&mut request)?,
        limit: request.query.usize("limit").unwrap_or(LIMIT_DEFAULT),
    };
    list_page(&request, list).await
}

async fn list_page(request: &RequestContext, list: ListJobs) -> Result<Response, Problem> {
    let _turn = request.turn(Weight::Page).await?;
    let page = request.rooms.jobs.list(list).await?;
    let items = page.jobs.iter().map(|found| summary(request, found));
    Ok(wire::ok(StatusCode::OK, wire::list_page(items, page.next.map(|next| format!("j{next:x}")))))
}

/// One job of a list.
pub(crate) fn summary(request: &RequestContext, found: &FoundJob) -> String {
    let shown = wire::job_summary(&found.job, &found.queue, &at_hand(&request.rooms, found), request.rooms.clock.now());
    Value::Object(shown).to_string()
}

/// Where a list of jobs goes on.
fn cursor(request: &mut RequestContext) -> Result<Option<u64>, Problem> {
    let Some(text) = request.query.text("cursor") else {
        return Ok(None);
    };
    let position = text.strip_prefix('j').and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let position = position.filter(|position| i64::try_from(*position).is_ok());
    position.map(Some).ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))
}

pub(crate) async fn cancel(request: RequestContext) -> Result<Response, Problem> {
    act(&request, Command::Cancel { reason: CancelReason::User }).await
}

pub(crate) async fn replay(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::REPLAY)?;
    let fresh = values.bool("fresh").unwrap_or(false);
    let payload = values.any("payload").map(wire::raw);
    if payload.as_ref().is_some_and(|payload| payload.len() > request.limits.payload_bytes) {
        return Err(Problem::new(
            Code::PayloadTooLarge,
            format!("the payload has more than {} bytes", request.limits.payload_bytes),
        ));
    }
    act(&request, Command::Replay { fresh, payload }).await
}

/// Runs a command and shows the job as it is afterwards.
async fn act(request: &RequestContext, command: Command) -> Result<Response, Problem> {
    let id = request.job()?;
    request.rooms.jobs.apply_one(JobCommand { id, reach: request.reach.clone(), command }).await??;
    let view = view::look(request, id).await.map_err(Problem::after_commit)?;
    let mut response = view.whole(request);
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_poll_are_put_off_under_load() {
        for (seconds, load, wanted) in
            [(2, 0, "2"), (2, 50, "2"), (1, 40, "1"), (2, 75, "16"), (2, 100, "30"), (60, 100, "60"), (2, 900, "30")]
        {
            assert_eq!(retry_header(seconds, load), wanted, "{seconds} s at {load} %");
        }
    }
}
