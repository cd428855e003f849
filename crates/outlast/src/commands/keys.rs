//! `outlast keys`: API keys. A key is shown once, when it is created.

use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use super::settings::Fields;
use crate::age;
use crate::client::{Call, Remote, duration};
use crate::config::Environment;
use crate::display::{Display, Style};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, cell, escape, show};
use crate::table::{Cell, Column, Table};

/// More keys than anybody has; the list is followed to its end.
const KEYS_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key and show it, once
    #[command(after_help = EXIT_CODES)]
    Create(Create),
    /// List the keys, without their text
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
    /// Name of the key
    name: String,
    /// publish, consume, read, manage or admin, each optionally for one queue, as in consume:mail; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<String>,
    /// Namespace of the key; only an admin key of the namespace "default" may choose another than its own
    #[arg(long)]
    namespace: Option<String>,
    /// Lifetime of the key
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Duration>,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(remote, environment)?;
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
    session.print_page(&page, "no keys", |page| table(&page.values(), session.display))
}

fn table(keys: &[Value], display: Display) -> String {
    let mut table = Table::new(&[
        Column::number("id"),
        Column::text("name"),
        Column::fixed("prefix").rank(3),
        Column::text("namespace").rank(2),
        Column::text("scopes").at_least(12),
        Column::fixed("created").rank(1),
        Column::fixed("last used").rank(1).optional(),
        Column::fixed("expires"),
        Column::fixed("revoked").optional(),
        Column::fixed("created at").rank(4),
    ]);
    let now = age::now();
    for key in keys {
        let time = |name: &str| key.get(name).and_then(|at| age::relative(at, now)).unwrap_or("-".to_owned());
        table.row([
            cell(key, "id").into(),
            cell(key, "name").into(),
            cell(key, "prefix").into(),
            cell(key, "namespace").into(),
            scopes(key).into(),
            time("createdAt").into(),
            time("lastUsedAt").into(),
            time("expiresAt").into(),
            Cell::styled(time("revokedAt"), Style::Faint),
            show(key.get("createdAt").unwrap_or(&Value::Null)).into(),
        ]);
    }
    table.render(display)
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
    let words: Vec<String> = scopes.into_iter().flatten().map(show).collect();
    words.join(",")
}
