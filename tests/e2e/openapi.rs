//! The OpenAPI document says what the server does: it is whole and well formed, it is the one in docs/, every route in
//! it answers, and there are no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use outlast_api::openapi::document;
use outlast_api::routes::{Need, ROUTES, Shape};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::cases::{Case, Expect, check};
use crate::scene::Scene;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

#[tokio::test(flavor = "multi_thread")]
async fn the_server_serves_the_document_without_a_key() {
    let scene = Scene::set().await;

    let served = scene.client.send(scene.client.keyless(Method::GET, "/openapi.json")).await.unwrap().expect(200);

    assert_eq!(served, document());
}

/// Run with `OUTLAST_GEN=1` to rewrite the file.
#[test]
fn generated_openapi_json_in_docs_is_the_document() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/openapi.json");
    let text = format!("{:#}\n", document());
    if std::env::var("OUTLAST_GEN").is_ok_and(|value| value == "1") {
        fs::write(&path, &text).expect("the file can be written");
    }

    let kept = fs::read_to_string(&path).unwrap_or_default();

    assert!(kept == text, "docs/reference/openapi.json is out of date: run `make gen`");
}

#[test]
fn the_document_is_well_formed() {
    let document = document();

    assert!(text(&document["openapi"]).starts_with("3.1."));
    for place in ["/info/title", "/info/version", "/components/schemas", "/components/securitySchemes/key", "/paths"] {
        assert!(document.pointer(place).is_some_and(|value| !value.is_null()), "{place} is missing");
    }
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let name = format!("{method} {path}");
        assert!(path.starts_with('/'), "{name}");
        assert!(ids.insert(text(&operation["operationId"]).to_owned()), "{name} shares its operationId");
        assert!(!text(&operation["summary"]).is_empty(), "{name} has no summary");
        check_parameters(&name, path, operation);
        check_responses(&name, operation);
    }
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    for reference in references {
        let place = reference.strip_prefix('#').expect("only references inside the document");
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
}

/// The variable parts of the path are its path parameters, and no parameter is there twice.
fn check_parameters(name: &str, path: &str, operation: &Value) {
    let parameters = operation["parameters"].as_array().expect("a list of parameters");
    let mut seen = BTreeSet::new();
    for parameter in parameters {
        assert!(matches!(text(&parameter["in"]), "path" | "query" | "header"), "{name}: {parameter}");
        assert!(parameter["schema"].is_object(), "{name}: {parameter}");
        assert!(seen.insert((text(&parameter["in"]), text(&parameter["name"]))), "{name}: {parameter} is there twice");
        assert_eq!(parameter["required"] == json!(true), parameter["in"] == "path", "{name}: {parameter}");
    }
    let in_path: BTreeSet<&str> = seen.iter().filter(|(place, _)| *place == "path").map(|(_, name)| *name).collect();
    let variable: BTreeSet<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
    assert_eq!(in_path, variable, "{name}");
}

fn check_responses(name: &str, operation: &Value) {
    let responses = operation["responses"].as_object().expect("an object of responses");
    assert!(responses.contains_key("default") && responses.len() > 1, "{name}");
    for (status, response) in responses {
        let status_is_right = status == "default" || status.parse::<u16>().is_ok_and(|status| status < 600);
        assert!(status_is_right, "{name}: {status}");
        assert!(!text(&response["description"]).is_empty(), "{name}: {status} is not described");
    }
    let problem = responses["default"].pointer("/content/application~1problem+json/schema/$ref");
    assert_eq!(problem, Some(&json!("#/components/schemas/Problem")), "{name}");
}

fn collect_references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            into.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|inner| collect_references(inner, into));
        }
        Value::Array(list) => list.iter().for_each(|inner| collect_references(inner, into)),
        _ => {}
    }
}

#[test]
fn the_document_has_exactly_the_routes_of_the_table() {
    let document = document();
    let documented: BTreeSet<(String, String)> =
        operations(&document).map(|(path, method, _)| (path.to_owned(), method.to_uppercase())).collect();
    let routed: BTreeSet<(String, String)> =
        ROUTES.iter().map(|route| (route.path.to_owned(), route.method.to_string())).collect();

    assert_eq!(documented, routed);
    assert_eq!(routed.len(), ROUTES.len(), "a route is there twice");
    for route in ROUTES {
        let method = route.method.as_str().to_lowercase();
        let operation = &document["paths"][route.path][method];
        let scope = match route.need {
            Need::Nothing => Value::Null,
            Need::Scope(word) => json!(word.as_str()),
        };
        assert_eq!(operation["x-outlast-scope"], scope, "{} {}", route.method, route.path);
        let security = match (route.need, route.token) {
            (Need::Nothing, _) => json!([]),
            (_, None) => Value::Null,
            (_, Some(_)) => json!([{"key": []}, {"token": []}, {"tokenInUrl": []}]),
        };
        assert_eq!(operation["security"], security, "{} {}", route.method, route.path);
        let content = operation["responses"][route.answer.0.to_string()].get("content");
        assert_eq!(content.is_none(), route.answer.2 == Shape::Nothing, "{} {}", route.method, route.path);
    }
}

// Documented routes exist: the request gets as far as its parameters.
#[tokio::test(flavor = "multi_thread")]
async fn every_documented_route_answers_and_every_other_method_is_405() {
    let scene = Scene::set().await;
    let document = document();
    let mut cases = Vec::new();
    for route in ROUTES {
        let path = scene.things.path(route);
        let documented: &Map<String, Value> = document["paths"][route.path].as_object().unwrap();
        for method in METHODS {
            let name = format!("{method} {}", route.path);
            let (method, path) = (Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), path.clone());
            let expect = match documented.contains_key(method.as_str().to_lowercase().as_str()) {
                true => Expect::Field("rhubarb".to_owned()),
                false => Expect::Problem(405, "method_not_allowed"),
            };
            cases.push(Case { name, method, path: format!("{path}?rhubarb=1"), expect, ..Case::default() });
        }
        for method in ["OPTIONS", "TRACE", "PROPFIND", "FOO"] {
            let name = format!("{method} {}", route.path);
            let by_token = ROUTES.iter().any(|other| other.path == route.path && other.token.is_some());
            let expect = match method {
                // Browsers ask this before a page may call.
                "OPTIONS" if by_token => Expect::Without(204, Arc::new([])),
                _ => Expect::Problem(405, "method_not_allowed"),
            };
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            cases.push(Case { name, method, path: path.clone(), expect, ..Case::default() });
        }
    }
    for path in [
        "/v1",
        "/v1/",
        "/v1/queues/",
        "/v1/queues/mail/",
        "/v2/queues",
        "/v1/queue",
        "/V1/queues",
        "//v1/queues",
        "/v1//queues",
        "/v1/queues/mail/jobs/x",
        "/v1/jobs/x/y/z",
        "/api",
        "/api/queues/mail",
        "/admin",
        "/.env",
        "/healthz/",
        "/metrics/x",
        "/openapi.yaml",
        "/v1/queues;x=1",
        "/v1/queues%2fmail",
        "/favicon.ico",
    ] {
        let (name, expect) = (format!("GET {path}"), Expect::Problem(404, "route_not_found"));
        cases.push(Case { name, path: path.to_owned(), expect, ..Case::default() });
    }

    check(&scene, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_405_says_which_methods_there_are() {
    let scene = Scene::set().await;
    for (path, allow) in [
        ("/v1/queues", "POST, GET, HEAD"),
        ("/v1/queues/mail", "PUT, PATCH, GET, DELETE, HEAD"),
        ("/v1/outcomes", "POST"),
        ("/api/queues/mail/messages", "GET"),
        ("/healthz", "GET, HEAD"),
        (&format!("/v1/jobs/{}/cancel", scene.things.queued), "POST, OPTIONS"),
    ] {
        let method = if allow.contains("OPTIONS") { Method::TRACE } else { Method::OPTIONS };
        let reply = scene.client.send(scene.client.keyless(method, path)).await.unwrap();
        let allowed: Vec<_> = reply.headers.get_all("allow").iter().collect();
        assert_eq!(allowed, [allow], "{path}");
        reply.expect_problem(405, "method_not_allowed");
    }
}

// A HEAD must change nothing, so it cannot stand for a GET that hands out jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_takes_no_messages() {
    let scene = Scene::set().await;
    let before = scene.client.get("/v1/queues/mail").await.unwrap().expect(200);

    let head = scene.client.request(Method::HEAD, "/api/queues/mail/messages?batch=10");
    let reply = scene.client.send(head).await.unwrap();

    assert_eq!(reply.status, 405);
    assert_eq!(scene.client.get("/v1/queues/mail").await.unwrap().expect(200), before);
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("an object of paths");
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("an object of methods");
        methods.iter().map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
