//! Signing secrets of queues: shown once, when they are created. `outlast queues rotate-secret` creates a new one.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Call, duration};
use crate::commands::Session;
use crate::commands::settings::Fields;
use crate::config::Secret;
use crate::failure::Failure;
use crate::output::{self, cell, escape};

#[derive(Debug, clap::Args)]
pub(crate) struct Rotate {
    name: String,
    /// How long deliveries carry signatures of both secrets
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    overlap: Option<Duration>,
    /// Use this secret instead of a random one
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<Secret>,
}

pub(crate) async fn rotate(session: &Session, args: &Rotate) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set_duration("overlap", args.overlap)?;
    fields.set_some("signingSecret", args.signing_secret.as_ref().map(Secret::expose).as_ref())?;
    let path = ["v1", "queues", args.name.as_str(), "rotate-secret"];
    let answer = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    print(&answer.json)?;
    output::note(&match cell(&answer.json, "previousValidUntil").as_str() {
        "-" => "the old secret is no longer used".to_owned(),
        until => format!(
            "until {until} the header webhook-signature has a signature of each secret; the plain header uses the new secret only"
        ),
    });
    Ok(())
}

/// Prints the secret in a response, if there is one: alone on a line of stdout, for scripts.
pub(crate) fn print(answer: &Value) -> Result<(), Failure> {
    let Some(secret) = answer.get("signingSecret").and_then(Value::as_str) else { return Ok(()) };
    output::print(&format!("{}\n", escape(secret)))?;
    output::note("the signing secret is shown only this once; your endpoint verifies deliveries with it");
    Ok(())
}
