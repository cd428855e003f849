//! Commands that need no server: the configuration, filters, completions and help.

use std::fs;

use outlast_tests::server::Server;
use serde_json::{Value, json};

use crate::cli::{Cli, ran};

#[tokio::test(flavor = "multi_thread")]
async fn configurations_are_printed_and_validated() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    fs::write(cli.directory.join("good.yaml"), cli.out(&["config"])).unwrap();
    fs::write(cli.directory.join("bad.yaml"), "limits:\n  payload_byte: 1\nlisten: nowhere\n").unwrap();

    assert_eq!(cli.out(&["validate", "--config", "good.yaml"]), "good.yaml is valid\n");
    assert_eq!(
        cli.json(&["validate", "--config", "good.yaml"]),
        json!({"valid": true, "problems": [], "sources": [], "queues": []})
    );
    let complaint = cli.fails(2, &["validate", "--config", "bad.yaml"]);
    assert!(complaint.starts_with("error: the configuration has 2 problems\n"), "{complaint}");
    assert!(complaint.contains("bad.yaml:2") && complaint.contains("bad.yaml:3"), "{complaint}");
    let ran = cli.run(&["validate", "--config", "bad.yaml", "--json"]);
    let listed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, listed["valid"].clone(), listed["problems"].as_array().unwrap().len()), (2, json!(false), 2));
    // The server itself refuses it as well.
    assert!(cli.fails(2, &["serve", "-c", "bad.yaml"]).contains("bad.yaml:2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_tried_on_an_event() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let event = cli.directory.join("event.json");
    fs::write(&event, json!({"type": "invoice.paid", "amount": 500, "note": "\u{1b}[2J"}).to_string()).unwrap();
    let tried = |filter: &str| {
        let mut command = cli.command(&["filter", filter]);
        command.stdin(fs::File::open(&event).unwrap());
        ran(command)
    };

    let (passed, failed) = (tried("$.amount >= 500"), tried("$.amount > 500 and $.note exists"));
    let (unknown, at_all) =
        (tried("$.amount => 500"), cli.json(&["filter", "$.missing != 1", "--event", "@event.json"]));

    assert_eq!((passed.code, passed.out.lines().next()), (0, Some("matches")));
    assert_eq!((failed.code, failed.out.lines().next()), (1, Some("does not match")));
    assert!(failed.out.contains("no     $.amount > 500  500\n"), "{}", failed.out);
    assert!(!failed.out.contains('\u{1b}'), "an event cannot steer the terminal");
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.ends_with("did you mean \">=\"?\n  $.amount => 500\n           ^\n"), "{}", unknown.err);
    assert_eq!(at_all["terms"][0], json!({"column": 1, "term": "$.missing != 1", "holds": true, "found": []}));
    assert!(cli.fails(2, &["filter", "$.a exists", "--event", "{a}"]).contains("the event is not JSON"));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_completions_for_every_shell_and_help_for_every_command() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.out(&["completions", shell]);
        assert!(script.contains("outlast") && script.contains("queues"), "{shell}");
    }
    for words in [
        &["--help"][..],
        &["queues", "--help"],
        &["jobs", "publish", "--help"],
        &["serve", "--help"],
        &["ack", "--help"],
    ] {
        assert!(cli.out(words).contains("Exit codes:"), "{words:?}");
    }
    assert!(cli.out(&["--version"]).starts_with("outlast "));
}
