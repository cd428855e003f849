//! Events of sources on the command line: sent as a provider would, and followed.

use std::fs;

use outlast_tests::server::{Launch, Server};
use serde_json::{Value, json};

use crate::api::{receive_one, text};
use crate::cli::Cli;
use crate::programs::Running;

const YAML: &str = "
sources:
  stripe: {verify: stripe, secret: whsec_of_the_file}
  github: {path: /hooks/code, verify: github, secret: another-secret}
queues:
  billing: {source: stripe, events: [invoice.*]}
  audit: {source: stripe}
  builds: {source: github, events: [push]}
";

async fn start() -> (Server, Cli) {
    let server = Launch::fresh().with_config(YAML).start().await;
    let cli = Cli::of(&server);
    fs::write(cli.directory.join("event.json"), "{\"amount_due\": 1200}").unwrap();
    (server, cli)
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_are_listed_from_the_file_alone() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    fs::write(cli.directory.join("outlast.yaml"), YAML).unwrap();

    let listed = cli.out(&["sources", "list", "-c", "outlast.yaml"]);

    assert_eq!(
        listed,
        "NAME    PATH              SCHEME  QUEUES\n\
         stripe  /webhooks/stripe  stripe  billing audit\n\
         github  /hooks/code       github  builds\n"
    );
    assert_eq!(cli.json(&["sources", "list", "-c", "outlast.yaml"])["sources"][1]["queues"], json!(["builds"]));
    // Found in the working directory.
    assert_eq!(cli.out(&["sources", "list"]), listed);
    fs::rename(cli.directory.join("outlast.yaml"), cli.directory.join("other.yaml")).unwrap();
    assert!(cli.fails(2, &["sources", "list"]).contains("hint: give it with -c or OUTLAST_CONFIG"));
    fs::rename(cli.directory.join("other.yaml"), cli.directory.join("outlast.yaml")).unwrap();
    fs::write(cli.directory.join("event.json"), "{}").unwrap();
    let unknown = cli.fails(5, &["send", "strip", "invoice.paid", "event.json", "-c", "outlast.yaml"]);
    assert!(unknown.contains("hint: the file has stripe, github"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sent_event_becomes_jobs_and_the_same_again_does_not() {
    let (server, cli) = start().await;
    let send = ["send", "stripe", "invoice.paid", "event.json", "-c", "outlast.yaml", "--id", "evt_1"];

    let first = cli.out(&send);
    let second = cli.json(&send);
    let push = cli.out(&["send", "github", "push", "event.json", "-c", "outlast.yaml"]);

    assert!(first.ends_with(" accepted, 2 jobs created\n"), "{first}");
    assert_eq!((&second["duplicate"], &second["jobs_created"]), (&json!(true), &json!(0)));
    assert!(push.ends_with(" accepted, 1 job created\n"), "{push}");
    let job = receive_one(&server.client(), "billing").await;
    assert_eq!(job["payload"], json!({"amount_due": 1200, "type": "invoice.paid", "id": "evt_1"}));
    let listed = cli.out(&["queues", "list"]);
    let billing = listed.lines().find(|line| line.starts_with("billing  pull ")).unwrap();
    assert!(billing.ends_with("  ok     stripe"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_shown_and_replayed() {
    let (server, cli) = start().await;
    cli.out(&["send", "stripe", "invoice.paid", "event.json", "-c", "outlast.yaml"]);
    cli.out(&["send", "github", "push", "event.json", "-c", "outlast.yaml"]);

    let listed = cli.out(&["events", "list"]);
    let id = text(&cli.json(&["events", "list", "--source", "stripe", "--type", "invoice.paid"])["items"][0]["id"]);
    let shown = cli.out(&["events", "show", &id]);
    let replayed = cli.out(&["events", "replay", &id, "--queue", "audit"]);

    assert!(listed.starts_with("ID ") && listed.lines().count() == 3, "{listed}");
    assert!(listed.contains("  stripe  invoice.paid  ") && listed.contains("  github  push  "), "{listed}");
    assert!(shown.contains("source") && shown.contains("\npayload\n{\"amount_due\":"), "{shown}");
    assert_eq!(replayed, format!("event {id} replayed: 1 job created\n"));
    assert_eq!(cli.json(&["jobs", "list", "--queue", "audit"])["items"].as_array().unwrap().len(), 2);
    assert_eq!(cli.json(&["events", "show", &id])["id"], json!(id));
    assert!(cli.fails(5, &["events", "show", "01890a5d-ac96-774b-bcce-b302099a8057"]).contains("(event_not_found)"));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_another_secret_is_refused_with_exit_code_1() {
    let (_server, cli) = start().await;
    fs::write(cli.directory.join("other.yaml"), YAML.replace("whsec_of_the_file", "whsec_another")).unwrap();

    let refused = cli.fails(1, &["send", "stripe", "invoice.paid", "event.json", "-c", "other.yaml"]);

    assert!(
        refused.contains("the signature is not valid (unauthorized)\nhint: is the secret of the file"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_followed_as_they_come() {
    let (_server, cli) = start().await;
    let send = |kind: &str, id: &str| {
        cli.out(&["send", "stripe", kind, "event.json", "-c", "outlast.yaml", "--id", id]);
    };
    send("invoice.paid", "evt_before");
    let all = Running::start(&mut cli.command(&["tail"]));
    let some = Running::start(&mut cli.command(&["tail", "--type", "invoice.*", "--json"]));
    all.line("following the events").await;
    some.line("following the events").await;

    send("charge.failed", "evt_1");
    send("invoice.paid", "evt_2");

    let last = some.line("evt_2").await;
    all.line("invoice.paid").await;
    let (all_ended, all_lines) = all.interrupt().await;
    let (some_ended, some_lines) = some.interrupt().await;
    assert!(all_ended.success() && some_ended.success(), "Ctrl-C is the way to end it");
    let shown: Vec<&String> = all_lines.iter().filter(|line| line.contains("  stripe  ")).collect();
    assert_eq!(shown.len(), 2, "earlier events are not shown: {all_lines:?}");
    assert!(shown[0].contains("  charge.failed  ") && shown[0].ends_with("  1 job"), "{shown:?}");
    assert!(shown[1].contains("  invoice.paid  ") && shown[1].ends_with("  2 jobs"), "{shown:?}");
    assert_eq!(some_lines.len(), 2, "the remark and one event: {some_lines:?}");
    let event: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&event["type"], &event["providerEventId"]), (&json!("invoice.paid"), &json!("evt_2")));
}
