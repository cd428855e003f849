//! The rate of claims with a large stock of queued and finished jobs against that with tables that hold only what is
//! claimed. Both databases are in one PostgreSQL and take turns.

use anyhow::{Context, Result};

use crate::claim;
use crate::clock;
use crate::postgres::database::Postgres;
use crate::postgres::fill::{self, Stock};
use crate::process::{Backing, Server};
use crate::report::{Limit, Report};
use crate::settings::Settings;

const FINISHED_PER_QUEUED: u64 = 5;

pub(crate) async fn run(postgres: &Postgres, settings: &Settings, report: &mut Report) -> Result<()> {
    let stock = Stock { queued: settings.backlog, finished: settings.backlog * FINISHED_PER_QUEUED };
    let start = clock::now();
    let (mut large, url) = start_on_new(postgres, settings, "large").await?;
    fill::fill(&mut large, &url, stock).await?;
    let text = format!("{} queued and {} finished jobs", stock.queued, stock.finished);
    report.note("fill of PostgreSQL", format!("{text} in {:.0} s", start.elapsed().as_secs_f64()));
    for batch in [1, 100] {
        let (small, _) = start_on_new(postgres, settings, "small").await?;
        postgres.checkpoint().await?;
        let [small_rate, large_rate] = claim::rates([&small.target, &large.target], batch).await?;
        report.note(
            &format!("claims on PostgreSQL, batch {batch}"),
            format!("{small_rate:.0}/s on empty tables, {large_rate:.0}/s with {text}"),
        );
        let name = format!("PostgreSQL: claim, full / empty tables, batch {batch}");
        report.figure(&name, large_rate / small_rate, "", Limit::AtLeast(0.8));
    }
    Ok(())
}

async fn start_on_new(postgres: &Postgres, settings: &Settings, database: &str) -> Result<(Server, String)> {
    let url = postgres.new_database(database).await?;
    let backing = Backing { database_url: Some(url.clone()), ..Backing::default() };
    let mut nodes = Server::start_nodes(&settings.server, &settings.dir, &backing, 1).await?;
    let node = nodes.pop().context("no node was started")?;
    Ok((node, url))
}
