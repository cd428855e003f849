//! Sources on the command line.

use std::fs;

use outlast_tests::server::Server;
use serde_json::json;

use crate::cli::Cli;

const YAML: &str = "
sources:
  stripe: {verify: stripe, secret: whsec_of_the_file}
  github: {path: /hooks/code, verify: github, secret: another-secret}
queues:
  billing: {source: stripe, events: [invoice.*]}
  audit: {source: stripe}
  builds: {source: github, events: [push]}
";

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
    assert!(cli.fails(2, &["sources", "list"]).contains("hint: give it with -c or OUTLAST_CONFIG"));
    fs::write(cli.directory.join("event.json"), "{}").unwrap();
    let unknown = cli.fails(5, &["send", "strip", "invoice.paid", "event.json", "-c", "outlast.yaml"]);
    assert!(unknown.contains("hint: the file has stripe, github"), "{unknown}");
}
