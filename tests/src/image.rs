//! A small ext4 file system in a file, mounted through a loop device: a disk that can lose power or run full.
//! Needs root. Elsewhere `Image::available` says so and the test returns; in CI as root it must work.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

pub struct Image {
    directory: TempDir,
    mounted: bool,
}

/// The effect of the power cut on the journal.
#[derive(Debug, Clone, Copy)]
pub enum PowerCut {
    JournalFlushed = 1,
    JournalLost = 2,
}

impl Image {
    /// Whether this machine lets us mount. Prints why not; panics in CI as root, where the rig must run.
    pub fn available(rig: &str) -> bool {
        if fs::metadata("/proc/self").map_or(true, |own| own.uid() != 0) {
            println!("{rig}: skipped, mounting a loop image needs root");
            return false;
        }
        match Image::try_new(16) {
            Ok(_image) => true,
            Err(reason) => {
                let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
                assert!(!in_ci, "{rig}: must run in CI as root, but: {reason}");
                println!("{rig}: skipped, {reason}");
                false
            }
        }
    }

    /// A fresh, mounted file system of this size.
    pub fn new(mebibytes: u64) -> Image {
        Image::try_new(mebibytes).expect("a loop image can be made where Image::available said so")
    }

    fn try_new(mebibytes: u64) -> Result<Image, String> {
        let directory = TempDir::with_prefix("outlast-image-").map_err(|error| error.to_string())?;
        let mut image = Image { directory, mounted: false };
        let file = fs::File::create(image.file()).map_err(|error| error.to_string())?;
        file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
        fs::create_dir(image.path()).map_err(|error| error.to_string())?;
        // No blocks reserved for root, so that full means full. No lazy initialisation, which writes in the background.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"], &[&image.file()])?;
        image.try_mount()?;
        Ok(image)
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    pub fn mount(&mut self) {
        self.try_mount().expect("an image that was mounted before mounts again");
    }

    /// All users of the file system must be gone.
    pub fn unmount(&mut self) {
        run("umount", &[], &[&self.path()]).expect("nothing uses the image any more");
        self.mounted = false;
    }

    /// Data that is not on the disk at this moment is lost. The server still runs and sees errors.
    pub fn cut_power(&self, cut: PowerCut) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/power_cut.py");
        let flag = (cut as u8).to_string();
        run("python3", &[], &[&script, &self.path(), Path::new(&flag)]).expect("ext4 takes the shutdown call");
    }

    /// Bytes that an ordinary write can still take.
    pub fn free_bytes(&self) -> u64 {
        let path = self.path();
        let output = Command::new("df").args(["--output=avail", "-B1"]).arg(&path).output().expect("df runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().last().and_then(|bytes| bytes.parse().ok()).expect("df prints a number")
    }

    /// Takes space away as another program would, until about `left` bytes are free; with 0, until not one more block
    /// can be written. Deleting the file gives the space back.
    pub fn put_ballast(&self, left: u64) -> PathBuf {
        let ballast = self.path().join("ballast");
        let mut file = fs::File::create(&ballast).expect("a file can still be made");
        let mut wanted = self.free_bytes().saturating_sub(left);
        for chunk in [1 << 20, 4096] {
            let zeros = vec![0; chunk];
            while wanted >= chunk as u64 && file.write_all(&zeros).is_ok() {
                wanted -= chunk as u64;
            }
        }
        if left == 0 {
            // Blocks reserved for metadata, which df does not show.
            while file.write_all(&[0; 4096]).is_ok() {}
        }
        file.sync_all().expect("the blocks were promised by the writes");
        ballast
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("image.ext4")
    }

    fn try_mount(&mut self) -> Result<(), String> {
        run("mount", &["-t", "ext4", "-o", "loop"], &[&self.file(), &self.path()])?;
        self.mounted = true;
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily, since a failed test may still hold files open; the loop device goes with the last of them.
            let _ = run("umount", &["-l"], &[&self.path()]);
        }
    }
}

fn run(program: &str, flags: &[&str], paths: &[&Path]) -> Result<(), String> {
    let output = Command::new(program)
        .args(flags)
        .args(paths)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
