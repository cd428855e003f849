//! A private PostgreSQL for one run: loopback only, in a directory that is deleted at the end. It keeps its durable
//! defaults; the few settings that differ are the same for whatever is measured on it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::clock;
use crate::process;

/// Beyond what initdb sets: room for the connections of all phases, a cache larger than the 128 MiB that suit every
/// machine, and no checkpoint forced by the volume of one phase.
const SETTINGS: [(&str, &str); 3] = [("max_connections", "400"), ("shared_buffers", "512MB"), ("max_wal_size", "8GB")];
/// What makes a commit durable. None of it is set here, and a run on a PostgreSQL without it would be worth nothing.
const DURABLE: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];
const SUPERUSER: &str = "postgres";
const READY_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Postgres {
    programs: PathBuf,
    owner: Option<Owner>,
    data: PathBuf,
    postmaster: Child,
    address: SocketAddr,
    password: String,
    root: TempDir,
}

impl Postgres {
    /// Makes a new cluster under `dir` and starts it.
    pub(crate) async fn start(dir: &Path) -> Result<Self> {
        let programs = newest_programs()?;
        let owner = Owner::needed()?;
        let root = process::scratch_dir(dir)?;
        if let Some(owner) = &owner {
            chown(root.path(), Some(owner.user), Some(owner.group))?;
        }
        let password = process::random_text()?;
        let data = root.path().join("postgres");
        init_cluster(&programs, owner.as_ref(), &data, &password)?;
        let address = process::free_address()?;
        let postmaster = spawn_postmaster(&programs, owner.as_ref(), &data, address)?;
        let mut postgres = Self { programs, owner, data, postmaster, address, password, root };
        postgres.wait_until_ready().await?;
        Ok(postgres)
    }

    /// The process whose children serve the connections.
    pub(crate) fn pid(&self) -> u32 {
        self.postmaster.id()
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{}@{}/{database}", self.password, self.address)
    }

    /// Makes an empty database and gives its URL. One of the same name is dropped first.
    pub(crate) async fn new_database(&self, name: &str) -> Result<String> {
        let session = Session::open(&self.url(SUPERUSER)).await?;
        session.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        session.run(&format!("CREATE DATABASE {name}")).await?;
        Ok(self.url(name))
    }

    /// Puts what earlier phases wrote behind, so that no phase pays for the one before it.
    pub(crate) async fn checkpoint(&self) -> Result<()> {
        Session::open(&self.url(SUPERUSER)).await?.run("CHECKPOINT").await
    }

    /// Its version and settings, provided that commits are durable.
    pub(crate) async fn describe(&self) -> Result<String> {
        let session = Session::open(&self.url(SUPERUSER)).await?;
        for name in DURABLE {
            let value = session.text(&format!("SHOW {name}")).await?;
            ensure!(value == "on", "PostgreSQL runs with {name} = {value}");
        }
        let version = session.text("SHOW server_version").await?;
        let settings = SETTINGS.map(|(name, value)| format!("{name}={value}"));
        Ok(format!("{version}; {} on; beyond the defaults: {}", DURABLE.join(", "), settings.join(" ")))
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let start = clock::now();
        while start.elapsed() < READY_WITHIN {
            if Session::open(&self.url(SUPERUSER)).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.postmaster.try_wait()? {
                let log = fs::read_to_string(log_path(&self.data)).unwrap_or_default();
                bail!("PostgreSQL ended with {status}; its log:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("PostgreSQL in {} did not get ready", self.root.path().display());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The data is thrown away, so nothing is flushed. The children end before pg_ctl returns.
        let mut stop = program(&self.programs, self.owner.as_ref(), "pg_ctl");
        stop.arg("stop").arg("--pgdata").arg(&self.data).args(["--mode", "immediate", "--silent"]);
        // Nothing is left to do where it is gone already; what pg_ctl cannot stop is killed.
        stop.status().ok();
        self.postmaster.kill().ok();
        self.postmaster.wait().ok();
    }
}

/// One connection for a few statements outside the measured phases.
pub(crate) struct Session {
    client: Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Session {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // An error of the connection shows in the statement that waits for it.
        let driver = tokio::spawn(async move {
            connection.await.ok();
        });
        Ok(Self { client, driver })
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.with_context(|| format!("PostgreSQL refused: {sql}"))
    }

    /// The first column of all rows, a line each.
    pub(crate) async fn text(&self, sql: &str) -> Result<String> {
        let rows = self.client.query(sql, &[]).await.with_context(|| format!("PostgreSQL refused: {sql}"))?;
        let lines: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        Ok(lines?.join("\n"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// PostgreSQL refuses to run as root, so root runs it as the user that the Debian package made.
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Nobody else is needed where the benchmark does not run as root.
    fn needed() -> Result<Option<Self>> {
        if fs::metadata("/proc/self")?.uid() != 0 {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let owner = users.lines().find_map(|line| parse_user(line, SUPERUSER));
        owner.map(Some).with_context(|| format!("there is no user {SUPERUSER} to run PostgreSQL as"))
    }
}

fn parse_user(line: &str, name: &str) -> Option<Owner> {
    let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
    Some(Owner { user: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

/// Debian keeps the programs of each major version in a directory of its own, outside the search path.
fn newest_programs() -> Result<PathBuf> {
    let mut newest: Option<(u32, PathBuf)> = None;
    for entry in fs::read_dir("/usr/lib/postgresql").into_iter().flatten() {
        let entry = entry?;
        let version = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let programs = entry.path().join("bin");
        if let Some(version) = version
            && programs.join("postgres").exists()
            && newest.as_ref().is_none_or(|(other, _)| *other < version)
        {
            newest = Some((version, programs));
        }
    }
    let (_, programs) = newest.context("PostgreSQL is not installed; on Debian it is the package postgresql")?;
    Ok(programs)
}

fn program(programs: &Path, owner: Option<&Owner>, name: &str) -> Command {
    let mut command = Command::new(programs.join(name));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(owner) = owner {
        command.uid(owner.user).gid(owner.group);
    }
    command
}

fn init_cluster(programs: &Path, owner: Option<&Owner>, data: &Path, password: &str) -> Result<()> {
    let password_file = data.with_file_name("password");
    fs::write(&password_file, password)?;
    if let Some(owner) = owner {
        chown(&password_file, Some(owner.user), Some(owner.group))?;
    }
    let mut command = program(programs, owner, "initdb");
    command.arg("--pgdata").arg(data).arg("--pwfile").arg(&password_file);
    command.args(["--username", SUPERUSER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale"]);
    let output = command.stderr(Stdio::piped()).output().context("cannot start initdb")?;
    ensure!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn spawn_postmaster(programs: &Path, owner: Option<&Owner>, data: &Path, address: SocketAddr) -> Result<Child> {
    let mut command = program(programs, owner, "postgres");
    command.arg("-D").arg(data).arg("-p").arg(address.port().to_string());
    command.arg("-c").arg(format!("listen_addresses={}", address.ip()));
    command.arg("-c").arg("unix_socket_directories=");
    for (name, value) in SETTINGS {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    let log = fs::File::create(log_path(data))?;
    command.stderr(log).spawn().context("cannot start postgres")
}

fn log_path(data: &Path) -> PathBuf {
    data.with_file_name("postgres.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        assert!(parse_user("postgres2:x:7:8::/:/bin/sh", "postgres").is_none());
        let owner = parse_user("postgres:x:101:104:an administrator,,,:/:/bin/sh", "postgres").unwrap();
        assert_eq!((owner.user, owner.group), (101, 104));
    }
}
