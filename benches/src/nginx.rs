//! nginx as Debian packages it, serving a folder on loopback with sendfile: what a download is compared with.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::clock;
use crate::process::{free_address, scratch_dir};

const READY_WITHIN: Duration = Duration::from_secs(20);

pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    process: Child,
    _root: TempDir,
}

impl Nginx {
    /// Serves the files of `folder`, with its own files under `dir`.
    pub(crate) fn serve(folder: &Path, dir: &Path) -> Result<Self> {
        let root = scratch_dir(dir)?;
        let address = free_address()?;
        let (place, folder) = (root.path().canonicalize()?, folder.canonicalize()?);
        let (place_shown, folder) = (place.display(), folder.display());
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {place_shown}/{name};\n"))
            .concat();
        let settings = place.join("nginx.conf");
        let text = format!(
            "daemon off;\nmaster_process off;\npid {place_shown}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n\
             sendfile on;\ntcp_nopush on;\n{temporary}server {{\nlisten {address};\nroot {folder};\n}}\n}}\n"
        );
        fs::write(&settings, text)?;
        let log = place.join("error.log");
        let process = Command::new("nginx")
            .env("PATH", "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
            .arg("-e")
            .arg(&log)
            .arg("-c")
            .arg(&settings)
            .stdin(Stdio::null())
            .stderr(File::create(place.join("stderr"))?)
            .spawn()
            .context("cannot start nginx (the Debian package nginx-light)")?;
        let mut nginx = Self { address, process, _root: root };
        nginx.wait_until_ready(&log)?;
        Ok(nginx)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let start = clock::now();
        #[expect(clippy::disallowed_methods, reason = "a benchmark calls the server it has started")]
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process.try_wait()?.is_some();
            let told = || fs::read_to_string(log).unwrap_or_default();
            ensure!(!ended && start.elapsed() < READY_WITHIN, "nginx did not start: {}", told());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Nothing is left to do when the process is gone already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
