//! `POST /v1/queues/{queue}/receive`, and `POST /v1/receive` for several queues.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use outlast_core::Job;
use outlast_core::checkpoint::Checkpoint;
use outlast_core::queue::Mode;
use outlast_core::state::Phase;
use outlast_engine::jobs::multi_claim::{MultiClaim, WeightedQueue};
use outlast_engine::workers::WorkerName;
use outlast_store::artifacts::Artifacts;
use outlast_store::jobs::{ClaimRequest, Claimed};

use crate::answers::HandoutMemory;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::{Value, Values, read_raw};
use crate::wire::Resume;
use crate::{fields, wire};

pub(crate) async fn receive(mut request: RequestContext) -> Result<Response, Problem> {
    let agent;
    let (want, wait, accepts) = {
        let mut values = request.read(&fields::RECEIVE)?;
        let wait = values.duration("wait").unwrap_or(Duration::ZERO);
        let want = claim_request(&request, request.queue()?.into(), &mut values)?;
        agent = agent_of(&mut values);
        (want, wait, accepted_schemas(&mut values))
    };
    note_worker(&request, &want, agent, std::iter::once(&want.queue));
    let claimed = hand_out(&mut request, want, wait).await?;
    let resumes = resumes(&request, &claimed, accepts.as_deref()).await?;
    let mut body = jobs_body(claimed.jobs.iter());
    leases(&mut body, &claimed, &resumes);
    body.push_str("]}");
    Ok(handed_out(body, claimed))
}

/// The same from several queues. All of them must exist and be pulled from, before any job is handed out.
pub(crate) async fn several(mut request: RequestContext) -> Result<Response, Problem> {
    let agent;
    let (claim, wait, accepts) = {
        let mut values = request.read(&fields::RECEIVE_SEVERAL)?;
        let queues = weighted_queues(&request, &mut values)?;
        let wait = values.duration("wait").unwrap_or(Duration::ZERO);
        let want = claim_request(&request, "".into(), &mut values)?;
        agent = agent_of(&mut values);
        (MultiClaim { queues, want }, wait, accepted_schemas(&mut values))
    };
    check_queues(&request, &claim).await?;
    note_worker(&request, &claim.want, agent, claim.queues.iter().map(|queue| &queue.name));
    let mut all = request.rooms.jobs.claim_any_now(&claim).await?;
    if all.is_empty() && !wait.is_zero() {
        let place = request.reserve_wait(claim.queues.len())?;
        request.begin_reserved_wait();
        all = Box::pin(request.rooms.jobs.claim_any_waiting(&claim, wait)).await?;
        request.end_wait(place);
    }
    let mut body = jobs_body(all.jobs());
    for claimed in &all.claimed {
        let resumes = resumes(&request, claimed, accepts.as_deref()).await?;
        leases(&mut body, claimed, &resumes);
    }
    body.push_str("]}");
    let shares: Vec<_> = all.complete().into_iter().filter_map(|claimed| claimed.share).collect();
    let mut response = wire::ok(StatusCode::OK, body);
    response.extensions_mut().insert(HandoutMemory(Arc::new(shares)));
    Ok(response)
}

fn claim_request(request: &RequestContext, queue: Arc<str>, values: &mut Values<'_>) -> Result<ClaimRequest, Problem> {
    Ok(ClaimRequest {
        namespace: request.caller()?.namespace,
        queue,
        limit: values.usize("batch").unwrap_or(1),
        phase: Phase::Leased,
        visibility: values.duration("visibilityTimeout"),
        worker: values.text("worker").map(Into::into),
    })
}

/// The program that asks; without the name of the worker.
fn agent_of(values: &mut Values<'_>) -> WorkerName {
    let mut agent = values.object("agent").unwrap_or_default();
    WorkerName {
        worker: None,
        host: agent.text("host").map(Into::into),
        pid: agent.u32("pid"),
        sdk: agent.text("sdk").map(Into::into),
    }
}

/// Remembers who asks, for `GET /v1/workers`.
fn note_worker<'a>(
    request: &RequestContext,
    want: &ClaimRequest,
    agent: WorkerName,
    queues: impl Iterator<Item = &'a Arc<str>>,
) {
    let name = WorkerName { worker: want.worker.clone(), ..agent };
    request.rooms.workers.seen(want.namespace, &name, queues.map(Arc::clone));
}

fn accepted_schemas(values: &mut Values<'_>) -> Option<Vec<u32>> {
    values.list("acceptsSchema").map(|versions| versions.into_iter().filter_map(schema_version).collect())
}

fn weighted_queues(request: &RequestContext, values: &mut Values<'_>) -> Result<Vec<WeightedQueue>, Problem> {
    let entries = values.list("queues").unwrap_or_default();
    let mut queues: Vec<WeightedQueue> = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let path = format!("queues[{place}]");
        let Value::Any(raw) = entry else {
            return Err(Problem::field(&path, "must be an object"));
        };
        let mut fields = read_raw(&fields::RECEIVE_QUEUE, raw, &path).map_err(Problem::invalid)?;
        let name: Arc<str> = fields.text("name").unwrap_or_default().into();
        if queues.iter().any(|known| known.name == name) {
            return Err(Problem::field(&format!("{path}.name"), "names a queue twice; give each queue once"));
        }
        request.covers(&name)?;
        queues.push(WeightedQueue { name, weight: fields.u32("weight").unwrap_or(1) });
    }
    match queues.is_empty() {
        true => Err(Problem::field("queues", "must have at least one entry")),
        false => Ok(queues),
    }
}

/// So many queues are looked up at once.
const LOOKUPS_MAX: usize = 8;

async fn check_queues(request: &RequestContext, claim: &MultiClaim) -> Result<(), Problem> {
    let (rooms, namespace) = (&request.rooms, claim.want.namespace);
    let check = |queue: &WeightedQueue| {
        let name = Arc::clone(&queue.name);
        async move {
            let found = rooms.queues.get(namespace, &name).await?;
            let (queue, _) = found.ok_or_else(|| Problem::queue_not_found(&name))?;
            if queue.settings.mode != Mode::Pull && !queue.settings.allow_pull {
                return Err(not_pullable(&name));
            }
            Ok(())
        }
    };
    let checks: Vec<_> = claim.queues.iter().map(check).collect();
    stream::iter(checks).buffered(LOOKUPS_MAX).try_collect().await
}

fn not_pullable(name: &str) -> Problem {
    let detail = format!("queue \"{name}\" delivers to a webhook; set allowPull to let pullers have its jobs");
    Problem::new(Code::NotPullable, detail)
}

/// The beginning of the answer, with room for these jobs.
fn jobs_body<'a>(jobs: impl Iterator<Item = &'a Job>) -> String {
    let mut body = String::with_capacity(16 + jobs.map(|job| 768 + job.spec.payload.len()).sum::<usize>());
    body.push_str("{\"jobs\":[");
    body
}

fn leases(body: &mut String, claimed: &Claimed, resumes: &[Resume]) {
    for (job, resume) in claimed.jobs.iter().zip(resumes) {
        if !body.ends_with('[') {
            body.push(',');
        }
        wire::leased(body, job, &claimed.queue, resume);
    }
}

/// The answer, which keeps its share of the memory for hand-outs if it is large.
pub(crate) fn handed_out(body: String, claimed: Claimed) -> Response {
    let mut response = wire::ok(StatusCode::OK, body);
    if let Some(share) = claimed.share {
        response.extensions_mut().insert(HandoutMemory(share));
    }
    response
}

fn schema_version(value: Value<'_>) -> Option<u32> {
    match value {
        Value::Int(number) => u32::try_from(number).ok(),
        _ => None,
    }
}

/// The saved work of earlier attempts. If it cannot be read, or the receiver disconnects, the jobs are released, so
/// that no worker repeats saved work.
async fn resumes(request: &RequestContext, claimed: &Claimed, accepts: Option<&[u32]>) -> Result<Vec<Resume>, Problem> {
    if !claimed.jobs.iter().any(|job| job.work_summary.has_checkpoint || job.work_summary.has_sections) {
        return Ok(claimed.jobs.iter().map(|_| Resume::default()).collect());
    }
    let handover = request.rooms.jobs.handover(&claimed.jobs);
    let mut resumes = Vec::with_capacity(claimed.jobs.len());
    for job in &claimed.jobs {
        let kept = request.rooms.jobs.saved_work(job).await?;
        resumes.push(resume(request.base(), job, kept.unwrap_or_default(), accepts));
    }
    handover.complete();
    Ok(resumes)
}

fn resume(base: &str, job: &Job, kept: Artifacts, accepts: Option<&[u32]>) -> Resume {
    let is_taken = |checkpoint: &Checkpoint| checkpoint.is_taken_by(accepts);
    let is_incompatible = kept.checkpoint.as_ref().is_some_and(|checkpoint| !is_taken(checkpoint));
    let checkpoint = kept.checkpoint.filter(is_taken).map(|checkpoint| wire::checkpoint(base, job.id, &checkpoint));
    Resume { checkpoint, is_incompatible, sections: kept.sections }
}

/// Shared with the simple form.
pub(crate) async fn hand_out(
    request: &mut RequestContext,
    want: ClaimRequest,
    wait: Duration,
) -> Result<Claimed, Problem> {
    let name = want.queue.clone();
    let mut claimed = request.rooms.jobs.claim_now(&want).await?;
    if claimed.as_ref().is_some_and(|claimed| claimed.jobs.is_empty() && !claimed.push_only) && !wait.is_zero() {
        drop(claimed);
        let waiting = request.begin_wait()?;
        // On the heap only for those who wait.
        claimed = Box::pin(request.rooms.jobs.claim_waiting(want, wait)).await?;
        request.end_wait(waiting);
    }
    let claimed = claimed.ok_or_else(|| Problem::queue_not_found(&name))?;
    if claimed.push_only {
        return Err(not_pullable(&name));
    }
    Ok(claimed)
}
