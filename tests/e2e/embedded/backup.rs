//! Backup and restore, by the commands of docs/how-to/back-up-and-restore.md: under load, with push secrets and uploaded results; killed
//! in the middle; damaged on the way.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_tests::chance::volume;
use outlast_tests::receiver::Receiver;
use outlast_tests::server::Launch;
use outlast_tests::trace::{Death, strace_is_installed};
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish, receive, text};
use crate::cli::Cli;
use crate::results::{DEADLINE, Held, MIB, Place, Rig, bytes};

const PAGE: &str = include_str!("../../../docs/how-to/back-up-and-restore.md");

/// The shell block of the page that has this command, with other paths.
pub(crate) fn recipe(command: &str, paths: &[(&str, &Path)]) -> String {
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut block = blocks.filter(|block| block.starts_with(command)).map(str::to_owned);
    let mut text = block.next().unwrap_or_else(|| panic!("the page has no block that begins with {command:?}"));
    for (from, to) in paths {
        assert!(text.contains(from), "{from} is not in {text}");
        text = text.replace(from, to.to_str().unwrap());
    }
    text
}

/// Runs it as a person would, with `outlast` in the path.
pub(crate) fn shell(launch: &Launch, script: &str, environment: &[(&str, &str)]) {
    let programs = launch.program.parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).env("PATH", path).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{script}{text}");
    assert!(output.status.success(), "{script}: {text}");
}

/// A server that keeps its objects in its data directory.
async fn rig(launch: Launch) -> Rig {
    let folder = launch.data.join("objects");
    Rig::start(launch, Place::Folder(folder)).await
}

/// The acknowledged jobs.
#[derive(Default)]
struct Acknowledged {
    payloads: Mutex<BTreeMap<String, Value>>,
    results: Mutex<BTreeMap<String, String>>,
}

impl Acknowledged {
    fn counts(&self) -> (usize, usize) {
        (self.payloads.lock().unwrap().len(), self.results.lock().unwrap().len())
    }
}

async fn publish_until(rig: &Rig, known: &Acknowledged, is_over: &AtomicBool) {
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        let payload = json!({"number": number});
        let id = publish(&rig.client, "work", payload.clone()).await;
        known.payloads.lock().unwrap().insert(id, payload);
        number += 1;
    }
}

/// Checkpoints that replace each other give the collection something to delete; the result stays.
async fn work_until(rig: &Rig, known: &Acknowledged, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        for held in receive(&rig.client, "work", json!({"batch": 1, "wait": 1})).await {
            let held = Held { id: text(&held["id"]), lease: text(&held["lease"]) };
            for part in ["first", "second"] {
                let saved = rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", part).await;
                saved.expect(200);
            }
            let body = format!("the result of {}", held.id);
            rig.put(&held, body.clone()).await.expect(201);
            assert_eq!(rig.ack(&held).await["status"], "succeeded");
            known.results.lock().unwrap().insert(held.id, body);
        }
    }
}

// DEFECTS B1: what was acknowledged before a backup began is in it, with results and push secrets, whatever the server does.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_busy_server_restores_everything_that_was_acknowledged_before() {
    let receiver = Receiver::start().await;
    let launch = Launch::embedded();
    let rig = rig(launch.clone()).await;
    let made = rig.client.put("/v1/queues/mail", json!({"webhookUrl": receiver.url("/mail")})).await.unwrap();
    let secret = text(&made.expect(201)["signingSecret"]);
    receiver.trust("/mail", &secret);
    let large = rig.succeeded("work", bytes(5 * MIB)).await;
    let (known, is_over) = (Acknowledged::default(), AtomicBool::new(false));
    let (backups, restored) = (launch.scratch().join("backups"), launch.scratch().join("restored"));

    let backup = async {
        let enough = volume(60, 2000);
        wait::until("a load", DEADLINE, async || (known.counts().1 >= enough).then_some(())).await;
        let before = (known.payloads.lock().unwrap().clone(), known.results.lock().unwrap().clone());
        let script = recipe("outlast backup", &[("/var/lib/outlast", &launch.data), ("/backup", &backups)]);
        let shelled = launch.clone();
        tokio::task::spawn_blocking(move || shell(&shelled, &script, &[])).await.unwrap();
        let during = known.counts();
        is_over.store(true, Ordering::SeqCst);
        (before, during)
    };
    let (((payloads, results), during), ..) = tokio::join!(
        backup,
        publish_until(&rig, &known, &is_over),
        work_until(&rig, &known, &is_over),
        work_until(&rig, &known, &is_over),
    );
    assert!(during.0 > payloads.len() && during.1 > results.len(), "the server was not busy during the backup");
    drop(rig);
    let script = recipe("outlast restore", &[("/var/lib/outlast-restored", &restored), ("/backup", &backups)]);
    shell(&launch, &script, &[]);

    let rig = self::rig(launch.clone().on(&restored)).await;
    for (id, payload) in &payloads {
        assert_eq!(job(&rig.client, id).await["payload"], *payload, "{id}");
    }
    for (id, body) in &results {
        assert_eq!(&rig.open(&rig.link(id).await).await.body[..], body.as_bytes(), "{id}");
    }
    assert!(rig.open(&rig.link(&large.id).await).await.body == bytes(5 * MIB));
    assert!(rig.audit() > results.len());
    publish(&rig.client, "mail", json!(1)).await;
    let delivery = receiver.arrivals("/mail", 1, Duration::from_secs(20)).await.remove(0);
    assert!(delivery.is_signed_with(&secret));
    let well = Cli::of(&rig.server).out(&["doctor", "--data", restored.to_str().unwrap()]);
    assert!(well.contains("all rows and pages pass their checks"), "{well}");
    println!("backup: {} jobs and {} results before it, {during:?} after it", payloads.len(), results.len());
}

/// A small store with a result, of a server that has stopped, and where its backup goes.
async fn stopped() -> (Launch, Cli, PathBuf) {
    let launch = Launch::embedded();
    let mut rig = rig(launch.clone()).await;
    make_queue(&rig.client, "mail", json!({"webhookUrl": "http://127.0.0.1:9/"})).await;
    rig.succeeded("work", "the result").await;
    assert!(rig.server.terminate().await.success());
    let (cli, target) = (Cli::without_server(&launch), launch.scratch().join("backup"));
    (launch, cli, target)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_and_a_restore_say_what_they_have_done() {
    let (launch, cli, target) = stopped().await;
    let (data, copy) = (launch.data.to_str().unwrap(), target.to_str().unwrap());
    let restored = launch.scratch().join("restored");

    let said = cli.out(&["backup", "--data", data, copy]);
    let refused = cli.fails(2, &["backup", "--data", data, copy]);
    let summary = cli.json(&["restore", "--data", restored.to_str().unwrap(), copy]);
    let twice = cli.fails(1, &["restore", "--data", restored.to_str().unwrap(), copy]);

    assert!(said.contains("backup complete") && said.contains("objects     1"), "{said}");
    assert!(refused.contains("is not empty"), "{refused}");
    assert!(twice.contains("is not empty"), "{twice}");
    assert_eq!((&summary["jobs"], &summary["objects"], &summary["secretKey"]), (&json!(1), &json!(1), &json!(true)));
    for (name, mode) in [("", 0o700), ("outlast.db", 0o600), ("secret.key", 0o600)] {
        for directory in [&target, &restored] {
            let found = fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name} has {found:o}");
        }
    }
    let server = launch.clone().on(&restored).start().await;
    let shown = server.client().get("/v1/queues/mail").await.unwrap().expect(200);
    assert_eq!(shown["webhookUrl"], "http://127.0.0.1:9/");
    assert!(!server.log().contains("lost"), "{}", server.log());
}

// A backup that is not as it was written is refused as a whole, before anything is restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_restores_nothing() {
    let (launch, cli, target) = stopped().await;
    let (data, copy) = (launch.data.to_str().unwrap(), target.to_str().unwrap());
    cli.out(&["backup", "--data", data, copy]);
    let restored = launch.scratch().join("restored");
    let mut paths: Vec<PathBuf> = ["outlast.db", "secret.key", "manifest.jsonl"].map(|name| target.join(name)).to_vec();
    paths.push(files_below(&target.join("objects")).remove(0));

    for path in paths {
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        let middle = whole.len() / 2;
        changed[middle] ^= 0x20;
        for damage in [Some(changed), Some(whole[..middle].to_vec()), None] {
            match damage {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            cli.fails(1, &["restore", "--data", restored.to_str().unwrap(), copy]);
            assert!(!restored.exists(), "{}", path.display());
        }
        fs::write(&path, whole).unwrap();
    }
    cli.out(&["restore", "--data", restored.to_str().unwrap(), copy]);
}

// An object that a job needs and that is gone, or is not what was stored, is said; the rest is saved.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_damaged_store_says_what_is_missing() {
    let (launch, cli, target) = stopped().await;
    let data = launch.data.to_str().unwrap();
    let object = files_below(&launch.data.join("objects")).remove(0);

    fs::write(&object, "another thing").unwrap();
    let damaged = cli.fails(1, &["backup", "--data", data, target.join("a").to_str().unwrap()]);
    fs::remove_file(&object).unwrap();
    let missing = cli.fails(1, &["backup", "--data", data, target.join("b").to_str().unwrap()]);
    let said = cli.out(&["restore", "--data", target.join("c").to_str().unwrap(), target.join("b").to_str().unwrap()]);

    let name = object.strip_prefix(&launch.data).unwrap().to_str().unwrap();
    assert!(damaged.contains(name) && damaged.contains("not those that were stored"), "{damaged}");
    assert!(missing.contains(name) && missing.contains("not there"), "{missing}");
    assert!(said.contains("1 were missing"), "{said}");
}

// Killed at any step, a backup is none, and a restore leaves nothing that a server starts on.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backup_is_refused_and_a_killed_restore_does_not_start() {
    assert!(strace_is_installed(), "strace is missing: `make test` installs it, or install the package strace");
    let (launch, cli, target) = stopped().await;
    let data = launch.data.to_str().unwrap();
    let whole = target.join("whole");
    cli.out(&["backup", "--data", data, whole.to_str().unwrap()]);
    let mut deaths = 0;

    for (step, calls) in ["openat", "write", "pwrite64", "rename", "syncfs"].into_iter().enumerate() {
        for ordinal in [1, 2, 3, 5, 8, 13, 21, 34] {
            let death = Death { calls, ordinal };
            let (copy, restored) =
                (target.join(format!("{step}-{ordinal}")), target.join(format!("r-{step}-{ordinal}")));
            let (copy, restored) = (copy.to_str().unwrap(), restored.to_str().unwrap());
            if !survives(&cli, &death, &["backup", "--data", data, copy]) && !is_whole(Path::new(copy)) {
                deaths += 1;
                cli.fails(1, &["restore", "--data", restored, copy]);
            }
            let words = ["restore", "--data", restored, whole.to_str().unwrap()];
            if !survives(&cli, &death, &words) && !Path::new(restored).join("outlast.db").exists() {
                deaths += 1;
                let begun = Path::new(restored).join("secret.key").exists();
                let refused = begun.then(|| launch.clone().on(Path::new(restored)));
                if let Some(launch) = refused {
                    let early = launch.try_start().await.err().expect("no server starts on half a restore");
                    assert!(early.log.contains("outlast.db is missing"), "{}", early.log);
                }
            }
        }
    }

    println!("killed {deaths} times");
    assert!(deaths > 10, "the rig proves nothing");
}

fn is_whole(copy: &Path) -> bool {
    copy.join("manifest.jsonl").exists()
}

/// Does the command end?
fn survives(cli: &Cli, death: &Death, words: &[&str]) -> bool {
    let wrapper = death.wrapper(&cli.directory.join("strace.log"));
    let plain = cli.command(words);
    let mut command = Command::new(&wrapper[0]);
    command.args(&wrapper[1..]).arg(plain.get_program()).args(plain.get_args());
    command.output().unwrap().status.success()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

// While a backup is taken, the server deletes no objects; afterwards it does.
#[tokio::test(flavor = "multi_thread")]
async fn no_object_is_deleted_while_a_backup_is_taken() {
    let rig = rig(Launch::embedded()).await;
    let held = rig.held().await;
    rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", "first").await.expect(200);
    let folder = rig.server.launch().data.join("objects");
    let lock = fs::File::open(&folder).unwrap();
    lock.lock().unwrap();

    rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", "second").await.expect(200);
    wait::until("a round that deletes nothing", DEADLINE, async || {
        rig.server.log().contains("a backup is being taken").then_some(())
    })
    .await;
    assert!(rig.rows().iter().any(|row| row.doomed && row.kept), "the first one is due");
    assert_eq!(rig.objects().len(), 2);

    drop(lock);
    rig.until_only_live(1).await;
}
