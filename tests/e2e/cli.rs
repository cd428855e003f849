//! The command line against a real server: every command once, for people and as JSON, and every exit code.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast_tests::chance::Chance;
use outlast_tests::http::Client;
use outlast_tests::proxy::Proxy;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::programs::{Running, clean_command};

/// On one node a revoked key is refused at once; this is what other nodes may take to hear of it.
const REVOKED_MAX: Duration = Duration::from_secs(5);

/// Where and as whom the commands are run.
pub(crate) struct Cli {
    program: PathBuf,
    pub directory: PathBuf,
    url: String,
    key: String,
}

/// The output and exit code of a command.
pub(crate) struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Cli {
    pub(crate) fn of(server: &Server) -> Cli {
        let launch = server.launch();
        let (program, directory) = (launch.program.clone(), launch.scratch().to_owned());
        Cli { program, directory, url: server.base.clone(), key: launch.key.clone() }
    }

    /// For commands that need no server: none listens where they look.
    pub(crate) fn without_server(launch: &Launch) -> Cli {
        let (program, directory) = (launch.program.clone(), launch.scratch().to_owned());
        Cli { program, directory, url: "http://127.0.0.1:9".to_owned(), key: launch.key.clone() }
    }

    /// The command with nothing of our own environment but where the server is and the key.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.directory).env_clear().stdin(Stdio::null());
        command.envs(self.variables());
        command
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Where the server is and the key.
    pub(crate) fn variables(&self) -> [(&str, &str); 2] {
        [("OUTLAST_URL", &self.url), ("OUTLAST_KEY", &self.key)]
    }

    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        ran(self.command(words))
    }

    /// The output of a successful command.
    #[track_caller]
    pub(crate) fn out(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// The same with `--json`, which must be one JSON document.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let out = self.out(&[words, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}: {out}"))
    }

    /// The complaint of a command that must fail with this code.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, code, "{words:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.starts_with("error: "), "{words:?}: {}", ran.err);
        ran.err
    }
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
    Ran { code: output.status.code().expect("it was not killed"), out: text(&output.stdout), err: text(&output.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_created_listed_inspected_paused_purged_and_deleted() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let settings = cli.directory.join("settings.json");
    fs::write(&settings, json!({"maxAttempts": 3, "retention": "1d"}).to_string()).unwrap();

    assert_eq!(cli.out(&["queues", "list"]), "no queues\n");
    let words = ["queues", "create", "mail", "--file", settings.to_str().unwrap(), "--max-attempts", "2"];
    assert_eq!(cli.out(&words), "queue \"mail\" created\n");
    let replaced = ["queues", "create", "mail", "--replace", "--visibility-timeout", "1m", "--set", "fencing=required"];
    assert_eq!(cli.out(&replaced), "queue \"mail\" replaced\n");
    assert_eq!(
        cli.out(&["queues", "list"]),
        "NAME  MODE  QUEUED  OLDEST  PENDING  RUNNING  DEAD  STATE\n\
         mail  pull       0       -        0        0     0  ok\n"
    );
    let inspected = cli.out(&["queues", "inspect", "mail"]);
    for line in ["name                    mail\n", "visibilityTimeout       60\n", "fencing                 required\n"]
    {
        assert!(inspected.contains(line), "{line:?} is not in\n{inspected}");
    }
    assert!(inspected.ends_with("\nno jobs\n"), "{inspected}");
    assert_eq!(cli.json(&["queues", "inspect", "mail"])["queue"]["visibilityTimeout"], json!(60));
    assert_eq!(cli.json(&["queues", "list"])["items"][0]["name"], json!("mail"));
    assert_eq!(cli.json(&["queues", "create", "other", "--concurrency", "7"])["concurrency"], json!(7));
    assert_eq!(cli.out(&["queues", "pause", "mail"]), "queue \"mail\" is paused\n");
    assert_eq!(cli.json(&["queues", "list"])["items"][0]["paused"], json!(true));
    assert_eq!(cli.out(&["queues", "resume", "mail"]), "queue \"mail\" is resumed\n");
    assert_eq!(cli.json(&["queues", "pause", "mail"])["paused"], json!(true));
    publish(&server.client(), "mail", json!(1)).await;
    let held = cli.out(&["queues", "list"]);
    assert!(held.contains("paused\n") && !held.contains("       -        0        0     0  paused"), "{held}");
    let refused = cli.fails(2, &["queues", "purge", "mail"]);
    assert!(refused.contains("would cancel 1 waiting job\nhint: repeat the command with --force"), "{refused}");
    assert_eq!(cli.out(&["queues", "purge", "mail", "--force"]), "purge of queue \"mail\" done: 1 processed\n");
    assert_eq!(cli.json(&["queues", "purge", "mail", "--force"])["status"], json!("done"));
    assert!(cli.fails(2, &["queues", "drain", "mail"]).contains("unrecognized subcommand"));
    assert!(cli.fails(1, &["queues", "delete", "mail"]).contains("--force"));
    assert_eq!(cli.out(&["queues", "delete", "mail", "--force"]), "delete of queue \"mail\" done: 1 processed\n");
    assert_eq!(cli.out(&["queues", "delete", "other"]), "queue \"other\" deleted\n");
    assert_eq!(cli.out(&["queues", "list"]), "no queues\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_queue_is_made_changed_and_given_a_new_secret() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let secret_of = |ran: &Ran| ran.out.lines().last().unwrap().to_owned();

    let url = ["--webhook-url", "https://hooks.example.com/a"];
    let made = cli.run(&[&["queues", "create", "push"][..], &url, &["--rate-limit", "50/s"]].concat());
    let renamed = cli.run(&["queues", "update", "push", "--mode", "ack", "--header", "x-team=a"]);
    let other = ["--webhook-url", "https://hooks.example.org/a", "--header", "x-team=a"];
    let moved = cli.run(&[&["queues", "update", "push"][..], &other].concat());
    let rotated = cli.run(&["queues", "rotate-secret", "push", "--overlap", "1h"]);
    let own = cli.json(&["queues", "rotate-secret", "push", "--signing-secret", "a-secret-of-my-own"]);

    assert!(made.out.starts_with("queue \"push\" created\nwhsec_"), "{}", made.out);
    assert!(made.err.contains("shown only this once"), "{}", made.err);
    assert_eq!(renamed.out, "queue \"push\" updated\n", "the same receiver keeps its secret");
    assert!(moved.out.starts_with("queue \"push\" updated\nwhsec_"), "another host gets another secret: {}", moved.out);
    assert!(rotated.out.starts_with("whsec_") && rotated.out.lines().count() == 1, "{}", rotated.out);
    assert!(rotated.err.contains("has a signature of each secret"), "{}", rotated.err);
    let secrets = [secret_of(&made), secret_of(&moved), secret_of(&rotated)];
    assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2], "no secret is used twice");
    assert_eq!(own["signingSecret"], json!("a-secret-of-my-own"));
    let shown = cli.out(&["queues", "show", "push"]);
    for line in
        ["mode                    ack\n", "webhookUrl              https://hooks.example.org/a\n", "x-team=****\n"]
    {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    assert!(!secrets.iter().any(|secret| shown.contains(secret.as_str())), "{shown}");
    assert!(cli.fails(5, &["queues", "rotate-secret", "nope"]).contains("queue \"nope\" not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_published_shown_listed_peeked_at_cancelled_and_replayed() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;
    fs::write(cli.directory.join("payload.json"), "{\"amount\": 12345678901234567890.10}").unwrap();

    let id = cli.out(&["jobs", "publish", "mail", "@payload.json", "--tag", "tenant=a", "--priority", "-5"]);
    let id = id.trim();
    let shown = cli.out(&["jobs", "show", id]);
    for line in ["status     queued\n", "attempts   0/5\n", "priority   -5\n", "tags       tenant=a\n"] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    assert!(shown.contains("\npayload\n{\"amount\": 12345678901234567890.10}\n"), "{shown}");
    assert!(shown.contains("  state  queued reason=published\n"), "{shown}");
    assert!(cli.out(&["jobs", "show", id, "--json"]).contains("\"payload\":{\"amount\": 12345678901234567890.10}"));
    let listed = cli.out(&["jobs", "list", "--queue", "mail", "--status", "queued", "--tag", "tenant=a"]);
    assert!(listed.starts_with("ID ") && listed.contains(id) && listed.lines().count() == 2, "{listed}");
    assert_eq!(cli.out(&["jobs", "list", "--tag", "tenant=b"]), "no jobs\n");
    assert_eq!(cli.json(&["jobs", "list"])["items"][0]["id"], json!(id));
    let peeked = cli.out(&["queues", "peek", "mail"]);
    assert!(peeked.contains(id) && peeked.contains("{\"amount\": 12345678901234567890.10}"), "{peeked}");
    assert_eq!(cli.json(&["queues", "peek", "mail"])["items"][0]["id"], json!(id));
    assert_eq!(cli.out(&["jobs", "cancel", id]), format!("job {id} is cancelled\n"));
    let watched = cli.run(&["jobs", "watch", id]);
    assert_eq!((watched.code, watched.err.as_str()), (1, format!("error: job {id} is cancelled\n").as_str()));
    assert!(watched.out.ends_with("cancelled  attempts 0/5\n"), "{}", watched.out);
    assert_eq!(cli.out(&["jobs", "replay", id, "--payload", "[1]"]), format!("job {id} is queued again, replay 1\n"));
    assert_eq!(cli.json(&["jobs", "cancel", id])["status"], json!("cancelled"));
    assert_eq!(cli.json(&["jobs", "replay", id, "--fresh"])["replays"], json!(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_from_stdin_and_as_text_and_keys_make_one_job() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;

    let mut command = cli.command(&["jobs", "publish", "mail", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[1, 2]").unwrap();
    let output = child.wait_with_output().unwrap();
    let piped: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spoken = cli.json(&["jobs", "publish", "mail", "say \"hi\"", "--text", "--idempotency-key", "k"]);
    let again = cli.run(&["jobs", "publish", "mail", "other", "--text", "--idempotency-key", "k"]);

    assert_eq!(cli.json(&["jobs", "show", &text(&piped["id"])])["payload"], json!([1, 2]));
    assert_eq!(cli.json(&["jobs", "show", &text(&spoken["id"])])["payload"], json!("say \"hi\""));
    assert_eq!((again.code, again.out.trim()), (0, text(&spoken["id"]).as_str()));
    assert_eq!(again.err, "duplicate: this idempotency key has a job already; it is queued, and its payload differs\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_and_waiting_end_with_the_job() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    let mut watch = cli.command(&["jobs", "watch", &id]);
    let watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    let watched = watch.wait_with_output().unwrap();
    let failing = tokio::spawn(async move {
        let held = receive_one(&client, "mail").await;
        let nack = json!({"retryable": false, "reason": "no such address", "lease": held["lease"]});
        settle(&client, &text(&held["id"]), "nack", nack).await;
    });
    let waited = cli.run(&["jobs", "publish", "mail", "2", "--wait", "20s"]);
    failing.await.unwrap();

    assert_eq!(watched.status.code(), Some(0));
    let printed = String::from_utf8_lossy(&watched.stdout).into_owned();
    assert!(printed.ends_with("succeeded  attempts 1/5\n"), "{printed}");
    assert_eq!(waited.code, 1, "{}{}", waited.out, waited.err);
    assert!(waited.err.contains("is failed: not_retryable: no such address"), "{}", waited.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_shown_while_a_job_is_watched() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    let plain = Running::start(&mut cli.command(&["jobs", "watch", &id]));
    // `script` gives the command a terminal.
    let watch = format!("{} jobs watch {id} --url {} --key {}", cli.program.display(), cli.url, cli.key);
    let mut terminal = clean_command(Path::new("script"));
    let record = cli.directory.join("screen");
    let terminal = terminal.args(["-qefc", &watch]).arg(&record);
    let drawn = Running::start(terminal.env("SHELL", "/bin/sh"));

    let progress = json!({
        "pct": 50, "stage": "render", "itemsDone": 20, "itemsTotal": 40, "message": "page\u{1b}[2J", "lease": held["lease"],
    });
    // Both follow the job from here on.
    for watcher in [&plain, &drawn] {
        watcher.line("queued → running").await;
    }
    client.put(&format!("/v1/jobs/{id}/progress"), progress).await.unwrap().expect(200);
    plain.line("  progress  ").await;
    let bar = "\r[#############-------------] 50.0%  render  20 of 40 items";
    let screen = || fs::read_to_string(&record).ok().filter(|screen| screen.contains(bar));
    wait::until_now("a bar", REVOKED_MAX * 6, screen).await;
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    let ((plain_ended, lines), (drawn_ended, screen)) = (plain.end().await, drawn.end().await);

    let line = lines.iter().find(|line| line.contains("  progress  ")).unwrap();
    assert!(line.ends_with("  progress  50.0%  render  20 of 40 items  page\\u{1b}[2J"), "{line}");
    assert_eq!((plain_ended.code(), drawn_ended.code()), (Some(0), Some(0)), "{screen:#?}");
    let screen = screen.join("\n");
    assert!(screen.contains(bar), "{screen:?}");
    assert!(screen.trim_end().ends_with("succeeded  attempts 1/5") && !screen.contains('\u{1b}'), "{screen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_work_is_shown_and_written_to_files() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    assert!(cli.fails(5, &["jobs", "checkpoint", &id]).contains("(checkpoint_not_found)"));
    assert_eq!(cli.out(&["jobs", "sections", &id]), "no sections\n");

    let saved = json!({"schemaVersion": 3, "data": {"page": 7}, "lease": held["lease"]});
    client.put(&format!("/v1/jobs/{id}/checkpoint"), saved).await.unwrap().expect(200);
    for name in ["intro", "body"] {
        client.put(&format!("/v1/jobs/{id}/sections/{name}"), json!({"words": 3})).await.unwrap().expect(200);
    }

    let shown = cli.out(&["jobs", "checkpoint", &id]);
    assert!(shown.contains("schemaVersion  3\n") && shown.ends_with("\n{\"page\":7}\n"), "{shown}");
    assert_eq!(cli.json(&["jobs", "checkpoint", &id])["data"], json!({"page": 7}));
    cli.out(&["jobs", "checkpoint", &id, "-o", "saved.json"]);
    assert_eq!(fs::read_to_string(cli.directory.join("saved.json")).unwrap(), "{\"page\":7}");
    let listed = cli.out(&["jobs", "sections", &id]);
    assert!(listed.starts_with("NAME ") && listed.lines().count() == 3, "{listed}");
    assert!(listed.lines().nth(1).unwrap().starts_with("body "), "{listed}");
    assert_eq!(cli.out(&["jobs", "sections", &id, "--name", "intro"]), "{\"words\":3}\n");
    assert_eq!(cli.json(&["jobs", "sections", &id])["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_fetched_checked_and_gone_on_with_where_it_broke_off() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let (id, bytes) = uploaded(&client).await;
    let inline = publish(&client, "mail", json!(1)).await;
    let held = receive_one(&client, "mail").await;
    settle(&client, &inline, "ack", json!({"lease": held["lease"], "result": {"n": 1}})).await;
    let read = |name: &str| fs::read(cli.directory.join(name)).unwrap();
    let proxy = Proxy::before(&server.base).await;
    let proxied = Cli { url: proxy.base.clone(), ..Cli::of(&server) };

    let fetched = cli.run(&["jobs", "result", &id, "-o", "whole"]);
    assert!(fetched.code == 0 && fetched.err.starts_with("whole: 2.8 MiB, sha256 "), "{}", fetched.err);
    assert_eq!(read("whole"), bytes);
    assert_eq!(ran_bytes(cli.command(&["jobs", "result", &id])), bytes);
    assert_eq!(cli.out(&["jobs", "result", &inline]), "{\"n\":1}");
    cli.out(&["jobs", "result", &inline, "-o", "inline"]);
    assert_eq!(read("inline"), b"{\"n\":1}");

    // Two thirds are there: only the rest is sent.
    fs::write(cli.directory.join("rest.part"), &bytes[..2_000_000]).unwrap();
    proxied.out(&["jobs", "result", &id, "-o", "rest"]);
    let (_, sent) = proxy.bytes_seen();
    assert_eq!(read("rest"), bytes);
    assert!((1_000_000..1_500_000).contains(&sent), "{sent} bytes were sent");
    assert!(!cli.directory.join("rest.part").exists());

    // No connection lives long enough for all of it.
    proxy.cut_reply_after(1_200_000);
    proxied.out(&["jobs", "result", &id, "-o", "cut"]);
    assert_eq!(read("cut"), bytes);

    // The beginning is that of something else.
    fs::write(cli.directory.join("other.part"), [0; 1_000]).unwrap();
    let refused = cli.fails(1, &["jobs", "result", &id, "-o", "other"]);
    assert!(refused.contains("the download is not the result"), "{refused}");
    assert!(!cli.directory.join("other").exists() && !cli.directory.join("other.part").exists());
    let none = publish(&client, "mail", json!(1)).await;
    assert!(cli.fails(5, &["jobs", "result", &none]).contains("(result_not_found)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_for_one_job() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;
    let (id, other) =
        (publish(&server.client(), "mail", json!(1)).await, publish(&server.client(), "mail", json!(2)).await);

    let made = cli.run(&["jobs", "token", &id, "--can", "read,cancel", "--expires", "10m"]);
    let theirs = Cli { key: made.out.trim().to_owned(), ..Cli::of(&server) };

    assert!(made.code == 0 && made.err.starts_with(&format!("for job {id} until ")), "{}{}", made.out, made.err);
    assert!(cli.json(&["jobs", "token", &id])["streamUrl"].as_str().unwrap().contains("?token="));
    assert_eq!(theirs.json(&["jobs", "show", &id])["id"], json!(id));
    theirs.fails(4, &["jobs", "list"]);
    assert_ne!(theirs.run(&["jobs", "show", &other]).code, 0, "the token opens another job");
    assert_eq!(theirs.out(&["jobs", "cancel", &id]), format!("job {id} is cancelled\n"));
    assert!(cli.fails(1, &["jobs", "token", &id, "--can", "destroy"]).contains("can"));
}

/// A job whose result was uploaded, and its bytes.
async fn uploaded(client: &Client) -> (String, Vec<u8>) {
    let id = publish(client, "mail", json!(1)).await;
    let held = receive_one(client, "mail").await;
    let mut chance = Chance::seeded(7);
    let bytes = chance.text(3_000_000).into_bytes();
    let request = client.request(Method::PUT, &format!("/v1/jobs/{id}/result?filename=report.bin"));
    let request = request.header("x-outlast-lease", text(&held["lease"])).body(bytes.clone());
    client.send(request.header("content-type", "application/octet-stream")).await.unwrap().expect(201);
    settle(client, &id, "ack", json!({"lease": held["lease"]})).await;
    (id, bytes)
}

fn ran_bytes(mut command: Command) -> Vec<u8> {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_counted_and_retried() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    assert_eq!(cli.out(&["dead", "list", "mail"]), "no dead letters in queue \"mail\"\n");
    let first = dead_letter(&client).await;
    dead_letter(&client).await;

    let listed = cli.out(&["dead", "list", "mail"]);
    assert!(listed.contains(&first) && listed.contains("not_retryable  1/5"), "{listed}");
    assert!(listed.contains("  no such address  "), "{listed}");
    assert_eq!(cli.json(&["dead", "list", "mail", "--limit", "1"])["items"].as_array().unwrap().len(), 1);
    assert_eq!(cli.out(&["dead", "replay", "mail", "--dry-run"]), "2 dead letters would be replayed\n");
    assert_eq!(cli.json(&["dead", "replay", "mail", "--dry-run"])["matched"], json!(2));
    let one = cli.out(&["dead", "replay", "mail", "--id", &first]);
    assert_eq!(one, format!("job {first} is queued again, replay 1\n"));
    let rest = cli.out(&["dead", "replay", "mail", "--limit", "10", "--rate", "100"]);
    assert_eq!(rest, "replay of queue \"mail\" done: 1 processed\n");
    assert!(cli.out(&["dead", "replay", "mail", "--no-wait"]).starts_with("operation "));
    // The replayed ones wait before it.
    cli.out(&["queues", "purge", "mail", "--force"]);
    let gone = dead_letter(&client).await;
    assert!(cli.fails(2, &["dead", "discard", "mail"]).contains("would delete the 1 dead letters"));
    assert_eq!(cli.out(&["dead", "discard", "mail", "--force"]), "discard of queue \"mail\" done: 1 processed\n");
    assert!(cli.fails(5, &["jobs", "show", &gone]).contains("(job_not_found)"));
    let operations = cli.json(&["operations", "list"])["items"].as_array().unwrap().clone();
    let newest = text(&operations[0]["id"]);
    assert_eq!(operations[0]["kind"], json!("discard"), "{operations:#?}");
    assert!(cli.out(&["operations", "list"]).starts_with("ID "));
    assert!(cli.out(&["operations", "show", &newest]).contains("status      done\n"));
    assert_eq!(cli.out(&["operations", "watch", &newest]), "discard of queue \"mail\" done: 1 processed\n");
    assert_eq!(cli.json(&["operations", "stop", &newest])["status"], json!("done"), "it ended before");
    assert!(cli.fails(5, &["operations", "show", "999999"]).contains("operation \"999999\" not found"));
}

pub(crate) async fn dead_letter(client: &Client) -> String {
    let id = publish(client, "mail", json!(1)).await;
    let held = receive_one(client, "mail").await;
    let nack = json!({"retryable": false, "reason": "no such address", "lease": held["lease"]});
    settle(client, &id, "nack", nack).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_listed_and_revoked() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);

    let made = cli.run(&["keys", "create", "ci", "--scope", "publish,read:mail", "--expires-in", "1h"]);
    let theirs = Cli { key: made.out.trim().to_owned(), ..Cli::of(&server) };
    let listed = cli.out(&["keys", "list"]);
    let other = cli.json(&["keys", "create", "other", "--scope", "admin", "--namespace", "elsewhere"]);

    assert!(made.code == 0 && made.out.starts_with("ol_") && made.err.contains("shown only this once"), "{}", made.err);
    assert!(listed.starts_with("ID  NAME   PREFIX           NAMESPACE  SCOPES"), "{listed}");
    assert!(listed.contains("publish,read:mail") && !listed.contains(&theirs.key), "{listed}");
    assert_eq!(other["namespace"], json!("elsewhere"));
    assert_eq!(theirs.out(&["queues", "list"]), "no queues\n");
    assert!(theirs.fails(4, &["keys", "list"]).contains("needs the scope \"admin\""));
    let id =
        cli.json(&["keys", "list"])["items"].as_array().unwrap().iter().find(|key| key["name"] == "ci").unwrap()["id"]
            .clone();
    assert_eq!(cli.out(&["keys", "revoke", &text(&id)]), format!("key {} (\"ci\") is revoked\n", text(&id)));
    let refused = wait::until("the key to be refused", REVOKED_MAX, async || {
        let ran = theirs.run(&["queues", "list"]);
        (ran.code == 4).then_some(ran.err)
    })
    .await;
    assert!(refused.contains("(unauthorized)"), "{refused}");
    assert!(cli.json(&["keys", "revoke", &text(&id)])["revokedAt"].is_string());
}

// 1 refused, 2 usage, 3 not reachable, 4 not authorised, 5 not found, 6 the wait ran out. 0 is everywhere else.
#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_exit_code_and_says_what_to_do() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    make_queue(&server.client(), "mail", json!({})).await;
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";

    for (code, words, said) in [
        (1, &["queues", "create", "mail"][..], "--replace"),
        (1, &["queues", "create", "new", "--set", "maxAttempt=3"], "did you mean \"maxAttempts\"?"),
        (1, &["queues", "create", "new", "--max-attempts", "99"], "maxAttempts: must be a whole number from 1 to 20"),
        (1, &["jobs", "list", "--status", "nope"], "status: must be one of"),
        (2, &["nonsense"], "unrecognized subcommand"),
        (2, &["jobs", "publish", "mail", "{"], "the payload is not JSON"),
        (2, &["jobs", "publish", "mail", "@missing.json"], "cannot open missing.json"),
        (2, &["jobs", "publish", "mail", "1", "--delay", "soon"], "not a duration"),
        (2, &["jobs", "list", "--url", "nonsense"], "hint: write it like http://"),
        (3, &["jobs", "list", "--url", "http://127.0.0.1:9"], "hint: start a server"),
        (4, &["jobs", "list", "--key", "ol_wrong"], "hint: the key given with --key"),
        (6, &["receive", "mail"], "no job came from queue \"mail\""),
        (5, &["queues", "inspect", "nope"], "queue \"nope\" not found (queue_not_found)"),
        (5, &["queues", "peek", "nope"], "queue \"nope\" not found"),
        (5, &["dead", "list", "nope"], "queue \"nope\" not found"),
        (5, &["queues", "pause", "../keys"], "not found"),
        (5, &["jobs", "publish", "nope", "1"], "queue \"nope\" not found"),
        (5, &["jobs", "show", nobody], "hint: `outlast jobs list`"),
        (5, &["jobs", "watch", "nope"], "job \"nope\" not found"),
        (5, &["jobs", "cancel", nobody], "(job_not_found)"),
        (5, &["dead", "replay", "mail", "--id", nobody], "(job_not_found)"),
        (5, &["keys", "revoke", "999"], "hint: `outlast keys list`"),
    ] {
        let complaint = cli.fails(code, words);
        assert!(complaint.contains(said), "{words:?} does not say {said:?}:\n{complaint}");
        // The same with --json: one document on stdout, and the same text for people on stderr.
        let ran = cli.run(&[&["--json"], words].concat());
        let problem: Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{words:?}: {error}: {}", ran.out));
        assert_eq!((ran.code, ran.err.as_str()), (code, complaint.as_str()), "{words:?}");
        if words != ["receive", "mail"] {
            assert_eq!(problem["exitCode"], json!(code), "{words:?}: {problem}");
            assert!(problem["code"].is_string() && problem["detail"].is_string(), "{words:?}: {problem}");
        }
    }
}

// Texts from the server cannot steer the terminal. (T32)
#[tokio::test(flavor = "multi_thread")]
async fn control_characters_never_reach_the_terminal() {
    let server = Server::fresh().await;
    let cli = Cli::of(&server);
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let evil = "\u{1b}[2J\u{9b}31m\u{202e}\r\n";
    let job = json!({"payload": evil, "tags": {evil: evil}, "key": evil});
    let id = text(&client.post("/v1/queues/mail/jobs", job).await.unwrap().expect(202)["id"]);
    let held = receive_one(&client, "mail").await;
    settle(&client, &id, "nack", json!({"retryable": false, "reason": evil, "lease": held["lease"]})).await;

    for words in [&["jobs", "show", &id][..], &["jobs", "list"], &["dead", "list", "mail"], &["jobs", "watch", &id]] {
        for words in [words.to_vec(), [words, &["--json"]].concat()] {
            let ran = cli.run(&words);
            let both = format!("{}{}", ran.out, ran.err);
            let unsafe_one = both.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(unsafe_one, None, "{words:?}: {both:?}");
        }
    }
}
