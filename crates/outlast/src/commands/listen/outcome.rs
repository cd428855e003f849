//! Reports the outcome of a delivery after its receipt: `--ack` and `--nack` call the API, with the lease
//! that came with the delivery, as a worker of an ack queue does.

use serde_json::value::RawValue;

use super::delivery::Delivery;
use crate::client::Call;
use crate::commands::settings::Fields;
use crate::commands::{Session, argument};
use crate::failure::Failure;
use crate::output::cell;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Outcomes")]
pub(crate) struct OutcomeFlags {
    /// After the response, report each job as done over the API
    #[arg(long, conflicts_with = "nack")]
    ack: bool,
    /// The result that --ack reports: JSON, or @file
    #[arg(long, value_name = "JSON", requires = "ack")]
    result: Option<String>,
    /// After the response, report each job as failed over the API
    #[arg(long, value_name = "REASON")]
    nack: Option<String>,
}

/// The outcome to report.
#[derive(Debug)]
pub(crate) enum Report {
    Ack { result: Option<Box<RawValue>> },
    Nack { reason: String },
}

/// The server's response to a report.
#[derive(Debug)]
pub(crate) struct Reported {
    pub id: String,
    pub verb: &'static str,
    /// The state of the job after it, or why it was refused.
    pub status: Result<String, String>,
}

impl Report {
    pub(crate) fn read(flags: OutcomeFlags) -> Result<Option<Report>, Failure> {
        if let Some(reason) = flags.nack {
            return Ok(Some(Report::Nack { reason }));
        }
        let result = match &flags.result {
            Some(text) => Some(argument::json(text, "the result")?),
            None => None,
        };
        Ok(flags.ack.then_some(Report::Ack { result }))
    }

    /// Sends it. A delivery without an id is no job of ours.
    pub(crate) async fn send(&self, session: &Session, delivery: &Delivery) -> Option<Reported> {
        let id = delivery.field("id")?;
        let verb = match self {
            Report::Ack { .. } => "ack",
            Report::Nack { .. } => "nack",
        };
        let status = self.call(session, &id, verb, delivery.field("lease")).await;
        Some(Reported { id, verb, status: status.map_err(|failure| failure.message) })
    }

    async fn call(&self, session: &Session, id: &str, verb: &str, lease: Option<String>) -> Result<String, Failure> {
        let mut fields = Fields::default();
        fields.set_some("lease", lease.as_ref())?;
        match self {
            Report::Ack { result } => fields.set_some("result", result.as_ref())?,
            Report::Nack { reason } => fields.set("reason", reason)?,
        }
        let answer = session.client.send(Call::post(&["v1", "jobs", id, verb]).body(fields.to_json()?)).await?;
        Ok(cell(&answer.json, "status"))
    }
}
