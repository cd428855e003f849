//! Whole jobs per second: published one per request, delivered to a receiver that answers 200, the outcome stored. In a
//! steady state: publishers wait while too many jobs are not delivered yet.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::connection::Connection;
use crate::load::{self, Meter, Rate, Watched, Workers};
use crate::process::{Ceiling, Server};
use crate::receiver::{Receiver, Reply};
use crate::report::Report;
use crate::request::{Publish, QUEUE, Target};
use crate::settings::Settings;
use crate::throughput::{self, CONNECTIONS};

use super::{SETTLED_WITHIN, wait_for_counts};

/// Jobs published and not yet delivered.
const BACKLOG_MAX: usize = 2000;
/// What a user sets who wants throughput.
const CONCURRENCY: u32 = 256;

pub(super) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let name = "push / ceiling";
    let ceiling = Ceiling::start()?;
    let before = throughput::ceiling_rate(&ceiling, settings, report).await?;
    let rate = push_rate(settings).await?;
    report.note(name, rate.describe());
    let after = throughput::ceiling_rate(&ceiling, settings, report).await?;
    throughput::report_ratio(report, name, &[rate], &[before, after], 0.12);
    Ok(())
}

/// Counts deliveries as they are answered; that each of them was also stored as succeeded is checked at the end.
async fn push_rate(settings: &Settings) -> Result<Rate> {
    let server = Server::start_push(&settings.server, &settings.dir)?;
    let receiver = Receiver::bind(Ipv4Addr::LOCALHOST).await?;
    server.make_queue(QUEUE, &json!({"webhookUrl": receiver.url, "concurrency": CONCURRENCY})).await?;
    let room = Arc::new(Semaphore::new(BACKLOG_MAX));
    let delivered = Meter::default();
    let mut receivers = Workers::default();
    let (delivered_here, room_here) = (delivered.clone(), room.clone());
    receivers.start(receiver.serve(move |_: &[u8]| {
        delivered_here.add(1);
        room_here.add_permits(1);
        Ok(Reply::Ok)
    }));
    let mut publishers = Workers::default();
    for connection in Connection::open_many(&server.target, CONNECTIONS).await? {
        publishers.start(publish_into(connection, server.target.clone(), room.clone()));
    }

    let watched = Watched { servers: vec![server.pid()], ..Watched::default() };
    let rate = tokio::select! {
        rate = load::measure(publishers, &delivered, settings.span, &watched) => rate?,
        failed = receivers.run_for(settings.span.warm_up + settings.span.measured + SETTLED_WITHIN) => {
            failed?;
            bail!("the publishers did not finish in time");
        }
    };
    // The receiver runs on meanwhile, so that what was under way ends.
    let counts = wait_for_counts(&server.target, QUEUE, |counts| counts.queued == 0 && counts.running == 0).await?;
    let answered = delivered.total();
    ensure!(counts.succeeded == answered, "{answered} deliveries were answered, the queue says {counts:?}");
    Ok(rate)
}

async fn publish_into(mut connection: Connection, target: Target, room: Arc<Semaphore>) -> Result<()> {
    let mut request = Publish::new(&target);
    for sequence in 0.. {
        room.acquire().await?.forget();
        connection.call(request.numbered(sequence)).await?.expect(202)?;
    }
    Ok(())
}
