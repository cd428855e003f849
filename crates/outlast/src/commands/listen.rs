//! `outlast listen`: a test endpoint on this machine that shows deliveries, verifies signatures, and answers as its flags
//! say. For testing a queue, and how it behaves when its endpoint fails.

mod answer;
mod delivery;
mod outcome;
mod queue;
mod receiver;
mod show;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use outlast_engine::sign::Secret;
use tokio::net::TcpListener;

use super::{Session, stop};
use crate::client::Remote;
use crate::config::{self, Environment};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output;

use answer::{AnswerFlags, Plan};
use outcome::{OutcomeFlags, Report};
use receiver::Receiver;
use show::Printer;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Address to receive deliveries on
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    listen: String,
    /// Create or change this queue so that it delivers here
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Point the queue here even if it delivers to another machine or is a pull queue
    #[arg(long, requires = "queue")]
    force: bool,
    /// Verify signatures with this secret; may be repeated [environment: OUTLAST_SIGNING_SECRET]
    // Text of the environment is not shown by ps, so the secret is better given there.
    #[arg(long = "secret", value_name = "SECRET")]
    secrets: Vec<config::Secret>,
    /// Print only the summary at the end
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    answers: AnswerFlags,
    #[command(flatten)]
    outcome: OutcomeFlags,
}

pub(crate) async fn run(args: Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let mut secrets = secrets(&args.secrets, environment)?;
    let report = Report::read(args.outcome)?;
    let plan = Plan::read(args.answers, report.is_some())?;
    let session = Arc::new(Session::open(remote, environment)?);
    let listener = TcpListener::bind(&args.listen).await.map_err(|error| {
        Failure::usage(format!("cannot listen on {}: {error}", args.listen)).with_hint("choose another with --listen")
    })?;
    let address = listener.local_addr().map_err(|error| Failure::new(Exit::Refused, error.to_string()))?;

    let mut signature_header = None;
    if let Some(name) = &args.queue {
        let url = format!("http://{}/", reachable(address));
        let wish = queue::Wish { name, url: &url, is_ack: report.is_some(), is_forced: args.force };
        let pointed = queue::point(&session, &wish, &secrets).await?;
        secrets.extend(pointed.secret);
        signature_header = pointed.signature_header;
        output::note(&pointed.remark);
    }
    output::note(&format!("listening on http://{address}, Ctrl-C ends"));
    if secrets.is_empty() {
        output::note("signatures are not verified: give --secret, or --queue to create a queue and use its secret");
    }

    let printer = Printer::new(remote.json, args.quiet);
    let receiver = Receiver::new(plan, secrets, signature_header, printer);
    let receiver = Arc::new(match report {
        Some(report) => receiver.reporting(report, session),
        None => receiver,
    });
    receiver::serve(listener, Arc::clone(&receiver), stop::signal()?).await;
    output::note(&receiver.summary());
    Ok(())
}

/// Those of the flags or, without any, that of the environment. A refused one is not repeated in the message.
fn secrets(given: &[config::Secret], environment: &Environment) -> Result<Vec<Secret>, Failure> {
    let variable = "OUTLAST_SIGNING_SECRET";
    let mut texts: Vec<(&str, &str)> = given.iter().map(|secret| ("--secret", secret.expose())).collect();
    if texts.is_empty() {
        texts.extend(environment.setting(variable).map(|text| (variable, text)));
    }
    let mut secrets = Vec::new();
    for (origin, text) in texts {
        let secret = Secret::from_text(text).map_err(|error| Failure::usage(format!("{origin}: {error}")))?;
        secrets.push(secret);
    }
    Ok(secrets)
}

/// An address that a server on this machine can call: "any" is where one listens, not where one calls.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_pointed_to_an_address_that_can_be_called() {
        for (listens, called) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("0.0.0.0:9000", "127.0.0.1:9000"),
            ("[::]:9000", "[::1]:9000"),
            ("192.168.1.5:1", "192.168.1.5:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), called);
        }
    }
}
