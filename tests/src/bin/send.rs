//! `outlast-send URL`: sends the same request many times at once through the connector, to 127.0.0.2 and nowhere else, and
//! prints as JSON how it went and by how much the process grew. For tests of memory and environment.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use outlast_engine::egress::{Egress, EgressSettings, HttpEgress, Outgoing};
use serde_json::json;
use tokio::task::JoinSet;

struct Options {
    url: Arc<str>,
    count: usize,
    rounds: usize,
    timeout: Duration,
    body_max: usize,
    is_by_environment: bool,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Options {
        let mut options = Options {
            url: words.next().expect("a URL").into(),
            count: 1,
            rounds: 1,
            timeout: Duration::from_secs(5),
            body_max: 64 * 1024,
            is_by_environment: false,
        };
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|text| text.parse().ok()).expect("a number");
            match word.as_str() {
                "--count" => options.count = number(),
                "--rounds" => options.rounds = number(),
                "--timeout-ms" => options.timeout = Duration::from_millis(number() as u64),
                "--body-max" => options.body_max = number(),
                "--by-environment" => options.is_by_environment = true,
                other => panic!("unknown word {other}"),
            }
        }
        options
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::read(std::env::args().skip(1));
    if options.is_by_environment {
        return send_by_environment(&options.url).await;
    }
    let settings = EgressSettings { allow_private_targets: vec!["127.0.0.2/32".parse()?], ..EgressSettings::default() };
    let egress = Arc::new(HttpEgress::new(settings)?);
    let before = kib("VmRSS:")?;
    let began = Instant::now();
    let mut answered = 0;
    let mut cut = 0;
    let mut kept = 0;
    let mut sending = JoinSet::new();
    for _ in 0..options.count {
        sending.spawn(send(Arc::clone(&egress), outgoing(&options), options.rounds));
    }
    while let Some(counts) = sending.join_next().await {
        let (one_answered, one_cut, one_kept) = counts?;
        answered += one_answered;
        cut += one_cut;
        kept += one_kept;
    }
    let report = json!({
        "answered": answered,
        "cut": cut,
        "keptBytes": kept,
        "milliseconds": u64::try_from(began.elapsed().as_millis())?,
        "beforeKib": before,
        "peakKib": kib("VmHWM:")?,
    });
    println!("{report}");
    Ok(())
}

fn outgoing(options: &Options) -> Outgoing {
    Outgoing {
        url: Arc::clone(&options.url),
        headers: http::HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        timeout: options.timeout,
        fresh: false,
        body_max: options.body_max,
        json_max: options.body_max,
    }
}

async fn send(egress: Arc<HttpEgress>, outgoing: Outgoing, rounds: usize) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for _ in 0..rounds {
        if let Ok(answer) = egress.send(outgoing.clone()).await {
            counts.0 += 1;
            counts.1 += usize::from(answer.is_cut);
            counts.2 += answer.body.len();
        }
    }
    counts
}

async fn send_by_environment(url: &str) -> anyhow::Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::new().post(url).send().await?.error_for_status()?;
    Ok(())
}

fn kib(field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or_else(|| anyhow::anyhow!("there is no {field}"))?.parse()?)
}
