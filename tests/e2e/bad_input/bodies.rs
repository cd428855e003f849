//! Bodies as a whole: what is not JSON, not text, too deep, too large or compressed; the entries of batches; and
//! payloads that must come back exactly as they were sent.

use outlast_api::Limits;
use outlast_api::fields::{OUTCOME, PUBLISH};
use outlast_api::routes::{ROUTES, Raw, Route, Size};
use outlast_api::schema::DEPTH_MAX;
use outlast_tests::http::Client;
use reqwest::Method;
use serde_json::{Value, json};

use super::taken;
use super::values::{Bad, fill, refused, text};
use crate::api::{job, make_queue, receive_one};
use crate::cases::{Case, Expect, check};
use crate::scene::Scene;

/// Room that every body has beside a payload.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// More errors than anybody reads; an answer must stay small even when every member is wrong.
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_json_object_is_refused_on_every_route() {
    let scene = Scene::set().await;
    let hostile = hostile_bodies();
    let mut cases = Vec::new();
    for route in ROUTES.iter().filter(|route| route.method != Method::GET && route.raw != Some(Raw::Bytes)) {
        for (what, body, field) in &hostile {
            let is_json = serde_json::from_slice::<Value>(body).is_ok();
            if route.raw == Some(Raw::Json) && is_json && !what.contains("level") {
                continue;
            }
            let name = format!("{} {} with {what}", route.method, route.path);
            let expect = match body.len() > body_bytes_max(route) {
                true => Expect::Problem(413, "payload_too_large"),
                false => Expect::Field((*field).to_owned()),
            };
            cases.push(Case { name, path: scene.things.path(route), body: body.clone(), expect, ..taken(route) });
        }
    }
    assert!(cases.len() > 400, "only {} cases were generated", cases.len());

    check(&scene, cases).await;
}

/// The name of the case, the bytes, and the field that the answer must name.
fn hostile_bodies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let deep = |levels: usize| [r#"{"payload":"#.as_bytes(), "[".repeat(levels).as_bytes()].concat();
    let balanced = |levels: usize| format!("{{\"payload\":{}{}}}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
    let keys: Vec<String> = (0..10_000).map(|number| format!("\"{number:x}\":1")).collect();
    let keys = format!("{{{}}}", keys.join(",")).into_bytes();
    let body = "body";
    vec![
        ("plain text", b"hello".to_vec(), body),
        ("half an object", br#"{"payload":1"#.to_vec(), body),
        ("two objects", b"{}{}".to_vec(), body),
        ("a trailing comma", br#"{"payload":1,}"#.to_vec(), body),
        ("single quotes", b"{'payload':1}".to_vec(), body),
        ("a comment", b"{/*x*/}".to_vec(), body),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec(), body),
        ("NaN", br#"{"payload":NaN}"#.to_vec(), body),
        ("a form", b"payload=1&key=2".to_vec(), body),
        ("XML", b"<payload>1</payload>".to_vec(), body),
        ("a list", b"[]".to_vec(), body),
        ("text", b"\"payload\"".to_vec(), body),
        ("a number", b"17".to_vec(), body),
        ("null", b"null".to_vec(), body),
        ("a list of objects", b"[{\"payload\":1}]".to_vec(), body),
        ("bad UTF-8 in a value", b"{\"payload\":\"\xff\xfe\"}".to_vec(), body),
        ("bad UTF-8 in a name", b"{\"pay\xc3load\":1}".to_vec(), body),
        ("an overlong encoding", b"{\"payload\":\"\xc0\xaf\"}".to_vec(), body),
        ("UTF-16", [b'{', 0, b'}', 0].to_vec(), body),
        ("a NUL byte", b"{\"payload\":1}\0".to_vec(), body),
        ("a control character in text", b"{\"payload\":\"a\nb\"}".to_vec(), body),
        ("a lone high surrogate", br#"{"payload":"\ud800"}"#.to_vec(), body),
        ("a lone low surrogate", br#"{"payload":"\udc00 x"}"#.to_vec(), body),
        ("surrogates the wrong way round", br#"{"payload":["\udc00\ud800"]}"#.to_vec(), body),
        ("a lone surrogate in a name", br#"{"payload":{"\ud83d!":1}}"#.to_vec(), body),
        ("an unknown escape", br#"{"payload":"\x41"}"#.to_vec(), body),
        ("one level too deep", balanced(DEPTH_MAX), body),
        ("one level too deep and unfinished", deep(DEPTH_MAX), body),
        ("100,000 levels", deep(100_000), body),
        ("60,000 levels, closed", balanced(30_000), body),
        ("10,000 members", keys, "0"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_413_and_a_compressed_one_415_on_every_route() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    // Streamed bodies may have any length.
    for route in ROUTES.iter().filter(|route| route.raw != Some(Raw::Bytes)) {
        let too_large = vec![b' '; body_bytes_max(route) + 1];
        let name = format!("{} {} with {} bytes", route.method, route.path, too_large.len());
        let expect = Expect::Problem(413, "payload_too_large");
        cases.push(Case { name, path: scene.things.path(route), body: too_large, expect, ..taken(route) });
        for encoding in ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"] {
            let name = format!("{} {} with {encoding}", route.method, route.path);
            let headers = vec![("content-encoding", encoding.to_owned())];
            let expect = Expect::Problem(415, "unsupported_media_type");
            let body = b"\x1f\x8b\x08".to_vec();
            cases.push(Case { name, path: scene.things.path(route), headers, body, expect, ..taken(route) });
        }
    }

    check(&scene, cases).await;
}

// A client may send `{}` where no body is needed.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_and_an_empty_object_mean_the_same() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    for route in ROUTES {
        let needs_fields = route.body.is_some_and(|object| object.fields.iter().any(|field| field.required));
        if needs_fields || route.raw.is_some() {
            continue;
        }
        for (what, body, headers) in [
            ("nothing", "", vec![]),
            ("white space", " \r\n\t", vec![]),
            ("an empty object", "{ }", vec![]),
            ("an empty object as a form", "{}", vec![("content-type", "application/x-www-form-urlencoded")]),
            ("a plain encoding", "{}", vec![("content-encoding", "identity")]),
        ] {
            let headers = headers.into_iter().map(|(name, value): (_, &str)| (name, value.to_owned())).collect();
            let name = format!("{} {} with {what}", route.method, route.path);
            let path = scene.fresh_path(route).await;
            cases.push(Case { name, path, headers, body: body.into(), ..taken(route) });
        }
    }
    // A result or a blob is 404 while there is none, a link leads nowhere, a socket needs a handshake, the stream of a
    // queue has no end: no routes on which everything can be taken.
    let others = ["/result", "/ws", "mail/stream", "/checkpoint/blob"];
    let is_other = |path: &str| path.contains("/v1/objects/") || others.iter().any(|end| path.ends_with(end));
    cases.retain(|case| !is_other(&case.path));

    check(&scene, cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_entry_of_a_batch_is_reported_at_its_place_and_the_others_are_taken() {
    let scene = Scene::set().await;
    let client = &scene.client;
    let id = "0190a5d0-ac96-774b-bcce-b302099a8057";
    let mut entries: Vec<(Bad, String)> = Vec::new();
    for field in PUBLISH.fields {
        for bad in refused(field, &format!("jobs[1].{}", field.name)) {
            entries.push((bad.clone(), format!("{{\"{}\":{}}}", field.name, bad.json)));
        }
    }
    let publishes = check_entries(client, "/v1/queues/mail/jobs/batch", "jobs", "{\"payload\":1}", entries).await;
    let mut entries: Vec<(Bad, String)> = Vec::new();
    for field in OUTCOME.fields {
        for bad in refused(field, &format!("outcomes[1].{}", field.name)) {
            let rest = [("id", text(id)), ("outcome", text("ack"))];
            let rest = rest.iter().filter(|(name, _)| *name != field.name);
            let rest: Vec<String> = rest.map(|(name, json)| format!("\"{name}\":{json}")).collect();
            entries.push((bad.clone(), format!("{{{},\"{}\":{}}}", rest.join(","), field.name, bad.json)));
        }
    }
    let good = json!({"id": id, "outcome": "release"}).to_string();
    let outcomes = check_entries(client, "/v1/outcomes", "outcomes", &good, entries).await;

    assert!(publishes > 200 && outcomes > 100, "{publishes} and {outcomes} entries were tried");
    scene.assert_unharmed().await;
}

/// Sends each entry between two good ones. Returns how many were tried.
async fn check_entries(client: &Client, path: &str, list: &str, good: &str, entries: Vec<(Bad, String)>) -> usize {
    let count = entries.len();
    for (bad, entry) in entries {
        let body = format!("{{\"{list}\":[{good},{entry},{good}]}}");
        let reply = client.send(client.request(Method::POST, path).body(body)).await.unwrap();
        assert!(reply.status < 300, "{path} {bad:?}: {}", reply.body);
        let answers = reply.body.as_object().unwrap().values().next().unwrap().as_array().unwrap().clone();
        let error = &answers[1]["error"];
        let named = error["errors"].as_array().cloned().unwrap_or_default();
        let names_it = named.iter().any(|error| error["field"] == json!(bad.field));
        assert!(error["code"] == "invalid_request" && names_it, "{path} {bad:?}: {error}");
        assert!(answers[0]["error"]["code"] != "invalid_request", "{path}: {}", answers[0]);
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_stop_at_their_limits() {
    let scene = Scene::set().await;
    let client = &scene.client;
    let jobs = |count: usize| json!({"jobs": vec![json!({}); count]});
    let outcomes = |count: usize| json!({"outcomes": vec![json!({}); count]});

    let most = client.post("/v1/queues/mail/jobs/batch", jobs(1000)).await.unwrap().expect(202);
    client.post("/v1/queues/mail/jobs/batch", jobs(1001)).await.unwrap().expect_problem(413, "payload_too_large");
    let reported = client.post("/v1/outcomes", outcomes(1000)).await.unwrap().expect(200);
    client.post("/v1/outcomes", outcomes(1001)).await.unwrap().expect_problem(400, "invalid_request");

    assert!(most["jobs"].as_array().unwrap().iter().all(|job| job["id"].is_string()));
    assert_eq!(reported["results"].as_array().unwrap().len(), 1000);
}

// A key belongs to one job: taken for a whole batch it would turn all jobs but the first into duplicates.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_refuses_the_idempotency_header() {
    let scene = Scene::set().await;
    let request = scene.client.request(Method::POST, "/v1/queues/mail/jobs/batch");
    let request = request.header("idempotency-key", "k").json(&json!({"jobs": [{"payload": 1}, {"payload": 2}]}));

    let problem = scene.client.send(request).await.unwrap().expect_problem(400, "invalid_request");

    assert_eq!(problem["errors"][0]["field"], "Idempotency-Key");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_contradict_each_other_are_named() {
    let scene = Scene::set().await;
    let mut cases = Vec::new();
    for (path, body, field) in [
        ("/v1/queues/mail/jobs", json!({"delay": 1, "runAt": "2030-01-01T00:00:00Z"}), "runAt"),
        ("/v1/queues/mail/jobs", json!({"notifyEmail": "a@example.com"}), "notifyEmail"),
        ("/v1/queues/mail/jobs", json!({"softTimeLimit": 5, "hardTimeLimit": 5}), "softTimeLimit"),
        ("/v1/queues", json!({"name": "x", "softTimeLimit": 5, "hardTimeLimit": 5}), "softTimeLimit"),
        ("/v1/queues", json!({"name": "x", "mode": "ack"}), "webhookUrl"),
        ("/v1/queues", json!({"name": "x", "mode": "pull", "webhookUrl": "https://a.example/"}), "mode"),
        ("/v1/queues", json!({"name": "x", "retention": 60, "dedupeWindow": 61}), "dedupeWindow"),
        ("/v1/queues", json!({"name": "x", "backoff": {"delay": 2, "maxDelay": 1}}), "backoff.maxDelay"),
        ("/v1/queues", json!({"name": "x", "backoff": {"type": "schedule"}}), "backoff.delays"),
        ("/v1/queues", json!({"name": "x", "backoff": {"type": "fixed", "delays": [1]}}), "backoff.delays"),
        ("/v1/queues", json!({"name": "x", "headers": {"Host": "a"}}), "headers.Host"),
        ("/v1/queues", json!({"name": "x", "headers": {"webhook-id": "a"}}), "headers.webhook-id"),
        ("/v1/queues", json!({"name": "x", "headers": {"a b": "a"}}), "headers.a b"),
        ("/v1/queues", json!({"name": "x", "headers": {"a": "b\r\nc: d"}}), "headers.a"),
        ("/v1/queues", json!({"name": "x", "headers": wide_headers()}), "headers"),
        ("/v1/keys", json!({"name": "x", "scopes": []}), "scopes"),
        ("/v1/keys", json!({"name": "x", "scopes": ["admin:mail"]}), "scopes[0]"),
    ] {
        let name = format!("POST {path} {body}");
        let (path, body, expect) = (path.to_owned(), body.to_string().into(), Expect::Field(field.to_owned()));
        cases.push(Case { name, method: Method::POST, path, body, expect, ..Case::default() });
    }
    for field in ["webhookUrl", "callbackUrl"] {
        for url in [
            "ftp://a.example/",
            "a.example",
            "/x",
            "http://",
            "http://u:p@a.example/",
            "http://a.example/#x",
            "javascript:alert(1)",
            "http://a.example/\n",
            "http://a b/",
        ] {
            let queue = json!({"name": "x", "mode": "ack", field: url});
            let (path, body) = match field {
                "webhookUrl" => ("/v1/queues", queue),
                _ => ("/v1/queues/mail/jobs", json!({field: url})),
            };
            let (name, expect) = (format!("POST {path} {body}"), Expect::Field(field.to_owned()));
            let (path, body) = (path.to_owned(), body.to_string().into());
            cases.push(Case { name, method: Method::POST, path, body, expect, ..Case::default() });
        }
    }

    check(&scene, cases).await;
}

/// Each is short enough; together they are not.
fn wide_headers() -> Value {
    (0..9).map(|number| (format!("x-{number}"), json!("v".repeat(1000)))).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_thousands_of_faults_stays_small() {
    let scene = Scene::set().await;
    let names: Vec<String> = (0..5000).map(|number| format!("\"x{number}\":1")).collect();
    let long_name = format!("{{\"{}\":1}}", fill(60_000));

    for body in [format!("{{{}}}", names.join(",")), long_name] {
        let request = scene.client.request(Method::POST, "/v1/queues").body(body);
        let problem = scene.client.send(request).await.unwrap().expect_problem(400, "invalid_request");

        let length = problem.to_string().len();
        assert!(length < ANSWER_BYTES_MAX, "the answer has {length} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() {
    let scene = Scene::set().await;
    let limit = Limits::default().payload_bytes;
    make_queue(&scene.client, "large", json!({"maxAttempts": 1})).await;
    let payload = |length: usize| fill(length - 2);
    let exact = json!({"payload": payload(limit)});
    let more = json!({"payload": payload(limit + 1)});

    let id = scene.client.post("/v1/queues/large/jobs", exact.clone()).await.unwrap().expect(202)["id"].clone();
    scene.client.post("/v1/queues/large/jobs", more.clone()).await.unwrap().expect_problem(413, "payload_too_large");
    let batch = json!({"jobs": [more, exact]});
    let batch = scene.client.post("/v1/queues/large/jobs/batch", batch).await.unwrap().expect(202);

    assert_eq!(batch["jobs"][0]["error"]["code"], "payload_too_large");
    assert!(batch["jobs"][1]["id"].is_string());
    let stored = job(&scene.client, id.as_str().unwrap()).await;
    assert_eq!(stored["payload"].as_str().unwrap().len(), limit - 2);
    check_results_at_the_limit(&scene.client, limit).await;
}

async fn check_results_at_the_limit(client: &Client, limit: usize) {
    let held = receive_one(client, "large").await;
    let path = format!("/v1/jobs/{}/ack", held["id"].as_str().unwrap());
    let ack = |length: usize| json!({"lease": held["lease"], "result": fill(length - 2)});

    client.post(&path, ack(limit + 1)).await.unwrap().expect_problem(413, "payload_too_large");
    client.post(&path, ack(limit)).await.unwrap().expect(200);

    let result = client.get(&path.replace("/ack", "/result")).await.unwrap().expect(200);
    assert_eq!(result.as_str().unwrap().len(), limit - 2);
}

// "any JSON; delivered byte-equivalent (big numbers are not rounded)"
#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_back_byte_for_byte() {
    let scene = Scene::set().await;
    make_queue(&scene.client, "bytes", json!({})).await;
    let huge = format!("1{}", "0".repeat(400));
    let payloads = [
        "12345678901234567890123456789.012345678901234567890123456789",
        "1e999999",
        "-0.0",
        "0.10",
        "1E+2",
        huge.as_str(),
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{ "spaced" : [ 1 , 2 ] }"#,
        r#""\u0041\/\ud83e\udd80\u0000""#,
        "\"🦀\u{7f}\u{2028}\"",
        "null",
        "\"\"",
    ];
    for payload in payloads {
        let body = format!("{{\"payload\":{payload}}}");
        let request = scene.client.request(Method::POST, "/v1/queues/bytes/jobs").body(body);
        let id = scene.client.send(request).await.unwrap().expect(202)["id"].as_str().unwrap().to_owned();

        let wanted = format!("\"payload\":{payload}");
        let shown = raw_text(&scene.client, Method::GET, &format!("/v1/jobs/{id}")).await;
        let received = raw_text(&scene.client, Method::POST, "/v1/queues/bytes/receive").await;
        for text in [shown, received] {
            assert!(text.contains(&wanted), "{wanted} is not in {text}");
        }
    }
    // The simple form as well.
    let body = "{\"payload\":[1e999999,0.10]}";
    let request = scene.client.request(Method::POST, "/v1/queues/bytes/jobs").body(body);
    scene.client.send(request).await.unwrap().expect(202);
    let messages = raw_text(&scene.client, Method::GET, "/api/queues/bytes/messages").await;
    assert!(messages.contains("\"payload\":[1e999999,0.10]"), "{messages}");
}

/// The body as it came; reading it as JSON would round the numbers.
async fn raw_text(client: &Client, method: Method, path: &str) -> String {
    let response = client.request(method, path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_as_deep_as_allowed_is_taken() {
    let scene = Scene::set().await;
    let payload = format!("{}{}", "[".repeat(DEPTH_MAX - 1), "]".repeat(DEPTH_MAX - 1));
    let brackets_in_text = json!({"payload": "[".repeat(1000)}).to_string();

    for body in [format!("{{\"payload\":{payload}}}"), brackets_in_text] {
        let request = scene.client.request(Method::POST, "/v1/queues/mail/jobs").body(body);
        scene.client.send(request).await.unwrap().expect(202);
    }
}

fn body_bytes_max(route: &Route) -> usize {
    let limits = Limits::default();
    match route.size {
        Size::Small => SMALL_BODY_BYTES,
        Size::Job => limits.payload_bytes + SMALL_BODY_BYTES,
        Size::Batch => limits.batch_bytes,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_mean_something_are_checked_like_fields() {
    let scene = Scene::set().await;
    let publish = "/v1/queues/mail/jobs".to_owned();
    let ack = format!("/v1/jobs/{}/ack", scene.things.running);
    let (queue, long) = ("/v1/queues/mail".to_owned(), fill(256));
    let mut cases = Vec::new();
    for (method, path, name, value, field) in [
        (Method::POST, &publish, "idempotency-key", "", "Idempotency-Key"),
        (Method::POST, &publish, "idempotency-key", "\"\"", "Idempotency-Key"),
        (Method::POST, &publish, "idempotency-key", &long, "Idempotency-Key"),
        (Method::POST, &publish, "idempotency-key", "ä", "Idempotency-Key"),
        (Method::POST, &publish, "idempotency-key", "a\tb", "Idempotency-Key"),
        (Method::POST, &ack, "x-outlast-lease", "nonsense", "x-outlast-lease"),
        (Method::PUT, &queue, "if-match", "nonsense", "if-match"),
        (Method::PATCH, &queue, "if-match", "\"-1\"", "if-match"),
        (Method::PUT, &queue, "if-match", "\"99999999999999999999\"", "if-match"),
        (Method::PUT, &queue, "if-none-match", "\"1\"", "if-none-match"),
        (Method::PATCH, &queue, "if-none-match", "", "if-none-match"),
    ] {
        let name_shown = format!("{method} {path} {name}: {value}");
        let (path, headers) = (path.clone(), vec![(name, value.to_owned())]);
        let expect = Expect::Field(field.to_owned());
        cases.push(Case { name: name_shown, method, path, headers, expect, ..Case::default() });
    }
    for value in ["wait=-1", "wait=1e9", "wait=", "wait", "respond-async", "wait=99999999999999999999", "é"] {
        let (name, headers) = (format!("prefer: {value}"), vec![("prefer", value.to_owned())]);
        let (method, path) = (Method::POST, publish.clone());
        cases.push(Case { name, method, path, headers, ..Case::default() });
    }
    for value in ["", "nonsense", "00-zz-zz-00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
        let (name, headers) = (format!("traceparent: {value}"), vec![("traceparent", value.to_owned())]);
        let (method, path) = (Method::POST, publish.clone());
        cases.push(Case { name, method, path, headers, ..Case::default() });
    }

    check(&scene, cases).await;
    let contradiction = scene.client.request(Method::POST, &publish).header("idempotency-key", "a");
    let contradiction = contradiction.json(&json!({"idempotencyKey": "b"}));
    let problem = scene.client.send(contradiction).await.unwrap().expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["field"], Value::from("Idempotency-Key"));
}
