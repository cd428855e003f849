//! What the connections of a throughput phase do, without end: publish, the lifecycle of a job one by one and in batches,
//! or polls of one job. They neither know nor care how many servers there are and what they store in.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::Semaphore;

use crate::answer::{self, Job};
use crate::connection::{self, Connection};
use crate::ingest;
use crate::ingest::event::Events;
use crate::load::{Meter, Workers};
use crate::request::{self, Publish, Target};

/// Jobs in one batch of the batched lifecycles.
pub(crate) const BATCH: u32 = 100;
/// Connections that receive and acknowledge in the mixed lifecycle; the others publish.
const BATCH_CONSUMERS: usize = 4;
/// In the mixed lifecycle, jobs published and not yet acknowledged; publishers wait above it.
const BATCH_BACKLOG_MAX: usize = 20_000;

#[derive(Clone, Copy)]
pub(crate) enum Work {
    Publish,
    Lifecycle,
    /// One job per publish, batches in receive and acknowledge, on connections of their own.
    MixedLifecycle,
    /// Batches in every call.
    BatchLifecycle,
    /// All ask for the status of one running job.
    Polls,
    /// Signed events, each of which makes one job.
    Events,
}

impl Work {
    /// Opens the connections, spread evenly over the targets, and sets them to work.
    pub(crate) async fn start(self, targets: &[Target], connections: usize, meter: &Meter) -> Result<Workers> {
        let mut workers = Workers::default();
        let flow = Arc::new(Flow::new());
        let polled = match (self, targets.first()) {
            (Self::Polls, Some(target)) => running_job(target).await?,
            _ => String::new(),
        };
        for (index, target) in targets.iter().cycle().take(connections).enumerate() {
            let connection = Connection::open(target).await?;
            let (target, meter) = (target.clone(), meter.clone());
            match self {
                Self::Publish => workers.start(publish(connection, target, meter)),
                Self::Lifecycle => workers.start(live(connection, target, meter)),
                Self::BatchLifecycle => workers.start(live_in_batches(connection, target, meter)),
                Self::Polls => workers.start(poll(connection, target.get(&format!("/v1/jobs/{polled}")), meter)),
                Self::Events => {
                    let number = u32::try_from(index).context("too many connections")?;
                    workers.start(ingest::post(connection, Events::new(&target, number)?, meter));
                }
                Self::MixedLifecycle if index < BATCH_CONSUMERS => {
                    workers.start(consume_batches(connection, target, meter, flow.clone()));
                }
                Self::MixedLifecycle => workers.start(publish_into(connection, target, flow.clone())),
            }
        }
        Ok(workers)
    }
}

/// One job per request, without end.
async fn publish(mut connection: Connection, target: Target, meter: Meter) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in 0.. {
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        meter.add(1);
    }
    Ok(())
}

/// Publish, receive, acknowledge: three calls of one job each. The job received is often another connection's.
async fn live(mut connection: Connection, target: Target, meter: Meter) -> Result<()> {
    let mut request = Publish::new(&target);
    let receive = target.receive(1);
    for sequence in 0.. {
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        let body = connection.call(&receive).await?.expect(200)?;
        let jobs = answer::received(body)?;
        // Every connection takes one job for each it published, so there is always one to take.
        let [job] = jobs.as_slice() else {
            bail!("received {} jobs where one was queued", jobs.len());
        };
        let acknowledge = target.acknowledge(job.id, job.lease);
        connection.call(&acknowledge).await?.expect(200)?;
        meter.add(1);
    }
    Ok(())
}

/// Publish, receive, acknowledge: batches of 100 in each call. What a short batch lacks is received by another call, so
/// that each connection takes as many jobs as it published.
async fn live_in_batches(mut connection: Connection, target: Target, meter: Meter) -> Result<()> {
    let batch = BATCH as usize;
    for sequence in (0..).step_by(batch) {
        let request = request::publish_batch(&target, sequence, u64::from(BATCH));
        let body = connection.call(&request).await?.expect(202)?;
        answer::all_published(body, batch)?;
        let mut missing = batch;
        while missing > 0 {
            let body = connection.call(&target.receive(missing)).await?.expect(200)?;
            let jobs = answer::received(body)?;
            let count = jobs.len();
            ensure!(count > 0, "received nothing where {missing} jobs were queued");
            let acknowledge = acknowledge_all(&target, &jobs);
            let body = connection.call(&acknowledge).await?.expect(200)?;
            answer::all_accepted(body, count)?;
            meter.add(count as u64);
            missing -= count;
        }
    }
    Ok(())
}

/// Publishes a job and takes it. Gives its id.
async fn running_job(target: &Target) -> Result<String> {
    let mut publish = Publish::new(target);
    connection::call_once(target, publish.numbered(0), &[202]).await?;
    let answer = connection::call_once(target, &target.receive(1), &[200]).await?;
    let jobs = answer::received(&answer.body)?;
    let job = jobs.first().context("the job that was published is not handed out")?;
    Ok(job.id.to_owned())
}

/// The status of one job, without end. It runs all the time.
async fn poll(mut connection: Connection, request: Vec<u8>, meter: Meter) -> Result<()> {
    loop {
        let body = connection.call(&request).await?.expect(200)?;
        ensure!(answer::is_running(body), "the polled job is not running: {}", String::from_utf8_lossy(body));
        meter.add(1);
    }
}

/// One batch of outcomes, with leases.
fn acknowledge_all(target: &Target, jobs: &[Job]) -> Vec<u8> {
    let outcomes: Vec<_> = jobs
        .iter()
        .map(|job| {
            let (id, lease) = (job.id, job.lease);
            format!("{{\"id\":\"{id}\",\"lease\":\"{lease}\",\"outcome\":\"ack\"}}")
        })
        .collect();
    let body = format!("{{\"outcomes\":[{}]}}", outcomes.join(","));
    target.post("/v1/outcomes", body.as_bytes())
}

/// Couples publishers and consumers of the mixed lifecycle: batches are full, and the backlog is bounded.
struct Flow {
    /// One permit for each job that waits to be received.
    queued: Semaphore,
    /// One permit for each job that may still be published.
    room: Semaphore,
}

impl Flow {
    fn new() -> Self {
        Self { queued: Semaphore::new(0), room: Semaphore::new(BATCH_BACKLOG_MAX) }
    }
}

async fn publish_into(mut connection: Connection, target: Target, flow: Arc<Flow>) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in 0.. {
        flow.room.acquire().await?.forget();
        connection.call(request.numbered(sequence)).await?.expect(202)?;
        flow.queued.add_permits(1);
    }
    Ok(())
}

async fn consume_batches(mut connection: Connection, target: Target, meter: Meter, flow: Arc<Flow>) -> Result<()> {
    let receive = target.receive(BATCH as usize);
    loop {
        flow.queued.acquire_many(BATCH).await?.forget();
        let body = connection.call(&receive).await?.expect(200)?;
        let jobs = answer::received(body)?;
        let count = jobs.len();
        ensure!(count > 0, "received nothing where {BATCH} jobs were queued");
        let request = acknowledge_all(&target, &jobs);
        let body = connection.call(&request).await?.expect(200)?;
        answer::all_accepted(body, count)?;

        meter.add(count as u64);
        flow.room.add_permits(count);
        flow.queued.add_permits((BATCH as usize).saturating_sub(count));
    }
}
