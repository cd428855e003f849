//! The real server, whatever it runs on: one process on a directory, one process on PostgreSQL, or three nodes with
//! PostgreSQL and Redis behind a balancer. `OUTLAST_ENGINE` (embedded, postgres, cluster) says which one a fresh start
//! gets; the tests are the same. `OUTLAST_FRONT=nginx` puts a reverse proxy in front of it, as the documentation says.
//! Killed, stopped and started again on the same data as a whole.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::http::Client;
use crate::nginx::Nginx;
use crate::nodes::{EarlyExit, Node};
use crate::postgres::{Database, Postgres};
use crate::redis::Redis;
use crate::round_robin::RoundRobin;

/// As many as the promises speak of.
pub const CLUSTER_NODES: usize = 3;
/// The receivers of the tests listen on this machine, which no server delivers to by default.
const OWN_MACHINE: (&str, &str) = ("OUTLAST_ALLOW_PRIVATE_TARGETS", "127.0.0.0/8");
/// The key that nodes of one database seal secrets with; a node on a directory of its own makes its key itself.
const COMMON_KEY: (&str, &str) =
    ("OUTLAST_SECRET_KEY", "6f75746c6173742074657374732073656164207365637265747320746869732e");

const CONFIG_FILE: &str = "outlast.yaml";

/// A server's binary, data and settings. Clones share the directory and the database, so a clone is a second start on
/// the same data.
#[derive(Clone)]
pub struct Launch {
    pub program: PathBuf,
    pub data: PathBuf,
    pub key: String,
    ground: Ground,
    /// For one node or, without a number, for all of them. A later one wins.
    environment: Vec<(Option<usize>, String, String)>,
    wrappers: Vec<(Option<usize>, Vec<String>)>,
    /// Without the flag, so that the file says where.
    pub(crate) listens_by_file: bool,
    pub(crate) flags: Vec<String>,
    scratch: Arc<TempDir>,
    starts: Arc<AtomicU64>,
}

/// The engine of a server, and its number of processes.
#[derive(Clone)]
enum Ground {
    Embedded,
    Shared { database: Arc<Database>, redis_url: Option<String>, nodes: usize },
}

/// One or several nodes. With several, `base` is the balancer in front of them; with a proxy, that.
pub struct Server {
    pub base: String,
    /// The same past the proxy.
    pub own_base: String,
    pub nodes: Vec<Node>,
    front: Option<RoundRobin>,
    proxy: Option<Nginx>,
    launch: Launch,
}

impl Launch {
    /// The `outlast` binary on a fresh directory or database, by `OUTLAST_ENGINE`.
    pub fn fresh() -> Launch {
        let engine = std::env::var("OUTLAST_ENGINE").unwrap_or_else(|_| "embedded".to_owned());
        match engine.as_str() {
            "embedded" => Launch::embedded(),
            "postgres" => Launch::on_database(Postgres::shared().database(), None, 1),
            "cluster" => Launch::on_database(Postgres::shared().database(), Some(Redis::shared()), CLUSTER_NODES),
            other => panic!("OUTLAST_ENGINE is {other:?}, not embedded, postgres or cluster"),
        }
    }

    /// The `outlast` binary on a fresh directory, for what only exists there.
    pub fn embedded() -> Launch {
        Launch::of(outlast_binary())
    }

    /// A given binary with the same flags, on a fresh directory.
    pub fn of(program: PathBuf) -> Launch {
        let scratch = TempDir::with_prefix("outlast-e2e-").expect("a temporary directory");
        let mut chance = Chance::seeded(u64::from(std::process::id()));
        Launch {
            program,
            data: scratch.path().join("data"),
            key: format!("ol_{}_{}", chance.text(12), chance.text(43)),
            ground: Ground::Embedded,
            environment: Vec::new(),
            wrappers: Vec::new(),
            listens_by_file: false,
            flags: Vec::new(),
            scratch: Arc::new(scratch),
            starts: Arc::default(),
        }
    }

    /// The `outlast` binary as so many nodes on this database.
    pub fn on_database(database: Database, redis: Option<&Redis>, nodes: usize) -> Launch {
        let redis_url = redis.map(|redis| redis.url.clone());
        let ground = Ground::Shared { database: Arc::new(database), redis_url, nodes };
        Launch { ground, ..Launch::embedded() }
    }

    pub fn on(mut self, data: &Path) -> Launch {
        self.data = data.to_owned();
        self
    }

    pub fn with_env(mut self, name: &str, value: &str) -> Launch {
        self.environment.push((None, name.to_owned(), value.to_owned()));
        self
    }

    /// The same for one node.
    pub fn with_env_on(mut self, node: usize, name: &str, value: &str) -> Launch {
        self.environment.push((Some(node), name.to_owned(), value.to_owned()));
        self
    }

    /// With a configuration file of these lines.
    pub fn with_config(self, yaml: &str) -> Launch {
        self.rewrite_config(yaml);
        let path = self.scratch().join(CONFIG_FILE);
        self.with_env("OUTLAST_CONFIG", path.to_str().expect("the scratch directory has a plain name"))
    }

    /// Other lines in the file of a server that runs; it reads them at a reload.
    pub fn rewrite_config(&self, yaml: &str) {
        std::fs::write(self.scratch().join(CONFIG_FILE), yaml).expect("a file can be written to the scratch directory");
    }

    /// Listens where the file says: every node on a port of its own, so that has to be port 0 at the start.
    pub fn listening_by_file(mut self) -> Launch {
        self.listens_by_file = true;
        self
    }

    /// With one more flag of `outlast serve`.
    pub fn with_flag(mut self, flag: &str) -> Launch {
        self.flags.push(flag.to_owned());
        self
    }

    /// Delivers to public addresses only, which is the default of a server.
    pub fn without_private_targets(self) -> Launch {
        self.with_env(OWN_MACHINE.0, "")
    }

    /// Runs the server as the last arguments of another command, such as strace.
    pub fn wrapped_by(mut self, wrapper: Vec<String>) -> Launch {
        self.wrappers.push((None, wrapper));
        self
    }

    /// The same for one node.
    pub fn wrapped_on(mut self, node: usize, wrapper: Vec<String>) -> Launch {
        self.wrappers.push((Some(node), wrapper));
        self
    }

    /// A place for files that belong to the test and not to the server.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The database, where the jobs are in one.
    pub fn database(&self) -> Option<&Database> {
        match &self.ground {
            Ground::Embedded => None,
            Ground::Shared { database, .. } => Some(database),
        }
    }

    /// Starts and waits until it listens; panics when it ends instead.
    pub async fn start(&self) -> Server {
        match self.try_start().await {
            Ok(server) => server,
            Err(early) => panic!("the server ended at start with {}:\n{}", early.status, early.log),
        }
    }

    /// Starts all nodes at once and waits until they listen, or until one has ended.
    pub async fn try_start(&self) -> Result<Server, EarlyExit> {
        let mut starting = JoinSet::new();
        for number in 0..self.node_count() {
            let launch = self.clone();
            starting.spawn(async move { Node::start(&launch, number).await });
        }
        let mut nodes = Vec::new();
        for node in starting.join_all().await {
            nodes.push(node?);
        }
        nodes.sort_by_key(|node| node.number);
        let bases: Vec<String> = nodes.iter().map(|node| node.base.clone()).collect();
        let front = if nodes.len() == 1 { None } else { Some(RoundRobin::before(&bases).await) };
        let own_base = front.as_ref().map_or(&bases[0], |front| &front.base).clone();
        let proxy = is_behind_nginx().then(|| Nginx::as_documented(&own_base));
        let base = proxy.as_ref().map_or(&own_base, |proxy| &proxy.base).clone();
        Ok(Server { base, own_base, nodes, front, proxy, launch: self.clone() })
    }

    fn node_count(&self) -> usize {
        match &self.ground {
            Ground::Embedded => 1,
            Ground::Shared { nodes, .. } => *nodes,
        }
    }

    /// Each node has a directory of its own, be it only for its key file.
    pub(crate) fn data_of(&self, number: usize) -> PathBuf {
        if self.node_count() == 1 { self.data.clone() } else { self.data.with_extension(number.to_string()) }
    }

    /// The key that this node has made up, if it has.
    pub fn admin_key_file(&self, number: usize) -> Option<String> {
        let key = std::fs::read_to_string(self.data_of(number).join("admin.key")).ok()?;
        Some(key.trim().to_owned())
    }

    pub(crate) fn next_log(&self, number: usize) -> PathBuf {
        let start = self.starts.fetch_add(1, Ordering::SeqCst);
        self.scratch().join(format!("node-{number}-stderr-{start}.log"))
    }

    pub(crate) fn environment(&self, number: usize) -> Vec<(String, String)> {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut environment = vec![pair(OWN_MACHINE)];
        if let Ground::Shared { database, redis_url, .. } = &self.ground {
            environment.push(pair(COMMON_KEY));
            environment.push(("OUTLAST_DATABASE_URL".to_owned(), database.url.clone()));
            // One folder for all nodes, as a bucket would be.
            let objects = format!("file://{}", self.scratch().join("objects").display());
            environment.push(("OUTLAST_BLOBS_URL".to_owned(), objects));
            environment.extend(redis_url.iter().map(|url| ("OUTLAST_REDIS_URL".to_owned(), url.clone())));
        }
        let own = self.environment.iter().filter(|(node, ..)| node.is_none_or(|node| node == number));
        environment.extend(own.map(|(_, name, value)| (name.clone(), value.clone())));
        environment
    }

    pub(crate) fn wrapper(&self, number: usize) -> &[String] {
        let mut own = self.wrappers.iter().filter(|(node, _)| node.is_none_or(|node| node == number));
        own.next_back().map_or(&[], |(_, wrapper)| wrapper)
    }
}

impl Server {
    /// The real binary on something fresh.
    pub async fn fresh() -> Server {
        Launch::fresh().start().await
    }

    pub fn client(&self) -> Client {
        Client::new(&self.base, &self.launch.key)
    }

    /// One for each node, for calls that come in wherever they like; where there is a proxy, that decides.
    pub fn clients(&self) -> Vec<Client> {
        match self.proxy {
            Some(_) => vec![self.client()],
            None => self.nodes.iter().map(Node::client).collect(),
        }
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Kill -9 of all nodes, and wait until they are gone.
    pub async fn kill9(&mut self) {
        for node in &self.nodes {
            node.begin_kill9();
        }
        for node in &mut self.nodes {
            node.kill9().await;
        }
    }

    /// SIGTERM to all nodes, and wait for the graceful exit. Gives the worst status.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.worst(async |node| node.terminate().await).await
    }

    /// Stops all processes where they are.
    pub async fn freeze(&self) {
        for node in &self.nodes {
            node.freeze().await;
        }
    }

    /// SIGTERM, without waiting: what the server does from here on is what the test is about.
    pub fn ask_to_stop(&self) {
        for node in &self.nodes {
            node.ask_to_stop();
        }
    }

    /// All that this start has written to its standard error.
    pub fn log(&self) -> String {
        self.nodes.iter().map(Node::log).collect()
    }

    /// Kill -9, then a new start on the same data (and on other ports).
    pub async fn crash_and_restart(&mut self) {
        self.kill9().await;
        *self = self.launch.clone().start().await;
    }

    /// Waits for all processes to end. Gives the worst status.
    pub async fn exit_within(&mut self, deadline: Duration) -> ExitStatus {
        self.worst(async |node| node.exit_within(deadline).await).await
    }

    pub fn is_running(&mut self) -> bool {
        self.nodes.iter_mut().any(Node::is_running)
    }

    /// Kill -9 of one node; the balancer detects it.
    pub async fn kill_node(&mut self, number: usize) {
        self.nodes[number].kill9().await;
    }

    /// A new start of a node that is gone; the balancer gets its new port.
    pub async fn start_node_again(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.start_again().await;
        if let Some(front) = &self.front {
            front.take_in(number, &node.base);
        }
    }

    /// The balancer gives the node no new connections.
    pub fn leave_out(&self, number: usize) {
        self.front.as_ref().expect("there is a balancer").leave_out(number);
    }

    /// The balancer gives the node connections again.
    pub fn take_in(&self, number: usize) {
        self.front.as_ref().expect("there is a balancer").take_in(number, &self.nodes[number].base);
    }

    async fn worst(&mut self, mut end: impl AsyncFnMut(&mut Node) -> ExitStatus) -> ExitStatus {
        let mut worst = ExitStatus::default();
        for node in &mut self.nodes {
            let status = end(node).await;
            if worst.success() {
                worst = status;
            }
        }
        worst
    }
}

fn is_behind_nginx() -> bool {
    match std::env::var("OUTLAST_FRONT").as_deref() {
        Err(_) => false,
        Ok("nginx") => true,
        Ok(other) => panic!("OUTLAST_FRONT is {other:?}, not nginx"),
    }
}

/// `OUTLAST_BIN`, or `outlast` in the profile directory this test was built into.
pub fn outlast_binary() -> PathBuf {
    if let Ok(path) = std::env::var("OUTLAST_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let path = test.ancestors().nth(2).expect("tests stand in <profile>/deps").join("outlast");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build -p outlast` first (with --release for release tests), or set OUTLAST_BIN",
        path.display()
    );
    path
}
