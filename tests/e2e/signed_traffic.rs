//! Every request that leaves the real server, judged by the independent implementations of Standard Webhooks: signed over
//! the exact bytes, with a fresh time for each try, with all live secrets during a rotation. (I-29)

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::responder::{Request, Responder, read_request};
use outlast_tests::server::Launch;
use outlast_tests::wait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::io::AsyncWriteExt;

use crate::api::{make_queue, publish_many, text};
use crate::programs::{printed_by, python, python_with};
use crate::signatures::{PYTHON_PLAIN, PYTHON_STANDARD};

const PHASES: [usize; 3] = [60, 60, 30];
/// Two tries of each job and the pause between them, on two busy cores.
const DELIVERED: Duration = Duration::from_secs(60);

/// Fails the first try of every message and takes the second.
async fn sink() -> Responder {
    let tried: Arc<Mutex<HashSet<String>>> = Arc::default();
    Responder::handling("127.0.0.1:0", move |mut stream, seen| {
        let tried = Arc::clone(&tried);
        async move {
            while let Some(request) = read_request(&mut stream).await {
                let is_first = tried.lock().unwrap().insert(header(&request, "webhook-id"));
                let line = if is_first { "500 Internal Server Error" } else { "200 OK" };
                seen.add(request);
                let answer = format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

fn headers(request: &Request) -> HeaderMap {
    let lines = request.head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value.trim()).unwrap()))
        .collect()
}

fn header(request: &Request, name: &str) -> String {
    headers(request).get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

fn believes(secret: &str, request: &Request) -> bool {
    Webhook::new(secret).unwrap().verify(&request.body, &headers(request)).is_ok()
}

/// A line for the judges in Python.
fn line(secret: &str, request: &Request) -> String {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: HashMap<&str, String> = names.into_iter().map(|name| (name, header(request, name))).collect();
    let body = std::str::from_utf8(&request.body).unwrap();
    let case = json!({
        "secret": secret, "body": body, "headers": headers, "plain": header(request, "x-outlast-signature"),
    });
    format!("{case}\n")
}

async fn rotate(client: &Client, queue: &str, overlap: &str) -> String {
    let path = format!("/v1/queues/{queue}/rotate-secret");
    text(&client.post(&path, json!({"overlap": overlap})).await.unwrap().expect(200)["signingSecret"])
}

/// The requests on this path so far, once there are so many.
async fn requests(sink: &Responder, path: &str, count: usize) -> Vec<Request> {
    let start = format!("POST {path} ");
    let what = format!("{count} requests on {path}");
    wait::until_now(&what, DELIVERED, || {
        let all = sink.seen.requests();
        let found: Vec<Request> = all.into_iter().filter(|request| request.head.starts_with(&start)).collect();
        (found.len() >= count).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_believed_by_other_implementations() {
    let sink = sink().await;
    let server = Launch::fresh().start().await;
    let client = server.client();
    let settings = json!({"webhookUrl": &*sink.url("/hook"), "backoff": {"type": "fixed", "delay": 1.2, "jitter": 0}});
    let made = client.put("/v1/queues/signed", settings).await.unwrap().expect(201);
    let mut secrets = vec![text(&made["signingSecret"])];

    // One secret; two live ones; the second replaced at once.
    let mut sent = 0;
    for (phase, count) in PHASES.into_iter().enumerate() {
        publish_many(&client, "signed", count).await;
        sent += 2 * count;
        requests(&sink, "/hook", sent).await;
        match phase {
            0 => secrets.push(rotate(&client, "signed", "1h").await),
            1 => secrets.push(rotate(&client, "signed", "0s").await),
            _ => {}
        }
    }

    let all = requests(&sink, "/hook", sent).await;
    assert_eq!(all.len(), sent, "each job was tried twice and no more");
    let (one, rest) = all.split_at(2 * PHASES[0]);
    let (both, last) = rest.split_at(2 * PHASES[1]);
    for (phase, right) in [(one, [true, false, false]), (both, [true, true, false]), (last, [false, false, true])] {
        for request in phase {
            let believed: Vec<bool> = secrets.iter().map(|secret| believes(secret, request)).collect();
            assert_eq!(believed, right, "{}", request.head);
        }
    }
    check_tries(&all);
    // The plain header has the newest secret's signature alone.
    for (phase, secret) in [(one, &secrets[0]), (both, &secrets[1]), (last, &secrets[2])] {
        check_in_python(PYTHON_PLAIN, secret, phase);
        if python_with("standardwebhooks").is_some() {
            check_in_python(PYTHON_STANDARD, secret, phase);
        }
    }
    println!("{} requests", all.len());
}

/// Two tries of a message have its id in common, and neither time nor lease.
fn check_tries(all: &[Request]) {
    let mut tries: HashMap<String, Vec<&Request>> = HashMap::new();
    for request in all {
        tries.entry(header(request, "webhook-id")).or_default().push(request);
    }
    assert_eq!(tries.len(), PHASES.iter().sum::<usize>());
    for (id, tries) in tries {
        let [first, second] = tries[..] else { panic!("{} tries of {id}", tries.len()) };
        let seconds = |request| header(request, "webhook-timestamp").parse::<i64>().unwrap();
        assert!(seconds(second) > seconds(first), "each try has its own time");
        assert_ne!(header(first, "x-outlast-lease"), header(second, "x-outlast-lease"));
        for request in [first, second] {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["id"], json!(id), "an id of the server, without a dot");
            assert_eq!(body["lease"], json!(header(request, "x-outlast-lease")));
            assert!(!id.contains('.'));
        }
    }
}

fn check_in_python(judge: &str, secret: &str, requests: &[Request]) {
    let interpreter = if judge == PYTHON_STANDARD { python_with("standardwebhooks").unwrap() } else { python() };
    let input: String = requests.iter().map(|request| line(secret, request)).collect();
    let said = printed_by(Command::new(interpreter).args(["-c", judge]), input.as_bytes());
    assert_eq!(said, "true\n".repeat(requests.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_are_signed_with_their_own_secret() {
    let sink = sink().await;
    let server = Launch::fresh().start().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    end_with_callback(&client, &sink.url("/first")).await;
    requests(&sink, "/first", 1).await;
    let secret = rotate(&client, "_callbacks", "0s").await;

    let id = end_with_callback(&client, &sink.url("/second")).await;
    let told = requests(&sink, "/second", 1).await.remove(0);

    assert!(believes(&secret, &told), "{}", told.head);
    check_in_python(PYTHON_PLAIN, &secret, std::slice::from_ref(&told));
    assert_eq!(header(&told, "x-signature-256"), header(&told, "x-outlast-signature"));
    assert_eq!(header(&told, "x-outlast-lease"), "", "there is nothing to report about a callback");
    let body: Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!((&body["id"], &body["status"]), (&json!(id), &json!("cancelled")));
}

/// Publishes a job with a callback and ends it.
async fn end_with_callback(client: &Client, url: &str) -> String {
    let job = json!({"payload": 1, "callbackUrl": url});
    let id = text(&client.post("/v1/queues/mail/jobs", job).await.unwrap().expect(202)["id"]);
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
    id
}
