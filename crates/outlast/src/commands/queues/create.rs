//! `outlast queues create` and `outlast queues update`.

use reqwest::{Method, StatusCode};

use super::flags::SettingFlags;
use super::secret;
use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{self, cell, escape};

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    name: String,
    #[command(flatten)]
    settings: SettingFlags,
    /// Replace the settings if the queue exists
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Update {
    name: String,
    #[command(flatten)]
    settings: SettingFlags,
}

pub(crate) async fn create(session: &Session, args: &Create) -> Result<(), Failure> {
    let mut fields = args.settings.fields()?;
    fields.set("name", &args.name)?;
    let named = ["v1", "queues", args.name.as_str()];
    let call = match args.replace {
        true => Call::new(Method::PUT, &named),
        false => Call::post(&["v1", "queues"]),
    };
    let answer = session.client.send(call.body(fields.to_json()?)).await?;
    let verb = if answer.status == StatusCode::CREATED { "created" } else { "replaced" };
    print(session, &answer, verb)
}

pub(crate) async fn update(session: &Session, args: &Update) -> Result<(), Failure> {
    let body = args.settings.fields()?.to_json()?;
    let path = ["v1", "queues", args.name.as_str()];
    let answer = session.client.send(Call::new(Method::PATCH, &path).body(body)).await?;
    print(session, &answer, "updated")
}

fn print(session: &Session, answer: &Answer, verb: &str) -> Result<(), Failure> {
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("queue \"{}\" {verb}\n", escape(&cell(&answer.json, "name"))))?;
    // A queue that is new, or whose receiver has changed, has a new secret.
    secret::print(&answer.json)
}
