//! Our signatures, verified by others: the `standardwebhooks` implementations for Rust and Python, and a few lines of
//! HMAC in Python and Node for the plain header. And the other way: what they sign, judged by us. (I-29, T07, T28)

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::Timestamp;
use outlast_engine::ports::SystemEntropy;
use outlast_engine::sign::{self, Headers, Secret};
use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::json;
use standardwebhooks::Webhook;

use crate::programs::{printed_by, python, python_with};

const BODY: &str = r#"{"id":"0198","payload":{"text":"Grüße ✓","big":12345678901234567890.10}}"#;

/// The judgement of Python's standardwebhooks over lines of JSON: one `true` or `false` for each.
pub(crate) const PYTHON_STANDARD: &str = r#"
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

for line in sys.stdin:
    case = json.loads(line)
    secret = case["secret"]
    webhook = Webhook(secret if secret.startswith("whsec_") else secret.encode())
    try:
        webhook.verify(case["body"], case["headers"])
        print("true")
    except WebhookVerificationError:
        print("false")
"#;

/// Asks the function of the documentation above it.
const PYTHON_ASKS: &str = r#"
import json, sys

for line in sys.stdin:
    case = json.loads(line)
    print("true" if is_genuine(case["secret"], case["headers"], case["body"].encode()) else "false")
"#;

const NODE_ASKS: &str = r#"
import { readFileSync } from "node:fs";
for (const line of readFileSync(0, "utf8").trim().split("\n")) {
  const { secret, headers, body } = JSON.parse(line);
  console.log(isGenuine(secret, headers, Buffer.from(body)));
}
"#;

/// The documented code for receivers of the plain header.
pub(crate) const PYTHON_PLAIN: &str = r#"
import hashlib, hmac, json, sys

for line in sys.stdin:
    case = json.loads(line)
    expected = "sha256=" + hmac.new(case["secret"].encode(), case["body"].encode(), hashlib.sha256).hexdigest()
    print("true" if hmac.compare_digest(expected, case["plain"]) else "false")
"#;

const NODE_PLAIN: &str = r#"
const { createHmac, timingSafeEqual } = require("node:crypto");
for (const line of require("node:fs").readFileSync(0, "utf8").trim().split("\n")) {
  const { secret, body, plain } = JSON.parse(line);
  const expected = Buffer.from("sha256=" + createHmac("sha256", secret).update(body).digest("hex"));
  const given = Buffer.from(plain);
  console.log(given.length === expected.length && timingSafeEqual(given, expected));
}
"#;

fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap()
}

/// One delivery as a receiver sees it, and whether it must be believed.
struct Case {
    /// The secrets that the receiver knows.
    secret: String,
    body: String,
    id: String,
    timestamp: i64,
    signature: String,
    plain: String,
    is_genuine: bool,
    is_plain_genuine: bool,
}

impl Case {
    /// Signed with these secrets, the newest first, and received by somebody who knows one of them.
    fn signed(secrets: &[Secret], known: &Secret) -> Case {
        let (id, timestamp) = ("01980a5d-ac96-774b-bcce-b302099a8057", now_seconds());
        Case {
            secret: known.expose().to_owned(),
            body: BODY.to_owned(),
            id: id.to_owned(),
            timestamp,
            signature: sign::standard(secrets, id, timestamp, BODY.as_bytes()),
            plain: sign::plain(&secrets[0], BODY.as_bytes()),
            is_genuine: true,
            is_plain_genuine: secrets[0].expose() == known.expose(),
        }
    }

    fn to_line(&self) -> String {
        let headers = json!({
            "webhook-id": self.id,
            "webhook-timestamp": self.timestamp.to_string(),
            "webhook-signature": self.signature,
        });
        let case = json!({"secret": self.secret, "body": self.body, "headers": headers, "plain": self.plain});
        format!("{case}\n")
    }
}

/// Right ones under every kind of secret, and forgeries as the control.
fn cases() -> Vec<Case> {
    let mut entropy = SystemEntropy::seed().unwrap();
    let (made, older) = (Secret::generate(&mut entropy), Secret::generate(&mut entropy));
    let own = Secret::from_text("a secret of ours may not have spaces".replace(' ', "-").as_str()).unwrap();
    let alone = |secret: &Secret| Case::signed(std::slice::from_ref(secret), secret);
    let both = [made.clone(), older.clone()];
    let stranger = Case { is_genuine: false, is_plain_genuine: false, ..Case::signed(&both, &own) };
    vec![
        alone(&made),
        alone(&own),
        Case::signed(&both, &made),
        Case::signed(&both, &older),
        stranger,
        Case { body: BODY.replace("0198", "0199"), is_genuine: false, is_plain_genuine: false, ..alone(&made) },
        Case { id: "another".to_owned(), is_genuine: false, ..alone(&made) },
        Case { timestamp: now_seconds() - 10, is_genuine: false, ..alone(&made) },
        Case { timestamp: now_seconds() - 400, is_genuine: false, ..alone(&made) },
    ]
}

/// A program's verdict on each case.
fn judged(command: &mut Command, cases: &[Case]) -> Vec<bool> {
    let input: String = cases.iter().map(Case::to_line).collect();
    printed_by(command, input.as_bytes()).lines().map(|line| line == "true").collect()
}

fn genuine(cases: &[Case]) -> Vec<bool> {
    cases.iter().map(|case| case.is_genuine).collect()
}

fn plain_genuine(cases: &[Case]) -> Vec<bool> {
    cases.iter().map(|case| case.is_plain_genuine).collect()
}

#[test]
fn the_rust_implementation_of_standard_webhooks_believes_what_we_sign() {
    let cases = cases();

    let mut verdicts = Vec::new();
    for case in &cases {
        let receiver = match case.secret.starts_with("whsec_") {
            true => Webhook::new(&case.secret).unwrap(),
            false => Webhook::from_bytes(case.secret.clone().into_bytes()).unwrap(),
        };
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_str(&case.id).unwrap());
        headers.insert("webhook-timestamp", HeaderValue::from_str(&case.timestamp.to_string()).unwrap());
        headers.insert("webhook-signature", HeaderValue::from_str(&case.signature).unwrap());
        verdicts.push(receiver.verify(case.body.as_bytes(), &headers).is_ok());
    }

    assert_eq!(verdicts, genuine(&cases));
}

#[test]
fn the_python_implementation_of_standard_webhooks_believes_what_we_sign() {
    let Some(python) = python_with("standardwebhooks") else { return };
    let cases = cases();

    assert_eq!(judged(Command::new(python).args(["-c", PYTHON_STANDARD]), &cases), genuine(&cases));
}

#[test]
fn five_lines_of_python_believe_the_plain_header() {
    let cases = cases();

    assert_eq!(judged(Command::new(python()).args(["-c", PYTHON_PLAIN]), &cases), plain_genuine(&cases));
}

#[test]
fn five_lines_of_node_believe_the_plain_header() {
    let cases = cases();

    assert_eq!(judged(Command::new("node").args(["-e", NODE_PLAIN]), &cases), plain_genuine(&cases));
}

/// The code block of docs/how-to/receive-deliveries.md in this language that has this in it.
fn documented(language: &str, part: &str) -> String {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/receive-deliveries.md")).unwrap();
    let opening = format!("```{language}\n");
    let blocks = page.split(opening.as_str()).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.into_iter().find(|block| block.contains(part)).expect("the page has such a block").to_owned()
}

#[test]
fn the_lines_of_the_documentation_believe_what_we_sign() {
    // The lines are for secrets that the server has made.
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.secret.starts_with("whsec_")).collect();
    let python_lines = documented("python", "def is_genuine") + PYTHON_ASKS;
    let node_lines = documented("js", "function isGenuine") + NODE_ASKS;

    let in_python = judged(Command::new(python()).args(["-c", &python_lines]), &cases);
    let in_node = judged(Command::new("node").args(["--input-type=module", "-e", &node_lines]), &cases);

    assert_eq!(in_python, genuine(&cases));
    assert_eq!(in_node, genuine(&cases));
}

#[test]
fn the_lines_of_the_documentation_for_the_plain_header_are_those_that_are_tried() {
    let python_line = documented("python", "\"sha256=\"");
    let node_line = documented("js", "\"sha256=\"");
    let python_line = python_line.split('#').next().unwrap().trim_end();

    let tried = PYTHON_PLAIN.replace("case[\"secret\"]", "secret").replace("case[\"body\"].encode()", "body");
    assert!(tried.contains(&format!("expected = {python_line}\n")), "{python_line}");
    assert!(NODE_PLAIN.contains(&format!("Buffer.from({});", node_line.trim_end())), "{node_line}");
}

#[test]
fn our_own_check_agrees_with_the_others() {
    for case in cases() {
        let secrets = [Secret::from_text(&case.secret).unwrap()];
        let timestamp = case.timestamp.to_string();
        let headers = Headers { id: &case.id, timestamp: &timestamp, signature: &case.signature };
        let now = Timestamp::from_millis(now_seconds() * 1000);

        assert_eq!(sign::verify(&secrets, headers, case.body.as_bytes(), now).is_ok(), case.is_genuine);
        let plain = sign::verify_plain(&secrets, case.plain.as_bytes(), case.body.as_bytes());
        assert_eq!(plain.is_ok(), case.is_plain_genuine);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    // The Rust implementation makes the same signatures, for any body and any key.
    #[test]
    fn both_sides_sign_alike(key in proptest::collection::vec(0u8.., 24..=64), seconds in 0i64..4_000_000_000, body in ".*") {
        let encoded = Webhook::from_bytes(key.clone()).unwrap();
        let text = format!("whsec_{}", base64(&key));
        let secret = Secret::from_text(&text).unwrap();

        prop_assert_eq!(
            sign::standard(&[secret], "msg_1", seconds, body.as_bytes()),
            encoded.sign("msg_1", seconds, body.as_bytes()).unwrap()
        );
    }

    // T28: ids of ours have no dot, so no two deliveries are signed as the same text.
    #[test]
    fn different_deliveries_have_different_signatures(
        ids in ["[0-9a-f-]{1,8}(_[0-9])?", "[0-9a-f-]{1,8}(_[0-9])?"],
        seconds in [0i64..100, 0i64..100],
        bodies in ["[0-9.]{0,6}", "[0-9.]{0,6}"],
    ) {
        let secret = [Secret::from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()];
        let signed = |at: usize| sign::standard(&secret, &ids[at], seconds[at], bodies[at].as_bytes());

        let is_same = ids[0] == ids[1] && seconds[0] == seconds[1] && bodies[0] == bodies[1];
        prop_assert_eq!(signed(0) == signed(1), is_same);
    }
}

/// Base64 by the one who also judges it: the secret of a receiver is what it decodes.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut bits = 0u32;
        for place in 0..3 {
            bits = bits << 8 | u32::from(*chunk.get(place).unwrap_or(&0));
        }
        for place in 0..4 {
            let is_padding = place > chunk.len();
            let index = (bits >> (18 - 6 * place)) & 63;
            text.push(if is_padding { '=' } else { char::from(ALPHABET[index as usize]) });
        }
    }
    text
}

// The vectors of T07 that the implementations must not differ in: none of them believes a forged header.
#[test]
fn no_receiver_accepts_a_forged_signature_header() {
    let secret = Secret::from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let (id, timestamp) = ("0198", now_seconds());
    let right = sign::standard(std::slice::from_ref(&secret), id, timestamp, BODY.as_bytes());
    let webhook = Webhook::new(secret.expose()).unwrap();
    let wrong = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for forged in [
        String::new(),
        "v1,".to_owned(),
        right[..right.len() - 4].to_owned(),
        right.replace("v1,", "v2,"),
        right.replace("v1,", ""),
        vec![wrong; 100].join(" "),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_static("0198"));
        headers.insert("webhook-timestamp", HeaderValue::from_str(&timestamp.to_string()).unwrap());
        headers.insert("webhook-signature", HeaderValue::from_str(&forged).unwrap());
        let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let ours = Headers::find(all).and_then(|found| {
            let now = Timestamp::from_millis(timestamp * 1000);
            sign::verify(std::slice::from_ref(&secret), found, BODY.as_bytes(), now)
        });

        assert!(ours.is_err(), "{forged:?}");
        assert!(webhook.verify(BODY.as_bytes(), &headers).is_err(), "{forged:?}");
    }
}
