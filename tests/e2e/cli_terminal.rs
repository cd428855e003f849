//! The command line as a person sees it: on terminals of several widths, in colour, while a job is running; and the exit
//! code of a wait that ran out.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::cli::{Cli, dead_letter};
use crate::programs::{Running, clean_command};

/// A bar is drawn again well within this on two busy cores.
const DEADLINE: Duration = Duration::from_secs(30);

/// The screen of a command on a terminal of so many columns.
fn screen(cli: &Cli, columns: usize, variables: &[(&str, &str)], words: &str) -> String {
    let mut script = on_terminal(cli, columns, words, Path::new("/dev/null"));
    let output = script.envs(variables.iter().copied()).output().expect("`script` can be run");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

/// `script` gives the command a terminal and writes what is drawn to `record`.
fn on_terminal(cli: &Cli, columns: usize, words: &str, record: &Path) -> Command {
    let inner = format!("stty cols {columns} rows 24; exec {} {words}", cli.program().display());
    let mut script = clean_command(Path::new("script"));
    script.args(["-qefc", &inner]).arg(record).envs(cli.variables()).env("SHELL", "/bin/sh").env("TERM", "xterm");
    script
}

fn without_colour(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_fit_the_terminal_and_have_colour_unless_it_is_switched_off() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    make_queue(&client, "a-queue-with-a-rather-long-name-of-many-words", json!({})).await;
    let dead = dead_letter(&client).await;
    publish(&client, "a-queue-with-a-rather-long-name-of-many-words", json!(1)).await;

    for columns in [80, 120] {
        for words in ["jobs list", "queues list", "dead list mail", "keys list", "queues peek mail"] {
            let drawn = screen(&cli, columns, &[], words);
            for line in without_colour(&drawn).lines() {
                assert!(line.chars().count() <= columns, "{words} on {columns}: {line:?}");
            }
        }
    }
    let (narrow, wide) = (screen(&cli, 80, &[], "jobs list"), screen(&cli, 120, &[], "jobs list"));
    assert!(narrow.contains(&dead) && narrow.contains("\u{1b}[31mfailed\u{1b}[0m"), "{narrow}");
    assert!(without_colour(&narrow).contains("no such ad"), "{narrow}");
    assert!(!narrow.contains("ATTEMPTS") && wide.contains("ATTEMPTS"), "{narrow}{wide}");
    assert!(without_colour(&wide).contains("no such address"), "{wide}");
    let plain = screen(&cli, 80, &[("NO_COLOR", "1")], "jobs list");
    assert!(!plain.contains('\u{1b}') && plain.contains("failed"), "{plain}");
    assert!(!screen(&cli, 80, &[], "jobs list --json").contains('\u{1b}'));
    let queues = without_colour(&screen(&cli, 80, &[], "queues list"));
    let line = queues.lines().find(|line| line.starts_with("a-queue-with-a-")).unwrap();
    let waiting: Vec<&str> = line.split_whitespace().collect();
    assert!(waiting[3].ends_with('s') || waiting[3].ends_with('m'), "the age of the oldest waiting job: {line}");
    assert!(!cli.out(&["jobs", "list"]).contains('\u{1b}'), "a pipe has no colour");
}

// B5: the job is not finished, and the exit code says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_runs_out_has_its_own_exit_code() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;

    let waited = cli.run(&["jobs", "publish", "mail", "1", "--wait", "1s"]);
    let as_json = cli.run(&["jobs", "publish", "mail", "1", "--wait", "1s", "--json"]);

    assert_eq!(waited.code, 6, "{}{}", waited.out, waited.err);
    assert!(waited.err.contains("is not finished after 1s; it is queued"), "{}", waited.err);
    assert!(waited.err.contains(&format!("hint: `outlast jobs watch {}`", waited.out.trim())), "{}", waited.err);
    assert_eq!(as_json.code, 6);
    let document: Value = serde_json::from_str(&as_json.out).expect("one document");
    assert_eq!(document["status"], json!("queued"));
}

// B4, B6: who works on a job and how far that is; an error of the past is not the error of a job that succeeded.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_shown_with_its_worker_and_without_errors_that_are_over() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({"backoff": {"type": "fixed", "delay": 0.1}, "visibilityTimeout": 300})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let first = receive_one(&client, "mail").await;
    settle(&client, &id, "nack", json!({"reason": "no luck today", "lease": first["lease"]})).await;
    let body = json!({"worker": "w-7", "wait": 30});
    let received = client.post("/v1/queues/mail/receive", body).await.unwrap().expect(200);
    let lease = received["jobs"][0]["lease"].clone();
    client.post(&format!("/v1/jobs/{id}/heartbeat"), json!({"lease": lease})).await.unwrap().expect(200);
    let progress = json!({"pct": 50, "stage": "render", "lease": lease});
    client.put(&format!("/v1/jobs/{id}/progress"), progress).await.unwrap().expect(200);

    let running = cli.out(&["jobs", "show", &id]);
    let listed = cli.out(&["jobs", "list"]);
    settle(&client, &id, "ack", json!({"lease": lease, "result": {"n": 1}})).await;
    let done = cli.out(&["jobs", "show", &id]);
    let listed_done = cli.out(&["jobs", "list"]);

    for line in [
        "attempts         2/5\n",
        "worker           w-7\n",
        "liveness         working\n",
        "progress         50.0%  render\n",
        "lastError        no luck today\n",
    ] {
        assert!(running.contains(line), "{line:?} is not in\n{running}");
    }
    for (name, end) in [("leaseExpiresAt", "in "), ("lastHeartbeatAt", "ago)"), ("startedAt", "ago)")] {
        let line = running.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {running}"));
        assert!(line.contains(end) || line.ends_with("(now)"), "{line}");
    }
    assert!(running.contains("\nATTEMPT  OUTCOME") && running.contains("      1  nacked "), "{running}");
    assert!(listed.contains("50.0%  render"), "{listed}");
    assert!(done.contains("result      7 B, application/json\n"), "{done}");
    assert!(!done.contains("lastError ") && !listed_done.contains("no luck today"), "{done}{listed_done}");
    assert!(done.contains("      2  acked "), "{done}");
}

// B16: the time left counts down without a new report.
#[tokio::test(flavor = "multi_thread")]
async fn a_bar_is_drawn_again_between_two_reports() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({"visibilityTimeout": 300})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    let record = cli.directory.join("screen");
    let drawn = Running::start(&mut on_terminal(&cli, 80, &format!("jobs watch {id}"), &record));
    drawn.line("queued → running").await;

    let progress = json!({"pct": 50, "lease": held["lease"]});
    client.put(&format!("/v1/jobs/{id}/progress"), progress).await.unwrap().expect(200);

    let bars = || {
        let screen = fs::read_to_string(&record).ok()?;
        (screen.matches("\r[###").count() >= 3).then_some(())
    };
    wait::until_now("the bar to be drawn three times", DEADLINE, bars).await;
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    let (status, lines) = drawn.end().await;
    assert_eq!(status.code(), Some(0), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_received_and_reported_by_hand() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let [first, second] =
        [publish(&client, "mail", json!({"to": "ada"})).await, publish(&client, "mail", json!(2)).await];

    let received = cli.out(&["receive", "mail", "--worker", "me", "--visibility", "5m"]);
    let held = cli.json(&["receive", "mail", "--wait", "5s"]);
    let lease = received.lines().find_map(|line| line.strip_prefix("lease ")).unwrap().trim();
    let acked = cli.out(&["ack", &first, "--lease", lease, "--result", "{\"n\": 1}"]);
    let nack = [
        "nack",
        &second,
        "--reason",
        "no such page",
        "--no-retry",
        "--lease",
        held["jobs"][0]["lease"].as_str().unwrap(),
    ];
    let nacked = cli.json(&nack);

    assert!(received.contains(&format!("id              {first}\n")), "{received}");
    assert!(
        received.contains("payload         {\"to\":\"ada\"}\n") && received.contains("attempt         1 of 5\n"),
        "{received}"
    );
    assert_eq!(acked, format!("job {first} is succeeded\n"));
    assert_eq!(cli.out(&["jobs", "result", &first]), "{\"n\": 1}");
    assert_eq!((&nacked["status"], nacked["accepted"].clone()), (&json!("failed"), json!(true)));
    assert!(cli.out(&["jobs", "show", &second]).contains("not_retryable: no such page"));
    assert_ne!(cli.run(&["ack", &first, "--lease", "0123456789abcdef0123456789abcdef"]).code, 0);
}

// B8: stdout has JSON lines and nothing else, and numbers are numbers.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_json_prints_json_lines_only() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;

    let ran = cli.run(&["worker", "run", "work", "--once", "--json", "--", "/bin/sh", "-c", "echo from the program"]);

    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines, [json!({"id": id, "attempt": 1, "outcome": "ack", "status": "succeeded"})], "{}", ran.err);
    assert!(ran.err.contains("from the program\n") && ran.err.contains("1 attempt finished\n"), "{}", ran.err);
}

// B22: the file in the working directory is read, and the start says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_the_working_directory_is_read_without_being_named() {
    let launch = Launch::embedded();
    let directory = launch.scratch().join("here");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("outlast.yaml"), "listen: 127.0.0.1:0\ndata: ./store\n").unwrap();

    let mut serve = clean_command(&launch.program);
    let server = Running::start(serve.arg("serve").current_dir(&directory));
    let address = server.address().await;

    let line = server.line("configuration read from the file in the working directory").await;
    assert!(line.contains("outlast.yaml"), "{line}");
    assert!(directory.join("store").is_dir());
    let mut list = clean_command(&launch.program);
    list.args(["--url", &address, "queues", "list"]).current_dir(&directory);
    let listed = list.output().unwrap();
    assert_eq!(
        text(&json!(String::from_utf8_lossy(&listed.stdout))),
        "no queues\n",
        "the key is found in its directory"
    );
    server.interrupt().await;
}
