//! Authorisation: every route against every kind of key, generated from the route table. (T13, T14, T20) A route
//! without a declared need cannot be written down at all: `Route::need` is not optional, so it does not compile. The
//! required scopes are repeated here by hand, so that a mistake in the table does not pass as a rule.

mod guessing;
mod keys;
pub(crate) mod secrets;
mod tokens;

use std::sync::Arc;

use outlast_api::routes::{Need, ROUTES, Route};
use outlast_tests::http::Client;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, text};
use crate::cases::{Case, Expect, check};
use crate::scene::{Scene, make_things};
use keys::{Bound, Holder, bad_headers, every_holder};

#[rustfmt::skip]
const NEEDS: &[(&str, &str, &str)] = &[
    ("POST",   "/v1/queues",                       "manage"),
    ("GET","/v1/queues",                       "read"),
    ("PUT","/v1/queues/{queue}",               "manage"),
    ("PATCH",  "/v1/queues/{queue}",               "manage"),
    ("GET","/v1/queues/{queue}",               "read"),
    ("DELETE", "/v1/queues/{queue}",               "manage"),
    ("POST",   "/v1/queues/{queue}/pause",         "manage"),
    ("POST",   "/v1/queues/{queue}/resume",        "manage"),
    ("POST",   "/v1/queues/{queue}/rotate-secret", "manage"),
    ("POST",   "/v1/queues/{queue}/purge",         "manage"),
    ("POST",   "/v1/queues/{queue}/jobs",          "publish"),
    ("POST",   "/v1/queues/{queue}/jobs/batch",    "publish"),
    ("POST",   "/v1/queues/{queue}/receive",       "consume"),
    ("POST",   "/v1/receive",                      "consume"),
    ("GET",    "/v1/workers",                      "read"),
    ("GET","/v1/queues/{queue}/stream",        "read"),
    ("GET","/v1/queues/{queue}/dead",          "read"),
    ("POST",   "/v1/queues/{queue}/dead/replay",   "manage"),
    ("DELETE", "/v1/queues/{queue}/dead",          "manage"),
    ("GET","/v1/jobs",                         "read"),
    ("POST",   "/v1/jobs/wait",                    "read"),
    ("GET","/v1/jobs/{id}",                    "read"),
    ("DELETE", "/v1/jobs/{id}",                    "manage"),
    ("GET","/v1/jobs/{id}/events",             "read"),
    ("GET","/v1/jobs/{id}/stream",             "read"),
    ("GET","/v1/jobs/{id}/ws",                 "read"),
    ("GET","/v1/jobs/{id}/result",             "read"),
    ("POST",   "/v1/jobs/{id}/cancel",             "manage"),
    ("POST",   "/v1/jobs/{id}/token",              "read"),
    ("POST",   "/v1/jobs/{id}/replay",             "manage"),
    ("POST",   "/v1/jobs/{id}/heartbeat",          "consume"),
    ("PUT","/v1/jobs/{id}/progress",           "consume"),
    ("POST",   "/v1/jobs/{id}/output",             "consume"),
    ("POST",   "/v1/jobs/{id}/directives",         "manage"),
    ("PUT","/v1/jobs/{id}/checkpoint",         "consume"),
    ("GET","/v1/jobs/{id}/checkpoint",         "read"),
    ("GET","/v1/jobs/{id}/sections",           "read"),
    ("GET","/v1/jobs/{id}/sections/{name}",    "read"),
    ("PUT","/v1/jobs/{id}/sections/{name}",    "consume"),
    ("PUT","/v1/jobs/{id}/checkpoint/blob",    "consume"),
    ("GET","/v1/jobs/{id}/checkpoint/blob",    "read"),
    ("PUT","/v1/jobs/{id}/result",             "consume"),
    ("POST",   "/v1/jobs/{id}/result/upload",      "consume"),
    ("POST",   "/v1/jobs/{id}/result/finalize",    "consume"),
    ("GET","/v1/objects/{link}",               ""),
    ("PUT","/v1/objects/{link}",               ""),
    ("POST",   "/v1/jobs/{id}/ack",                "consume"),
    ("POST",   "/v1/jobs/{id}/nack",               "consume"),
    ("POST",   "/v1/jobs/{id}/defer",              "consume"),
    ("POST",   "/v1/jobs/{id}/release",            "consume"),
    ("POST",   "/v1/jobs/{id}/cancelled",          "consume"),
    ("POST",   "/v1/outcomes",                     "consume"),
    ("POST",   "/v1/heartbeats",                   "consume"),
    ("POST",   "/v1/progress",                     "consume"),
    ("POST",   "/events/{source}/{type}",          "publish"),
    ("GET","/v1/events",                       "read"),
    ("GET","/v1/events/{id}",                  "read"),
    ("POST",   "/v1/events/{id}/replay",           "manage"),
    ("GET","/v1/operations",                   "read"),
    ("GET","/v1/operations/{id}",              "read"),
    ("POST",   "/v1/operations/{id}/stop",         "manage"),
    ("POST",   "/v1/keys",                         "admin"),
    ("GET","/v1/keys",                         "admin"),
    ("DELETE", "/v1/keys/{id}",                    "admin"),
    ("POST",   "/v1/reload",                       "admin"),
    ("GET","/api/queues",                      "consume"),
    ("GET","/api/queues/{queue}/messages",     "consume"),
    ("POST",   "/api/queues/{queue}/ack",          "consume"),
    ("POST",   "/api/queues/{queue}/nack",         "consume"),
    ("GET","/",                                ""),
    ("GET","/healthz",                         ""),
    ("GET","/livez",                           ""),
    ("GET","/readyz",                          ""),
    ("GET","/metrics",                         "read"),
    ("GET","/openapi.json",                    ""),
];

#[test]
fn every_route_needs_the_scope_that_is_written_here() {
    let declared: Vec<(&str, &str, &str)> = ROUTES
        .iter()
        .map(|route| {
            let word = match route.need {
                Need::Nothing => "",
                Need::Scope(word) => word.as_str(),
            };
            (route.method.as_str(), route.path, word)
        })
        .collect();

    assert_eq!(declared, NEEDS);
}

// T13, T20: no key, a wrong one, a revoked one, an expired one: the same 401 on every route that needs a key, and no
// other route answers without a key.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_key_every_route_gives_the_same_401() {
    let scene = Scene::set().await;
    let before = fingerprint(&scene).await;
    let refusal = scene.client.send(scene.client.keyless(Method::GET, "/v1/queues")).await.unwrap();
    assert_eq!(refusal.headers["www-authenticate"], "Bearer");
    let detail = refusal.expect_problem(401, "unauthorized")["detail"].clone();
    let mut cases = Vec::new();
    for (what, headers) in bad_headers(&scene.client).await {
        for route in ROUTES {
            let expect = match route.need {
                Need::Nothing => open_to_all(route, &Arc::from([])),
                Need::Scope(_) => Expect::Holds(401, "/detail", detail.clone()),
            };
            let name = format!("{} {} with {what}", route.method, route.path);
            cases.push(Case { name, authorization: Some(headers.clone()), expect, ..harmful(&scene, route) });
            if route.method == Method::GET {
                cases.push(head(&scene, route, what, &headers));
            }
        }
    }
    assert!(cases.len() > 1100, "only {} cells", cases.len());

    check(&scene, cases).await;

    assert_eq!(fingerprint(&scene).await, before, "somebody without a key has changed something");
}

/// The same with HEAD, which must not be a way around the key. Where a GET hands out jobs, or is no GET in the end,
/// there is no HEAD at all.
fn head(scene: &Scene, route: &'static Route, what: &str, headers: &[String]) -> Case {
    let status = match route.need {
        Need::Nothing if is_by_link(route) => 404,
        Need::Nothing => 200,
        Need::Scope(_) if route.answer.0 == 101 => 405,
        Need::Scope(word) if word.as_str() == "consume" => 405,
        Need::Scope(_) => 401,
    };
    let (name, expect) = (format!("HEAD {} with {what}", route.path), Expect::Without(status, Arc::new([])));
    let (authorization, path) = (Some(headers.to_vec()), scene.things.path(route));
    Case { name, authorization, method: Method::HEAD, path, expect, ..Case::default() }
}

// T13, T14: every route against every set of scopes, free, bound to this queue, bound to another queue, and of another
// namespace. A missing scope is 403, an object out of reach 404, and no foreign object is ever visible.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_takes_exactly_the_keys_it_should() {
    let scene = Scene::set().await;
    let client = &scene.client;
    make_queue(client, "elsewhere", json!({})).await;
    let foreign = foreign_texts(&scene);
    let mut holders = every_holder(client).await;
    let neighbour = neighbour(client).await;
    holders.extend(neighbour);
    let before = fingerprint(&scene).await;
    let mut cases = Vec::new();
    for holder in &holders {
        for route in ROUTES {
            let (case, expect) = expected(&scene, route, holder, &foreign);
            let name = format!("{} {} by {holder}", route.method, route.path);
            cases.push(Case { name, authorization: Some(vec![format!("Bearer {}", holder.key)]), expect, ..case });
        }
    }
    assert!(cases.len() > 3900, "only {} cells", cases.len());

    check(&scene, cases).await;

    assert_eq!(fingerprint(&scene).await, before, "a key has changed what it may not");
}

/// The request for one cell and its expected answer. A refused request would do harm; an allowed one is
/// one that is refused right behind the door, for a parameter that does not exist.
fn expected(scene: &Scene, route: &'static Route, holder: &Holder, foreign: &Arc<[String]>) -> (Case, Expect) {
    let harmful = harmful(scene, route);
    let Need::Scope(word) = route.need else {
        return (harmful, open_to_all(route, foreign));
    };
    let by_another = route.also_by.is_some_and(|word| holder.has(word.as_str()));
    if !holder.has(word.as_str()) && !by_another {
        return (harmful, Expect::Problem(403, "forbidden"));
    }
    if matches!(holder.bound, Bound::Free | Bound::Here) {
        return (probe(harmful), Expect::Field("rhubarb".to_owned()));
    }
    let expect = match (route.method.as_str(), route.path) {
        // Own things only.
        (
            "GET",
            "/v1/queues" | "/v1/jobs" | "/v1/operations" | "/v1/keys" | "/api/queues" | "/metrics" | "/v1/workers",
        ) => Expect::Without(200, Arc::clone(foreign)),
        ("POST", "/v1/queues") if holder.bound == Bound::Elsewhere => Expect::Problem(403, "forbidden"),
        ("POST", "/v1/queues" | "/v1/keys") => Expect::Without(201, Arc::clone(foreign)),
        ("POST", "/v1/outcomes" | "/v1/heartbeats" | "/v1/progress") => {
            Expect::Holds(200, "/results/0/error/code", json!("job_not_found"))
        }
        ("POST", "/v1/receive") => Expect::Problem(404, "queue_not_found"),
        ("POST", "/v1/jobs/wait") => Expect::Holds(200, "/jobs/0/error/code", json!("job_not_found")),
        // An admin of another namespace does not run the server.
        ("POST", "/v1/reload") => Expect::Problem(403, "forbidden"),
        // Events are of no queue.
        (_, path)
            if (path.starts_with("/v1/events") || path.starts_with("/events")) && holder.bound == Bound::Elsewhere =>
        {
            Expect::Problem(403, "forbidden")
        }
        ("POST", "/events/{source}/{type}") => Expect::Problem(404, "source_not_found"),
        ("GET", "/v1/events") => Expect::Without(200, Arc::clone(foreign)),
        (_, path) if path.starts_with("/v1/events/") => Expect::Problem(404, "event_not_found"),
        (_, path) if path.contains("{queue}") => Expect::Problem(404, "queue_not_found"),
        (_, path) if path.starts_with("/v1/jobs/") => Expect::Problem(404, "job_not_found"),
        (_, path) if path.starts_with("/v1/operations/") => Expect::Problem(404, "operation_not_found"),
        (_, path) if path.starts_with("/v1/keys/") => Expect::Problem(404, "key_not_found"),
        (method, path) => panic!("{method} {path} has no place in the matrix"),
    };
    (harmful, expect)
}

/// Everybody gets in where no key is asked for; where a link is the authority, it is not good.
fn open_to_all(route: &Route, foreign: &Arc<[String]>) -> Expect {
    match is_by_link(route) {
        true => Expect::Problem(404, "route_not_found"),
        false => Expect::Without(200, Arc::clone(foreign)),
    }
}

fn is_by_link(route: &Route) -> bool {
    route.path.contains("{link}")
}

/// The request with a parameter that does not exist.
fn probe(case: Case) -> Case {
    let joined = if case.path.contains('?') { '&' } else { '?' };
    Case { path: format!("{}{joined}rhubarb=1", case.path), ..case }
}

/// A request that would show or change something, if it were let through.
fn harmful(scene: &Scene, route: &'static Route) -> Case {
    let mut body = scene.body(route).map(|members| members.into_iter().collect::<Vec<_>>()).unwrap_or_default();
    let about_running = |list: &str, entry: Value| vec![(list.to_owned(), json!([entry]).to_string())];
    let running = &scene.things.running;
    match route.path {
        "/v1/outcomes" => body = about_running("outcomes", json!({"id": running, "outcome": "ack"})),
        "/v1/heartbeats" => body = about_running("heartbeats", json!({"id": running, "extend": 3600})),
        "/v1/progress" => body = about_running("reports", json!({"id": running, "pct": 99})),
        _ => {}
    }
    let members: Vec<String> = body.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
    let body = match (route.body, route.raw) {
        (Some(_), _) => format!("{{{}}}", members.join(",")),
        (None, Some(_)) => "\"planted\"".to_owned(),
        (None, None) => String::new(),
    };
    // A queue of the same name may be made by anybody; only replacing one is an attack.
    let headers = match route.method {
        Method::PUT => vec![("if-match", "\"1\"".to_owned())],
        _ => Vec::new(),
    };
    let (method, mut path) = (route.method.clone(), scene.things.path(route));
    if route.path == "/v1/jobs/{id}/checkpoint/blob" && method == Method::PUT {
        path.push_str("?schemaVersion=1");
    }
    Case { method, path, headers, body: body.into(), ..Case::default() }
}

/// Names and ids that no stranger may ever read.
fn foreign_texts(scene: &Scene) -> Arc<[String]> {
    let things = &scene.things;
    let quoted = |text: &str| format!("\"{text}\"");
    // `"queue":"mail"`, `queue="mail"` in metrics.
    [quoted(&things.queue), format!("\\\"{}\\\"", things.queue), things.queued.clone(), things.running.clone()].into()
}

/// A namespace of its own, with one of everything, and its keys with every set of scopes.
async fn neighbour(client: &Client) -> Vec<Holder> {
    let request = json!({"name": "neighbour", "scopes": ["admin"], "namespace": "neighbour"});
    let admin = client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&client.base, &text(&admin["key"]));
    make_things(&theirs, "theirs").await;
    keys::of_namespace(&theirs).await
}

/// All that a request could change.
async fn fingerprint(scene: &Scene) -> Vec<Value> {
    let things = &scene.things;
    let mut seen = Vec::new();
    for path in [
        format!("/v1/queues/{}", things.queue),
        format!("/v1/jobs/{}", things.queued),
        format!("/v1/jobs/{}", things.running),
        format!("/v1/jobs/{}", things.dead),
        format!("/v1/operations/{}", things.operation),
        "/v1/operations?limit=200".to_owned(),
        "/v1/queues?limit=200".to_owned(),
    ] {
        seen.push(scene.client.get(&path).await.unwrap().expect(200));
    }
    let keys = scene.client.get("/v1/keys?limit=200").await.unwrap().expect(200);
    let spare = keys["items"].as_array().unwrap().iter().find(|key| key["id"] == json!(things.key)).cloned();
    seen.push(spare.expect("the spare key is still there"));
    seen
}

// T13: the ways to name somebody else's job that are not in the path.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_ids_in_bodies_filters_and_cursors_reach_nothing() {
    let scene = Scene::set().await;
    let (client, things) = (&scene.client, &scene.things);
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let theirs = client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&client.base, &text(&theirs["key"]));
    make_queue(&theirs, "theirs", json!({})).await;
    publish(&theirs, "theirs", json!("own")).await;
    let before = fingerprint(&scene).await;

    let replay = json!({"ids": [things.dead], "dryRun": true});
    let replay = theirs.post("/v1/queues/theirs/dead/replay", replay).await.unwrap().expect(200);
    let ids = json!({"ids": [things.running, format!("{}.{}", things.running, things.lease)]});
    let acked = theirs.post("/api/queues/theirs/ack", ids.clone()).await.unwrap().expect(200);
    let nacked = theirs.post("/api/queues/theirs/nack", ids).await.unwrap().expect(200);
    let cursor = client.get("/v1/jobs?limit=1").await.unwrap().expect(200)["nextCursor"].clone();
    let mut seen = Vec::new();
    for query in
        [format!("cursor={}", text(&cursor)), "queue=mail".to_owned(), "status=queued".to_owned(), String::new()]
    {
        seen.push(theirs.get(&format!("/v1/jobs?limit=200&{query}")).await.unwrap().expect(200));
    }
    let queues = client.get("/v1/queues?limit=1").await.unwrap().expect(200)["nextCursor"].clone();
    seen.push(theirs.get(&format!("/v1/queues?cursor={}", text(&queues))).await.unwrap().expect(200));

    assert_eq!(replay["matched"], json!(0));
    assert_eq!((acked, nacked), (json!({"acked": 0}), json!({"retried": 0, "dead": 0})));
    for page in seen {
        for item in page["items"].as_array().unwrap() {
            assert!(item["queue"] == "theirs" || item["name"] == "theirs", "a foreign thing: {item}");
        }
    }
    assert_eq!(fingerprint(&scene).await, before);
}

// T13: equal names in two namespaces are two things.
#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_may_use_the_same_names_and_keys() {
    let scene = Scene::set().await;
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let theirs = scene.client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&scene.client.base, &text(&theirs["key"]));
    let job = json!({"payload": "ours", "idempotencyKey": "one"});
    let ours = scene.client.post("/v1/queues/mail/jobs", job).await.unwrap().expect(202);

    make_queue(&theirs, "mail", json!({"maxAttempts": 1})).await;
    let job = json!({"payload": "theirs", "idempotencyKey": "one"});
    let own = theirs.post("/v1/queues/mail/jobs", job).await.unwrap().expect(202);

    assert_eq!(own["duplicate"], json!(false));
    assert_ne!(own["id"], ours["id"]);
    assert_eq!(scene.client.get("/v1/queues/mail").await.unwrap().expect(200)["maxAttempts"], json!(5));
    assert_eq!(theirs.get("/v1/queues/mail").await.unwrap().expect(200)["counts"]["queued"], json!(1));
    theirs.delete("/v1/queues/mail?force=true").await.unwrap().expect(202);
    scene.client.get("/v1/queues/mail").await.unwrap().expect(200);
}
