//! Reading jobs, and the commands that are not outcomes: cancel and replay.

use std::time::Duration;

use axum::response::Response;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, StatusCode};
use outlast_core::queue::Mode;
use outlast_core::state::CancelReason;
use outlast_core::{Command, JobId, State, Status};
use outlast_engine::Rooms;
use outlast_engine::jobs::long_poll::Until;
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::{FoundJob, JobCommand, ListJobs};
use outlast_store::page::PageSize;
use serde_json::{Value, json};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::{self, read_raw};
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

/// How many jobs are read at once.
const READS_MAX: usize = 8;

/// Those of the jobs that have passed the version the caller knows, as soon as there is one. An answer has as many as fit
/// into a page; the others come with the next call.
pub(crate) async fn wait(mut request: RequestContext) -> Result<Response, Problem> {
    let (wanted, wait) = read_wait(&request)?;
    let place = if wait.is_zero() { None } else { Some(request.reserve_wait(wanted.len())?) };
    let ids = wanted.iter().map(|(id, _)| *id);
    let mut watch = place.as_ref().map(|_| request.rooms.jobs.watch_all(ids, &request.reach, wait));
    let mut items = newer(&request, &wanted, (0..wanted.len()).collect()).await?;
    if let (Some(place), Some(watch), true) = (place, &mut watch, items.is_empty()) {
        request.begin_reserved_wait();
        while items.is_empty()
            && let Some(places) = request.rooms.jobs.any_changed(watch).await
        {
            items = newer(&request, &wanted, places).await?;
        }
        request.end_wait(place);
    }
    Ok(wire::ok(StatusCode::OK, format!("{{\"jobs\":[{}]}}", items.join(","))))
}

fn read_wait(request: &RequestContext) -> Result<(Vec<(JobId, u64)>, Duration), Problem> {
    let mut values = request.read(&fields::JOBS_WAIT)?;
    let entries = values.list("jobs").unwrap_or_default();
    let mut wanted = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let path = format!("jobs[{place}]");
        let schema::Value::Any(raw) = entry else {
            return Err(Problem::field(&path, "must be an object"));
        };
        let mut fields = read_raw(&fields::WAITED_JOB, raw, &path).map_err(Problem::invalid)?;
        let id = fields.text("id").unwrap_or_default().parse().map_err(|_| Problem::job_not_found())?;
        wanted.push((id, fields.int("version").and_then(|version| u64::try_from(version).ok()).unwrap_or(0)));
    }
    match wanted.is_empty() {
        true => Err(Problem::field("jobs", "must have at least one entry")),
        false => Ok((wanted, values.duration("wait").unwrap_or_default())),
    }
}

/// The jobs at these places that are newer than what the caller knows, or unknown, as JSON.
async fn newer(request: &RequestContext, wanted: &[(JobId, u64)], places: Vec<usize>) -> Result<Vec<String>, Problem> {
    let _turn = request.turn(Weight::Page).await?;
    let read = |place: usize| async move {
        let Some((id, version)) = wanted.get(place) else {
            return Ok(None);
        };
        Ok::<_, Problem>(match request.rooms.jobs.job(&request.reach, *id).await? {
            None => Some(json!({"id": id.to_string(), "error": Problem::job_not_found().to_json()}).to_string()),
            Some(found) => (found.job.version > *version).then(|| summary(request, &found)),
        })
    };
    let mut reads = std::pin::pin!(stream::iter(places).map(read).buffered(READS_MAX));
    let (mut items, mut size) = (Vec::new(), PageSize::default());
    while let Some(item) = reads.next().await {
        if let Some(item) = item? {
            size.add(item.len());
            items.push(item);
        }
        if size.is_full() {
            break;
        }
    }
    Ok(items)
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
pub(crate) async fn shown<'a>(rooms: &'a Rooms, detail: &JobDetail) -> (String, JobExtras<'a>) {
    let found = &detail.found;
    let moved_at = match &found.job.state {
        State::Running(running) => rooms.work.moved_at(found.job.id, running),
        _ => None,
    };
    let extras = JobExtras {
        base: rooms.push.public_url(),
        progress: rooms.work.progress(found).await,
        moved_at,
        kept: detail.artifacts.clone(),
        result_meta: detail.result.as_ref().map(|result| results::meta(&found.job, result)),
    };
    (wire::job(detail, callback(detail), &extras, rooms.clock.now()), extras)
}

/// The same for a list: only what is at hand.
fn at_hand<'a>(rooms: &'a Rooms, found: &FoundJob) -> JobExtras<'a> {
    let base = rooms.push.public_url();
    let State::Running(running) = &found.job.state else {
        return JobExtras { base, ..JobExtras::default() };
    };
    let (id, now) = (found.job.id, rooms.clock.now());
    let progress = rooms.work.known_progress(id, running).filter(|progress| progress.is_fresh(now));
    JobExtras { base, progress, moved_at: rooms.work.moved_at(id, running), ..JobExtras::default() }
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
    let sight = request.sight();
    let items = events.iter().filter_map(|event| wire::seen_event(event, sight)).map(|event| event.to_string());
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
