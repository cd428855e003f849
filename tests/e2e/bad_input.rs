//! Bad input over every route and every field, generated from the tables that serve the requests: each case must end in
//! a 4xx with its code and the field at fault, never in a 5xx, never in a panic. And the other side: a value exactly
//! at a limit is taken. (T22, T24)

mod values;
mod bodies;
mod paths;

use std::collections::BTreeSet;

use outlast_api::routes::{ROUTES, Route};
use outlast_api::schema::{Field, Kind};

use crate::cases::{Case, Expect, check, shortened};
use crate::scene::Scene;
use values::{Bad, accepted, companions, refused, sample, text};

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_every_body_refuses_what_it_cannot_hold_and_names_itself() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    for route in ROUTES {
        let (Some(object), Some(base)) = (route.body, scene.body(route)) else { continue };
        for field in object.fields {
            for bad in refused(field, field.name) {
                let body = with(&base, &[(field.name.to_owned(), bad.json.clone())]);
                cases.push(field_case(&scene, route, &bad, body));
            }
            let missing = base.iter().filter(|(name, _)| name != field.name).cloned().collect::<Vec<_>>();
            if field.required {
                cases.push(field_case(&scene, route, &at(field.name, "missing"), object_text(&missing)));
            }
            let once = (field.name.to_owned(), sample(&field.kind));
            let twice = object_text(&[missing, vec![once.clone(), once]].concat());
            cases.push(field_case(&scene, route, &at(field.name, "given twice"), twice));
        }
        for stranger in ["rhubarb", "", "__proto__", "id", "state", "ns", "attempt", "version", "\u{1f980}"] {
            if object.fields.iter().any(|field| field.name == stranger) {
                continue;
            }
            let body = with(&base, &[(stranger.to_owned(), "1".to_owned())]);
            cases.push(field_case(&scene, route, &at(stranger, "an unknown field"), body));
        }
    }
    assert!(cases.len() > 2500, "only {} cases were generated", cases.len());

    check(&scene, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_parameter_refuses_what_it_cannot_hold_and_names_itself() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    for route in ROUTES {
        for field in route.query {
            let name = field.name.replace('*', "colour");
            for bad in refused_in_query(field, &name) {
                cases.push(query_case(&scene, route, &bad, &[(&name, &bad.json)]));
            }
            let value = unquoted(&sample(&field.kind));
            cases.push(query_case(&scene, route, &at(&name, "given twice"), &[(&name, &value), (&name, &value)]));
        }
        for stranger in ["rhubarb", "", "tag.", "LIMIT", "limit[]"] {
            cases.push(query_case(&scene, route, &at(stranger, "an unknown parameter"), &[(stranger, "1")]));
        }
    }
    assert!(cases.len() > 400, "only {} cases were generated", cases.len());

    check(&scene, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_takes_the_values_at_its_limits() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    // A socket takes nothing before its handshake, only an upload that was begun can be finalised, and an event is
    // replayed into a queue that is there.
    let takes = |route: &&Route| {
        route.answer.0 != 101 && !route.path.ends_with("/finalize") && route.path != "/v1/events/{id}/replay"
    };
    for route in ROUTES.iter().filter(takes) {
        let fields = route.body.map(|object| object.fields).unwrap_or_default();
        // No value of `notifyEmail` is taken until there is mail. Entries that name nothing refuse these lists as a whole.
        let is_list_of_names = |name: &str| name == "queues" || (name == "jobs" && route.path == "/v1/jobs/wait");
        let is_taken = |name: &str| name != "notifyEmail" && !is_list_of_names(name);
        for field in fields.iter().filter(|field| is_taken(field.name)) {
            for value in accepted(&field.kind) {
                let mut members = vec![(field.name.to_owned(), value.clone())];
                let beside = companions(field.name, &value).into_iter();
                let known = beside.filter(|(name, _)| fields.iter().any(|field| field.name == *name));
                members.extend(known.map(|(name, json)| (name.into(), json.into())));
                let path = scene.fresh_path(route).await;
                // In the URL and in the body it must be the same name.
                let is_name = field.name == "name" && route.path == "/v1/queues/{queue}";
                let path = if is_name { format!("/v1/queues/{}", unquoted(&value)) } else { path };
                let body = with(&scene.body(route).unwrap_or_default(), &members);
                let name = format!("{} {} {}: {}", route.method, route.path, field.name, shortened(&value));
                cases.push(Case { name, path, body: body.into(), ..taken(route) });
            }
        }
        // A cursor is right only if the server gave it out.
        for field in route.query.iter().filter(|field| field.name != "cursor") {
            for value in accepted(&field.kind) {
                let value = unquoted(&value);
                let query = query_text(&[(field.name.replace('*', "colour").as_str(), value.as_str())]);
                let name = format!("{} {} ?{}={}", route.method, route.path, field.name, shortened(&value));
                let body = scene.body(route).map(|base| object_text(&base)).unwrap_or_default();
                let path = format!("{}?{query}", scene.fresh_path(route).await);
                cases.push(Case { name, path, body: body.into(), ..taken(route) });
            }
        }
    }
    assert!(cases.len() > 400, "only {} cases were generated", cases.len());

    check(&scene, cases).await;
}

fn field_case(scene: &Scene, route: &Route, bad: &Bad, body: String) -> Case {
    let name = format!("{} {} {} {} {}", route.method, route.path, bad.field, bad.what, shortened(&bad.json));
    let expect = Expect::Field(bad.field.clone());
    Case { name, path: scene.things.path(route), body: body.into(), expect, ..taken(route) }
}

fn query_case(scene: &Scene, route: &Route, bad: &Bad, query: &[(&str, &str)]) -> Case {
    let path = format!("{}?{}", scene.things.path(route), query_text(query));
    let name = format!("{} {} ?{} {} {}", route.method, route.path, bad.field, bad.what, shortened(&bad.json));
    Case { name, path, expect: Expect::Field(bad.field.clone()), ..taken(route) }
}

fn taken(route: &Route) -> Case {
    Case { method: route.method.clone(), ..Case::default() }
}

/// In a query everything is text, so only what cannot be read as the kind is wrong.
fn refused_in_query(field: &Field, at: &str) -> Vec<Bad> {
    let readable = |bad: &Bad| match (&field.kind, bad.what.as_str()) {
        (Kind::Text { .. }, "null" | "a boolean" | "a number" | "a fraction" | "a list" | "an object") => true,
        // Seconds may be written as text too.
        (Kind::Duration { .. }, "a number" | "a fraction") => true,
        _ => false,
    };
    let found = refused(field, at).into_iter().filter(|bad| !readable(bad));
    found.map(|bad| Bad { json: unquoted(&bad.json), ..bad }).filter(|bad| bad.json.len() < 3000).collect()
}

/// The text of a JSON string; other JSON unchanged.
fn unquoted(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

fn query_text(pairs: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://localhost/").unwrap();
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// The members with some of them set.
fn with(base: &[(String, String)], members: &[(String, String)]) -> String {
    let set: BTreeSet<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    let kept = base.iter().filter(|(name, _)| !set.contains(name.as_str())).cloned();
    object_text(&kept.chain(members.iter().cloned()).collect::<Vec<_>>())
}

fn object_text(members: &[(String, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, json)| format!("{}:{json}", text(name))).collect();
    format!("{{{}}}", members.join(","))
}

fn at(field: &str, what: &str) -> Bad {
    Bad { field: field.to_owned(), what: what.to_owned(), json: String::new() }
}
