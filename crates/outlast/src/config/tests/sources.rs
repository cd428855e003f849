//! Sources of events: what is read, and what is refused where.

use std::time::Duration;

use outlast_engine::inbound::verify::{Algorithm, Encoding, HmacForm, Place, Scheme};

use super::super::sources::{OPTIONS, SourceConfig};
use super::{check_refused, load};

/// One source named `shop` with these options.
fn source(options: &str) -> SourceConfig {
    let mut sources = load(&format!("sources: {{shop: {{{options}}}}}\n"), &[]).unwrap().sources;
    assert_eq!(sources.len(), 1);
    sources.remove(0)
}

/// The problems of one source named `shop` with these options, without the place.
fn complaints(options: &str) -> Vec<String> {
    let problems = load(&format!("sources: {{shop: {{{options}}}}}\n"), &[]).unwrap_err();
    problems.iter().map(|problem| problem.split_once(": ").unwrap().1.to_owned()).collect()
}

fn secrets(source: &SourceConfig) -> Vec<&str> {
    source.secrets.iter().map(|secret| secret.expose()).collect()
}

#[test]
fn a_source_with_nothing_but_a_scheme_and_a_secret_has_defaults() {
    let source = source("verify: github, secret: s3cret");

    assert_eq!((source.name.as_str(), source.path.as_str()), ("shop", "/webhooks/shop"));
    assert_eq!(source.verify, Scheme::Github);
    assert_eq!(secrets(&source), ["s3cret"]);
    assert_eq!(source.tolerance, Duration::from_secs(300));
    assert_eq!((source.max_body, source.allowed_ips.len(), source.schema), (1_048_576, 0, None));
}

#[test]
fn every_option_of_a_source_is_read() {
    let source = source(
        "path: /in/shop-1, verify: hmac, secrets: [new, 'old, too'], tolerance: 2m, max_body: 2MiB, \
         allowed_ips: [10.0.0.0/8, '::1'], schema: {type: object, required: [id], minProperties: 1}, \
         header: X-Shop-Signature, prefix: sha512=, encoding: base64, algorithm: sha512, type_header: X-Topic",
    );

    assert_eq!(source.path, "/in/shop-1");
    assert_eq!(secrets(&source), ["new", "old, too"]);
    assert_eq!((source.tolerance, source.max_body), (Duration::from_secs(120), 2_097_152));
    let blocks: Vec<String> = source.allowed_ips.iter().map(ToString::to_string).collect();
    assert_eq!(blocks, ["10.0.0.0/8", "::1/128"]);
    let schema = serde_json::json!({"type": "object", "required": ["id"], "minProperties": 1});
    assert_eq!(source.schema, Some(schema));
    let form = HmacForm::new("x-shop-signature", "sha512=", Encoding::Base64, Algorithm::Sha512).unwrap();
    let form = form.with_places(Place::parse("x-topic").unwrap(), Place::parse("$.id").unwrap()).unwrap();
    assert_eq!(source.verify, Scheme::Hmac(form));
}

#[test]
fn a_plain_hmac_has_defaults_too() {
    let source = source("verify: hmac, secret: x, header: X-Sig, type_path: $.kind");

    let form = HmacForm::new("x-sig", "", Encoding::Hex, Algorithm::Sha256).unwrap();
    let form = form.with_places(Place::parse("$.kind").unwrap(), Place::parse("$.id").unwrap()).unwrap();
    assert_eq!(source.verify, Scheme::Hmac(form));
}

#[test]
fn every_scheme_is_known_by_its_name() {
    for name in [
        "stripe",
        "github",
        "shopify",
        "slack",
        "standard-webhooks",
        "paddle",
        "gitlab",
        "linear",
        "pagerduty",
        "grafana",
        "terraform",
    ] {
        assert_eq!(source(&format!("verify: {name}, secret: x")).verify.name(), name);
    }
    assert_eq!(source("verify: hmac, secret: x, header: X-Sig").verify.name(), "hmac");
    let twilio = source("verify: twilio, secret: x, url: 'https://example.com/in'");
    assert_eq!((twilio.verify.name(), twilio.url.as_str()), ("twilio", "https://example.com/in"));
}

#[test]
fn a_schema_is_read_from_a_file_beside_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let load = |file: &str, schema: &str| {
        let yaml = format!("sources:\n  shop:\n    verify: stripe\n    secret: x\n    schema: {file}\n");
        std::fs::write(directory.path().join("outlast.yaml"), yaml).unwrap();
        std::fs::write(directory.path().join("shop.json"), schema).unwrap();
        let flags = super::Flags { config: Some(directory.path().join("outlast.yaml")), ..Default::default() };
        super::Config::load(&flags, &super::Environment::default()).map_err(|problems| problems[0].message.clone())
    };

    let config = load("shop.json", "{\"type\": \"object\"}").unwrap();
    assert_eq!(config.sources[0].schema, Some(serde_json::json!({"type": "object"})));

    for (file, schema, message) in [
        ("none.json", "{}", "sources.shop.schema \"none.json\" cannot be read: "),
        ("shop.json", "{", "sources.shop.schema \"shop.json\" is not valid JSON: "),
        ("shop.json", "[]", "sources.shop.schema \"shop.json\" must hold a JSON object"),
        (".", "{}", "sources.shop.schema \".\" cannot be read: "),
        ("7", "{}", "sources.shop.schema must be the path of a JSON Schema file, or the schema itself, not 7"),
    ] {
        let problem = load(file, schema).unwrap_err();
        assert!(problem.starts_with(message), "{problem}");
    }
}

#[test]
fn a_missing_option_is_reported_at_the_name_of_the_source() {
    check_refused(
        "sources:\n  shop:\n  mail: {verify: hmac, secret: x}\n  a: 5\n",
        &[
            "outlast.yaml:2:3: sources.shop.verify must be one of stripe, github, shopify, slack, twilio, \
             standard-webhooks, paddle, gitlab, linear, pagerduty, grafana, terraform, hmac, not nothing",
            "outlast.yaml:2:3: sources.shop.secret is required; or secrets, a list, while one replaces another",
            "outlast.yaml:3:3: sources.mail.header is required with verify: hmac; it names the header with the signature",
            "outlast.yaml:4:6: sources.a must be a section with options below it",
        ],
    );
}

#[test]
fn names_of_sources_follow_the_rule() {
    let long = "a".repeat(64);
    for (name, good) in [
        ("stripe", true),
        ("9", true),
        ("a_b-c", true),
        ("Stripe", false),
        ("_a", false),
        ("-a", false),
        ("a.b", false),
        ("''", false),
        ("ä", false),
        (&long[..63], true),
        (&long, false),
    ] {
        let loaded = load(&format!("sources: {{{name}: {{verify: stripe, secret: x, path: /in}}}}\n"), &[]);
        assert_eq!(loaded.is_ok(), good, "{name}");
    }
}

#[test]
fn paths_are_plain_and_not_ours() {
    for path in ["/a", "/hooks/a.b_c-~", "/webhook/stripe", "/eve", "/.well-known/x"] {
        assert_eq!(source(&format!("verify: stripe, secret: x, path: {path}")).path, path);
    }
    let long = format!("/{}", "a".repeat(255));
    for path in
        ["a", "/", "/a/", "//a", "/a?b=c", "/a#b", "/a/../v1", "/..", "/.", "/%2e", "'/{id}'", "'/a*'", "/ä", &long]
    {
        let complaints = complaints(&format!("verify: stripe, secret: x, path: {path}"));
        assert_eq!(complaints.len(), 1, "{path}: {complaints:?}");
        assert!(complaints[0].starts_with("sources.shop.path must be a path such as /webhooks/stripe"), "{path}");
    }
    for (path, own) in [
        ("/v1", "/v1"),
        ("/v1/hooks", "/v1"),
        ("/v10", "/v1"),
        ("/api/x", "/api"),
        ("/events/x", "/events"),
        ("/healthz", "/health"),
        ("/metrics", "/metrics"),
        ("/dashboard", "/dashboard"),
        ("/readyz", "/readyz"),
        ("/openapi.json", "/openapi.json"),
    ] {
        let message =
            format!("sources.shop.path must not begin with {own}, which is ours; left out, it is /webhooks/shop");
        assert_eq!(complaints(&format!("verify: stripe, secret: x, path: {path}")), [message], "{path}");
    }
}

#[test]
fn two_sources_cannot_have_one_path() {
    check_refused(
        "sources:\n  b: {verify: stripe, secret: x, path: /webhooks/a}\n  a: {verify: stripe, secret: x}\n",
        &["outlast.yaml:3:3: sources.a.path is the path of source \"b\" already"],
    );
}

#[test]
fn values_that_make_no_sense_are_refused_one_by_one() {
    for (options, message) in [
        ("tolerance: 0s", "tolerance must be a duration from 1s to 3600s such as 30s, not \"0s\""),
        ("tolerance: 2h", "tolerance must be a duration from 1s to 3600s such as 30s, not \"2h\""),
        ("max_body: 1000", "max_body must be a size from 1KiB to 8MiB such as 256KiB, not 1000"),
        ("max_body: 9MiB", "max_body must be a size from 1KiB to 8MiB such as 256KiB, not \"9MiB\""),
        (
            "allowed_ips: [10.0.0.0/33]",
            "allowed_ips must be a list of address blocks such as 10.0.0.0/8 or fd00::/8, not \"10.0.0.0/33\"",
        ),
        ("allowed_ips: []", "allowed_ips must have at least one entry; left out, events may come from anywhere"),
        ("allowed_ips: ''", "allowed_ips must have at least one entry; left out, events may come from anywhere"),
        ("header: X", "header has a meaning with verify: hmac only"),
        ("encoding: hex", "encoding has a meaning with verify: hmac only"),
        ("type_path: $.x", "type_path has a meaning with verify: hmac only"),
        (
            "schema: {type: 5}",
            "schema is not a JSON Schema: 5 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        ("schema: [1]", "schema must be the path of a JSON Schema file, or the schema itself, not a list"),
    ] {
        let expected = format!("sources.shop.{message}");
        assert_eq!(complaints(&format!("verify: stripe, secret: x, {options}")), [expected]);
    }
    for (options, message) in [
        ("header: 'a b'", "header must be the name of a header such as x-signature"),
        ("header: x, encoding: octal", "encoding must be one of hex, base64, not \"octal\""),
        ("header: x, algorithm: md5", "algorithm must be one of sha1, sha256, sha512, not \"md5\""),
        (
            "header: x, type_path: kind",
            "type_path must be a JSONPath such as $.data.id: column 1: a path begins with $, as in $.data.id",
        ),
        ("header: x, prefix: 'ä'", "prefix must be at most 64 visible ASCII characters such as sha256="),
        (
            "header: x, type_path: $.a, type_header: b",
            "type_header cannot stand beside type_path: the type of an event has one place",
        ),
    ] {
        let expected = format!("sources.shop.{message}");
        assert_eq!(complaints(&format!("verify: hmac, secret: x, {options}")), [expected]);
    }
}

#[test]
fn a_body_is_never_larger_than_the_server_reads() {
    let yaml = "limits: {batch_bytes: 300KiB}\nsources: {shop: {verify: stripe, secret: x}}\n";

    assert_eq!(load(yaml, &[]).unwrap().sources[0].max_body, 307_200);
}

#[test]
fn an_unknown_option_of_a_source_has_a_suggestion() {
    check_refused(
        "sources:\n  shop:\n    verify: stripe\n    secret: x\n    allowed_ip: []\n    namespace: y\n",
        &[
            "outlast.yaml:5:5: unknown key \"sources.shop.allowed_ip\" (did you mean \"allowed_ips\"?)",
            "outlast.yaml:6:5: unknown key \"sources.shop.namespace\"",
        ],
    );
}

#[test]
fn a_secret_is_a_text_that_is_not_empty_and_never_shown() {
    let either = "is required; or secrets, a list, while one replaces another";
    for (options, message) in [
        ("path: /x", format!("secret {either}")),
        ("secret:", format!("secret {either}")),
        ("secret: ''", "secret must not be empty".to_owned()),
        ("secret: 8675309", "secret must be a text; put it into quotes".to_owned()),
        ("secret: 86753.09", "secret must be a text; put it into quotes".to_owned()),
        ("secret: [hunter]", "secret must be a text; put it into quotes".to_owned()),
        ("secrets: hunter", "secrets must be a list of 1 to 8 texts".to_owned()),
        ("secrets: []", "secrets must be a list of 1 to 8 texts".to_owned()),
        ("secrets: [hunter, '']", "secrets must be a list of texts, each of which must not be empty".to_owned()),
        (
            "secrets: [8675309]",
            "secrets must be a list of texts, each of which must be a text; put it into quotes".to_owned(),
        ),
        (
            "secret: hunter, secrets: [hunter]",
            "secrets cannot stand beside secret; put all of them into secrets".to_owned(),
        ),
    ] {
        assert_eq!(complaints(&format!("verify: stripe, {options}")), [format!("sources.shop.{message}")]);
    }
    let config = load("sources: {shop: {verify: stripe, secrets: [hunter2, hunter3]}}\n", &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter"));
}

#[test]
fn a_variable_that_is_not_set_is_reported_once() {
    let unset = "environment variable SECRET is not set; set it, or write ${SECRET:-default}";
    for (options, column) in [
        ("verify: stripe, secret: \"${SECRET}\"", 42),
        ("verify: stripe, secret: '${SECRET}'", 42),
        ("verify: stripe, secrets: [\"${SECRET}\"]", 44),
        ("secret: x, verify: \"${SECRET}\"", 37),
        ("verify: hmac, secret: x, header: \"${SECRET}\"", 51),
    ] {
        check_refused(&format!("sources: {{shop: {{{options}}}}}\n"), &[&format!("outlast.yaml:1:{column}: {unset}")]);
    }
    check_refused("sources:\n  shop: ${SECRET}\n", &[&format!("outlast.yaml:2:9: {unset}")]);
}

#[test]
fn the_defaults_explain_every_option_of_a_source() {
    for option in OPTIONS {
        let is_there =
            ["#     ", "#     # "].iter().any(|start| super::DEFAULTS.contains(&format!("{start}{option}: ")));
        assert!(is_there, "{option}");
    }
}
