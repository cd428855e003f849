//! Checks the database and Redis, if the configuration names them. Read-only.

use outlast_core::Entropy;
use outlast_engine::ports::SystemEntropy;
use outlast_store::peer_bus::redis::inspect::{self as redis_inspect, place};
use outlast_store::postgres::{self, ServerReport};

use super::{Check, Verdict};
use crate::config::{Config, Secret};

pub(crate) async fn checks(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(url) = &config.external.database_url {
        checks.extend(database(url, config).await);
    }
    if let Some(url) = &config.external.redis_url {
        checks.push(redis(url).await);
    }
    checks
}

/// The checks that a server makes at its start.
async fn database(url: &Secret, config: &Config) -> Vec<Check> {
    let found = match postgres::inspect(url.expose()).await {
        Ok(found) => found,
        Err(error) => return vec![Check::new("database", Verdict::Fail, with_causes(&error))],
    };
    let mut checks = vec![Check::new("database", Verdict::Ok, found.to_string())];
    checks.push(durability(&found, config.store.allow_unsafe_database));
    checks.push(schema(&found));
    checks
}

fn durability(found: &ServerReport, is_allowed: bool) -> Check {
    let settings = found.unsafe_settings();
    if settings.is_empty() {
        return Check::new("durability", Verdict::Ok, "what the database confirms survives a power cut");
    }
    let finding = format!("{}: it may lose what it has confirmed", settings.join(" and "));
    match is_allowed {
        true => Check::new("durability", Verdict::Warn, format!("{finding}; store.allow_unsafe_database accepts that")),
        false => Check::new("durability", Verdict::Fail, format!("{finding}; a server refuses to start on it")),
    }
}

fn schema(found: &ServerReport) -> Check {
    if found.read_only {
        return Check::new("schema", Verdict::Fail, "this is a standby, which takes no writes; use the primary");
    }
    let known = found.schema_known;
    match found.schema {
        None => Check::new("schema", Verdict::Warn, "there is none yet; the first start of a server makes it"),
        Some(number) if number == known => {
            Check::new("schema", Verdict::Ok, format!("{number}, as this binary knows it"))
        }
        Some(number) if number < known => {
            let finding = format!("{number}; the next start of this binary brings it to {known}");
            Check::new("schema", Verdict::Warn, finding)
        }
        Some(number) => {
            let finding =
                format!("{number}, but this binary knows {known}: a newer version wrote it; use that version");
            Check::new("schema", Verdict::Fail, finding)
        }
    }
}

/// The messages of an error and of what caused it. None of them has the URL in it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text.push_str(": ");
        text.push_str(&deeper.to_string());
        cause = deeper.source();
    }
    text
}

/// A message goes round; without that, nodes poll.
async fn redis(url: &Secret) -> Check {
    let shown = place(url.expose()).unwrap_or_else(|| "redis_url".to_owned());
    let mark = SystemEntropy::seed().map_or(0, |mut entropy| entropy.next_u64());
    match redis_inspect::inspect(url.expose(), mark).await {
        Ok(found) => {
            let version = found.version.map_or("Redis".to_owned(), |version| format!("Redis {version}"));
            let privacy = if found.is_encrypted { "encrypted" } else { "not encrypted" };
            Check::new("redis", Verdict::Ok, format!("{version} at {shown} passes messages on, {privacy}"))
        }
        // Nodes work without it, only slower.
        Err(error) => Check::new("redis", Verdict::Warn, format!("{shown} does not work, so nodes poll: {error}")),
    }
}
