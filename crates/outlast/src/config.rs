//! The configuration: flags over environment over file over the embedded defaults. The layers are merged as one tree,
//! in which every value knows where it was written, and the tree is then read into typed sections. The only place that
//! reads the environment. Must never put a secret into a message.

pub(crate) mod problem;
pub(crate) mod locate;
pub(crate) mod egress;
pub(crate) mod sections;
pub(crate) mod sources;
pub(crate) mod queues;

mod settings;
mod expressions;
mod reader;
mod suggest;
mod tree;
mod json;
mod units;
mod variables;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use outlast_store::blobs::location::Location;

use self::egress::Egress;
use self::problem::{Origin, Problem};
use self::queues::QueueConfig;
use self::reader::Section;
use self::sections::{Limits, ListenAddress, Log, Push, Store, Timeouts};
use self::sources::SourceConfig;
use self::tree::Node;

/// Every option with its default and its explanation.
pub(crate) const DEFAULTS: &str = include_str!("../../../config.default.yaml");

/// Where the store lives when nothing else is said; also where the command line looks for `admin.key`.
pub(crate) const DATA_DEFAULT: &str = "./outlast-data";

/// Read from the working directory when no file is named.
const FILE_DEFAULT: &str = "outlast.yaml";

/// Nodes of one database that keep objects in folders of their own lose sight of each other's results.
const NEEDS_OBJECT_STORE: &str = "needs blobs_url, an object store that all nodes reach (s3://…, gs://…, az://… or a shared folder, file:///…). For \
     one node only, set store.allow_local_objects (OUTLAST_ALLOW_LOCAL_OBJECTS=true): results then stay in the data directory of this node";

/// A configuration file is read whole; one larger than this is a mistake.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub data: PathBuf,
    pub listen: ListenAddress,
    pub metrics_listen: Option<ListenAddress>,
    /// The address that clients know the server by, without a slash at its end.
    pub public_url: Option<String>,
    /// Taken as the admin key at the first start instead of a made one.
    pub admin_key: Option<Secret>,
    /// The sealing key of signing secrets, instead of the key file.
    pub secret_key: Option<Secret>,
    /// Start without the key that some secrets are sealed with, and replace them. Of this start only.
    pub forgets_secrets: bool,
    /// Start although something acknowledged is missing from the data directory. Of this start only.
    pub accepts_loss: bool,
    pub external: External,
    pub log: Log,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub store: Store,
    pub egress: Egress,
    pub push: Push,
    /// Where events come from, in the order of the file.
    pub sources: Vec<SourceConfig>,
    /// Queues that the file has, in its order.
    pub queues: Vec<QueueConfig>,
}

/// Services outside the process. The URLs may hold passwords.
#[derive(Debug, Clone)]
pub(crate) struct External {
    /// The store; unset means the embedded one.
    pub database_url: Option<Secret>,
    /// Wake-ups between nodes; only with a database.
    pub redis_url: Option<Secret>,
    /// Results and checkpoints that are too large for the store; unset means a folder in the data directory.
    pub blobs: Option<Location>,
}

/// A value that is never shown, neither in messages nor in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Flags of `serve` and `dev`; they win over everything.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Directory of the embedded store and of admin.key [environment: OUTLAST_DATA] [default: ./outlast-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// PostgreSQL instead of the embedded store [environment: OUTLAST_DATABASE_URL]
    // Text of the environment is not shown by ps, so a password is better given there.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<Secret>,
    /// Redis for wake-ups between nodes [environment: OUTLAST_REDIS_URL]
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<Secret>,
    /// Object store for large results: file:, s3:, gs: or az: [environment: OUTLAST_BLOBS_URL] [default: DIR/objects]
    #[arg(long, value_name = "URL")]
    pub blobs_url: Option<Secret>,
    /// Replace signing secrets whose sealing key is lost; rotate each queue's secret afterwards
    #[arg(long)]
    pub forget_secrets: bool,
    /// Start although acknowledged data is missing from the data directory; damaged files are set aside
    #[arg(long)]
    pub accept_loss: bool,
    /// Address of the HTTP API [environment: OUTLAST_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Configuration file [environment: OUTLAST_CONFIG] [default: ./outlast.yaml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The environment, read once at the start of the process. Variables that are not UTF-8 are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(crate) fn from_process() -> Environment {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
                variables.insert(name, value);
            }
        }
        Environment(variables)
    }

    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Environment {
        Environment(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The variable as it is, empty text included.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of it, for what has variables of its own.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// One of our own settings. Empty counts as unset, as compose files write it.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.variable(name).filter(|value| !value.is_empty())
    }
}

impl Config {
    /// Merges all layers, or tells everything that is wrong with them.
    pub(crate) fn load(flags: &Flags, environment: &Environment) -> Result<Config, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut root = tree::parse(DEFAULTS, &Origin::Defaults).map_err(|problem| vec![problem])?;
        if let Some(path) = config_path(flags.config.as_ref(), environment) {
            let origin = Origin::file(&path);
            let file = read_text(&path).map_err(|message| vec![Problem::new(origin.clone(), message)])?;
            let mut layer = tree::parse(&file, &origin).map_err(|problem| vec![problem])?;
            variables::expand(&mut layer, environment, &mut problems);
            tree::overlay(&mut root, layer, "", &mut problems);
        }
        tree::overlay(&mut root, environment_layer(environment), "", &mut problems);
        tree::overlay(&mut root, flag_layer(flags), "", &mut problems);

        let mut section = Section::new(root);
        let mut config = read(&mut section, environment);
        if let Some(data) = &flags.data {
            // The tree holds text; a path that is not UTF-8 must not be altered on its way through.
            config.data.clone_from(data);
        }
        config.forgets_secrets = flags.forget_secrets;
        config.accepts_loss = flags.accept_loss;
        problems.extend(section.finish());
        if problems.is_empty() {
            return Ok(config);
        }
        problems.sort_by_key(|problem| problem.origin.position());
        Err(problems)
    }

    /// Options beside sources and queues that are not as in `other`, by their names in the file.
    pub(crate) fn differing(&self, other: &Config) -> Vec<String> {
        let external = (&self.external, &other.external);
        [
            ("data", self.data == other.data),
            ("listen", self.listen == other.listen),
            ("metrics_listen", self.metrics_listen == other.metrics_listen),
            ("public_url", self.public_url == other.public_url),
            ("admin_key", self.admin_key == other.admin_key),
            ("secret_key", self.secret_key == other.secret_key),
            ("database_url", external.0.database_url == external.1.database_url),
            ("redis_url", external.0.redis_url == external.1.redis_url),
            ("blobs_url", external.0.blobs == external.1.blobs),
            ("log", self.log == other.log),
            ("limits", self.limits == other.limits),
            ("timeouts", self.timeouts == other.timeouts),
            ("store", self.store == other.store),
            ("egress", self.egress == other.egress),
            ("push", self.push == other.push),
        ]
        .into_iter()
        .filter(|(_, is_same)| !is_same)
        .map(|(name, _)| name.to_owned())
        .collect()
    }

    /// Where objects are kept.
    pub(crate) fn blobs(&self) -> Location {
        self.external.blobs.clone().unwrap_or_else(|| Location::Folder(self.data.join("objects")))
    }
}

/// The file that a flag names, else the environment, else `outlast.yaml` in the working directory if it exists.
pub(crate) fn config_path(flag: Option<&PathBuf>, environment: &Environment) -> Option<PathBuf> {
    named_config_path(flag, environment).or_else(|| Some(PathBuf::from(FILE_DEFAULT)).filter(|path| path.is_file()))
}

fn named_config_path(flag: Option<&PathBuf>, environment: &Environment) -> Option<PathBuf> {
    flag.cloned().or_else(|| environment.setting("OUTLAST_CONFIG").map(PathBuf::from))
}

/// The file that is read although neither a flag nor the environment names it.
pub(crate) fn found_config_path(flag: Option<&PathBuf>, environment: &Environment) -> Option<PathBuf> {
    match named_config_path(flag, environment) {
        Some(_) => None,
        None => config_path(flag, environment),
    }
}

/// A file that the operator names, whole.
fn read_text(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("is {length} bytes long; a configuration file has at most {FILE_BYTES_MAX}"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

fn environment_layer(environment: &Environment) -> Node {
    let mut layer = Node::empty_map(Origin::Merged);
    for (variable, path) in [
        ("OUTLAST_DATA", &["data"][..]),
        ("OUTLAST_LISTEN", &["listen"]),
        ("OUTLAST_PUBLIC_URL", &["public_url"]),
        ("OUTLAST_ADMIN_KEY", &["admin_key"]),
        ("OUTLAST_SECRET_KEY", &["secret_key"]),
        ("OUTLAST_DATABASE_URL", &["database_url"]),
        ("OUTLAST_REDIS_URL", &["redis_url"]),
        ("OUTLAST_BLOBS_URL", &["blobs_url"]),
        ("OUTLAST_ALLOW_UNSAFE_DATABASE", &["store", "allow_unsafe_database"]),
        ("OUTLAST_ALLOW_LOCAL_OBJECTS", &["store", "allow_local_objects"]),
        ("OUTLAST_ALLOW_PRIVATE_TARGETS", &["egress", "allow_private_targets"]),
        ("OUTLAST_LOG", &["log", "level"]),
    ] {
        if let Some(value) = environment.setting(variable) {
            layer.set(path, value.to_owned(), &Origin::Environment(variable));
        }
    }
    layer
}

fn flag_layer(flags: &Flags) -> Node {
    let mut layer = Node::empty_map(Origin::Merged);
    if let Some(data) = &flags.data {
        layer.set(&["data"], data.to_string_lossy().into_owned(), &Origin::Flag("--data"));
    }
    if let Some(listen) = &flags.listen {
        layer.set(&["listen"], listen.clone(), &Origin::Flag("--listen"));
    }
    if let Some(url) = &flags.database_url {
        layer.set(&["database_url"], url.expose().to_owned(), &Origin::Flag("--database-url"));
    }
    if let Some(url) = &flags.redis_url {
        layer.set(&["redis_url"], url.expose().to_owned(), &Origin::Flag("--redis-url"));
    }
    if let Some(url) = &flags.blobs_url {
        layer.set(&["blobs_url"], url.expose().to_owned(), &Origin::Flag("--blobs-url"));
    }
    layer
}

fn read(section: &mut Section, environment: &Environment) -> Config {
    let limits = section.nested("limits", Limits::read);
    let source_names = section.names("sources");
    let config = Config {
        data: PathBuf::from(section.text("data")),
        listen: sections::listen(section, "listen").unwrap_or_default(),
        metrics_listen: sections::listen(section, "metrics_listen"),
        public_url: sections::public_url(section),
        admin_key: sections::admin_key(section),
        secret_key: section.optional_text("secret_key").map(Secret::new),
        forgets_secrets: false,
        accepts_loss: false,
        external: External {
            database_url: sections::url(section, "database_url", &["postgres", "postgresql"]),
            redis_url: sections::url(section, "redis_url", &["redis", "rediss"]),
            blobs: sections::blobs(section, environment),
        },
        log: section.nested("log", Log::read),
        sources: sources::read(section, &limits),
        queues: queues::read(section, &source_names),
        limits,
        timeouts: section.nested("timeouts", Timeouts::read),
        store: section.nested("store", Store::read),
        egress: section.nested("egress", Egress::read),
        push: section.nested("push", Push::read),
    };
    let clash = config.metrics_listen.as_ref().is_some_and(|metrics| *metrics == config.listen && metrics.port != 0);
    if clash {
        section.complain("metrics_listen", "must differ from listen");
    }
    if config.external.redis_url.is_some() && config.external.database_url.is_none() {
        section.complain("redis_url", "is of no use without database_url: the embedded store has one node only");
    }
    if config.external.database_url.is_some() && config.external.blobs.is_none() && !config.store.allow_local_objects {
        section.complain("database_url", NEEDS_OBJECT_STORE);
    }
    config
}

#[cfg(test)]
mod tests;
