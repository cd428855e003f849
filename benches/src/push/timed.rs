//! Deliveries of one queue at a fixed rate, timed from the publish to their arrival at the receiver.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use crate::answer;
use crate::clock;
use crate::load::Workers;
use crate::open_loop::{self, Journal, Plan};
use crate::process::Server;
use crate::receiver::{Receiver, Reply};

use super::wait_for_counts;

pub(super) struct Times {
    /// From sending a publish to its answer.
    pub(super) publishes: Vec<Duration>,
    /// From sending a publish to the moment at which the receiver has read the whole delivery.
    pub(super) deliveries: Vec<Duration>,
}

/// Makes the queue, with its settings as they are by default, and runs the plan on it. Every job has to arrive once and to
/// be stored as succeeded.
pub(super) async fn deliveries(server: &Server, queue: &str, plan: Plan) -> Result<Times> {
    let receiver = Receiver::bind(Ipv4Addr::LOCALHOST).await?;
    server.make_queue(queue, &json!({"webhookUrl": receiver.url})).await?;
    let journal = Journal::new(plan);
    let journal_here = journal.clone();
    let mut receivers = Workers::default();
    receivers.start(receiver.serve(move |body: &[u8]| {
        let arrived = clock::now();
        let sequence = u32::try_from(answer::delivered(body)?.sequence()?)?;
        let sent = journal_here.take_sent(sequence)?;
        journal_here.note_time(&journal_here.received, sequence, arrived - sent);
        Ok(Reply::Ok)
    }));

    let publishers = open_loop::start_publishers(&server.target, queue, &journal).await?;
    let all_done = async {
        publishers.finish(plan.time_limit()).await?;
        wait_for_counts(&server.target, queue, |counts| counts.succeeded >= u64::from(plan.total)).await
    };
    let counts = tokio::select! {
        counts = all_done => counts?,
        failed = receivers.run_for(plan.time_limit() * 2) => {
            failed?;
            bail!("the publishers did not finish in time");
        }
    };
    ensure!(counts.succeeded == u64::from(plan.total), "{} jobs were published, the queue says {counts:?}", plan.total);
    Ok(Times {
        publishes: open_loop::take_times(&journal.answered),
        deliveries: open_loop::take_times(&journal.received),
    })
}
