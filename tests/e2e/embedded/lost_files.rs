//! Files of the data directory that are damaged, removed or swapped between two starts: the server does not start, says
//! what is missing and changes nothing; `--accept-loss` starts it with what is left and keeps what was damaged.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::server::Launch;
use outlast_tests::workload::snapshot::read_jobs;
use serde_json::json;

use crate::api::{make_queue, publish};
use crate::cli::Cli;

const JOBS: usize = 300;
const DATABASE: &str = "outlast.db";
const LOG: &str = "outlast.db-wal";
const STATE: &str = "outlast.state";

/// A directory whose server was killed after it had acknowledged jobs, and the same directory at an earlier time.
struct Killed {
    launch: Launch,
    ids: Vec<String>,
    /// After a kill, one start before.
    earlier: PathBuf,
}

impl Killed {
    async fn make() -> Killed {
        let launch = Launch::embedded();
        let mut ids = Vec::new();
        let earlier = launch.scratch().join("earlier");
        for round in 0..2 {
            let mut server = launch.start().await;
            make_queue(&server.client(), "work", json!({})).await;
            for number in 0..JOBS / 2 {
                ids.push(publish(&server.client(), "work", json!(number)).await);
            }
            server.kill9().await;
            if round == 0 {
                copy(&launch.data, &earlier);
            }
        }
        Killed { launch, ids, earlier }
    }

    /// The same directory in another place, to be injured.
    fn copied(&self, name: &str) -> Launch {
        let place = self.launch.scratch().join(name);
        copy(&self.launch.data, &place);
        self.launch.clone().on(&place)
    }

    async fn present(&self, launch: &Launch) -> usize {
        let mut server = launch.start().await;
        let found = read_jobs(&server.client(), self.ids.clone()).await.len();
        server.kill9().await;
        found
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
}

fn flip(path: &Path, at: u64, bit: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, at).unwrap();
}

fn remove(directory: &Path, names: &[&str]) {
    for name in names {
        fs::remove_file(directory.join(name)).unwrap();
    }
}

fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// The last words of a server that does not start, and must not change anything.
async fn refusal(launch: &Launch, injury: &str) -> String {
    let before = content(&launch.data);
    let refused = launch.try_start().await.err().unwrap_or_else(|| panic!("{injury}: the server started"));
    assert_eq!(refused.status.code(), Some(1), "{injury}: {}", refused.log);
    assert!(refused.log.contains("--accept-loss"), "{injury}: {}", refused.log);
    assert!(content(&launch.data) == before, "{injury}: a refused start changed a file");
    refused.log
}

type Injure = fn(&Path, &Path);

/// The injury of the directory, given its earlier copy, and the expected refusal.
const INJURIES: [(&str, Injure, &str); 16] = [
    ("log removed", |now, _| remove(now, &[LOG]), "outlast.db-wal is missing or empty"),
    ("log emptied", |now, _| fs::write(now.join(LOG), "").unwrap(), "outlast.db-wal is missing or empty"),
    ("log halved", |now, _| cut(&now.join(LOG), fs::metadata(now.join(LOG)).unwrap().len() / 2), "sound frames of"),
    ("log cut by 100 bytes", |now, _| cut(&now.join(LOG), 100), "sound frames of"),
    ("log cut by one frame", |now, _| cut(&now.join(LOG), 4120), "sound frames of"),
    ("bit of the log's header", |now, _| flip(&now.join(LOG), 17, 3), "header of outlast.db-wal is damaged"),
    ("bit of the log's middle", |now, _| flip(&now.join(LOG), 4120 * 100, 3), "sound frames of"),
    (
        "log of an earlier start",
        |now, earlier| copy(&earlier.join(LOG), &now.join(LOG)),
        "not the log that the server wrote",
    ),
    (
        "log and its index of an earlier start",
        |now, earlier| {
            copy(&earlier.join(LOG), &now.join(LOG));
            copy(&earlier.join("outlast.db-shm"), &now.join("outlast.db-shm"));
        },
        "not the log that the server wrote",
    ),
    ("database removed", |now, _| remove(now, &[DATABASE]), "outlast.db is missing or empty beside outlast.state"),
    ("database and log removed", |now, _| remove(now, &[DATABASE, LOG]), "beside outlast.state"),
    ("database, log and state removed", |now, _| remove(now, &[DATABASE, LOG, STATE]), "beside secret.key"),
    ("database and state removed", |now, _| remove(now, &[DATABASE, STATE]), "beside outlast.db-wal"),
    (
        "database of an earlier start",
        |now, earlier| copy(&earlier.join(DATABASE), &now.join(DATABASE)),
        "older than outlast.state",
    ),
    ("state removed", |now, _| remove(now, &[STATE]), "outlast.state is missing"),
    ("state zeroed", |now, _| fs::write(now.join(STATE), [0; 8192]).unwrap(), "outlast.state is damaged"),
];

// I-06, F08: acknowledged jobs never vanish in silence when a file of the store is damaged, missing or of another time.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_directory_is_refused_and_accepted_only_on_request() {
    let killed = Killed::make().await;
    for (number, (injury, injure, says)) in INJURIES.into_iter().enumerate() {
        let launch = killed.copied(&format!("injured-{number}"));
        injure(&launch.data, &killed.earlier);

        let log = refusal(&launch, injury).await;
        assert!(log.contains(says), "{injury}: {log}");
        let doctor = Cli::without_server(&launch).run(&["doctor", "--data", launch.data.to_str().unwrap()]);
        assert!(doctor.out.contains(says), "{injury}: {}\n{}", doctor.out, doctor.err);

        let damaged_log = fs::read(launch.data.join(LOG)).ok().filter(|log| !log.is_empty());
        let mut server = launch.clone().with_flag("--accept-loss").start().await;
        assert!(server.log().contains(says), "{injury}: {}", server.log());
        make_queue(&server.client(), "work", json!({})).await;
        let id = publish(&server.client(), "work", json!("after")).await;
        assert!(!killed.ids.contains(&id), "{injury}: the id of a lost job names another one");
        assert!(server.terminate().await.success());
        let kept = content(&launch.data).into_iter().filter(|(name, _)| name.starts_with("outlast.db-wal.lost-"));
        assert_eq!(kept.map(|(_, content)| content).next(), damaged_log, "{injury}: the damaged log is kept");

        assert!(server.log().contains("ERROR"), "{injury}: a loss is an error: {}", server.log());
        let server = launch.start().await;
        server.client().get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
    }
}

// I-06, F08: whatever happens to log and state file, a start has all acknowledged jobs or is refused.
#[tokio::test(flavor = "multi_thread")]
async fn after_random_injuries_everything_is_there_or_the_start_is_refused() {
    let killed = Killed::make().await;
    let mut chance = Chance::seeded(seed("injuries"));
    let (mut refused, mut whole) = (0, 0);
    for number in 0..volume(40, 2000) {
        let launch = killed.copied(&format!("injured-{number}"));
        let name = if chance.percent(80) { LOG } else { STATE };
        let path = launch.data.join(name);
        let length = fs::metadata(&path).unwrap().len();
        let injury = match chance.below(4) {
            0 => {
                let bytes = chance.between(1, length);
                cut(&path, bytes);
                format!("{name} cut by {bytes}")
            }
            1 => {
                let (at, zeros) = (chance.below(length), chance.between(1, 5000));
                let bytes = vec![0; usize::try_from(zeros.min(length - at)).unwrap()];
                OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&bytes, at).unwrap();
                format!("{name}: {zeros} zeros at {at}")
            }
            _ => {
                let (at, bit) = (chance.below(length), chance.below(8));
                flip(&path, at, bit);
                format!("{name}: bit {bit} of byte {at}")
            }
        };

        match launch.try_start().await {
            Err(early) => {
                assert!(early.log.contains("acknowledged data may be lost"), "{injury}: {}", early.log);
                refused += 1;
            }
            Ok(mut server) => {
                let found = read_jobs(&server.client(), killed.ids.clone()).await.len();
                assert_eq!(found, JOBS, "{injury}: the server started with fewer jobs");
                server.kill9().await;
                whole += 1;
            }
        }
        fs::remove_dir_all(&launch.data).unwrap();
    }
    println!("injuries: {refused} refused, {whole} without effect");
    assert!(refused > 0, "no injury was noticed: the rig proves nothing");
}

// I-06, F08: a log put back after a clean stop is refused; without it the directory is whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_appears_after_a_clean_stop_is_refused() {
    let killed = Killed::make().await;
    let launch = &killed.launch;
    let log = fs::read(launch.data.join(LOG)).unwrap();
    assert!(launch.start().await.terminate().await.success());
    fs::write(launch.data.join(LOG), log).unwrap();

    assert!(refusal(launch, "log put back").await.contains("stopped cleanly"));

    fs::remove_file(launch.data.join(LOG)).unwrap();
    assert_eq!(killed.present(launch).await, JOBS);
}

// I-06, F08: what is documented as a restore raises no alarm: a snapshot in an empty directory, and a copy of all
// files.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_starts() {
    let killed = Killed::make().await;
    let server = killed.launch.start().await;
    let restored = killed.launch.scratch().join("restored");
    fs::create_dir(&restored).unwrap();
    let source = rusqlite::Connection::open(killed.launch.data.join(DATABASE)).unwrap();
    source.execute("VACUUM INTO ?1", [restored.join(DATABASE).to_str().unwrap()]).unwrap();
    drop((source, server));

    let launch = killed.launch.clone().on(&restored);
    fs::copy(killed.launch.data.join("secret.key"), restored.join("secret.key")).unwrap();
    assert_eq!(killed.present(&launch).await, JOBS);
    assert_eq!(killed.present(&launch).await, JOBS, "also after a kill");
    assert_eq!(killed.present(&killed.copied("copy")).await, JOBS);
}

// I-06, F08: a directory of a release that had no state file, killed and stopped, starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_marks_and_state_file_starts() {
    let killed = Killed::make().await;
    for (name, is_stopped) in [("killed", false), ("stopped", true)] {
        let launch = killed.copied(name);
        if is_stopped {
            assert!(launch.start().await.terminate().await.success());
        }
        fs::remove_file(launch.data.join(STATE)).unwrap();
        // As the release before left it: no mark, neither in the file nor in the log.
        let connection = rusqlite::Connection::open(launch.data.join(DATABASE)).unwrap();
        connection.execute_batch("PRAGMA application_id = 0; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        connection.execute_batch("CREATE TABLE other (id INTEGER); DROP TABLE other").unwrap();
        let log = fs::read(launch.data.join(LOG)).unwrap();
        drop(connection);
        if !is_stopped {
            fs::write(launch.data.join(LOG), log).unwrap();
        }

        assert_eq!(killed.present(&launch).await, JOBS, "{name}");
    }
}
