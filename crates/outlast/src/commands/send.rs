//! `outlast send`: sends a test event to a source as its provider would, signed with the secret in the configuration file.

mod draft;
mod members;
mod provider_fields;

use outlast_core::{Clock, Entropy};
use outlast_engine::inbound::verify::Outgoing;
use outlast_engine::ports::{SystemClock, SystemEntropy};
use serde_json::Value;

use super::{Session, argument, sources};
use crate::client::{Answer, Remote};
use crate::config::sources::SourceConfig;
use crate::config::{Config, Environment};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, cell, escape};

use draft::{Draft, Wish, compose};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// A source of the configuration file
    source: String,
    /// Type of the event, as in invoice.paid; written where the provider puts it, unless it is there
    #[arg(value_name = "TYPE")]
    kind: String,
    /// File with the body; - for stdin
    file: String,
    /// The provider's id of the event [default: that of the file, or a new one]; the same id again is a duplicate
    #[arg(long)]
    id: Option<String>,
}

pub(crate) async fn run(args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let config = sources::load(remote.config.as_ref(), environment)?;
    let source = find(&config, &args.source)?;
    let verifier = source.verifier().map_err(|error| Failure::usage(format!("source \"{}\": {error}", source.name)))?;
    let session = Session::open(remote, environment)?;
    let text = if args.file == "-" { argument::text("-") } else { argument::text(&format!("@{}", args.file)) };

    let (now, spare_id) = (SystemClock::start().now(), new_id()?);
    let wish = Wish { kind: &args.kind, id: args.id.as_deref(), spare_id: &spare_id, text: text?, now };
    let Draft { mut headers, body, content_type } = compose(verifier.scheme(), wish)?;
    let url = format!("{}{}", session.client.base(), source.path);
    let id = args.id.as_deref().unwrap_or(&spare_id);
    // Where the scheme signs the address, it is the one that the file has.
    let known = if source.url.is_empty() { url.as_str() } else { source.url.as_str() };
    let outgoing = Outgoing { url: known, id, content_type, body: body.as_bytes(), now };
    let signed = verifier.sign(&outgoing).map_err(|error| Failure::usage(error.to_string()))?;
    headers.extend(signed.headers);
    let answer = session.client.webhook(&signed.url, headers, body).await?;
    print(&session, &answer)
}

fn find<'a>(config: &'a Config, name: &str) -> Result<&'a SourceConfig, Failure> {
    let found = config.sources.iter().find(|source| source.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = config.sources.iter().map(|source| source.name.as_str()).collect();
        let hint = match names.join(", ") {
            names if names.is_empty() => "the file has no sources".to_owned(),
            names => format!("the file has {names}"),
        };
        Failure::new(Exit::NotFound, format!("no source \"{name}\" in the configuration file")).with_hint(hint)
    })
}

fn new_id() -> Result<String, Failure> {
    let mut entropy = SystemEntropy::seed()
        .map_err(|error| Failure::new(Exit::Refused, format!("the system has no random numbers: {error}")))?;
    Ok(format!("evt_{:016x}", entropy.next_u64()))
}

fn print(session: &Session, answer: &Answer) -> Result<(), Failure> {
    if session.is_json && !answer.json.is_null() {
        return output::print_json(&answer.text);
    }
    output::print(&format!("{}\n", escape(&describe(answer))))
}

fn describe(answer: &Answer) -> String {
    let Some(id) = answer.json.get("event_id").and_then(Value::as_str) else {
        // The challenge that Slack sends to verify an address.
        return format!("answered {}", answer.text.trim_end());
    };
    if answer.json.get("duplicate") == Some(&Value::Bool(true)) {
        return format!("event {id} is a duplicate, ignored");
    }
    match cell(&answer.json, "jobs_created").as_str() {
        "1" => format!("event {id} accepted, 1 job created"),
        count => format!("event {id} accepted, {count} jobs created"),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    #[test]
    fn the_answer_tells_id_repetition_and_jobs() {
        for (text, shown) in [
            (r#"{"event_id":"0198","duplicate":false,"jobs_created":2}"#, "event 0198 accepted, 2 jobs created"),
            (r#"{"event_id":"0198","duplicate":false,"jobs_created":1}"#, "event 0198 accepted, 1 job created"),
            (r#"{"event_id":"0198","duplicate":true,"jobs_created":0}"#, "event 0198 is a duplicate, ignored"),
            ("3eZbrw1a", "answered 3eZbrw1a"),
        ] {
            let json = serde_json::from_str(text).unwrap_or(Value::Null);
            let answer = Answer { status: StatusCode::OK, text: text.to_owned(), json };
            assert_eq!(describe(&answer), shown);
        }
    }
}
