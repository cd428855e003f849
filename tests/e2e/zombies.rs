//! I-15: workers that come back from the dead. Their leases have run out, others hold their jobs or have ended them;
//! they know nothing of it and report all that a worker can report, through any node. All of it is refused, and nothing
//! of it is to be seen anywhere: not in the job, its log, its checkpoint, its sections, its progress, nor among the
//! stored objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{events, job, make_queue, publish_many, receive, settle, text};

const JOBS: usize = 60;
/// Zombies side by side.
const LANES: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);
/// How long one node may go by what it knew of a lease that others have taken away meanwhile, for progress only: that
/// is not stored, and shown only under the present lease.
const PROGRESS_TRUSTED: Duration = Duration::from_secs(2);

/// Everything a worker can say, as method, path below the job and body. `UPLOAD` is one that it began while it held the
/// job.
const REPORTS: [(&str, &str, &str); 15] = [
    ("POST", "heartbeat", r#"{"extend":600}"#),
    ("POST", "heartbeat", r#"{"progress":{"pct":99},"checkpoint":{"schemaVersion":9,"data":"zombie"}}"#),
    ("PUT", "progress", r#"{"pct":99,"message":"zombie"}"#),
    ("PUT", "checkpoint", r#"{"schemaVersion":9,"data":"zombie"}"#),
    ("PUT", "checkpoint/blob?schemaVersion=9", "zombie"),
    ("PUT", "sections/zombie", r#"{"by":"zombie"}"#),
    ("PUT", "sections/first", r#"{"by":"zombie"}"#),
    ("POST", "output", r#"{"text":"zombie"}"#),
    ("PUT", "result?filename=zombie.txt", "zombie"),
    ("POST", "result/upload", r#"{"filename":"zombie.txt"}"#),
    ("POST", "result/finalize", r#"{"uploadId":"UPLOAD"}"#),
    ("POST", "ack", r#"{"result":"zombie"}"#),
    ("POST", "nack", r#"{"reason":"zombie"}"#),
    ("POST", "defer", r#"{"retryAfter":600,"scope":"queue"}"#),
    ("POST", "release", "{}"),
];

/// A job with the lease that was lost and the one that counts.
#[derive(Clone)]
struct Haunted {
    id: String,
    lost: String,
    present: String,
    upload: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_worker_without_a_lease_reports_is_refused_and_leaves_no_trace() {
    let server = Server::fresh().await;
    let clients = server.clients();
    let seed = seed("zombies");
    let haunted = lose_all_leases(&clients).await;
    let taken_over = Instant::now();
    let before = look(&server, &haunted).await;
    let early = whisper(&clients, &haunted).await;
    assert_eq!(look(&server, &haunted).await, before, "progress of a zombie is to be seen");
    println!("zombies: {early} early reports of progress were taken and not shown");
    assert!(clients.len() > 1 || early == 0, "a single node knows its leases");

    tokio::time::sleep(PROGRESS_TRUSTED.saturating_sub(taken_over.elapsed())).await;
    let reports = volume(2_000, 100_000);
    haunt(&clients, &haunted, reports, seed).await;
    assert_eq!(look(&server, &haunted).await, before, "zombies have left a trace while others held their jobs");

    for held in &haunted {
        let report = json!({"lease": held.present, "result": {"by": "the living"}});
        assert_eq!(settle(&clients[0], &held.id, "ack", report).await["status"], "succeeded");
    }
    let ended = look(&server, &haunted).await;
    haunt(&clients, &haunted, reports, !seed).await;
    assert_eq!(look(&server, &haunted).await, ended, "zombies have left a trace after the end");
}

/// Each job is taken by a worker that leaves something behind, lost, and taken by another, who adds to it.
async fn lose_all_leases(clients: &[Client]) -> Vec<Haunted> {
    let client = &clients[0];
    make_queue(client, "work", json!({"visibilityTimeout": 2, "maxAttempts": 5})).await;
    publish_many(client, "work", JOBS).await;
    let mut lost = BTreeMap::new();
    while lost.len() < JOBS {
        for held in receive(client, "work", json!({"batch": 10, "visibilityTimeout": 10})).await {
            let (id, lease) = (text(&held["id"]), text(&held["lease"]));
            // Every node gets the signal, and so knows the lease.
            for node in clients {
                call(node, ("PUT", "progress", r#"{"pct":10}"#), &id, &lease).await.expect(200);
            }
            call(client, ("PUT", "checkpoint", r#"{"schemaVersion":1,"data":"first"}"#), &id, &lease).await.expect(200);
            call(client, ("PUT", "sections/first", r#"{"by":"first"}"#), &id, &lease).await.expect(200);
            let upload = call(client, ("POST", "result/upload", "{}"), &id, &lease).await.expect(201);
            let twice = lost.insert(id, (lease, text(&upload["uploadId"])));
            assert!(twice.is_none(), "a lease ran out before its worker was done");
        }
    }
    let mut haunted = Vec::new();
    let (other, started) = (clients.last().expect("there is a node"), Stopwatch::start());
    while haunted.len() < JOBS {
        assert!(!started.has_passed(DEADLINE), "{} of {JOBS} jobs were taken over", haunted.len());
        for held in receive(other, "work", json!({"batch": 10, "wait": 5, "visibilityTimeout": 3600})).await {
            let (id, present) = (text(&held["id"]), text(&held["lease"]));
            assert_eq!((&held["attempt"], &held["checkpoint"]["data"]), (&json!(2), &json!("first")));
            call(other, ("PUT", "progress", r#"{"pct":40}"#), &id, &present).await.expect(200);
            call(other, ("PUT", "checkpoint", r#"{"schemaVersion":1,"data":"second"}"#), &id, &present)
                .await
                .expect(200);
            call(other, ("PUT", "sections/second", r#"{"by":"second"}"#), &id, &present).await.expect(200);
            call(other, ("POST", "output", r#"{"text":"second"}"#), &id, &present).await.expect(200);
            let (lost, upload) = lost[&id].clone();
            haunted.push(Haunted { id, lost, present, upload });
        }
    }
    haunted
}

/// Progress by zombies, through all nodes, at once. Gives how many of them were taken.
async fn whisper(clients: &[Client], haunted: &[Haunted]) -> usize {
    let mut taken = 0;
    for held in haunted {
        for client in clients {
            let reply = call(client, ("PUT", "progress", r#"{"pct":99}"#), &held.id, &held.lost).await;
            assert!(reply.status == 200 || (reply.status, reply.code()) == (409, "lease_lost"), "{}", reply.body);
            taken += usize::from(reply.status == 200);
        }
    }
    taken
}

/// So many reports with lost leases, each at random; all of them must be refused.
async fn haunt(clients: &[Client], haunted: &[Haunted], reports: usize, seed: u64) {
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (clients, haunted) = (clients.to_vec(), haunted.to_vec());
        let mut chance = Chance::seeded(seed.wrapping_add(lane as u64));
        lanes.spawn(async move {
            let mut said = BTreeSet::new();
            for _ in 0..reports.div_ceil(LANES) {
                let client = &clients[chance.below(clients.len() as u64) as usize];
                let held = &haunted[chance.below(haunted.len() as u64) as usize];
                let (method, path, body) = REPORTS[chance.below(REPORTS.len() as u64) as usize];
                let body = body.replace("UPLOAD", &held.upload);
                let reply = call(client, (method, path, &body), &held.id, &held.lost).await;
                let refused = (reply.status, reply.code()) == (409, "lease_lost");
                assert!(refused, "{path} by a zombie was answered {} {}", reply.status, reply.body);
                said.insert(path);
            }
            said
        });
    }
    let said: BTreeSet<_> = lanes.join_all().await.into_iter().flatten().collect();
    println!("zombies: {reports} reports of {} kinds", said.len());
    let sayable: BTreeSet<&str> = REPORTS.iter().map(|(_, path, _)| *path).collect();
    assert_eq!(said, sayable, "not everything was said");
}

async fn call(client: &Client, (method, path, body): (&str, &str, &str), id: &str, lease: &str) -> Reply {
    let method: Method = method.parse().expect("a method");
    let request = client.request(method, &format!("/v1/jobs/{id}/{path}")).header("x-outlast-lease", lease);
    client.send(request.header("content-type", "application/json").body(body.to_owned())).await.unwrap()
}

/// All that can be seen of the jobs, through any node, and of the files beside them.
async fn look(server: &Server, haunted: &[Haunted]) -> Vec<Value> {
    let clients = server.clients();
    let mut seen = Vec::new();
    for (number, held) in haunted.iter().enumerate() {
        let client = &clients[number % clients.len()];
        let mut shown = job(client, &held.id).await;
        // The fields that depend on the time of the read.
        shown.as_object_mut().expect("a job").remove("liveness");
        let path = format!("/v1/jobs/{}", held.id);
        let checkpoint = client.get(&format!("{path}/checkpoint")).await.unwrap();
        let sections = client.get(&format!("{path}/sections")).await.unwrap();
        let log = events(client, &held.id).await;
        seen.push(json!([shown, (checkpoint.status, checkpoint.body), (sections.status, sections.body), log]));
    }
    let queue = server.client().get("/v1/queues/work").await.unwrap().expect(200);
    seen.push(json!([queue["hold"], queue["counts"], files(server.launch().scratch())]));
    seen
}

/// The names of all files that belong to no database and no log.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(files(&path));
        } else if !name.starts_with("outlast.db") && !name.ends_with(".log") {
            found.insert(path.display().to_string());
        }
    }
    found
}
