//! Queues of the file: their settings, which are those of HTTP, and their events.

use std::time::Duration;

use outlast_core::QueueSettings;
use outlast_core::queue::{Mode, RateLimit, Template};
use outlast_core::retry::Backoff;

use super::super::queues::{EventPattern, OPTIONS, QueueConfig};
use super::super::settings;
use super::{check_refused, load};

const ISSUE: &str = r#"
sources:
  stripe: {path: /webhook/stripe, verify: stripe, secret: "${STRIPE_WEBHOOK_SECRET}"}
queues:
  billing:
    source: stripe
    events: [invoice.paid, invoice.payment_failed]
    filter: "$.data.object.amount_due >= 1000"
    visibility_timeout: 60s
    max_attempts: 5
    api_key: ${QUEUE_API_KEY}
"#;

/// Long enough for a queue.
const KEY: &str = "twenty-characters-xx";

/// A queue named `mail` beside a source named `shop`.
fn with_source(options: &str) -> String {
    format!("sources: {{shop: {{verify: stripe, secret: x}}}}\nqueues: {{mail: {{{options}}}}}\n")
}

fn queue(options: &str) -> QueueConfig {
    load(&with_source(options), &[("NUMBER", "7"), ("YES", "true"), ("SPAN", "90")]).unwrap().queues.remove(0)
}

/// The problems of such a queue, without the position.
fn complaints(options: &str) -> Vec<String> {
    let problems = load(&with_source(options), &[]).unwrap_err();
    problems.iter().map(|problem| problem.split_once(": ").unwrap().1.to_owned()).collect()
}

#[test]
fn a_file_with_a_source_and_a_queue_is_read() {
    let variables = [("STRIPE_WEBHOOK_SECRET", "whsec_hunter"), ("QUEUE_API_KEY", "hunter2hunter2hunter2")];

    let config = load(ISSUE, &variables).unwrap();

    let (source, queue) = (&config.sources[0], &config.queues[0]);
    assert_eq!((source.path.as_str(), source.secrets[0].expose()), ("/webhook/stripe", "whsec_hunter"));
    assert_eq!(queue.name, "billing");
    assert_eq!(queue.change.settings.visibility_timeout, Duration::from_secs(60));
    assert_eq!(queue.change.settings.max_attempts, 5);
    assert_eq!(queue.api_key.as_ref().unwrap().expose(), "hunter2hunter2hunter2");
    let subscription = queue.subscription.as_ref().unwrap();
    assert_eq!(subscription.source, "stripe");
    assert_eq!(
        subscription.filter.as_ref().map(ToString::to_string).as_deref(),
        Some("$.data.object.amount_due >= 1000")
    );
    let exact = |name: &str| EventPattern::Exact(name.to_owned());
    assert_eq!(subscription.events, [exact("invoice.paid"), exact("invoice.payment_failed")]);
    assert!(!format!("{config:?}").contains("hunter"));

    let problems = load(ISSUE, &[]).unwrap_err();
    assert_eq!(
        problems,
        [
            "outlast.yaml:3:59: environment variable STRIPE_WEBHOOK_SECRET is not set; set it, or write ${STRIPE_WEBHOOK_SECRET:-default}",
            "outlast.yaml:11:14: environment variable QUEUE_API_KEY is not set; set it, or write ${QUEUE_API_KEY:-default}",
        ]
    );
}

#[test]
fn a_queue_without_options_has_the_defaults_of_http() {
    for yaml in ["queues: {mail: }\n", "queues: {mail: {}}\n", "queues: {mail: {max_attempts: , headers: }}\n"] {
        let config = load(yaml, &[]).unwrap();

        assert_eq!(config.queues[0].change.settings, QueueSettings::default(), "{yaml}");
        assert!(config.queues[0].subscription.is_none() && config.queues[0].api_key.is_none());
    }
}

#[test]
fn nested_settings_are_read() {
    let queue = queue(
        "webhook_url: 'https://example.com/x', mode: ack, ack_timeout: 10m, allow_pull: true, \
         headers: {x-version: 2, Authorization: hunter2}, signing_secret: hunter2hunter2hunter2, \
         rate_limit: {limit: 10, per: 1m}, backoff: {type: exponential, delay: 2, factor: 1.5, max_delay: 1h, jitter: 0.5}",
    );

    let settings = &queue.change.settings;
    assert_eq!((settings.mode, settings.ack_timeout, settings.allow_pull), (Mode::Ack, Duration::from_secs(600), true));
    assert_eq!(settings.headers["x-version"], "2");
    assert_eq!(settings.rate_limit, Some(RateLimit { limit: 10, per: Duration::from_secs(60) }));
    let (delay, max_delay) = (Duration::from_secs(2), Duration::from_secs(3600));
    assert_eq!(settings.backoff, Backoff::Exponential { delay, factor: 1.5, max_delay, jitter: 0.5 });
    assert_eq!(queue.change.secret.as_ref().unwrap().expose(), "hunter2hunter2hunter2");
    assert!(!format!("{queue:?}").contains("hunter"));
}

#[test]
fn a_template_presets_and_null_unsets() {
    let preset = queue("template: transcode, webhook_url: 'https://example.com/x'").change.settings;
    let fields = |settings: &QueueSettings| (settings.heartbeat_timeout, settings.hard_time_limit);
    assert_eq!(preset.template, Some(Template::Transcode));
    assert_ne!(fields(&preset), (None, None));

    let unset = queue(
        "template: transcode, webhook_url: 'https://example.com/x', heartbeat_timeout: null, hard_time_limit: ~, soft_time_limit: ~",
    );

    assert_eq!(fields(&unset.change.settings), (None, None));
}

#[test]
fn variables_stand_for_numbers_durations_and_truth_values() {
    let queue = queue("max_attempts: \"${NUMBER}\", visibility_timeout: \"${SPAN}\", keep_checkpoints: \"${YES}\"");

    let settings = &queue.change.settings;
    assert_eq!((settings.max_attempts, settings.keep_checkpoints), (7, true));
    assert_eq!(settings.visibility_timeout, Duration::from_secs(90));
}

#[test]
fn events_are_whole_types_beginnings_or_all() {
    let events = |options: &str| queue(options).subscription.unwrap().events;

    assert_eq!(events("source: shop"), [EventPattern::All]);
    assert_eq!(events("source: shop, events: '*'"), [EventPattern::All]);
    let patterns = events("source: shop, events: [invoice.*, Push Hook, orders/create, '*']");
    assert_eq!(patterns[0], EventPattern::Prefix("invoice.".to_owned()));
    assert_eq!(patterns[1], EventPattern::Exact("Push Hook".to_owned()));
    let shown: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["invoice.*", "Push Hook", "orders/create", "*"]);
    for pattern in ["invoice*", "'*.paid'", "a.*.b", "'.*'", "a**", "''", "' a'", "ä", "[a]", "1.5", "~"] {
        let complaints = complaints(&format!("source: shop, events: [{pattern}]"));
        assert!(
            complaints[0]
                .starts_with("queues.mail.events must be a list of event types: a whole one such as invoice.paid"),
            "{pattern}: {complaints:?}"
        );
    }
    let many = format!("[{}]", vec!["a"; 101].join(","));
    for list in ["[]", "''", &many] {
        let message = "queues.mail.events must have 1 to 100 entries; left out, it means all events";
        assert_eq!(complaints(&format!("source: shop, events: {list}")), [message], "{list}");
    }
}

#[test]
fn events_need_their_source() {
    check_refused(
        "sources: {stripe: {verify: stripe, secret: x}}\nqueues:\n  a: {source: strip}\n  b:\n    events: [x]\n    filter: $.y exists\n    idempotency_key: $.z\n",
        &[
            "outlast.yaml:3:15: queues.a.source must name a source of this file; did you mean \"stripe\"?",
            "outlast.yaml:5:13: queues.b.events needs source, the name of a source of this file",
            "outlast.yaml:6:13: queues.b.filter needs source, the name of a source of this file",
            "outlast.yaml:7:22: queues.b.idempotency_key needs source, the name of a source of this file",
        ],
    );
    // A source with a problem of its own is one.
    check_refused(
        "sources: {shop: 5}\nqueues: {a: {source: shop}}\n",
        &["outlast.yaml:1:17: sources.shop must be a section with options below it"],
    );
    assert_eq!(
        complaints("source: shop, idempotency_key: id"),
        [
            "queues.mail.idempotency_key must be a JSONPath such as $.data.id: column 1: a path begins with $, as in $.data.id"
        ]
    );
    assert_eq!(complaints("source: shop, filter: true"), ["queues.mail.filter must be a text, not true"]);
}

#[test]
fn settings_are_refused_as_http_refuses_them_at_their_lines() {
    check_refused(
        "queues:\n  mail:\n    max_attempts: 0\n    visibility_timeout: 60y\n    mode: push\n    allow_pull: maybe\n    \
         headers: [a]\n    backoff:\n      delays: [1s, 2s, soon]\n    rate_limit:\n      limit: 5\n",
        &[
            "outlast.yaml:3:19: queues.mail.max_attempts must be a whole number from 1 to 20",
            "outlast.yaml:4:25: queues.mail.visibility_timeout must be seconds, or a duration like \"30s\", from 1s to 12h",
            "outlast.yaml:5:11: queues.mail.mode must be one of \"standard\", \"ack\", \"pull\"",
            "outlast.yaml:6:17: queues.mail.allow_pull must be true or false",
            "outlast.yaml:7:14: queues.mail.headers must be an object of at most 20 texts, with names of 1 to 128 bytes and values of at most 1024",
            "outlast.yaml:9:24: queues.mail.backoff.delays[2] must be seconds, or a duration like \"30s\", from 0s to 1d",
            "outlast.yaml:11:7: queues.mail.rate_limit.per is required",
        ],
    );
}

#[test]
fn rules_between_settings_speak_of_them_as_the_file_does() {
    for (options, message) in [
        (
            "mode: pull, webhook_url: 'https://example.com'",
            "mode must be \"standard\" or \"ack\" when webhook_url is set; add allow_pull for pullers",
        ),
        ("mode: ack", "webhook_url is required when mode is \"standard\" or \"ack\""),
        ("soft_time_limit: 2m, hard_time_limit: 1m", "soft_time_limit must be shorter than hard_time_limit"),
        ("backoff: {delay: 1h, max_delay: 1m}", "backoff.max_delay must not be shorter than backoff.delay"),
        ("backoff: {type: fixed, max_delay: 1m}", "backoff.max_delay has no meaning with type \"fixed\""),
        ("signing_secret: hunter2hunter2hunter2", "signing_secret has no meaning without a webhook_url"),
    ] {
        assert_eq!(complaints(options), [format!("queues.mail.{message}")]);
    }
    check_refused(
        "queues:\n  mail:\n    webhook_url: https://example.com\n    headers:\n      x-a: b\n      host: c\n",
        &[
            "outlast.yaml:6:13: queues.mail.headers.host is not a header that may be set: it must be a valid name and value, and not one of Host, Connection, Keep-Alive, Content-*, Transfer-Encoding, Upgrade, TE, Trailer, Cookie, Expect, Proxy-*, webhook-* or x-outlast-*",
        ],
    );
    check_refused(
        "queues:\n  mail:\n    mode: ack\n",
        &["outlast.yaml:2:3: queues.mail.webhook_url is required when mode is \"standard\" or \"ack\""],
    );
}

#[test]
fn unknown_settings_have_suggestions_at_every_depth() {
    check_refused(
        "queues:\n  mail:\n    max_attempt: 5\n    maxAttempts: 5\n    backoff: {max_dela: 5}\n    sorce: x\n    name: y\n    rate_limits: 5\n",
        &[
            "outlast.yaml:3:5: unknown key \"queues.mail.max_attempt\" (did you mean \"max_attempts\"?)",
            "outlast.yaml:4:5: unknown key \"queues.mail.maxAttempts\" (did you mean \"max_attempts\"?)",
            "outlast.yaml:5:15: unknown key \"queues.mail.backoff.max_dela\" (did you mean \"max_delay\"?)",
            "outlast.yaml:6:5: unknown key \"queues.mail.sorce\" (did you mean \"source\"?)",
            "outlast.yaml:7:5: unknown key \"queues.mail.name\"",
            "outlast.yaml:8:5: unknown key \"queues.mail.rate_limits\" (did you mean \"rate_limit\"?)",
        ],
    );
}

#[test]
fn problems_of_all_sections_come_together_in_the_order_of_the_file() {
    check_refused(
        "queues:\n  'a b': {}\n  c: [1]\nlimits: {batch_jobs: 0}\nsources:\n  S: {verify: md5, secret: x}\nwater: 1\n",
        &[
            "outlast.yaml:2:3: queues.a b must be a name (letters, digits, \".\", \"_\", \"-\", starting with a letter or digit) of 1 to 128 bytes",
            "outlast.yaml:3:6: queues.c must be a section with options below it",
            "outlast.yaml:4:22: limits.batch_jobs must be a whole number from 1 to 10000, not 0",
            "outlast.yaml:6:3: sources.S must be named with lower-case letters, digits, \"_\" and \"-\", starting with a letter or digit, at most 63",
            "outlast.yaml:6:15: sources.S.verify must be one of stripe, github, shopify, slack, twilio, standard-webhooks, paddle, gitlab, linear, pagerduty, grafana, terraform, hmac, not \"md5\"",
            "outlast.yaml:7:1: unknown key \"water\"",
        ],
    );
}

#[test]
fn a_variable_that_is_not_set_is_reported_once() {
    let unset = "environment variable NONE is not set; set it, or write ${NONE:-default}";
    for options in [
        "max_attempts: \"${NONE}\"",
        "mode: ack, webhook_url: \"${NONE}\"",
        "rate_limit: {limit: 1, per: '${NONE}'}",
        "backoff: {type: schedule, delays: [1s, '${NONE}']}",
        "headers: {x-a: '${NONE}'}, webhook_url: 'https://example.com'",
        "api_key: '${NONE}'",
        "source: '${NONE}', filter: '$.x exists'",
        "source: shop, events: ['${NONE}']",
    ] {
        assert_eq!(complaints(options), [unset], "{options}");
    }
    assert_eq!(queue("max_attempts: \"${NONE:-9}\"").change.settings.max_attempts, 9);
}

#[test]
fn variables_and_their_defaults_are_put_in_with_and_without_quotes() {
    for quote in ["", "'", "\""] {
        let yaml = format!(
            "sources:\n  shop:\n    verify: stripe\n    secret: {quote}${{SECRET:-made up}}{quote}\nqueues:\n  mail:\n    \
             max_attempts: {quote}${{NUMBER:-9}}{quote}\n    api_key: {quote}${{KEY}}{quote}\n"
        );

        let (unset, set) = (
            load(&yaml, &[("KEY", KEY)]).unwrap(),
            load(&yaml, &[("KEY", KEY), ("SECRET", "s"), ("NUMBER", "3")]).unwrap(),
        );

        let read = |config: &super::Config| {
            let queue = &config.queues[0];
            let (secret, key) = (config.sources[0].secrets[0].expose(), queue.api_key.as_ref().unwrap().expose());
            format!("{secret} {} {key}", queue.change.settings.max_attempts)
        };
        assert_eq!((read(&unset), read(&set)), (format!("made up 9 {KEY}"), format!("s 3 {KEY}")), "{yaml}");
    }
}

#[test]
fn an_api_key_that_could_be_guessed_is_refused_with_its_place() {
    for key in ["a", "nineteen-characters"] {
        check_refused(
            &format!("queues:\n  mail:\n    api_key: {key}\n"),
            &["outlast.yaml:3:14: queues.mail.api_key must be 20 to 255 visible ASCII characters without spaces"],
        );
    }
    load("queues:\n  mail:\n    api_key: twenty-characters-xx\n", &[]).unwrap();
}

#[test]
fn secrets_of_queues_never_appear_in_messages() {
    for options in [
        "api_key: 'hunter 2'",
        "api_key: [hunter2]",
        "api_key: 86753.09",
        "signing_secret: hunter2",
        "signing_secret: whsec_hunter2hunter2!",
        "signing_secret: [hunter2]",
        "headers: {Authorization: [hunter2]}",
        "webhook_url: 'https://me:hunter2@example.com'",
    ] {
        let complaints = complaints(options);

        assert_eq!(complaints.len(), 1, "{options}: {complaints:?}");
        assert!(!complaints[0].contains("hunter") && !complaints[0].contains("86753"), "{complaints:?}");
    }
}

#[test]
fn a_setting_and_an_option_never_have_the_same_name() {
    let settings = settings::names();

    assert!(settings.len() > 30 && settings.contains(&"visibility_timeout".to_owned()));
    assert!(OPTIONS.iter().all(|option| !settings.contains(&(*option).to_owned())));
}

#[test]
fn the_defaults_explain_every_option_and_setting_of_a_queue() {
    let options = OPTIONS.iter().map(|option| (*option).to_owned());
    for name in options.chain(settings::names()) {
        assert!(super::DEFAULTS.contains(&format!("#     {name}: ")), "{name}");
    }
}

#[test]
fn the_examples_of_the_defaults_are_valid() {
    let mut yaml = String::new();
    let mut is_example = false;
    for line in super::DEFAULTS.lines() {
        is_example = line.starts_with("# ") && (is_example || matches!(line, "# sources:" | "# queues:"));
        if is_example {
            yaml.push_str(&format!("{}\n", &line[2..]));
        }
    }
    let value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let names = [
        "STRIPE_WEBHOOK_SECRET",
        "TWILIO_AUTH_TOKEN",
        "ORDERS_SECRET",
        "ORDERS_SECRET_OLD",
        "QUEUE_API_KEY",
        "SIGNING_SECRET",
    ];

    let config = load(&yaml, &names.map(|name| (name, value))).unwrap();

    assert_eq!((config.sources.len(), config.queues.len()), (3, 2), "{yaml}");
    let subscription = config.queues[0].subscription.as_ref().unwrap();
    assert_eq!(subscription.idempotency_key.as_ref().map(ToString::to_string).as_deref(), Some("$.id"));
    // Options with a default are shown with it.
    let default = QueueSettings { mode: Mode::Standard, ..QueueSettings::default() };
    let (default, shown) =
        (serde_json::to_value(default).unwrap(), serde_json::to_value(&config.queues[1].change.settings).unwrap());
    for (name, value) in default.as_object().unwrap() {
        assert!(value.is_null() || name == "headers" || shown[name] == *value, "{name}: {} {value}", shown[name]);
    }
}
