//! `--queue`: a queue that delivers to this receiver. Makes it, or changes it if that takes nothing from anybody else,
//! and comes by its signing secret, which the server shows only when it makes one.

use std::net::IpAddr;

use outlast_engine::sign::Secret;
use reqwest::{Method, Url};
use serde_json::Value;

use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::commands::settings::Fields;
use crate::failure::{Exit, Failure};
use crate::output::cell;

/// The queue as it shall be.
pub(crate) struct Wish<'a> {
    pub name: &'a str,
    pub url: &'a str,
    /// The outcome will be reported later.
    pub is_ack: bool,
    /// Even if the queue delivers elsewhere.
    pub is_forced: bool,
}

/// The queue as it is.
#[derive(Debug)]
pub(crate) struct Pointed {
    /// A secret that the server has just made.
    pub secret: Option<Secret>,
    pub signature_header: Option<String>,
    pub remark: String,
}

/// Makes the queue deliver to `wish.url`. `known` are the secrets that the user has given.
pub(crate) async fn point(session: &Session, wish: &Wish<'_>, known: &[Secret]) -> Result<Pointed, Failure> {
    match session.client.send(Call::get(&["v1", "queues", wish.name])).await {
        Ok(present) => change(session, wish, known, &present.json).await,
        Err(failure) if failure.exit == Exit::NotFound => create(session, wish, known).await,
        Err(failure) => Err(failure),
    }
}

async fn create(session: &Session, wish: &Wish<'_>, known: &[Secret]) -> Result<Pointed, Failure> {
    let mut fields = Fields::default();
    fields.set("name", &wish.name)?;
    fields.set("webhookUrl", &wish.url)?;
    fields.set("mode", &if wish.is_ack { "ack" } else { "standard" })?;
    fields.set_some("signingSecret", known.first().map(Secret::expose).as_ref())?;
    let answer = session.client.send(Call::post(&["v1", "queues"]).body(fields.to_json()?)).await.map_err(explain)?;
    let remark = format!("queue \"{}\" made: it delivers here, and signatures are checked with its secret", wish.name);
    pointed(&answer, remark)
}

async fn change(session: &Session, wish: &Wish<'_>, known: &[Secret], present: &Value) -> Result<Pointed, Failure> {
    if !wish.is_forced {
        refuse_theft(wish.name, present)?;
    }
    let mut fields = Fields::default();
    fields.set("webhookUrl", &wish.url)?;
    if wish.is_ack || cell(present, "mode") == "pull" {
        fields.set("mode", &if wish.is_ack { "ack" } else { "standard" })?;
    }
    let path = ["v1", "queues", wish.name];
    let call = Call::new(Method::PATCH, &path).body(fields.to_json()?);
    let answer = session.client.send(call).await.map_err(explain)?;
    let mut remark = format!("queue \"{}\" delivers here", wish.name);
    if cell(&answer.json, "mode") == "ack" && !wish.is_ack {
        remark.push_str("; it is in ack mode, so add --ack or --nack, or report the outcomes yourself");
    }
    if answer.json.get("signingSecret").is_some_and(Value::is_string) || !known.is_empty() {
        return pointed(&answer, remark);
    }
    // The secret is not shown again. It was for this receiver alone, so a new one breaks nothing.
    let path = ["v1", "queues", wish.name, "rotate-secret"];
    let rotated = session.client.send(Call::post(&path).body("{}".to_owned())).await?;
    remark.push_str("; its signing secret was rotated, since the old one cannot be read back");
    let header = answer.json.get("signatureHeader").cloned().unwrap_or_default();
    Ok(Pointed { signature_header: header.as_str().map(str::to_owned), ..pointed(&rotated, remark)? })
}

/// A queue that somebody else lives on is not taken by a slip of the keyboard.
fn refuse_theft(name: &str, present: &Value) -> Result<(), Failure> {
    let url = cell(present, "webhookUrl");
    let holder = match cell(present, "mode").as_str() {
        "pull" => "is a pull queue".to_owned(),
        _ if is_this_machine(&url) => return Ok(()),
        _ => format!("delivers to {url}"),
    };
    Err(Failure::usage(format!("queue \"{name}\" {holder}"))
        .with_hint("repeat the command with --force to point it here, or name another queue"))
}

fn is_this_machine(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The usual reason why a server does not take the address of a receiver on the same machine.
fn explain(failure: Failure) -> Failure {
    match failure.details.iter().any(|detail| detail.contains("webhookUrl")) {
        true => failure.with_hint(
            "a server calls this machine only if it may: `outlast dev` does, `outlast serve` needs allow_private_targets",
        ),
        false => failure,
    }
}

fn pointed(answer: &Answer, remark: String) -> Result<Pointed, Failure> {
    let text = |field: &str| answer.json.get(field).and_then(Value::as_str);
    let secret = match text("signingSecret") {
        Some(text) => Some(Secret::from_text(text).map_err(|error| {
            Failure::new(Exit::Refused, format!("the server has sent a signing secret that cannot be used: {error}"))
        })?),
        None => None,
    };
    Ok(Pointed { secret, signature_header: text("signatureHeader").map(str::to_owned), remark })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_queue_of_this_machine_is_changed_without_asking() {
        for (mode, url, is_refused) in [
            ("standard", "http://127.0.0.1:9000/", false),
            ("ack", "http://localhost:9001/x", false),
            ("standard", "http://[::1]:9000/", false),
            ("standard", "https://example.com/hook", true),
            ("standard", "http://localhost.example.com/", true),
            ("pull", "", true),
        ] {
            let refused = refuse_theft("mail", &json!({"mode": mode, "webhookUrl": url}));
            assert_eq!(refused.is_err(), is_refused, "{mode} {url}");
        }
    }
}
