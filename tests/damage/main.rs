//! Damage on disk: a store with jobs of all kinds is injured at random places of its database, its log, its state file and its
//! objects, then started and read back by HTTP. Whatever is served equals what was acknowledged, or the server says that data
//! is damaged; nothing is missing in silence, and the server neither ends nor ends again and again. Each injury starts from a
//! copy of one store.

mod injury;
mod judge;
mod scene;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use outlast_tests::chance::{Chance, seed, volume};
use rusqlite::Connection;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use self::injury::{Injury, Place};
use self::judge::{Verdict, judge};
use self::scene::{Ending, Scene, copy};

/// Servers at work at once.
const AT_ONCE: usize = 3;
/// Injuries of a short run.
const INJURIES: usize = 48;
/// A long run says how it goes.
const SHOWN_EVERY: usize = 100;
/// Injuries of the control, which ends at the first wrong answer.
const CONTROL_MAX: usize = 120;

/// Where SQLite keeps `application_id`, which holds our mark.
const MARK_AT: u64 = 68;

/// How many injuries of which kind ended how.
type Figures = BTreeMap<(String, &'static str), usize>;

// I-06
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_never_served_and_nothing_is_lost_in_silence() {
    let mut chance = Chance::seeded(seed("damage"));
    let scene = Arc::new(Scene::make().await);

    let (figures, wrong) = injure(&scene, &mut chance, volume(INJURIES, 1000), Place::any).await;

    show(&figures);
    assert!(wrong.is_empty(), "{} of the injuries were answered wrongly:\n{}", wrong.len(), wrong.join("\n"));
    let said: usize = figures.iter().filter(|((_, how), _)| *how != "unnoticed").map(|(_, count)| count).sum();
    assert!(said > 0, "no injury struck anything");
}

// The controls: without checks wrong data is served or is missing in silence, and the rig notices.
#[tokio::test(flavor = "multi_thread")]
async fn the_rig_notices_wrong_data_where_rows_have_no_checksums() {
    let scene = Scene::make().await;
    forget_checksums(&scene.directory(Ending::Stopped));
    assert_notices(scene, |_| Place::Row).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rig_notices_lost_data_where_nothing_says_how_long_the_log_was() {
    let scene = Scene::make().await;
    forget_log(&scene.directory(Ending::Killed));
    assert_notices(scene, |_| Place::Log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rig_notices_a_wrong_object_where_its_digest_was_changed_with_it() {
    let scene = Scene::make().await;
    let data = scene.directory(Ending::Stopped);
    forge_object(&data);

    let verdict = judge(&scene.launch.clone().on(&data), &scene).await;

    assert!(matches!(verdict, Verdict::Wrong(_)), "{verdict:?}");
}

async fn assert_notices(scene: Scene, place: fn(&mut Chance) -> Place) {
    let mut chance = Chance::seeded(seed("damage without checks"));
    let scene = Arc::new(scene);
    let mut tried = 0;
    while tried < CONTROL_MAX {
        let (_, wrong) = injure(&scene, &mut chance, 2 * AT_ONCE, place).await;
        if !wrong.is_empty() {
            return;
        }
        tried += 2 * AT_ONCE;
    }
    panic!("{tried} injuries without checks, and no answer was wrong");
}

async fn injure(
    scene: &Arc<Scene>,
    chance: &mut Chance,
    count: usize,
    place: fn(&mut Chance) -> Place,
) -> (Figures, Vec<String>) {
    let (mut figures, mut wrong) = (Figures::new(), Vec::new());
    let mut running = JoinSet::new();
    let mut left = count;
    while left > 0 || !running.is_empty() {
        while left > 0 && running.len() < AT_ONCE {
            left -= 1;
            let (scene, own) = (Arc::clone(scene), Chance::seeded(chance.below(u64::MAX)));
            running.spawn(async move { one(&scene, own, place).await });
        }
        let (injury, verdict) = running.join_next().await.expect("one runs").expect("the judge does not panic");
        *figures.entry((injury.kind(), verdict.name())).or_default() += 1;
        let done: usize = figures.values().sum();
        if done.is_multiple_of(SHOWN_EVERY) {
            show(&figures);
        }
        match verdict {
            Verdict::Wrong(what) => {
                println!("wrong: {injury}: {what}");
                wrong.push(format!("{injury}: {what}"));
            }
            Verdict::Refused(message) => println!("refused: {injury}: {message}"),
            Verdict::RefusedForGood(message) => println!("refused for good: {injury}: {message}"),
            Verdict::Said | Verdict::Unnoticed => {}
        }
    }
    (figures, wrong)
}

async fn one(scene: &Scene, mut chance: Chance, place: fn(&mut Chance) -> Place) -> (Injury, Verdict) {
    let place = place(&mut chance);
    let directory = tempfile::TempDir::with_prefix("outlast-damage-").expect("a temporary directory");
    let data = directory.path().join("data");
    copy(&scene.directory(place.ending()), &data);
    let injury = Injury::inflict(&data, &mut chance, place);
    let verdict = judge(&scene.launch.clone().on(&data), scene).await;
    (injury, verdict)
}

/// As a store that is older than checksums.
fn forget_checksums(data: &Path) {
    let connection = Connection::open(data.join("outlast.db")).expect("the database opens");
    for table in ["job", "spec", "result", "history", "checkpoint", "section", "inbound_event"] {
        connection.execute(&format!("UPDATE {table} SET checksum = NULL"), []).expect("a table with checksums");
    }
    connection.execute("UPDATE inbound_event SET body_checksum = NULL", []).expect("a table with checksums");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
}

/// As a store that is older than the state file: the database has no mark.
fn forget_log(data: &Path) {
    fs::remove_file(data.join("outlast.state")).expect("the state file is there");
    let database = OpenOptions::new().write(true).open(data.join("outlast.db")).expect("the database opens");
    database.write_all_at(&[0; 4], MARK_AT).expect("the mark is written");
}

/// Other bytes in the place of an object, and its row as if they were those that were written.
fn forge_object(data: &Path) {
    let connection = Connection::open(data.join("outlast.db")).expect("the database opens");
    let sql = "SELECT key FROM object WHERE attached AND length > 1000 ORDER BY length LIMIT 1";
    let key: String = connection.query_row(sql, [], |row| row.get(0)).expect("there is an object");
    let path = data.join("objects").join(&key);
    let mut bytes = fs::read(&path).expect("the object is read");
    bytes[500] ^= 1;
    let sha256 = Sha256::digest(&bytes).to_vec();
    fs::write(&path, &bytes).expect("the object is written");
    let forge = "UPDATE object SET sha256 = ?2, checksums = NULL, checksum = NULL WHERE key = ?1";
    connection.execute(forge, rusqlite::params![key, sha256]).expect("the row is changed");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
}

fn show(figures: &Figures) {
    println!("{:<32} {:>16}", "injury", "outcome");
    for ((kind, how), count) in figures {
        println!("{kind:<32} {how:>16} {count:>6}");
    }
}
