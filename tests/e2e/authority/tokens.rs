//! Every route against every kind of token: what it may do, to its own job, and nothing else to anything. (T13, T38)

use std::sync::Arc;

use outlast_api::routes::{Need, ROUTES, Route};
use outlast_tests::http::Client;
use serde_json::json;

use super::{fingerprint, harmful, probe};
use crate::api::text;
use crate::cases::{Case, Expect, check};
use crate::scene::Scene;

/// Repeated here by hand, like the needs.
const TAKES: &[(&str, &str, &str)] = &[
    ("GET", "/v1/jobs/{id}", "read"),
    ("DELETE", "/v1/jobs/{id}", "cancel"),
    ("GET", "/v1/jobs/{id}/events", "read"),
    ("GET", "/v1/jobs/{id}/stream", "read"),
    ("GET", "/v1/jobs/{id}/ws", "read"),
    ("GET", "/v1/jobs/{id}/result", "download"),
    ("POST", "/v1/jobs/{id}/cancel", "cancel"),
];

const SETS: [&[&str]; 6] =
    [&["read"], &["watch"], &["watch", "output"], &["cancel"], &["download"], &["read", "cancel", "download"]];

#[test]
fn the_routes_that_answer_to_a_token_are_those_that_are_written_here() {
    let declared: Vec<(&str, &str, &str)> =
        ROUTES.iter().filter_map(|route| Some((route.method.as_str(), route.path, route.token?.as_str()))).collect();

    assert_eq!(declared, TAKES);
    for (_, path, _) in TAKES {
        assert!(path.starts_with("/v1/jobs/{id}"), "a token is for one job, and {path} names none");
    }
}

struct Holder {
    token: String,
    can: &'static [&'static str],
    job: String,
}

async fn mint(client: &Client, job: &str, can: &'static [&'static str]) -> Holder {
    let reply = client.post(&format!("/v1/jobs/{job}/token"), json!({"can": can})).await.unwrap().expect(201);
    Holder { token: text(&reply["token"]), can, job: job.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_takes_exactly_the_tokens_it_should() {
    let scene = Scene::set().await;
    let things = &scene.things;
    let before = fingerprint(&scene).await;
    let mut holders = Vec::new();
    for can in SETS {
        for job in [&things.queued, &things.running, &things.dead] {
            holders.push(mint(&scene.client, job, can).await);
        }
    }
    let mut cases = Vec::new();
    for holder in &holders {
        // A link is an authority of its own.
        for route in ROUTES.iter().filter(|route| !route.path.contains("{link}")) {
            cases.push(in_header(&scene, route, holder));
            cases.push(in_url(&scene, route, holder));
        }
    }
    assert!(cases.len() > 1000, "only {} cells", cases.len());

    check(&scene, cases).await;

    assert_eq!(fingerprint(&scene).await, before, "a token has changed what it may not");
}

fn in_header(scene: &Scene, route: &'static Route, holder: &Holder) -> Case {
    let authorization = Some(vec![format!("Bearer {}", holder.token)]);
    let (case, expect) = cell(scene, route, holder, Expect::Problem(403, "forbidden"));
    Case { name: name(route, holder, "in the header"), authorization, expect, ..case }
}

/// Where no token is accepted, a token in the URL does not count: the call is anonymous.
fn in_url(scene: &Scene, route: &'static Route, holder: &Holder) -> Case {
    let (case, expect) = cell(scene, route, holder, Expect::Problem(401, "unauthorized"));
    let expect = match route.need {
        // An unknown parameter, to everybody.
        Need::Nothing => Expect::Field("token".to_owned()),
        Need::Scope(_) => expect,
    };
    let joined = if case.path.contains('?') { '&' } else { '?' };
    let path = format!("{}{joined}token={}", case.path, holder.token);
    Case { name: name(route, holder, "in the URL"), authorization: Some(Vec::new()), path, expect, ..case }
}

fn name(route: &Route, holder: &Holder, place: &str) -> String {
    format!("{} {} by a token to {} of {} {place}", route.method, route.path, holder.can.join("+"), holder.job)
}

/// A refused call would do harm; an allowed one fails right after authentication.
fn cell(scene: &Scene, route: &'static Route, holder: &Holder, otherwise: Expect) -> (Case, Expect) {
    let harmful = harmful(scene, route);
    if route.need == Need::Nothing {
        return (harmful, Expect::Without(200, Arc::new([])));
    }
    let wanted = TAKES.iter().find(|(method, path, _)| *method == route.method.as_str() && *path == route.path);
    let Some((_, _, wanted)) = wanted else {
        return (harmful, otherwise);
    };
    // One who may watch reads a part of it.
    let watches = *wanted == "read" && holder.can.contains(&"watch");
    if !holder.can.contains(wanted) && !watches {
        return (harmful, Expect::Problem(403, "forbidden"));
    }
    if !harmful.path.contains(&holder.job) {
        return (harmful, Expect::Problem(404, "job_not_found"));
    }
    (probe(harmful), Expect::Field("rhubarb".to_owned()))
}
