//! `/metrics`: a key of a namespace sees its queues, an operator and the private listener the whole process. The page keeps to
//! its format, and docs/reference/METRICS.md has exactly what it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;

use crate::api::{make_queue, publish, receive, receive_one, settle, text};
use crate::programs::DEADLINE;

const REFERENCE: &str = include_str!("../../docs/reference/METRICS.md");
/// The metrics that a key of one namespace sees.
const OF_QUEUES: [&str; 8] = [
    "outlast_jobs",
    "outlast_queue_paused",
    "outlast_queue_held",
    "outlast_queue_oldest_waiting_seconds",
    "outlast_job_wait_seconds",
    "outlast_job_work_seconds",
    "outlast_job_commit_seconds",
    "outlast_leases_lost_total",
];

struct Page {
    text: String,
    /// Kind of each family.
    families: BTreeMap<String, String>,
    /// Name and labels, and the value.
    samples: BTreeMap<String, f64>,
}

impl Page {
    async fn of(client: &Client) -> Page {
        Page::accepting(client, "text/plain").await.1
    }

    /// With the content type.
    async fn accepting(client: &Client, accept: &str) -> (String, Page) {
        let reply = client.send(client.request(Method::GET, "/metrics").header("accept", accept)).await.unwrap();
        let kind = reply.headers["content-type"].to_str().unwrap().to_owned();
        let page = reply.expect(200);
        (kind, Page::parse(page.as_str().unwrap()))
    }

    /// Strictly: anything that a scraper could stumble over panics.
    fn parse(text: &str) -> Page {
        let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let (mut helped, mut present) = (String::new(), String::new());
        assert!(text.ends_with('\n'));
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(!words.is_empty() && !families.contains_key(name), "{line}");
                name.clone_into(&mut helped);
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped, "HELP comes right before TYPE");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                families.insert(name.to_owned(), kind.to_owned());
                name.clone_into(&mut present);
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
                let suffix = name.strip_prefix(&present).unwrap_or_else(|| panic!("{line} is in {present}"));
                let known: &[&str] = match families[&present].as_str() {
                    "counter" => &["", "_total"],
                    "gauge" => &[""],
                    _ => &["_bucket", "_sum", "_count"],
                };
                assert!(known.contains(&suffix), "{line}");
                assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
            }
        }
        let page = Page { text: text.to_owned(), families, samples };
        page.check_histograms();
        page
    }

    /// Buckets never fall, and the last one is the count.
    fn check_histograms(&self) {
        for (family, _) in self.families.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut last: BTreeMap<String, f64> = BTreeMap::new();
            for line in self.text.lines().filter(|line| line.starts_with(&format!("{family}_bucket"))) {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (labels, _) = series.split_once("le=\"").unwrap();
                let labels = labels.trim_end_matches([',', '{']).replace("_bucket", "_count");
                let value: f64 = value.parse().unwrap();
                assert!(last.insert(labels, value).is_none_or(|before| before <= value), "{line}");
            }
            for (labels, count) in last {
                let series = if labels.contains('{') { format!("{labels}}}") } else { labels };
                assert_eq!(self.samples[&series], count, "{series}");
            }
        }
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("{series} is not in\n{}", self.text))
    }
}

async fn key(operator: &Client, namespace: &str, scope: &str) -> Client {
    let request = json!({"name": scope, "scopes": [scope], "namespace": namespace});
    let issued = operator.post("/v1/keys", request).await.unwrap().expect(201);
    Client::new(&operator.base, &text(&issued["key"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_sees_what_counts_all_namespaces() {
    let server = Server::fresh().await;
    let operator = server.nodes[0].client();
    make_queue(&operator, "ours", json!({})).await;
    publish(&operator, "ours", json!(1)).await;
    let theirs = key(&operator, "theirs", "admin").await;
    make_queue(&theirs, "mail", json!({})).await;
    publish(&theirs, "mail", json!(1)).await;

    let readers = [key(&operator, "theirs", "read").await, theirs.clone(), key(&operator, "default", "read").await];
    for reader in readers {
        let seen = Page::of(&reader).await;
        let names: BTreeSet<&str> = seen.families.keys().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(OF_QUEUES), "and nothing else");
        assert!(!seen.text.contains("(others)"), "{}", seen.text);
    }
    let seen = Page::of(&operator).await;

    for name in ["outlast_jobs_published_total", "outlast_http_answers_total", "outlast_streams_open", "outlast_jobs"] {
        assert!(seen.families.contains_key(name), "{name} in {:?}", seen.families);
    }
    // DEFECTS B12: by name.
    let theirs = Page::of(&theirs).await;
    assert_eq!(seen.value("outlast_jobs{namespace=\"default\",queue=\"ours\",status=\"queued\"}"), 1.0);
    assert_eq!(theirs.value("outlast_jobs{namespace=\"theirs\",queue=\"mail\",status=\"queued\"}"), 1.0);
}

// DEFECTS B11, B23: what happens to a job shows in the figures of its queue.
#[tokio::test(flavor = "multi_thread")]
async fn wait_work_commit_and_lost_leases_are_counted_per_queue() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({"visibilityTimeout": "1s", "maxAttempts": 1})).await;
    make_queue(&client, "idle", json!({})).await;
    publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    settle(&client, &text(&held["id"]), "ack", json!({"lease": held["lease"]})).await;
    publish(&client, "mail", json!(2)).await;
    assert_eq!(receive(&client, "mail", json!({"batch": 1, "wait": 30})).await.len(), 1);
    publish(&client, "mail", json!(3)).await;

    let labels = "{namespace=\"default\",queue=\"mail\"}";
    // Any node may end the lease that ran out.
    wait::until("a lost lease", DEADLINE, async || {
        let mut lost = 0.0;
        for node in &server.nodes {
            let page = Page::of(&node.client()).await;
            lost += page.samples.get(&format!("outlast_leases_lost_total{labels}")).copied().unwrap_or_default();
        }
        (lost > 0.0).then_some(())
    })
    .await;
    let page = Page::of(&client).await;

    assert_eq!(page.value(&format!("outlast_job_wait_seconds_count{labels}")), 2.0);
    assert!(page.value(&format!("outlast_job_work_seconds_count{labels}")) >= 1.0);
    assert_eq!(page.value(&format!("outlast_job_commit_seconds_count{labels}")), 4.0, "three publishes and an ack");
    assert!(page.value(&format!("outlast_queue_oldest_waiting_seconds{labels}")) > 0.0);
    assert_eq!(page.value("outlast_queue_oldest_waiting_seconds{namespace=\"default\",queue=\"idle\"}"), 0.0);
    assert!(page.value("outlast_store_commit_seconds_count") >= 4.0);
    assert_eq!(page.value("outlast_disk_full"), 0.0);
    assert!(!page.text.contains("queue=\"idle\",le="), "a queue without jobs has no histogram");
}

// DEFECTS B12: the format that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_comes_in_the_format_that_the_caller_prefers() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    publish(&client, "mail", json!(1)).await;

    let (plain_kind, plain) = Page::accepting(&client, "text/plain").await;
    let (open_kind, open) =
        Page::accepting(&client, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;

    assert_eq!(plain_kind, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(open_kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(plain.families.contains_key("outlast_jobs_published_total") && !plain.text.contains("# EOF"));
    assert!(open.families.contains_key("outlast_jobs_published") && open.text.ends_with("# EOF\n"));
    check_with_promtool(&plain.text);
}

/// Where it is installed; the strict reading above does not need it.
fn check_with_promtool(text: &str) {
    let mut command = Command::new("promtool");
    let spawned =
        command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = spawned.spawn() else {
        println!("not run: there is no promtool");
        return;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.is_empty(), "{said}");
    println!("promtool finds nothing wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_has_every_metric_with_its_kind_and_no_other() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    publish(&client, "mail", json!(1)).await;
    let page = Page::of(&client).await;

    let rows = REFERENCE.lines().filter_map(|line| line.strip_prefix("| `outlast_"));
    let described: BTreeMap<String, String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (format!("outlast_{}", cells[0].trim_end_matches('`')), cells[1].to_owned())
        })
        // Only where there is a Redis.
        .filter(|(name, _)| page.families.contains_key("outlast_redis_connected") || !name.contains("_redis_"))
        .collect();

    assert_eq!(page.families, described);
}
