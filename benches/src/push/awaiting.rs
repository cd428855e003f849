//! What outstanding work costs: deliveries that were taken with 202 and wait for their outcome, in memory and in
//! processor time. What one of them costs is the slope: how much more memory thirty thousand take than ten thousand. What
//! the server needs for working at all (page cache, buffers, connections) is there by then, and what the allocator keeps of
//! earlier work is used up. At the end every one is acknowledged, and so was outstanding.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::answer;
use crate::backlog;
use crate::clock;
use crate::connection;
use crate::load::{Meter, Workers};
use crate::process::Server;
use crate::procfs;
use crate::receiver::{Receiver, Reply};
use crate::report::{Limit, Report};
use crate::request::{self, QUEUE, Target};
use crate::settings::Settings;

use super::{ASK_AGAIN, SETTLED_WITHIN, wait_for_counts};

const OUTSTANDING: u64 = 10_000;
const BATCH: usize = 100;
const REST: Duration = Duration::from_secs(10);

/// So many times as many in the end.
const TIMES: u64 = 3;

/// One entry of `POST /v1/outcomes` for each delivery that was taken with 202.
type Outcomes = Mutex<Vec<Value>>;

/// What the receiver saw.
#[derive(Default)]
struct Inbox {
    arrived: Meter,
    outcomes: Outcomes,
}

impl Inbox {
    fn show(&self, body: &[u8]) -> Result<Reply> {
        self.arrived.add(1);
        let job = answer::delivered(body)?;
        let outcome = json!({"id": job.id, "lease": job.lease, "outcome": "ack"});
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        Ok(Reply::Accepted)
    }
}

pub(super) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let server = Server::start_push(&settings.server, &settings.dir)?;
    let target = &server.target;
    let receiver = Receiver::bind(Ipv4Addr::LOCALHOST).await?;
    let url = receiver.url.clone();
    let inbox = Arc::new(Inbox::default());
    let inbox_here = inbox.clone();
    let mut receivers = Workers::default();
    receivers.start(receiver.serve(move |body: &[u8]| inbox_here.show(body)));
    let idle = procfs::memory(server.pid())?.resident_bytes;

    let settings = json!({"webhookUrl": url, "mode": "ack", "ackTimeout": "12h", "concurrency": 100_000});
    server.make_queue(QUEUE, &settings).await?;
    let mut resident = Vec::new();
    for times in 1..=TIMES {
        deliver(target, QUEUE, &inbox, &mut receivers).await?;
        // None is under way any more, so what runs is awaiting its outcome.
        wait_for_counts(target, QUEUE, |counts| counts.running == times * OUTSTANDING).await?;
        backlog::settle(server.pid()).await?;
        resident.push(procfs::memory(server.pid())?.resident_bytes);
    }
    let shown: Vec<String> = std::iter::once(&idle).chain(&resident).map(|bytes| (bytes / 1024).to_string()).collect();
    report.note("memory with none, 10,000, 20,000 and 30,000 outstanding", format!("{} KiB", shown.join(", ")));
    let (first, last) = (resident.first().copied().unwrap_or(0), resident.last().copied().unwrap_or(0));
    let per_delivery = last.saturating_sub(first) as f64 / ((TIMES - 1) * OUTSTANDING) as f64;
    report.figure("memory per delivery awaiting its outcome", per_delivery, "B", Limit::AtMost(2048.0));

    let ticks_before = procfs::cpu_ticks(server.pid())?;
    tokio::time::sleep(REST).await;
    let ticks = procfs::cpu_ticks(server.pid())? - ticks_before;
    let percent = procfs::cores(ticks, REST.as_secs_f64()) * 100.0;
    report.figure("processor at rest with them", percent, "%", Limit::AtMost(0.5));

    let outcomes = std::mem::take(&mut *inbox.outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    acknowledge_all(target, &outcomes).await
}

/// Publishes jobs to the queue and waits until all of them have arrived and are answered.
async fn deliver(target: &Target, queue: &str, inbox: &Inbox, receivers: &mut Workers) -> Result<()> {
    let wanted = inbox.arrived.total() + OUTSTANDING;
    for first in (0..OUTSTANDING).step_by(BATCH) {
        let request = request::publish_batch_to(target, queue, first, BATCH as u64);
        let answer = connection::call_once(target, &request, &[202]).await?;
        answer::all_published(&answer.body, BATCH)?;
    }
    let start = clock::now();
    while inbox.arrived.total() < wanted {
        ensure!(start.elapsed() < SETTLED_WITHIN, "{} jobs did not arrive", wanted - inbox.arrived.total());
        receivers.run_for(ASK_AGAIN).await?;
    }
    wait_until_none_is_under_way(target).await?;
    ensure!(inbox.arrived.total() == wanted, "{} jobs arrived twice", inbox.arrived.total() - wanted);
    Ok(())
}

/// Then the answer to every delivery is stored.
async fn wait_until_none_is_under_way(target: &Target) -> Result<()> {
    let start = clock::now();
    loop {
        let answer = connection::call_once(target, &target.get("/metrics"), &[200]).await?;
        let text = String::from_utf8(answer.body)?;
        let in_flight = text.lines().find_map(|line| line.strip_prefix("outlast_deliveries_in_flight "));
        if in_flight.context("the metrics do not say how many deliveries are under way")? == "0" {
            return Ok(());
        }
        ensure!(start.elapsed() < SETTLED_WITHIN, "deliveries are still under way");
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

async fn acknowledge_all(target: &Target, outcomes: &[Value]) -> Result<()> {
    for batch in outcomes.chunks(BATCH) {
        let request = target.post("/v1/outcomes", json!({"outcomes": batch}).to_string().as_bytes());
        let answer = connection::call_once(target, &request, &[200]).await?;
        answer::all_accepted(&answer.body, batch.len())?;
    }
    let counts = backlog::counts(target, QUEUE).await?;
    let all = TIMES * OUTSTANDING;
    ensure!(counts.succeeded == all, "{all} jobs were acknowledged, the queue says {counts:?}");
    Ok(())
}
