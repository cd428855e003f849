//! `outlast jobs token`: creates a token for one job, which a browser uses instead of a key.

use std::time::Duration;

use crate::client::{Call, duration};
use crate::commands::Session;
use crate::commands::settings::Fields;
use crate::failure::Failure;
use crate::output::{self, cell, escape, show};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    id: String,
    /// Permissions: read, cancel, download
    #[arg(long, value_name = "WORDS", value_delimiter = ',', default_value = "read")]
    can: Vec<String>,
    /// Lifetime of the token
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    expires: Duration,
}

pub(crate) async fn run(session: &Session, args: &Args) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set("can", &args.can)?;
    fields.set_duration("expiresIn", Some(args.expires))?;
    let path = ["v1", "jobs", &args.id, "token"];
    let answer = session.client.send(Call::post(&path).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("{}\n", escape(&cell(&answer.json, "token"))))?;
    let can = answer.json.get("can").map(show).unwrap_or_default();
    output::note(&format!("for job {} until {}: {can}", args.id, cell(&answer.json, "expiresAt")));
    Ok(())
}
