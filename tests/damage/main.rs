//! Damage on disk: a store with jobs of all kinds is injured at random places, then started and read back by HTTP. Whatever
//! is served equals what was acknowledged, or the server says that data is damaged; nothing is missing in silence, and the
//! server neither ends nor ends again and again. Each injury starts from a copy of one store.

mod injury;
mod judge;
mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::server::Launch;
use rusqlite::Connection;
use tokio::task::JoinSet;

use self::injury::{Injury, Place};
use self::judge::{Verdict, judge};
use self::scene::Scene;

/// Servers at work at once.
const AT_ONCE: usize = 3;
/// Injuries of a short run.
const INJURIES: usize = 60;
/// A long run says how it goes.
const SHOWN_EVERY: usize = 100;
/// Injuries of the control, which ends at the first wrong answer.
const CONTROL_MAX: usize = 120;

/// How many injuries of which kind ended how.
type Figures = BTreeMap<(String, &'static str), usize>;

// I-06
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_never_served_and_nothing_is_lost_in_silence() {
    let mut chance = Chance::seeded(seed("damage"));
    let scene = Arc::new(Scene::make().await);

    let (figures, wrong) = injure(&scene, &mut chance, volume(INJURIES, 1000), &Place::ALL).await;

    show(&figures);
    assert!(wrong.is_empty(), "{} of the injuries were answered wrongly:\n{}", wrong.len(), wrong.join("\n"));
    let said: usize = figures.iter().filter(|((_, how), _)| *how != "unnoticed").map(|(_, count)| count).sum();
    assert!(said > 0, "no injury struck anything");
}

// The control: without checksums wrong data is served, and the rig notices.
#[tokio::test(flavor = "multi_thread")]
async fn the_rig_notices_wrong_data_where_rows_have_no_checksums() {
    let mut chance = Chance::seeded(seed("damage without checksums"));
    let scene = Scene::make().await;
    forget_checksums(&scene.directory());
    let scene = Arc::new(scene);

    let mut tried = 0;
    while tried < CONTROL_MAX {
        let (_, wrong) = injure(&scene, &mut chance, 2 * AT_ONCE, &[Place::Row]).await;
        if !wrong.is_empty() {
            return;
        }
        tried += 2 * AT_ONCE;
    }
    panic!("{tried} injuries of rows without checksums, and no answer was wrong");
}

async fn injure(
    scene: &Arc<Scene>,
    chance: &mut Chance,
    count: usize,
    places: &'static [Place],
) -> (Figures, Vec<String>) {
    let (mut figures, mut wrong) = (Figures::new(), Vec::new());
    let mut running = JoinSet::new();
    let mut left = count;
    while left > 0 || !running.is_empty() {
        while left > 0 && running.len() < AT_ONCE {
            left -= 1;
            let (scene, own) = (Arc::clone(scene), Chance::seeded(chance.below(u64::MAX)));
            running.spawn(async move { one(&scene, own, places).await });
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
            Verdict::Said | Verdict::Unnoticed => {}
        }
    }
    (figures, wrong)
}

async fn one(scene: &Scene, mut chance: Chance, places: &[Place]) -> (Injury, Verdict) {
    let launch = Launch::clone(&scene.launch);
    let directory = tempfile::TempDir::with_prefix("outlast-damage-").expect("a temporary directory");
    let data = directory.path().join("data");
    copy(&scene.directory(), &data);
    let injury = Injury::inflict(&data, &mut chance, places);
    let verdict = judge(&launch.on(&data), scene).await;
    (injury, verdict)
}

/// Files keep their mode, which is private.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory can be made");
    fs::set_permissions(to, fs::metadata(from).expect("it is there").permissions()).expect("its mode can be set");
    for entry in fs::read_dir(from).expect("the directory can be listed") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::copy(entry.path(), target).map(|_| ()).expect("a file can be copied"),
        }
    }
}

/// As a store that is older than checksums.
fn forget_checksums(data: &Path) {
    let connection = Connection::open(data.join("outlast.db")).expect("the database opens");
    for table in ["job", "spec", "result", "history", "checkpoint", "section", "arrival"] {
        connection.execute(&format!("UPDATE {table} SET checksum = NULL"), []).expect("a table with checksums");
    }
    connection.execute("UPDATE arrival SET body_checksum = NULL", []).expect("a table with checksums");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
}

fn show(figures: &Figures) {
    println!("{:<28} {:>10}", "injury", "outcome");
    for ((kind, how), count) in figures {
        println!("{kind:<28} {how:>10} {count:>6}");
    }
}
