//! The memory cost of a hostile answer, measured on a process of its own with many such deliveries at once. (F24, T23)

use std::process::Command;
use std::time::Duration;

use outlast_tests::responder::Responder;
use outlast_tests::stopwatch::Stopwatch;
use serde_json::Value;

use crate::hostile::Hostile;

const DELIVERIES: u64 = 200;
const TIMEOUT_MILLIS: u64 = 1500;
const PER_DELIVERY_KIB_MAX: u64 = 256;

/// Those that send much, or make us hold something for long.
const HUNGRY: [Hostile; 13] = [
    Hostile::Silent,
    Hostile::DripsBody,
    Hostile::EndlessBody,
    Hostile::EndlessChunks,
    Hostile::EndlessBodyWithoutLength,
    Hostile::CompressedBomb,
    Hostile::TinyChunks,
    Hostile::EndlessChunkExtension,
    Hostile::EndlessTrailers,
    Hostile::LargeHeaders,
    Hostile::EndlessHeader,
    Hostile::EndlessStatusLine,
    Hostile::InterimFlood,
];

async fn measure(responder: &Responder, count: u64, body_max: usize) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast-send"));
    command.arg(&*responder.url("/")).args([
        "--count",
        &count.to_string(),
        "--timeout-ms",
        &TIMEOUT_MILLIS.to_string(),
    ]);
    command.args(["--body-max", &body_max.to_string()]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn growth_kib(report: &Value) -> u64 {
    report["peakKib"].as_u64().unwrap() - report["beforeKib"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_delivery_costs_at_most_256_kib() {
    for kind in HUNGRY {
        let responder = kind.start().await;

        let stopwatch = Stopwatch::start();
        // As much as a result may have, whatever the answer says it is.
        let report = measure(&responder, DELIVERIES, 256 * 1024).await;

        let each = growth_kib(&report) / DELIVERIES;
        assert!(each <= PER_DELIVERY_KIB_MAX, "{kind:?}: {report}");
        let took = Duration::from_millis(report["milliseconds"].as_u64().unwrap());
        let most = Duration::from_millis(4 * TIMEOUT_MILLIS) + stopwatch.withheld();
        assert!(took < most, "{kind:?}: {report}");
        let connections = responder.seen.connections() as u64;
        assert!(connections >= DELIVERIES, "{kind:?}: only {connections} were made");
    }
}

// The control: with the bound taken away, the same rig sees the memory grow.
#[tokio::test(flavor = "multi_thread")]
async fn the_rig_sees_memory_that_is_not_bounded() {
    let responder = Hostile::EndlessBody.start().await;

    let report = measure(&responder, 10, 8 * 1024 * 1024).await;

    assert!(growth_kib(&report) / 10 > 4 * PER_DELIVERY_KIB_MAX, "{report}");
}
