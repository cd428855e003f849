//! Ten thousand viewers of one job, each a stream of server-sent events on a connection of its own: how soon an event is
//! with all of them, what one costs in memory, and how long it takes until all are back when the server was killed.
//! They come from several addresses of this machine, with a hundred keys. They are of one namespace, which gets a share of the
//! streams only, so that the server allows more streams than there are viewers.

mod audience;
mod viewer;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::answer;
use crate::backlog;
use crate::clock;
use crate::connection;
use crate::load::Workers;
use crate::open_loop::Quantiles;
use crate::process::Server;
use crate::procfs;
use crate::report::{Limit, Report};
use crate::request::{Publish, QUEUE, Target};
use crate::settings::Settings;

use self::audience::Audience;
use self::viewer::Viewer;

const CONFIG: &str = "limits: {streams: 14500}\n";
const FEW: usize = 2_000;
const MANY: usize = 10_000;
const QUICK_FEW: usize = 200;
const QUICK_MANY: usize = 1_000;
/// As many as a key and an address may have, or a little less.
const PER_KEY: usize = 100;
const PER_ADDRESS: usize = 900;
/// Viewers that open their stream at the same time, but for the storm.
const OPENING: usize = 100;
/// Timed events; each reaches every viewer.
const ROUNDS: usize = 20;
/// Two keepalives of each viewer fall into it.
const REST: Duration = Duration::from_secs(30);
const KIB: f64 = 1024.0;

/// Whatever takes longer is stuck.
const OPEN_WITHIN: Duration = Duration::from_secs(120);
const ARRIVE_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let (few, many) = if settings.is_quick { (QUICK_FEW, QUICK_MANY) } else { (FEW, MANY) };
    procfs::raise_open_files();
    let mut server = Server::start_with_config(&settings.server, &settings.dir, CONFIG.to_owned())?;
    server.make_pull_queue().await?;
    let mut stage = Stage::build(&server.target, many).await?;

    stage.seat(few).await?;
    stage.times(ROUNDS).await?;
    let with_few = rested(&server, few, report).await?;
    stage.seat(many).await?;
    let times = Quantiles::of(stage.times(ROUNDS).await?)?;
    report.note("from the call to its event at a viewer", times.describe());
    report.figure("event at the viewers, p99", times.p99.as_secs_f64(), "s", Limit::AtMost(1.0));
    let with_many = rested(&server, many, report).await?;
    let per_viewer = with_many.saturating_sub(with_few) as f64 / (many - few) as f64 / KIB;
    report.figure("memory per viewer", per_viewer, "KiB", Limit::AtMost(30.0));

    storm(&mut server, &mut stage, report).await
}

/// Resident memory once the server is at rest.
async fn rested(server: &Server, viewers: usize, report: &mut Report) -> Result<u64> {
    backlog::settle(server.pid()).await?;
    let ticks_before = procfs::cpu_ticks(server.pid())?;
    tokio::time::sleep(REST).await;
    let percent = procfs::cores(procfs::cpu_ticks(server.pid())? - ticks_before, REST.as_secs_f64()) * 100.0;
    let bytes = procfs::memory(server.pid())?.resident_bytes;
    report.note(
        &format!("server with {viewers} viewers"),
        format!(
            "{:.1} MiB resident, {percent:.1} % of a core at rest; buffers of all TCP sockets here: {:.1} MiB",
            bytes as f64 / KIB / KIB,
            procfs::tcp_buffer_bytes()? as f64 / KIB / KIB
        ),
    );
    Ok(bytes)
}

/// Kills the server under all viewers. They come back as soon as it listens, all at once, whatever it asked them to wait.
async fn storm(server: &mut Server, stage: &mut Stage, report: &mut Report) -> Result<()> {
    stage.audience.expect_cuts();
    let viewers = stage.seated;
    let start = clock::now();
    server.kill_and_restart()?;
    stage.all_open(viewers).await?;
    let seconds = start.elapsed().as_secs_f64();
    server.wait_until_ready()?;
    report.figure("kill -9 until all viewers are back", seconds, "s", Limit::AtMost(30.0));
    let (later, cut) = (stage.audience.later.total(), stage.audience.cut.total());
    report.note("in the storm", format!("{later} times a viewer was told to come later (503 with Retry-After)"));
    report.figure("viewers cut without an answer in the storm", cut as f64, "", Limit::AtMost(0.0));

    // Nobody has missed anything, and what comes next reaches all of them.
    let times = Quantiles::of(stage.times(2).await?)?;
    report.note("events after the storm", times.describe());
    Ok(())
}

/// The job, those who view it, and what makes it change.
struct Stage {
    target: Target,
    id: String,
    /// While the job is handed out.
    lease: Option<String>,
    last_event: u64,
    keys: Vec<Arc<str>>,
    audience: Arc<Audience>,
    viewers: Workers,
    seated: usize,
}

impl Stage {
    async fn build(target: &Target, viewers: usize) -> Result<Self> {
        let mut publish = Publish::new(target);
        let answer = connection::call_once(target, publish.numbered(0), &[202]).await?;
        let id = text(&serde_json::from_slice(&answer.body)?, "id")?;
        let mut keys = Vec::new();
        for _ in 0..viewers.div_ceil(PER_KEY) {
            let request = target.post("/v1/keys", json!({"name": "viewer", "scopes": ["read"]}).to_string().as_bytes());
            let answer = connection::call_once(target, &request, &[201]).await?;
            keys.push(text(&serde_json::from_slice(&answer.body)?, "key")?.into());
        }
        let (audience, viewers) = (Arc::new(Audience::default()), Workers::default());
        Ok(Self { target: target.clone(), id, lease: None, last_event: 1, keys, audience, viewers, seated: 0 })
    }

    /// Lets viewers in until there are so many, and waits until all of them have seen the whole log.
    async fn seat(&mut self, count: usize) -> Result<()> {
        let opening = Arc::new(Semaphore::new(OPENING));
        for number in self.seated..count {
            let key = self.keys.get(number / PER_KEY).context("there are too few keys")?;
            let viewer = Viewer {
                from: Ipv4Addr::new(127, 0, 1, u8::try_from(1 + number / PER_ADDRESS)?),
                target: Target { address: self.target.address, key: Arc::clone(key) },
                path: format!("/v1/jobs/{}/stream", self.id),
                last_event: 0,
                audience: Arc::clone(&self.audience),
            };
            self.viewers.start(viewer.view(Arc::clone(&opening)));
        }
        self.seated = count;
        self.all_open(count).await?;
        self.arrived(self.last_event).await?;
        Ok(())
    }

    async fn all_open(&mut self, count: usize) -> Result<()> {
        let start = clock::now();
        while self.audience.open() < count {
            ensure!(start.elapsed() < OPEN_WITHIN, "only {} of {count} streams are open", self.audience.open());
            self.viewers.run_for(LOOK_AGAIN).await?;
        }
        Ok(())
    }

    /// When each viewer had this event.
    async fn arrived(&mut self, event: u64) -> Result<Vec<Instant>> {
        let start = clock::now();
        while self.audience.count_of(event) < self.seated {
            let count = self.audience.count_of(event);
            ensure!(start.elapsed() < ARRIVE_WITHIN, "{count} of {} viewers have event {event}", self.seated);
            self.viewers.run_for(LOOK_AGAIN).await?;
        }
        Ok(self.audience.arrivals(event))
    }

    /// Lets the job change so many times, and gives the time from sending each call to the arrival of the last event it
    /// made, for every viewer.
    async fn times(&mut self, rounds: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(rounds * self.seated);
        for _ in 0..rounds {
            let sent = clock::now();
            self.change().await?;
            let event = self.newest_event().await?;
            ensure!(event > self.last_event, "the call made no event");
            let arrived = self.arrived(event).await?;
            times.extend(arrived.into_iter().map(|arrived| arrived.saturating_duration_since(sent)));
            self.last_event = event;
        }
        Ok(times)
    }

    /// Takes the job, or gives it back.
    async fn change(&mut self) -> Result<()> {
        let Some(lease) = self.lease.take() else {
            let answer = connection::call_once(&self.target, &self.target.receive(1), &[200]).await?;
            let jobs = answer::received(&answer.body)?;
            self.lease = Some(jobs.first().with_context(|| format!("queue {QUEUE:?} is empty"))?.lease.to_owned());
            return Ok(());
        };
        let body = json!({"lease": lease, "retryAfter": 0, "scope": "job"}).to_string();
        let request = self.target.post(&format!("/v1/jobs/{}/defer", self.id), body.as_bytes());
        connection::call_once(&self.target, &request, &[200]).await?;
        Ok(())
    }

    async fn newest_event(&self) -> Result<u64> {
        let request = self.target.get(&format!("/v1/jobs/{}/events?after={}", self.id, self.last_event));
        let answer = connection::call_once(&self.target, &request, &[200]).await?;
        let page: Value = serde_json::from_slice(&answer.body)?;
        page.get("nextAfter").and_then(Value::as_u64).context("the page of events has no end")
    }
}

fn text(body: &Value, name: &str) -> Result<String> {
    let text = body.get(name).and_then(Value::as_str);
    Ok(text.with_context(|| format!("the answer has no {name}"))?.to_owned())
}
