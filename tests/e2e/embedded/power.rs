//! PWR: the disk loses power under a mixed load. An ext4 image is shut down by ioctl, unmounted, mounted again; what
//! the clients got as answers is kept in this process and compared with the disk. Needs root.

use std::process::Command;

use outlast_tests::chance::{seed, volume};
use outlast_tests::image::{Image, PowerCut};
use outlast_tests::server::{Launch, Server};

use crate::accounting::{Accounting, lines};
use crate::embedded::answer_first::unsafe_server;

const IMAGE_MEBIBYTES: u64 = 192;
/// Cuts on one file system before it is judged; a soak does many such blocks.
const CUTS_PER_BLOCK: usize = 4;
/// Without a sync per commit a cut loses nearly always; within this many the rig must have noticed.
const CONTROL_CUTS_MAX: usize = 10;

// I-02, I-03, F03: nothing acknowledged is lost when the power goes and the journal reached the disk.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_by_a_power_cut_after_a_journal_flush() {
    cut_power_again_and_again(PowerCut::JournalFlushed).await;
}

// I-02, I-03, F03: the same when the journal did not reach the disk.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_by_a_power_cut_without_a_journal_flush() {
    cut_power_again_and_again(PowerCut::JournalLost).await;
}

// I-02, negative control: the same rig on a store that does not sync its commits must report losses.
#[tokio::test(flavor = "multi_thread")]
async fn the_power_rig_finds_the_losses_of_a_store_without_sync() {
    if !Image::available("PWR control") {
        return;
    }
    let mut image = Image::new(IMAGE_MEBIBYTES);
    let launch = Launch::of(unsafe_server()).with_env("OUTLAST_TEST_DURABILITY", "normal");
    let mut accounting = open(&image, launch, seed("PWR control")).await;
    for cut in 1..=CONTROL_CUTS_MAX {
        accounting.cycle(async |server| lose_power(&mut image, server, PowerCut::JournalLost).await).await;
        let violations = accounting.violations().await;
        if !violations.is_empty() {
            println!("PWR control: {} found after {cut} cuts:\n{}", violations.len(), lines(&violations));
            return;
        }
    }
    panic!("{CONTROL_CUTS_MAX} power cuts of a store without sync, and the rig saw no loss: the rig is blind");
}

async fn cut_power_again_and_again(cut: PowerCut) {
    let rig = format!("PWR {cut:?}");
    if !Image::available(&rig) {
        return;
    }
    let seed = seed(&rig);
    for block in 0..volume(1, 125) {
        let mut image = Image::new(IMAGE_MEBIBYTES);
        let mut accounting = open(&image, Launch::embedded(), seed.wrapping_add(block as u64)).await;
        for _ in 0..CUTS_PER_BLOCK {
            accounting.cycle(async |server| lose_power(&mut image, server, cut).await).await;
        }
        accounting.assert_nothing_lost(&rig).await;
    }
}

/// The queues are on the disk before the first cut, so that a control which loses them is not mistaken for a broken
/// rig.
async fn open(image: &Image, launch: Launch, seed: u64) -> Accounting {
    let mut accounting = Accounting::open(launch.on(&image.path().join("data")), seed).await;
    accounting.restart().await;
    let synced = Command::new("sync").arg("-f").arg(image.path()).status();
    assert!(synced.is_ok_and(|status| status.success()), "the image can be synced");
    accounting
}

/// The process is paused before the disk fails: a machine without power sends no answers. Otherwise a sync that is
/// under way while ext4 shuts down may be reported as done, and its answer sent, which no power cut can do.
async fn lose_power(image: &mut Image, server: &mut Server, cut: PowerCut) {
    server.freeze().await;
    image.cut_power(cut);
    server.kill9().await;
    image.unmount();
    image.mount();
}
