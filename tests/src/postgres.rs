//! A private PostgreSQL on a free port, with syncs on, as anybody runs it who wants to keep his data. Most tests share
//! one per process and have a database each; who stops or kills it starts one of his own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::daemon::{Daemon, Folder, find_program, free_port, run_to_the_end, until};

/// Recovery after an immediate stop included, on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// Each try takes another port; more in a row are not taken by accident.
const PORTS_TRIED_MAX: usize = 5;
/// The package of Debian that has the programs, and the user it makes.
const PACKAGE: &str = "postgresql";
const USER: &str = "postgres";
/// Of the instance that speaks TLS and asks for it.
const PASSWORD: &str = "correct-horse";
const ROOT: &str = "root.crt";

/// Room for a few clusters of three nodes at once, in little memory.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
shared_buffers = 64MB
log_line_prefix = '%m %p %d '
log_checkpoints = off
";

pub struct Postgres {
    port: u16,
    // Before `folder`: the process must be gone when the directory is removed.
    daemon: Daemon,
    folder: Folder,
    is_encrypted: bool,
}

/// A database of one test; dropped with it.
pub struct Database {
    pub name: String,
    pub url: String,
    port: u16,
    password: Option<&'static str>,
}

impl Postgres {
    /// The one of this test process, for tests that do it no harm.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Postgres::start)
    }

    /// One of its own.
    pub fn start() -> Postgres {
        Postgres::start_with("")
    }

    /// One of its own, with further lines for `postgresql.conf`.
    pub fn start_with(settings: &str) -> Postgres {
        let folder = Folder::not_of_root("outlast-postgres-", USER);
        initialise(&folder, "trust");
        Postgres::start_in(folder, settings, false)
    }

    /// One that takes only TLS connections with a password. Its certificate is for 127.0.0.1, by a root of its own.
    pub fn start_encrypted() -> Postgres {
        let folder = Folder::not_of_root("outlast-postgres-", USER);
        initialise(&folder, "scram-sha-256");
        let (key, certificate) = make_certificate(&folder);
        fs::write(data(&folder).join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n").expect("written");
        let settings =
            format!("ssl = on\nssl_key_file = '{}'\nssl_cert_file = '{}'\n", key.display(), certificate.display());
        Postgres::start_in(folder, &settings, true)
    }

    fn start_in(folder: Folder, settings: &str, is_encrypted: bool) -> Postgres {
        let path = data(&folder).join("postgresql.conf");
        fs::write(&path, format!("{SETTINGS}{settings}")).expect("the settings can be written");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            if let Some(daemon) = start_on(&folder, port) {
                return Postgres { port, daemon, folder, is_encrypted };
            }
        }
        let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("postgres did not start on any of {PORTS_TRIED_MAX} ports:\n{log}")
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The authority that signed the certificate of an encrypted one.
    pub fn root_certificate(&self) -> PathBuf {
        self.folder.path().join(ROOT)
    }

    /// Makes a database that goes with the value.
    pub fn database(&self) -> Database {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", MADE.fetch_add(1, Ordering::SeqCst));
        let password = self.is_encrypted.then_some(PASSWORD);
        let user = password.map_or(USER.to_owned(), |password| format!("{USER}:{password}"));
        let url = format!("postgres://{user}@127.0.0.1:{}/{name}", self.port);
        psql(self.port, "postgres", password, &format!("CREATE DATABASE {name}"));
        Database { name, url, port: self.port, password }
    }

    /// Stops as a power cut would, as far as the programs are concerned: no checkpoint, connections dropped.
    pub fn stop_immediate(&mut self) {
        self.daemon.end_by("QUIT");
    }

    /// A new start on the same data and port. Returns when recovery has ended and the server accepts connections.
    pub fn start_again(&mut self) {
        assert!(!self.is_running(), "it has to be stopped first");
        self.daemon = start_on(&self.folder, self.port).expect("the port is still free");
    }

    pub fn is_running(&mut self) -> bool {
        self.daemon.exit_status().is_none()
    }

    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

impl Database {
    /// Runs SQL in this database and gives what it selects: one line per row, columns separated by `|`.
    pub fn psql(&self, sql: &str) -> String {
        psql(self.port, &self.name, self.password, sql)
    }

    /// Ends all connections to this database but our own; tells how many there were.
    pub fn terminate_connections(&self) -> usize {
        let ended = self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        ended.parse().expect("a count")
    }

    /// The same database through another address, such as a proxy's.
    pub fn url_through(&self, address: &str) -> String {
        self.url.replace(&format!("127.0.0.1:{}", self.port), address)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// All that is in it, as text. Bytes are in hexadecimal.
    pub fn dump(&self) -> String {
        let mut command = client("pg_dump", self.port, self.password);
        let dump = run_to_the_end(command.args(["--inserts", "-d", &self.name]));
        // These two lines hold a random word.
        dump.lines()
            .filter(|line| !line.starts_with(r"\restrict") && !line.starts_with(r"\unrestrict"))
            .fold(String::new(), |text, line| text + line + "\n")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let mut command = psql_command(self.port, "postgres", self.password);
        // A database whose server is gone is gone as well.
        let _ = command.args(["-c", &format!("DROP DATABASE {} WITH (FORCE)", self.name)]).output();
    }
}

fn initialise(folder: &Folder, authentication: &str) {
    let password = folder.write("password", PASSWORD);
    let mut command = folder.command(&program("initdb"));
    command.args(["--no-sync", "--encoding=UTF8", "--locale=C", "-U", USER, "-A", authentication, "--pwfile"]);
    run_to_the_end(command.arg(password).arg("-D").arg(data(folder)));
}

/// `None` when the port was taken.
fn start_on(folder: &Folder, port: u16) -> Option<Daemon> {
    let mut command = folder.command(&program("postgres"));
    command.args(["-p", &port.to_string(), "-D"]).arg(data(folder));
    let state = data(folder).join("postmaster.pid");
    let mut daemon = Daemon::start(folder, command, "QUIT");
    let is_up = until("postgres to take connections or to end", START_DEADLINE, || {
        if daemon.exit_status().is_some() {
            return Some(false);
        }
        // Its eighth line says `ready`; the first one whose file it is.
        let text = fs::read_to_string(&state).unwrap_or_default();
        let own = daemon.process_id().to_string();
        let mut lines = text.lines();
        let is_ready = lines.next() == Some(own.as_str()) && lines.any(|line| line.trim() == "ready");
        is_ready.then_some(true)
    });
    is_up.then_some(daemon)
}

/// A root that signs, and a certificate for this host that is signed by it: a root may not stand for a host itself.
fn make_certificate(folder: &Folder) -> (PathBuf, PathBuf) {
    let file = |name: &str| folder.path().join(name);
    let openssl = |words: &[&str]| {
        let mut command = Command::new(find_program("openssl", &[], "openssl"));
        run_to_the_end(command.current_dir(folder.path()).args(words));
    };
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"];
    fs::write(file("names"), "subjectAltName = IP:127.0.0.1, DNS:localhost\n").expect("the folder can be written to");
    openssl(
        &[&["req", "-x509", "-days", "2", "-subj", "/CN=root", "-out", ROOT], &new_key[..], &["root.key"]].concat(),
    );
    openssl(&[&["req", "-subj", "/CN=localhost", "-out", "request"], &new_key[..], &["server.key"]].concat());
    let sign =
        ["x509", "-req", "-days", "2", "-CA", ROOT, "-CAkey", "root.key", "-CAcreateserial", "-extfile", "names"];
    openssl(&[&sign[..], &["-in", "request", "-out", "server.crt"]].concat());
    folder.hand_over(&file("server.key"));
    folder.hand_over(&file("server.crt"));
    (file("server.key"), file("server.crt"))
}

fn data(folder: &Folder) -> PathBuf {
    folder.path().join("data")
}

fn psql(port: u16, database: &str, password: Option<&str>, sql: &str) -> String {
    run_to_the_end(psql_command(port, database, password).args(["-c", sql])).trim_end().to_owned()
}

fn psql_command(port: u16, database: &str, password: Option<&str>) -> Command {
    let mut command = client("psql", port, password);
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", database]);
    command
}

/// A client program with nothing of our own environment, which may name another server.
fn client(name: &str, port: u16, password: Option<&str>) -> Command {
    let mut command = Command::new(program(name));
    command.env_clear().envs(password.map(|password| ("PGPASSWORD", password)));
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER]);
    command
}

/// Debian keeps the programs of each version in a directory of its own; the newest one wins.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(Path::new("/usr/lib/postgresql")).into_iter().flatten().flatten();
    let numbers: BTreeSet<u32> = versions.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let directories: Vec<PathBuf> =
        numbers.iter().rev().map(|number| format!("/usr/lib/postgresql/{number}/bin").into()).collect();
    find_program(name, &directories, PACKAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_come_and_go_and_syncs_are_on() {
        let postgres = Postgres::shared();
        let database = postgres.database();

        assert_eq!(database.psql("SELECT current_database()"), database.name);
        assert_eq!(database.psql("SHOW fsync") + &database.psql("SHOW full_page_writes"), "onon");
        let other = postgres.database();
        let (gone, count) = (database.name.clone(), "SELECT count(*) FROM pg_database WHERE datname = ".to_owned());
        drop(database);
        assert_eq!(other.psql(&format!("{count}'{gone}'")), "0");
    }

    #[test]
    fn an_immediate_stop_keeps_what_was_committed() {
        let mut postgres = Postgres::start();
        let database = postgres.database();
        database.psql("CREATE TABLE kept (n int)");
        database.psql("INSERT INTO kept VALUES (7)");

        postgres.stop_immediate();
        assert!(!postgres.is_running());
        postgres.start_again();

        assert_eq!(database.psql("SELECT n FROM kept"), "7");
        assert!(postgres.log().contains("automatic recovery in progress"), "{}", postgres.log());
    }

    #[test]
    fn an_encrypted_one_refuses_plain_text() {
        let postgres = Postgres::start_encrypted();
        let database = postgres.database();

        let plain = psql_command(postgres.port, &database.name, Some(PASSWORD)).env("PGSSLMODE", "disable").output();

        assert_eq!(database.psql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), "t");
        assert!(!plain.unwrap().status.success());
    }
}
