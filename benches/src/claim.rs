//! The rate of claims on a large backlog against that on a small one. Both are measured in the same rounds: publish
//! 1,000 jobs on top, then time the claiming of as many. Only the size of the backlog below differs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;

use crate::answer;
use crate::backlog;
use crate::clock;
use crate::connection::Connection;
use crate::process::Server;
use crate::report::{Limit, Report};
use crate::request::{self, Target};
use crate::settings::Settings;

const SMALL_BACKLOG: u64 = 1000;
const JOBS_PER_ROUND: usize = 1000;
const CONNECTIONS: usize = 64;
/// The two backlogs take turns, so that a change of the machine's speed meets both.
const TURNS: u32 = 10;
/// Bounded, because claimed jobs stay: the small store has to remain small.
const ROUNDS_PER_TURN: u32 = 10;
const TURN_WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(large: &Target, settings: &Settings, report: &mut Report) -> Result<()> {
    for batch in [1, 100] {
        let small_server = Server::start(&settings.server, &settings.dir).await?;
        let small = &small_server.target;
        backlog::fill(small, SMALL_BACKLOG).await?;
        let [small_rate, large_rate] = rates([small, large], batch).await?;
        report.note(
            &format!("claims, batch {batch}"),
            format!("{small_rate:.0}/s at {SMALL_BACKLOG} queued, {large_rate:.0}/s at {} queued", settings.backlog),
        );
        report.figure(
            &format!("claim at backlog / at 1,000, batch {batch}"),
            large_rate / small_rate,
            "",
            Limit::AtLeast(0.8),
        );
    }
    Ok(())
}

/// The claims per second of two servers that take turns.
pub(crate) async fn rates(targets: [&Target; 2], batch: usize) -> Result<[f64; 2]> {
    let [first, second] = targets;
    let mut claims = [Claims::default(), Claims::default()];
    let [first_claims, second_claims] = &mut claims;
    for _ in 0..TURNS {
        first_claims.add(take_turn(first, batch).await?);
        second_claims.add(take_turn(second, batch).await?);
    }
    Ok(claims.map(|claims| claims.per_second()))
}

#[derive(Default)]
struct Claims {
    jobs: usize,
    time: Duration,
}

impl Claims {
    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.time += other.time;
    }

    fn per_second(&self) -> f64 {
        self.jobs as f64 / self.time.as_secs_f64()
    }
}

async fn take_turn(target: &Target, batch: usize) -> Result<Claims> {
    tokio::time::timeout(TURN_WITHIN, claim_rounds(target, batch))
        .await
        .context("a turn of claims did not end in time")?
}

/// Rounds on one backlog. The first one warms up and is not counted.
async fn claim_rounds(target: &Target, batch: usize) -> Result<Claims> {
    let calls = JOBS_PER_ROUND / batch;
    let mut connections = Connection::open_many(target, CONNECTIONS.min(calls)).await?;
    let mut top_up = Connection::open(target).await?;
    let request = request::publish_batch(target, 0, JOBS_PER_ROUND as u64);
    let receive = target.receive(batch);
    let mut claims = Claims::default();
    for round in 0..=ROUNDS_PER_TURN {
        let body = top_up.call(&request).await?.expect(202)?;
        answer::all_published(body, JOBS_PER_ROUND)?;

        let start = clock::now();
        let jobs = claim_round(&mut connections, &receive, calls).await?;
        let time = start.elapsed();
        ensure!(jobs == JOBS_PER_ROUND, "claimed {jobs} of {JOBS_PER_ROUND} jobs that were queued");
        if round > 0 {
            claims.add(Claims { jobs, time });
        }
    }
    Ok(claims)
}

/// `calls` receives, spread over the connections as they become free; gives the number of jobs claimed.
async fn claim_round(connections: &mut [Connection], receive: &[u8], calls: usize) -> Result<usize> {
    let started = AtomicUsize::new(0);
    let workers = connections.iter_mut().map(async |connection| {
        let mut jobs = 0;
        while started.fetch_add(1, Ordering::Relaxed) < calls {
            let body = connection.call(receive).await?.expect(200)?;
            jobs += answer::received(body)?.len();
        }
        Ok::<_, anyhow::Error>(jobs)
    });
    Ok(try_join_all(workers).await?.into_iter().sum())
}
