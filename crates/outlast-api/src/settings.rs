//! From the fields of a request to queue settings: a template first, then each field over it, then the rules between
//! fields.

use std::time::Duration;

use outlast_core::QueueSettings;
use outlast_core::queue::{
    AckTimeoutAction, Dedupe, DedupeBy, DeferScope, Fencing, FieldError, Mode, RateLimit, StallAction, Template,
};
use outlast_core::retry::{Backoff, Seconds};
use outlast_engine::egress::headers::{check_amount, custom_header};
use outlast_engine::queues::QueueChange;
use outlast_engine::sign::Secret;

use crate::error::Problem;
use crate::fields;
use crate::schema::{self, Value, Values};

/// A new queue that is written down elsewhere than in a request: JSON as in the body that creates one, by the same
/// table and the same rules. Where its URL leads is not looked at; that is up to the engine's `check_url`.
pub fn read_queue(json: &[u8]) -> Result<QueueChange, Vec<FieldError>> {
    let mut values = schema::read(&fields::QUEUE_NEW, json)?;
    values.take("name");
    new_queue(values).map_err(Problem::into_errors)
}

fn new_queue(mut values: Values<'_>) -> Result<QueueChange, Problem> {
    let secret = signing_secret(&mut values)?;
    let settings = from_nothing(values)?;
    check_use(secret.as_ref(), &settings)?;
    Ok(QueueChange { settings, secret })
}

pub(crate) fn signing_secret(values: &mut Values<'_>) -> Result<Option<Secret>, Problem> {
    let text = values.text("signingSecret");
    let secret = text.map(|text| Secret::from_text(&text)).transpose();
    secret.map_err(|malformed| Problem::field("signingSecret", format!("is not usable: {malformed}")))
}

/// A secret that would never sign anything is a mistake.
pub(crate) fn check_use(secret: Option<&Secret>, settings: &QueueSettings) -> Result<(), Problem> {
    if secret.is_some() && !settings.is_push() {
        return Err(Problem::field("signingSecret", "has no meaning without a webhookUrl"));
    }
    Ok(())
}

/// Settings from nothing: defaults, the template's presets, the given fields.
pub(crate) fn from_nothing(mut values: Values<'_>) -> Result<QueueSettings, Problem> {
    let template = values.text("template").and_then(|word| template(&word));
    let mut settings = template.map(QueueSettings::of_template).unwrap_or_default();
    let mode_is_open = !values.contains("mode");
    fill(&mut settings, values)?;
    match template {
        None if mode_is_open && settings.webhook_url.is_some() => settings.mode = Mode::Standard,
        Some(template) if mode_is_open && settings.webhook_url.is_none() && template.may_pull() => {
            settings.mode = Mode::Pull;
        }
        _ => {}
    }
    checked(settings)
}

/// The present settings with the given fields changed. A template in a patch is a label only: it presets nothing.
pub(crate) fn from_present(mut settings: QueueSettings, mut values: Values<'_>) -> Result<QueueSettings, Problem> {
    match values.take("template") {
        Some(Value::Text(word)) => settings.template = template(&word),
        Some(_) => settings.template = None,
        None => {}
    }
    fill(&mut settings, values)?;
    checked(settings)
}

fn checked(settings: QueueSettings) -> Result<QueueSettings, Problem> {
    let mut problems = settings.problems();
    for (name, value) in &settings.headers {
        if let Err(refused) = custom_header(name, value) {
            problems.push(FieldError::new(format!("headers.{name}"), refused.to_string()));
        }
    }
    if let Err(refused) = check_amount(settings.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))) {
        problems.push(FieldError::new("headers", refused.to_string()));
    }
    // The name of ours is reserved, and fine here.
    let has_own_name = settings.signature_header != QueueSettings::default().signature_header;
    if has_own_name && let Err(refused) = custom_header(&settings.signature_header, "") {
        problems.push(FieldError::new("signatureHeader", refused.to_string()));
    }
    if problems.is_empty() { Ok(settings) } else { Err(Problem::invalid(problems)) }
}

fn fill(settings: &mut QueueSettings, values: Values<'_>) -> Result<(), Problem> {
    for (name, value) in values.into_iter() {
        set(settings, name, value)?;
    }
    Ok(())
}

fn set(settings: &mut QueueSettings, name: &str, value: Value<'_>) -> Result<(), Problem> {
    match (name, value) {
        (_, Value::Duration(duration)) => set_duration(settings, name, duration),
        (_, Value::Text(text)) => set_text(settings, name, &text),
        (_, Value::Null) => unset(settings, name),
        ("allowPull", Value::Bool(flag)) => settings.allow_pull = flag,
        ("extendWhileProgressing", Value::Bool(flag)) => settings.extend_while_progressing = flag,
        ("keepCheckpoints", Value::Bool(flag)) => settings.keep_checkpoints = flag,
        ("headers", Value::Map(entries)) => settings.headers = entries.into_iter().collect(),
        ("maxAttempts", Value::Int(count)) => settings.max_attempts = to_u32(count),
        ("maxDeferrals", Value::Int(count)) => settings.max_deferrals = to_u32(count),
        ("concurrency", Value::Int(count)) => settings.concurrency = Some(to_u32(count)),
        ("backoff", Value::Object(values)) => settings.backoff = backoff(&settings.backoff, values)?,
        ("rateLimit", Value::Object(mut values)) => {
            let limit = values.u32("limit").unwrap_or(1);
            let per = values.duration("per").unwrap_or(Duration::from_secs(1));
            settings.rate_limit = Some(RateLimit { limit, per });
        }
        (other, _) => return Err(Problem::field(other, "cannot be set here")),
    }
    Ok(())
}

fn set_duration(settings: &mut QueueSettings, name: &str, duration: Duration) {
    match name {
        "webhookTimeout" => settings.webhook_timeout = duration,
        "ackTimeout" => settings.ack_timeout = duration,
        "visibilityTimeout" => settings.visibility_timeout = duration,
        "heartbeatTimeout" => settings.heartbeat_timeout = Some(duration),
        "stallTimeout" => settings.stall_timeout = duration,
        "softTimeLimit" => settings.soft_time_limit = Some(duration),
        "hardTimeLimit" => settings.hard_time_limit = Some(duration),
        "jobTimeout" => settings.job_timeout = Some(duration),
        "drainTimeout" => settings.drain_timeout = duration,
        "maxAge" => settings.max_age = duration,
        "backpressureDelay" => settings.backpressure_delay = duration,
        "resultTtl" => settings.result_ttl = duration,
        "retention" => settings.retention = duration,
        "dedupeWindow" => settings.dedupe_window = Some(duration),
        _ => {}
    }
}

fn set_text(settings: &mut QueueSettings, name: &str, text: &str) {
    match name {
        "mode" => settings.mode = mode(text),
        "webhookUrl" => settings.webhook_url = Some(text.to_owned()),
        "ackTimeoutAction" => {
            settings.ack_timeout_action = if text == "dead" { AckTimeoutAction::Dead } else { AckTimeoutAction::Retry }
        }
        "stallAction" => settings.stall_action = if text == "retry" { StallAction::Retry } else { StallAction::Flag },
        "backpressureScope" => settings.backpressure_scope = scope(text),
        "dedupe" => settings.dedupe = if text == "unless_failed" { Dedupe::UnlessFailed } else { Dedupe::Always },
        "dedupeBy" => settings.dedupe_by = if text == "payload" { DedupeBy::Payload } else { DedupeBy::Key },
        "fencing" => settings.fencing = if text == "required" { Fencing::Required } else { Fencing::Optional },
        "signatureHeader" => settings.signature_header = text.to_ascii_lowercase(),
        _ => {}
    }
}

fn unset(settings: &mut QueueSettings, name: &str) {
    match name {
        "template" => settings.template = None,
        "webhookUrl" => settings.webhook_url = None,
        "heartbeatTimeout" => settings.heartbeat_timeout = None,
        "softTimeLimit" => settings.soft_time_limit = None,
        "hardTimeLimit" => settings.hard_time_limit = None,
        "jobTimeout" => settings.job_timeout = None,
        "rateLimit" => settings.rate_limit = None,
        "concurrency" => settings.concurrency = None,
        "dedupeWindow" => settings.dedupe_window = None,
        _ => {}
    }
}

/// A member that is left out is taken from the present backoff where that has it, else from the default one.
fn backoff(present: &Backoff, mut values: Values<'_>) -> Result<Backoff, Problem> {
    let wanted = values.text("type").unwrap_or_else(|| type_of(present).to_owned());
    let allowed: &[&str] = match wanted.as_str() {
        "fixed" => &["delay", "jitter"],
        "schedule" => &["delays", "jitter"],
        _ => &["delay", "factor", "maxDelay", "jitter"],
    };
    let names = fields::BACKOFF.fields.iter().map(|field| field.name);
    let misplaced = names.filter(|name| values.contains(name) && !allowed.contains(name));
    let errors: Vec<FieldError> = misplaced
        .map(|name| FieldError::new(format!("backoff.{name}"), format!("has no meaning with type \"{wanted}\"")))
        .collect();
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let Members { delay, factor, max_delay } = members(present);
    let jitter = values.number("jitter").unwrap_or(present.jitter());
    let delay = values.duration("delay").unwrap_or(delay);
    Ok(match wanted.as_str() {
        "fixed" => Backoff::Fixed { delay, jitter },
        "schedule" => Backoff::Schedule { delays: schedule(present, values.list("delays"))?, jitter },
        _ => Backoff::Exponential {
            delay,
            factor: values.number("factor").unwrap_or(factor),
            max_delay: values.duration("maxDelay").unwrap_or(max_delay),
            jitter,
        },
    })
}

fn type_of(backoff: &Backoff) -> &'static str {
    match backoff {
        Backoff::Exponential { .. } => "exponential",
        Backoff::Fixed { .. } => "fixed",
        Backoff::Schedule { .. } => "schedule",
    }
}

struct Members {
    delay: Duration,
    factor: f64,
    max_delay: Duration,
}

fn members(backoff: &Backoff) -> Members {
    match backoff {
        Backoff::Exponential { delay, factor, max_delay, .. } => {
            Members { delay: *delay, factor: *factor, max_delay: *max_delay }
        }
        Backoff::Fixed { delay, .. } => Members { delay: *delay, ..members(&Backoff::default()) },
        Backoff::Schedule { .. } => members(&Backoff::default()),
    }
}

fn schedule(present: &Backoff, delays: Option<Vec<Value<'_>>>) -> Result<Vec<Seconds>, Problem> {
    let given = delays.map(|delays| {
        let seconds = delays.into_iter().filter_map(|value| match value {
            Value::Duration(delay) => Some(Seconds(delay)),
            _ => None,
        });
        seconds.collect::<Vec<_>>()
    });
    let delays = match (given, present) {
        (Some(given), _) => given,
        (None, Backoff::Schedule { delays, .. }) => delays.clone(),
        (None, _) => Vec::new(),
    };
    if delays.is_empty() {
        return Err(Problem::field("backoff.delays", "must have at least one entry with type \"schedule\""));
    }
    Ok(delays)
}

fn template(word: &str) -> Option<Template> {
    Some(match word {
        "anthropic" => Template::Anthropic,
        "openai" => Template::Openai,
        "report" => Template::Report,
        "transcode" => Template::Transcode,
        "webhook" => Template::Webhook,
        _ => return None,
    })
}

fn mode(word: &str) -> Mode {
    match word {
        "standard" => Mode::Standard,
        "ack" => Mode::Ack,
        _ => Mode::Pull,
    }
}

pub(crate) fn scope(word: &str) -> DeferScope {
    if word == "job" { DeferScope::Job } else { DeferScope::Queue }
}

/// The schema has checked the range.
fn to_u32(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_written_down_elsewhere_is_read_like_a_request() {
        let json = br#"{"name": "mail", "maxAttempts": 7, "visibilityTimeout": "60s", "backoff": {"type": "fixed"}}"#;

        let change = read_queue(json).unwrap();

        assert_eq!(change.settings.max_attempts, 7);
        assert_eq!(change.settings.visibility_timeout, Duration::from_secs(60));
        assert!(matches!(change.settings.backoff, Backoff::Fixed { .. }));
        assert!(change.secret.is_none());
    }

    #[test]
    fn a_member_of_backoff_that_is_left_out_keeps_its_value() {
        let read = |backoff: &str| {
            let json = format!(
                r#"{{"name": "m", "template": "webhook", "webhookUrl": "https://a.b/", "backoff": {backoff}}}"#
            );
            read_queue(json.as_bytes()).unwrap().settings.backoff
        };

        let Backoff::Schedule { delays, jitter } = read(r#"{"jitter": 0}"#) else {
            panic!("the template has a schedule")
        };
        assert_eq!((delays.len(), jitter), (6, 0.0));
        assert_eq!(read(r#"{"type": "exponential"}"#), Backoff::default());
        let Backoff::Exponential { delay, factor, max_delay, .. } = read(r#"{"type": "exponential", "factor": 1.5}"#)
        else {
            panic!("the type was given")
        };
        assert_eq!((delay.as_secs(), factor, max_delay.as_secs()), (5, 1.5, 3600));
    }

    #[test]
    fn a_template_for_long_work_makes_a_pull_queue_unless_it_has_a_webhook() {
        for (json, mode) in [
            (r#"{"name": "m", "template": "report"}"#, Mode::Pull),
            (r#"{"name": "m", "template": "transcode"}"#, Mode::Pull),
            (r#"{"name": "m", "template": "report", "webhookUrl": "https://example.com/"}"#, Mode::Ack),
            (
                r#"{"name": "m", "template": "transcode", "webhookUrl": "https://example.com/", "mode": "standard"}"#,
                Mode::Standard,
            ),
        ] {
            assert_eq!(read_queue(json.as_bytes()).unwrap().settings.mode, mode, "{json}");
        }
    }

    #[test]
    fn every_fault_of_a_written_queue_names_its_field() {
        for (json, fields) in [
            (r#"{"maxAttempts": 0, "retention": "soon"}"#, &["maxAttempts", "retention", "name"][..]),
            (r#"{"name": "m", "mode": "ack"}"#, &["webhookUrl"]),
            (r#"{"name": "m", "signingSecret": "0123456789abcdef"}"#, &["signingSecret"]),
            (r#"{"name": "m", "backoff": {"type": "fixed", "maxDelay": 5}}"#, &["backoff.maxDelay"]),
            (r#"{"name": "m", "backoff": {"type": "fixed", "factor": 2}}"#, &["backoff.factor"]),
            (r#"{"name": "m", "backoff": {"factor": 0.5}}"#, &["backoff.factor"]),
            (r#"{"name": "m", "backoff": {"factor": 11}}"#, &["backoff.factor"]),
            (r#"{"name": "m", "template": "webhook"}"#, &["webhookUrl"]),
        ] {
            let errors = read_queue(json.as_bytes()).unwrap_err();

            let named: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(named, fields, "{json}");
        }
    }
}
