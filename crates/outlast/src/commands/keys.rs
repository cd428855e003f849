//! `outlast keys`: API keys. A key is shown once, when it is made.

use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use super::settings::Fields;
use crate::client::{Call, Remote, duration};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table, cell, escape};

/// More keys than anybody has; the list is followed to its end.
const KEYS_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and show it, once
    #[command(after_help = EXIT_CODES)]
    Create(Create),
    /// List the keys, without the keys themselves
    #[command(after_help = EXIT_CODES)]
    List,
    /// Revoke a key at once
    #[command(after_help = EXIT_CODES)]
    Revoke {
        /// The id that `keys list` shows
        id: String,
        /// Revoke it even if it is the last admin key of its namespace
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// What the key is for
    name: String,
    /// publish, consume, read, manage or admin, each optionally for one queue, as in consume:mail; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<String>,
    /// Namespace of the key; only an admin key of the namespace "default" may choose another than its own
    #[arg(long)]
    namespace: Option<String>,
    /// The key stops working after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Duration>,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(&args.remote, environment)?;
    match args.action {
        Action::Create(create) => make(&session, &create).await,
        Action::List => list(&session).await,
        Action::Revoke { id, force } => revoke(&session, &id, force).await,
    }
}

async fn make(session: &Session, create: &Create) -> Result<(), Failure> {
    let mut fields = Fields::default();
    fields.set("name", &create.name)?;
    fields.set("scopes", &create.scopes)?;
    fields.set_some("namespace", create.namespace.as_ref())?;
    fields.set_duration("expiresIn", create.expires_in)?;

    let answer = session.client.send(Call::post(&["v1", "keys"]).body(fields.to_json()?)).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("{}\n", escape(&cell(&answer.json, "key"))))?;
    output::note(&format!(
        "key {} for namespace \"{}\"; it is shown only this once",
        cell(&answer.json, "id"),
        cell(&answer.json, "namespace")
    ));
    Ok(())
}

async fn list(session: &Session) -> Result<(), Failure> {
    let page = session.client.list(&["v1", "keys"], &[], None, KEYS_MAX).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    let mut table = Table::new(&["id", "name", "prefix", "namespace", "scopes", "created", "expires", "revoked"]);
    for key in page.values() {
        table.row(&[
            cell(&key, "id"),
            cell(&key, "name"),
            cell(&key, "prefix"),
            cell(&key, "namespace"),
            scopes(&key),
            cell(&key, "createdAt"),
            cell(&key, "expiresAt"),
            cell(&key, "revokedAt"),
        ]);
    }
    output::print(&table.render())
}

async fn revoke(session: &Session, id: &str, force: bool) -> Result<(), Failure> {
    let path = ["v1", "keys", id];
    let call = Call::delete(&path);
    let call = if force { call.query("force", "true") } else { call };
    let answer = session.client.send(call).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("key {} (\"{}\") is revoked\n", escape(id), escape(&cell(&answer.json, "name"))))
}

fn scopes(key: &Value) -> String {
    let scopes = key.get("scopes").and_then(Value::as_array);
    let words: Vec<String> = scopes.into_iter().flatten().map(output::show).collect();
    words.join(",")
}
