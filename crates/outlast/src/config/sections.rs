//! The typed sections: each part of the server gets its own struct and sees nothing else. Ranges are the bounds within
//! which an option makes sense at all; `config.default.yaml` says what each does.

use std::fmt;
use std::time::Duration;

use outlast_engine::keys::{KEY_LENGTH_MIN, is_well_formed};
use outlast_store::blobs::location::Location;

use super::reader::Section;
use super::tree::Value;
use super::{Environment, Secret};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// So many secrets are live at once while one replaces another: as many as a verifier takes.
const SECRETS_MAX: usize = 8;

/// A host and port to listen on. The host is a name or an address, without brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    pub host: String,
    pub port: u16,
}

impl Default for ListenAddress {
    fn default() -> ListenAddress {
        ListenAddress { host: "127.0.0.1".to_owned(), port: 8080 }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Log {
    /// A level, or a list of `target=level`; already checked.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    Json,
    Text,
}

impl Log {
    pub(crate) fn read(section: &mut Section) -> Log {
        let level = section.text("level");
        if !is_log_filter(&level) {
            section.complain("level", "must be off, error, warn, info, debug or trace, or a list of target=level");
        }
        let formats = [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)];
        Log { level, format: section.choice("format", &formats, LogFormat::Auto) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limits {
    pub payload_bytes: usize,
    pub batch_jobs: usize,
    pub batch_bytes: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub in_flight_requests: usize,
    pub in_flight_bytes: usize,
    pub key_share_percent: usize,
    pub waiting_requests: usize,
    pub waiting_requests_per_key: usize,
    pub waiting_requests_per_token: usize,
    pub body_bytes_per_second: usize,
    pub answer_bytes: usize,
    pub answer_bytes_per_second: usize,
    pub request_head_bytes: usize,
    pub url_bytes: usize,
    pub streams: usize,
    pub streams_per_key: usize,
    pub failed_keys_per_address: usize,
    pub namespace_queued: usize,
}

impl Limits {
    pub(crate) fn read(section: &mut Section) -> Limits {
        let limits = Limits {
            payload_bytes: section.size("payload_bytes", KIB..=MIB),
            batch_jobs: section.count("batch_jobs", 1..=10_000),
            batch_bytes: section.size("batch_bytes", 64 * KIB..=64 * MIB),
            connections: section.count("connections", 1..=1_000_000),
            connections_per_address: section.count("connections_per_address", 1..=1_000_000),
            in_flight_requests: section.count("in_flight_requests", 1..=1_000_000),
            in_flight_bytes: section.size("in_flight_bytes", MIB..=64 * GIB),
            key_share_percent: section.count("key_share_percent", 1..=100),
            waiting_requests: section.count("waiting_requests", 1..=1_000_000),
            waiting_requests_per_key: section.count("waiting_requests_per_key", 1..=1_000_000),
            waiting_requests_per_token: section.count("waiting_requests_per_token", 1..=1_000_000),
            body_bytes_per_second: section.size("body_bytes_per_second", 1..=MIB),
            answer_bytes: section.size("answer_bytes", 4 * MIB..=64 * GIB),
            answer_bytes_per_second: section.size("answer_bytes_per_second", 1..=MIB),
            request_head_bytes: section.size("request_head_bytes", 8 * KIB..=MIB),
            url_bytes: section.size("url_bytes", 256..=64 * KIB),
            streams: section.count("streams", 1..=1_000_000),
            streams_per_key: section.count("streams_per_key", 1..=1_000_000),
            failed_keys_per_address: section.count("failed_keys_per_address", 1..=1_000_000),
            namespace_queued: section.count("namespace_queued", 1..=1_000_000_000),
        };
        if limits.batch_bytes < limits.payload_bytes {
            section.complain("batch_bytes", "must be at least payload_bytes");
        }
        if limits.request_head_bytes < limits.url_bytes {
            section.complain("url_bytes", "must be at most request_head_bytes");
        }
        limits
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeouts {
    pub first_byte: Duration,
    pub head: Duration,
    pub body_idle: Duration,
    pub body_total: Duration,
    pub body_grace: Duration,
    pub keep_alive: Duration,
    pub write_idle: Duration,
    pub drain: Duration,
}

impl Timeouts {
    pub(crate) fn read(section: &mut Section) -> Timeouts {
        let range = Duration::from_millis(100)..=Duration::from_secs(3600);
        let timeouts = Timeouts {
            first_byte: section.duration("first_byte", range.clone()),
            head: section.duration("head", range.clone()),
            body_idle: section.duration("body_idle", range.clone()),
            body_total: section.duration("body_total", range.clone()),
            body_grace: section.duration("body_grace", range.clone()),
            keep_alive: section.duration("keep_alive", range.clone()),
            write_idle: section.duration("write_idle", range),
            drain: section.duration("drain", Duration::ZERO..=Duration::from_secs(3600)),
        };
        if timeouts.body_total < timeouts.body_idle {
            section.complain("body_total", "must be at least body_idle");
        }
        timeouts
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Store {
    pub page_cache_bytes: u64,
    pub job_cache_bytes: u64,
    pub waiting_writes: usize,
    pub reserve_bytes: u64,
    pub database_connections: usize,
    pub prepared_statements: PreparedStatements,
    pub allow_unsafe_database: bool,
    pub allow_local_objects: bool,
}

/// Whether statements are prepared under names in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreparedStatements {
    /// Without a proxy in front.
    Auto,
    On,
    Off,
}

const PREPARED: [(&str, PreparedStatements); 3] =
    [("auto", PreparedStatements::Auto), ("on", PreparedStatements::On), ("off", PreparedStatements::Off)];

impl Store {
    pub(crate) fn read(section: &mut Section) -> Store {
        Store {
            page_cache_bytes: section.bytes("page_cache_bytes", MIB..=64 * GIB),
            job_cache_bytes: section.bytes("job_cache_bytes", 0..=64 * GIB),
            waiting_writes: section.count("waiting_writes", 1..=1_000_000),
            reserve_bytes: section.bytes("reserve_bytes", MIB..=GIB),
            database_connections: section.count("database_connections", 8..=1000),
            prepared_statements: section.choice("prepared_statements", &PREPARED, PreparedStatements::Auto),
            allow_unsafe_database: section.switch("allow_unsafe_database"),
            allow_local_objects: section.switch("allow_local_objects"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Push {
    pub in_flight: usize,
    pub response_excerpts: bool,
}

impl Push {
    pub(crate) fn read(section: &mut Section) -> Push {
        Push {
            in_flight: section.count("in_flight", 2..=100_000),
            response_excerpts: section.switch("response_excerpts"),
        }
    }
}

/// `HOST:PORT`; an IPv6 address is written in brackets.
pub(crate) fn listen(section: &mut Section, name: &'static str) -> Option<ListenAddress> {
    let text = section.optional_text(name)?;
    let parsed = text.rsplit_once(':').and_then(|(host, port)| {
        let port: u16 = port.parse().ok()?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = !host.is_empty() && !host.contains([':', '[', ']', '/', ' ']);
        match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().ok().map(|_| (address, port)),
            None => is_plain.then_some((host, port)),
        }
    });
    match parsed {
        Some((host, port)) => Some(ListenAddress { host: host.to_owned(), port }),
        None => {
            section.complain(name, "must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080");
            None
        }
    }
}

/// By the rule of the engine, so that `validate` says what a start would say.
pub(crate) fn admin_key(section: &mut Section) -> Option<Secret> {
    let text = section.optional_text("admin_key")?;
    if !is_well_formed(&text) {
        let message = format!(
            "must start with \"ol_\", have {KEY_LENGTH_MIN} to 255 characters, and only letters, digits and \"_\""
        );
        section.complain("admin_key", &message);
    }
    Some(Secret::new(text))
}

/// A text that is never shown. Numbers are refused, since they need not be what was written: `007` is 7.
pub(crate) fn secret(section: &mut Section, name: &'static str) -> Option<Secret> {
    let read = read_secret(section.take(name).value);
    read.unwrap_or_else(|message| {
        section.complain(name, message);
        None
    })
}

/// A list of them. No text with commas: a secret may have commas in it.
pub(crate) fn secrets(section: &mut Section, name: &'static str) -> Vec<Secret> {
    let items = match section.take(name).value {
        Value::Null => return Vec::new(),
        Value::List(items) if (1..=SECRETS_MAX).contains(&items.len()) => items,
        _ => {
            section.complain(name, &format!("must be a list of 1 to {SECRETS_MAX} texts"));
            return Vec::new();
        }
    };
    let mut secrets = Vec::with_capacity(items.len());
    for item in items {
        match read_secret(item.value) {
            Ok(secret) => secrets.extend(secret),
            Err(message) => section.complain(name, &format!("must be a list of texts, each of which {message}")),
        }
    }
    secrets
}

fn read_secret(value: Value) -> Result<Option<Secret>, &'static str> {
    match value {
        Value::Null | Value::Refused => Ok(None),
        Value::Text { value, .. } if value.is_empty() => Err("must not be empty"),
        Value::Text { value, .. } => Ok(Some(Secret::new(value))),
        _ => Err("must be a text; put it into quotes"),
    }
}

/// A URL of one of the given schemes. The text is a secret: it may hold a password.
pub(crate) fn url(section: &mut Section, name: &'static str, schemes: &[&str]) -> Option<Secret> {
    let text = section.optional_text(name)?;
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| schemes.contains(&scheme)) {
        section.complain(name, &format!("must be a URL that starts with {}://", schemes.join(":// or ")));
    }
    Some(Secret::new(text))
}

/// An http or https URL with a host, perhaps a path, and nothing behind it.
pub(crate) fn public_url(section: &mut Section) -> Option<String> {
    let text = section.optional_text("public_url")?;
    let trimmed = text.trim_end_matches('/');
    let rest = trimmed.strip_prefix("https://").or_else(|| trimmed.strip_prefix("http://"));
    let is_plain = |rest: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
        !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(is_allowed)
    };
    if !rest.is_some_and(is_plain) {
        section.complain(
            "public_url",
            "must be an http or https URL such as https://jobs.example.com, without query and user",
        );
        return None;
    }
    Some(trimmed.to_owned())
}

/// The place of objects. Its credentials come from the environment, and neither they nor the URL get into a message.
pub(crate) fn blobs(section: &mut Section, environment: &Environment) -> Option<Location> {
    let text = section.optional_text("blobs_url")?;
    match Location::parse(&text, environment.variables()) {
        Ok(location) => Some(location),
        Err(wrong) => {
            section.complain("blobs_url", &format!("cannot be used: {wrong}"));
            None
        }
    }
}

/// Stricter than the log library, which takes a misspelt level for the name of a module.
fn is_log_filter(text: &str) -> bool {
    let is_level = |word: &str| matches!(word, "off" | "error" | "warn" | "info" | "debug" | "trace");
    text.split(',').all(|part| match part.trim().split_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(part.trim()),
    })
}
