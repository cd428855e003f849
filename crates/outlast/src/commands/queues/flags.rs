//! The settings of a queue as flags: the common ones by name, every other field with `--set`, or a whole file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::client::duration;
use crate::commands::settings::{Fields, pair};
use crate::config::Secret;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct SettingFlags {
    /// Preset for a kind of work; other flags override it
    #[arg(long, value_parser = ["anthropic", "openai", "report", "transcode", "webhook"])]
    template: Option<String>,
    /// standard: the webhook's response is the outcome; ack: the outcome is reported later; pull: workers receive the jobs
    #[arg(long, value_parser = ["standard", "ack", "pull"])]
    mode: Option<String>,
    /// URL to which jobs are delivered
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Timeout of a delivery
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    webhook_timeout: Option<Duration>,
    /// Header of each delivery; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair)]
    headers: Vec<(String, String)>,
    /// Use this secret instead of a random one; `ps` shows it, so prefer --file
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<Secret>,
    /// Name of the plain signature header
    #[arg(long, value_name = "NAME")]
    signature_header: Option<String>,
    /// Action when no outcome is reported in time
    #[arg(long, value_parser = ["retry", "dead"])]
    ack_timeout_action: Option<String>,
    /// Whether a response of 429, 503 or 529 holds the queue or the job
    #[arg(long, value_parser = ["queue", "job"])]
    backpressure_scope: Option<String>,
    /// Length of a hold without Retry-After
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    backpressure_delay: Option<Duration>,
    /// Limit of jobs handed out, as in 50/s, 100/m or 10/30s
    #[arg(long, value_name = "COUNT/PERIOD", value_parser = rate)]
    rate_limit: Option<Rate>,
    /// Let workers receive jobs of this push queue too
    #[arg(long)]
    allow_pull: bool,
    /// Attempts before a job becomes a dead letter
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Lease time: a job without a heartbeat or an outcome for this long is handed out again
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Duration>,
    /// How long to wait for the outcome after the webhook accepted a job
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ack_timeout: Option<Duration>,
    /// Longest time between two heartbeats of a running job
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    heartbeat_timeout: Option<Duration>,
    /// Longest time of one attempt
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    hard_time_limit: Option<Duration>,
    /// Longest time of all attempts together; then the job is cancelled
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    job_timeout: Option<Duration>,
    /// Longest time from publish to end; then the job fails
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_age: Option<Duration>,
    /// Limit of jobs that run at the same time
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// How long finished jobs and dead letters are stored
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retention: Option<Duration>,
    /// How long results are stored
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    result_ttl: Option<Duration>,
    /// Whether a key may create a new job after its first one failed
    #[arg(long, value_parser = ["always", "unless_failed"])]
    dedupe: Option<String>,
    /// How long an idempotency key is remembered
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    dedupe_window: Option<Duration>,
    /// Whether an outcome must include the lease
    #[arg(long, value_parser = ["optional", "required"])]
    fencing: Option<String>,
    /// Any field by its API name; the value is JSON or a string; may be repeated
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// JSON object with settings; flags override it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// `limit` hand-outs in each `per`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    limit: u64,
    per: Duration,
}

fn rate(text: &str) -> Result<Rate, String> {
    let refuse = || "write it as count/period, as in 50/s, 100/m or 10/30s".to_owned();
    let (limit, per) = text.split_once('/').filter(|(_, per)| !per.is_empty()).ok_or_else(refuse)?;
    // A bare unit is one of it.
    let per = if per.starts_with(|first: char| first.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
    Ok(Rate { limit: limit.parse().map_err(|_| refuse())?, per: duration(&per).map_err(|_| refuse())? })
}

impl SettingFlags {
    /// The given settings, under the names of the API. Named flags win over `--set`, and both over the file.
    pub(crate) fn fields(&self) -> Result<Fields, Failure> {
        let mut fields = self.file_fields()?;
        for assignment in &self.set {
            fields.assign(assignment)?;
        }
        for (name, text) in [
            ("template", &self.template),
            ("mode", &self.mode),
            ("webhookUrl", &self.webhook_url),
            ("signatureHeader", &self.signature_header),
            ("ackTimeoutAction", &self.ack_timeout_action),
            ("backpressureScope", &self.backpressure_scope),
            ("dedupe", &self.dedupe),
            ("fencing", &self.fencing),
        ] {
            fields.set_some(name, text.as_ref())?;
        }
        for (name, duration) in [
            ("webhookTimeout", self.webhook_timeout),
            ("backpressureDelay", self.backpressure_delay),
            ("visibilityTimeout", self.visibility_timeout),
            ("ackTimeout", self.ack_timeout),
            ("heartbeatTimeout", self.heartbeat_timeout),
            ("hardTimeLimit", self.hard_time_limit),
            ("jobTimeout", self.job_timeout),
            ("maxAge", self.max_age),
            ("retention", self.retention),
            ("resultTtl", self.result_ttl),
            ("dedupeWindow", self.dedupe_window),
        ] {
            fields.set_duration(name, duration)?;
        }
        fields.set_some("maxAttempts", self.max_attempts.as_ref())?;
        fields.set_some("concurrency", self.concurrency.as_ref())?;
        fields.set_some("signingSecret", self.signing_secret.as_ref().map(Secret::expose).as_ref())?;
        if self.allow_pull {
            fields.set("allowPull", &true)?;
        }
        if !self.headers.is_empty() {
            let headers: BTreeMap<&String, &String> = self.headers.iter().map(|(name, value)| (name, value)).collect();
            fields.set("headers", &headers)?;
        }
        if let Some(rate) = self.rate_limit {
            fields.set("rateLimit", &json!({"limit": rate.limit, "per": rate.per.as_secs_f64()}))?;
        }
        Ok(fields)
    }

    fn file_fields(&self) -> Result<Fields, Failure> {
        let Some(path) = &self.file else { return Ok(Fields::default()) };
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
        Fields::parse(&text).map_err(|failure| Failure::usage(format!("{shown}: {}", failure.message)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: SettingFlags,
    }

    fn fields(words: &[&str]) -> String {
        let line = Line::try_parse_from([&["create"], words].concat()).unwrap();
        line.flags.fields().unwrap().to_json().unwrap()
    }

    #[test]
    fn flags_become_fields_of_the_api() {
        let words = ["--webhook-url", "https://example.com/hook", "--mode", "ack", "--header", "x-team=a=b"];
        let sent = fields(&[&words[..], &["--rate-limit", "50/s", "--allow-pull", "--ack-timeout", "10m"]].concat());

        assert_eq!(
            sent,
            r#"{"ackTimeout":600,"allowPull":true,"headers":{"x-team":"a=b"},"mode":"ack","rateLimit":{"limit":50,"per":1.0},"webhookUrl":"https://example.com/hook"}"#
        );
        assert_eq!(fields(&[]), "{}");
    }

    #[test]
    fn a_named_flag_wins_over_a_set_one() {
        assert_eq!(fields(&["--set", "mode=pull", "--mode", "ack"]), r#"{"mode":"ack"}"#);
    }

    #[test]
    fn a_rate_is_a_count_in_a_period() {
        for (text, limit, seconds) in [("50/s", 50, 1), ("100/m", 100, 60), ("10/30s", 10, 30), ("5/2", 5, 2)] {
            assert_eq!(rate(text).unwrap(), Rate { limit, per: Duration::from_secs(seconds) }, "{text}");
        }
        for wrong in ["", "50", "50/", "/s", "x/s", "50/fortnight", "-1/s"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_secret_is_not_in_debug_output() {
        let line = Line::try_parse_from(["create", "--signing-secret", "whsec_visible"]).unwrap();

        assert!(!format!("{:?}", line.flags).contains("visible"));
    }
}
