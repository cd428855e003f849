//! `outlast worker run`: any program as a worker. The program's input, the effect of its end, the signals that end it
//! and when, and that nothing of it is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::round_robin::RoundRobin;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{events, job, make_queue, publish, receive_one, settle, text};
use crate::programs::{Running, clean_command};

/// A program is started, signalled and waited for well within this time on two busy cores.
const DEADLINE: Duration = Duration::from_secs(40);

/// Where programs of a test leave what they have seen; given to them as their working directory.
struct Place {
    server: Server,
    directory: PathBuf,
}

impl Place {
    async fn fresh() -> Place {
        Place::on(Server::fresh().await)
    }

    fn on(server: Server) -> Place {
        let directory = server.launch().scratch().join("programs");
        fs::create_dir(&directory).unwrap();
        Place { server, directory }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// A worker of the queue `work` that runs this script for each job.
    fn worker(&self, flags: &[&str], script: &str) -> Running {
        self.worker_at(&self.server.base, flags, script)
    }

    fn worker_at(&self, base: &str, flags: &[&str], script: &str) -> Running {
        let mut command = clean_command(&self.server.launch().program);
        command.args(["worker", "run", "work"]).args(flags).args(["--", "sh", "-c", script]);
        command.current_dir(&self.directory).env("TMPDIR", &self.directory);
        Running::start(command.env("OUTLAST_URL", base).env("OUTLAST_KEY", &self.server.launch().key))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(name)).ok()
    }

    /// The text that a program writes to a file, as soon as it has a whole line.
    async fn file(&self, name: &str) -> String {
        let whole = || self.read(name).filter(|text| text.ends_with('\n'));
        wait::until_now(&format!("a program to write {name}"), DEADLINE, whole).await
    }

    /// The files of jobs that are left.
    fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("outlast-job-")).collect()
    }
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

/// Pids of the children of a process, including zombies.
fn children(parent: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

async fn reaches(client: &Client, id: &str, status: &str) -> Value {
    wait::until(&format!("job {id} to be {status}"), DEADLINE, async || {
        let job = job(client, id).await;
        (job["status"] == status).then_some(job)
    })
    .await
}

async fn gone(pid: &str) {
    wait::until_now(&format!("process {pid} to be gone"), DEADLINE, || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_its_job_and_what_it_writes_is_the_result() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let payload = r#"{"amount": 12345678901234567890.10, "b": [1,  2]}"#;
    let published = client.request(reqwest::Method::POST, "/v1/queues/work/jobs");
    let published = published.body(format!("{{\"payload\": {payload}}}"));
    let id = text(&client.send(published).await.unwrap().expect(202)["id"]);

    let script = "env > environment; cat > stdin; echo a remark >&2; cp stdin \"$OUTLAST_RESULT_FILE\"";
    let (status, lines) = place.worker(&["--once"], script).end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert_eq!(place.read("stdin").unwrap(), payload);
    let environment = place.read("environment").unwrap();
    for line in [
        format!("OUTLAST_JOB_ID={id}"),
        "OUTLAST_ATTEMPT=1".to_owned(),
        "OUTLAST_REPLAYS=0".to_owned(),
        "OUTLAST_QUEUE=work".to_owned(),
        format!("OUTLAST_URL={}", place.server.base),
        "OUTLAST_PROGRESS_FD=3".to_owned(),
    ] {
        assert!(environment.lines().any(|found| found == line), "{line} is not in\n{environment}");
    }
    assert!(!environment.contains(&place.server.launch().key), "the key was passed on: {environment}");
    assert!(lines.contains(&"a remark".to_owned()), "{lines:#?}");
    assert_eq!(job(&client, &id).await["status"], json!("succeeded"));
    let result = client.get(&format!("/v1/jobs/{id}/result")).await.unwrap();
    assert_eq!(result.body.to_string(), serde_json::from_str::<Value>(payload).unwrap().to_string());
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_and_stdout_are_passed_on_when_asked_for() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;

    let script = "printf '{\"key\": \"%s\"}' \"$OUTLAST_KEY\"";
    let (status, lines) = place.worker(&["--once", "--pass-key", "--stdout-result"], script).end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let result = client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    assert_eq!(result, json!({"key": place.server.launch().key}));
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_program_ends_is_the_outcome() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({"maxAttempts": 2, "backoff": {"type": "fixed", "delay": 3600}})).await;

    for (script, status, reason) in [
        ("exit 0", "succeeded", Value::Null),
        ("echo no such page >&2; exit 65", "failed", json!("exit code 65: no such page")),
        ("exit 78", "failed", json!("exit code 78")),
        ("exit 75", "pending", json!("exit code 75")),
        ("echo first >&2; echo last >&2; exit 1", "pending", json!("exit code 1: first\nlast")),
        ("kill -9 $$", "pending", json!("ended by signal 9")),
        ("nonsense-that-is-not-there", "pending", json!("exit code 127: sh: 1: nonsense-that-is-not-there: not found")),
    ] {
        let id = publish(&client, "work", json!(1)).await;

        let (worker, lines) = place.worker(&["--until-empty"], script).end().await;

        let job = job(&client, &id).await;
        assert_eq!(worker.code(), Some(0), "{lines:#?}");
        assert_eq!((&job["status"], &job["lastError"]), (&json!(status), &reason), "{script}: {lines:#?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_a_mistake_of_the_command() {
    let program = outlast_tests::server::Launch::embedded().program;
    let words = ["worker", "run", "work", "--", "./not-there"];

    let output = clean_command(&program).args(words).output().unwrap();

    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(
        complaint.contains("\"./not-there\" is not an executable program") && complaint.contains("hint: "),
        "{complaint}"
    );
}

// Work of many seconds, where every five seconds a heartbeat is due although the lease is longer.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_keep_a_short_lease() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({"heartbeatTimeout": 5})).await;
    let id = publish(&client, "work", json!(1)).await;
    let worker = place.worker(&["--once", "--visibility", "30s"], "sleep 11; echo done > done");

    let (status, lines) = worker.end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let job = job(&client, &id).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("succeeded"), &json!(1)), "{lines:#?}");
    assert_eq!(place.read("done").unwrap(), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_side_by_side_until_the_queue_is_empty_and_leave_no_zombies() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(publish(&client, "work", json!(number)).await);
    }
    // Each of the first three ends only when all three are there; each leaves something running behind.
    let script = "touch here-$(cat); sleep 600 & echo $! >> left; \
                  until [ $(ls here-* | wc -l) -ge 3 ]; do sleep 0.05; done";

    let worker = place.worker(&["--concurrency", "3"], script);
    for id in &ids {
        reaches(&client, id, "succeeded").await;
    }

    let none_left = || children(worker.pid()).is_empty().then_some(());
    wait::until_now("a worker without children, living or dead", DEADLINE, none_left).await;
    for pid in place.file("left").await.lines() {
        gone(pid).await;
    }
    let (status, lines) = worker.interrupt().await;
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert!(lines.contains(&"4 attempts finished".to_owned()), "{lines:#?}");
    assert_eq!(place.leftovers(), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_program_gets_sigterm_and_the_cancel_is_confirmed() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({"drainTimeout": 60})).await;
    let id = publish(&client, "work", json!(1)).await;
    let script = "trap 'echo signalled > signalled; exit 3' TERM; echo $$ > pid; sleep 600 & wait";
    let worker = place.worker(&["--heartbeat", "200ms"], script);
    let pid = place.file("pid").await;

    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    // Long before the drain time ends.
    reaches(&client, &id, "cancelled").await;
    assert_eq!(place.file("signalled").await, "signalled\n");
    gone(&pid).await;
    worker.line(&format!("job {id} attempt 1: cancelled, the job is cancelled")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_its_cancel_is_killed_after_the_drain_time() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({"drainTimeout": 1})).await;
    let id = publish(&client, "work", json!(1)).await;
    let script = "trap 'echo signalled > signalled' TERM; echo $$ > pid; while :; do sleep 1; done";
    let worker = place.worker(&["--heartbeat", "200ms"], script);
    let pid = place.file("pid").await;

    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    reaches(&client, &id, "cancelled").await;
    gone(&pid).await;
    assert_eq!(place.file("signalled").await, "signalled\n");
    worker.line(&format!("job {id} attempt 1: no outcome was reported")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_soft_limit_is_signalled_and_the_hard_limit_kills() {
    let place = Place::fresh().await;
    let client = place.client();
    let settings = json!({"softTimeLimit": 1, "hardTimeLimit": 10, "maxAttempts": 1});
    make_queue(&client, "work", settings).await;
    let polite = publish(&client, "work", json!(1)).await;
    let worker = place.worker(&["--once", "--heartbeat", "200ms"], "trap 'exit 0' TERM; sleep 600 & wait");
    reaches(&client, &polite, "succeeded").await;
    worker.end().await;

    let deaf = publish(&client, "work", json!(2)).await;
    let script = "trap 'echo signalled > signalled' TERM; echo $$ > pid; while :; do sleep 1; done";
    let worker = place.worker(&["--once", "--heartbeat", "200ms"], script);
    let pid = place.file("pid").await;
    gone(&pid).await;

    reaches(&client, &deaf, "failed").await;
    assert_eq!(place.file("signalled").await, "signalled\n");
    let (_, lines) = worker.end().await;
    assert!(lines.iter().any(|line| line.contains(&format!("job {deaf} attempt 1: no outcome"))), "{lines:#?}");
}

// I-15: what the paused worker would say comes too late, and it says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_lease_is_lost_is_ended_and_nothing_is_reported() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let worker = place.worker(&["--visibility", "5s"], "trap 'exit 0' TERM; echo $$ > pid; sleep 600 & wait");
    let pid = place.file("pid").await;

    worker.signal("STOP");
    let second = receive_one(&client, "work").await;
    worker.signal("CONT");
    gone(&pid).await;
    worker.line(&format!("job {id} attempt 1: no outcome was reported")).await;

    assert_eq!((&second["id"], &second["attempt"]), (&json!(id), &json!(2)), "the lease was not lost");
    let now = job(&client, &id).await;
    assert_eq!((&now["status"], &now["attempt"]), (&json!("running"), &json!(2)));
    settle(&client, &id, "ack", json!({"lease": second["lease"]})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_gets_sigterm_releases_its_jobs_for_free() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let worker = place.worker(&[], "trap 'echo signalled > signalled; exit 9' TERM; echo $$ > pid; sleep 600 & wait");
    let pid = place.file("pid").await;

    worker.signal("TERM");
    let (status, lines) = worker.end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert_eq!(place.file("signalled").await, "signalled\n");
    assert!(!is_alive(&pid));
    let job = job(&client, &id).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("queued"), &json!(1)), "{lines:#?}");
    let log = events(&client, &id).await;
    assert!(log.iter().any(|event| event["outcome"] == "released"), "{log:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_kills_programs_that_have_not_ended() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let script = "trap 'echo signalled > signalled' TERM; echo $$ > pid; while :; do sleep 1; done";
    let worker = place.worker(&["--grace", "10m"], script);
    let pid = place.file("pid").await;

    worker.signal("INT");
    place.file("signalled").await;
    let (status, lines) = worker.interrupt().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert!(!is_alive(&pid));
    assert_eq!(job(&client, &id).await["status"], json!("queued"), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_works_on_while_the_server_is_away() {
    let mut place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let front = RoundRobin::before(&[place.server.base.clone()]).await;
    let script = "echo $$ > pid; until [ -e go ]; do sleep 0.1; done; echo '{\"n\": 1}' > \"$OUTLAST_RESULT_FILE\"";
    let flags = ["--once", "--visibility", "5m", "--heartbeat", "200ms", "--timeout", "5s"];
    let worker = place.worker_at(&front.base, &flags, script);
    let pid = place.file("pid").await;

    place.server.kill9().await;
    worker.line("heartbeat: ").await;
    fs::write(place.directory.join("go"), "").unwrap();
    gone(&pid).await;
    place.server.crash_and_restart().await;
    front.take_in(0, &place.server.base);
    let (status, lines) = worker.end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let job = job(&place.client(), &id).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("succeeded"), &json!(1)), "{lines:#?}");
}

// Over the descriptor and over the named pipe, in words and as JSON; the next attempt finds what was saved.
#[tokio::test(flavor = "multi_thread")]
async fn reports_of_a_program_reach_viewers_and_the_next_attempt() {
    let place = Place::fresh().await;
    let client = place.client();
    let settings = json!({"backoff": {"type": "fixed", "delay": 0.1}, "keepCheckpoints": true});
    make_queue(&client, "work", settings).await;
    let id = publish(&client, "work", json!(1)).await;
    let script = r#"
        if [ "$OUTLAST_ATTEMPT" = 1 ]; then
            echo 'output some tokens' >&3
            echo 'section intro {"words": 3}' >&3
            echo '{"section": "end", "value": [1]}' > "$OUTLAST_PROGRESS"
            echo '{"checkpoint": {"page": 7}, "schemaVersion": 2, "pct": 20}' > "$OUTLAST_PROGRESS"
            exit 1
        fi
        { cat "$OUTLAST_CHECKPOINT_FILE"; echo; echo "$OUTLAST_CHECKPOINT_SCHEMA"; cat "$OUTLAST_SECTIONS_FILE"; } > saw
        echo 'progress 40 write page 8' > "$OUTLAST_PROGRESS"
        until [ -e go ]; do sleep 0.1; done"#;
    let worker = place.worker(&[], script);

    let progress = wait::until("the progress of the second attempt", DEADLINE, async || {
        let progress = job(&client, &id).await["progress"].clone();
        (progress["pct"].as_f64() == Some(40.0)).then_some(progress)
    })
    .await;
    fs::write(place.directory.join("go"), "").unwrap();
    reaches(&client, &id, "succeeded").await;

    assert_eq!((&progress["stage"], &progress["message"]), (&json!("write"), &json!("page 8")), "{progress}");
    assert_eq!(place.read("saw").unwrap(), "{\"page\": 7}\n2\nend\nintro\n", "{:#?}", worker.lines());
    let log = events(&client, &id).await;
    let outputs: Vec<&Value> =
        log.iter().filter(|event| event["type"] == "output").map(|event| &event["text"]).collect();
    assert_eq!(outputs, [&json!("some tokens\n")], "{log:#?}");
    let section = client.get(&format!("/v1/jobs/{id}/sections/intro")).await.unwrap().expect(200);
    assert_eq!(section, json!({"words": 3}));
    assert_eq!(worker.count("refused"), 0, "{:#?}", worker.lines());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_a_file_is_uploaded_before_the_ack() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;

    let script = "head -c 3000000 /dev/zero > \"$OUTLAST_RESULT_FILE\"";
    let flags = ["--once", "--result-filename", "report.bin", "--result-type", "application/x-report"];
    let (status, lines) = place.worker(&flags, script).end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let job = job(&client, &id).await;
    let meta = &job["resultMeta"];
    assert_eq!((&job["status"], &meta["length"]), (&json!("succeeded"), &json!(3_000_000)), "{job}");
    assert_eq!((&meta["filename"], &meta["contentType"]), (&json!("report.bin"), &json!("application/x-report")));
    let file = place.directory.join("fetched");
    let mut fetch = clean_command(&place.server.launch().program);
    fetch.args(["jobs", "result", &id, "-o"]).arg(&file).env("OUTLAST_URL", &place.server.base);
    let fetched = fetch.env("OUTLAST_KEY", &place.server.launch().key).output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert_eq!(fs::read(file).unwrap(), vec![0; 3_000_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_beyond_the_inline_limit_are_uploaded() {
    let launch = Launch::fresh().with_config("limits:\n  payload_bytes: 64KiB\n");
    let place = Place::on(launch.start().await);
    let client = place.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 60})).await;
    let id = publish(&client, "work", json!(1)).await;

    let script = "printf '\"%0100000d\"' 7 > \"$OUTLAST_RESULT_FILE\"";
    let (status, lines) = place.worker(&["--once"], script).end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let done = job(&client, &id).await;
    assert_eq!((&done["status"], &done["resultMeta"]["length"]), (&json!("succeeded"), &json!(100_002)), "{done}");
    assert!(done["resultMeta"]["sha256"].is_string(), "it was not uploaded: {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_of_another_schema_is_not_given_to_a_program() {
    let place = Place::fresh().await;
    let client = place.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;
    let saved = json!({"schemaVersion": 1, "data": {"page": 7}, "lease": held["lease"]});
    client.put(&format!("/v1/jobs/{id}/checkpoint"), saved).await.unwrap().expect(200);
    settle(&client, &id, "release", json!({"lease": held["lease"]})).await;

    let script = "echo \"file ${OUTLAST_CHECKPOINT_FILE-none} ${OUTLAST_CHECKPOINT_INCOMPATIBLE-0}\" > saw";
    let (status, lines) = place.worker(&["--once", "--accepts-schema", "2"], script).end().await;

    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert_eq!(place.read("saw").unwrap(), "file none 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_queue_or_a_key_says_so_and_ends() {
    let place = Place::fresh().await;

    let (status, lines) = place.worker(&[], "exit 0").end().await;

    assert_eq!(status.code(), Some(5), "{lines:#?}");
    assert!(lines.contains(&"error: queue \"work\" not found (queue_not_found)".to_owned()), "{lines:#?}");
}
