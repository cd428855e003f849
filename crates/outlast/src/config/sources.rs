//! The section `sources`: where other services send their events, and how it is proven that they come from there. Only
//! read and checked here; the verifier uses the result. Must never show a secret.

pub(crate) mod verify;

use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use outlast_api::routes::ROUTES;
use outlast_engine::inbound::verify::{BadSecret, Scheme, Verifier};

use super::egress::block;
use super::json::to_json;
use super::problem::Problem;
use super::reader::{Section, describe};
use super::sections::{Limits, secret, secrets};
use super::tree::{Key, Value};
use super::{Secret, read_text};

/// Every option of a source.
pub(crate) const OPTIONS: &[&str] = &[
    "path",
    "url",
    "verify",
    "secret",
    "secrets",
    "tolerance",
    "allowed_ips",
    "schema",
    "max_body",
    "header",
    "prefix",
    "encoding",
    "algorithm",
    "type_path",
    "type_header",
];

const TOLERANCE_DEFAULT: Duration = Duration::from_secs(300);
const MAX_BODY_DEFAULT: usize = 1024 * 1024;
const MAX_BODY_LEAST: u64 = 1024;
/// Of a source's name, so that the default path stays short.
const NAME_LENGTH_MAX: usize = 63;
/// Shorter than the least that `limits.url_bytes` can be.
const PATH_LENGTH_MAX: usize = 255;

/// Beginnings of paths that are or will be ours.
const OWN_PATHS: &[&str] = &["/v1", "/api", "/events", "/health", "/metrics", "/dashboard"];

#[derive(Debug, Clone)]
pub(crate) struct SourceConfig {
    pub name: String,
    /// Where events are posted to. No other source has it, and none of our routes begins like it.
    pub path: String,
    pub verify: Scheme,
    /// The address as the provider knows it; empty where its scheme does not sign that.
    pub url: String,
    /// At least one. A signature by any of them will do, so that secrets can be replaced one after the other.
    pub secrets: Vec<Secret>,
    /// How old or how far ahead a signed time may be.
    pub tolerance: Duration,
    /// From where events may come; anywhere if empty.
    pub allowed_ips: Vec<IpNet>,
    /// The JSON Schema of events, as it was written. Known to be an object, not to be a sound schema.
    pub schema: Option<serde_json::Value>,
    pub max_body: usize,
}

impl SourceConfig {
    pub(crate) fn verifier(&self) -> Result<Verifier, BadSecret> {
        let secrets: Vec<&str> = self.secrets.iter().map(Secret::expose).collect();
        Verifier::new(self.verify.clone(), &secrets, self.tolerance)
    }
}

pub(crate) fn read(root: &mut Section, limits: &Limits) -> Vec<SourceConfig> {
    let mut taken: Vec<(String, String)> = Vec::new();
    root.each("sources", OPTIONS, |key, section| {
        let source = read_one(key, section, limits);
        match taken.iter().find(|(path, _)| *path == source.path) {
            Some((_, other)) => section.complain("path", &format!("is the path of source {other:?} already")),
            None => taken.push((source.path.clone(), source.name.clone())),
        }
        source
    })
}

fn read_one(key: &Key, section: &mut Section, limits: &Limits) -> SourceConfig {
    if !is_name(&key.name) {
        let rule = "must be named with lower-case letters, digits, \"_\" and \"-\", starting with a letter or digit, at most 63";
        let message = format!("{} {rule}", section.path());
        section.report(Problem::new(key.origin.clone(), message));
    }
    let url = section.optional_text("url");
    // Zero marks a limit that was refused.
    let body_most = if limits.batch_bytes == 0 { MAX_BODY_DEFAULT } else { limits.batch_bytes };
    let body_range = MAX_BODY_LEAST..=u64::try_from(body_most).unwrap_or(u64::MAX);
    let source = SourceConfig {
        name: key.name.clone(),
        path: path(&key.name, section),
        url: String::new(),
        verify: verify::read(section),
        secrets: live_secrets(section),
        tolerance: section
            .optional("tolerance", |section| {
                section.duration("tolerance", Duration::from_secs(1)..=Duration::from_secs(3600))
            })
            .unwrap_or(TOLERANCE_DEFAULT),
        allowed_ips: allowed_ips(section),
        schema: schema(section),
        max_body: section
            .optional("max_body", |section| section.size("max_body", body_range))
            .unwrap_or(MAX_BODY_DEFAULT.min(body_most)),
    };
    let source = with_url(source, url, section);
    check_secrets(&source, section);
    source
}

/// Twilio signs the address that it was given, and the one that a request names is up to its sender.
fn with_url(source: SourceConfig, url: Option<String>, section: &mut Section) -> SourceConfig {
    match (url, &source.verify) {
        (None, Scheme::Twilio) => {
            section
                .complain("url", "is required with verify: twilio; the whole address as Twilio has it, without query");
        }
        (Some(_), verify) if *verify != Scheme::Twilio => {
            section.complain("url", "has a meaning with verify: twilio only");
        }
        (Some(url), _) => {
            let is_whole =
                (url.starts_with("https://") || url.starts_with("http://")) && !url.contains(['?', '#', ' ']);
            if !is_whole {
                section.complain(
                    "url",
                    "must be a whole address such as https://example.com/webhooks/twilio, without query",
                );
            }
            return SourceConfig { url, ..source };
        }
        (None, _) => {}
    }
    source
}

/// A secret that the scheme cannot use is found out now, not with the first event.
fn check_secrets(source: &SourceConfig, section: &mut Section) {
    if source.secrets.is_empty() {
        return;
    }
    if let Err(error) = source.verifier() {
        let option = if section.is_set("secrets") { "secrets" } else { "secret" };
        section.complain(option, &format!("cannot be used: {error}"));
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes().next().is_some_and(is_plain)
        && name.len() <= NAME_LENGTH_MAX
        && name.bytes().all(|byte| is_plain(byte) || matches!(byte, b'_' | b'-'))
}

fn path(name: &str, section: &mut Section) -> String {
    let Some(path) = section.optional_text("path") else {
        return format!("/webhooks/{name}");
    };
    if !is_plain_path(&path) {
        section.complain(
            "path",
            "must be a path such as /webhooks/stripe: letters, digits, \"-\", \"_\", \".\" and \"~\" between slashes, \
             at most 255 characters, without query and without \"..\"",
        );
    } else if let Some(own) = own_beginning(&path) {
        section
            .complain("path", &format!("must not begin with {own}, which is ours; left out, it is /webhooks/{name}"));
    }
    path
}

fn is_plain_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain);
    path.len() <= PATH_LENGTH_MAX && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part))
}

/// The beginning that the path shares with what is ours: the reserved ones, and whatever has a route.
fn own_beginning(path: &str) -> Option<&'static str> {
    // The route `/` is the page at the root, which no other path begins with.
    let routes = ROUTES.iter().filter(|route| route.path != "/").filter_map(|route| {
        let end = route.path.match_indices('/').nth(1).map_or(route.path.len(), |(at, _)| at);
        route.path.get(..end)
    });
    OWN_PATHS.iter().copied().chain(routes).find(|own| path.starts_with(own))
}

/// `secret`, or `secrets` while one replaces another.
fn live_secrets(section: &mut Section) -> Vec<Secret> {
    let (has_one, has_many) = (section.is_set("secret"), section.is_set("secrets"));
    let (one, many) = (secret(section, "secret"), secrets(section, "secrets"));
    if has_one && has_many {
        section.complain("secrets", "cannot stand beside secret; put all of them into secrets");
    } else if !has_one && !has_many && !section.is_refused("secrets") {
        section.complain("secret", "is required; or secrets, a list, while one replaces another");
    }
    one.into_iter().chain(many).collect()
}

fn allowed_ips(section: &mut Section) -> Vec<IpNet> {
    let is_empty = section.is_empty_list("allowed_ips");
    let blocks = section.list("allowed_ips", "address blocks such as 10.0.0.0/8 or fd00::/8", block);
    if is_empty {
        // An empty list does not mean everybody: it may come from an empty variable.
        section.complain("allowed_ips", "must have at least one entry; left out, events may come from anywhere");
    }
    blocks
}

/// A file beside the configuration, or the schema itself.
fn schema(section: &mut Section) -> Option<serde_json::Value> {
    let node = section.take("schema");
    let shown = describe(&node.value);
    let read = match node.value {
        Value::Null => return None,
        Value::Map(_) => Ok(to_json(node.value)),
        Value::Text { value, .. } => schema_file(&node.origin.directory().join(value), &shown),
        _ => Err(format!("must be the path of a JSON Schema file, or the schema itself, not {shown}")),
    };
    let read = read.and_then(|schema| match jsonschema::validator_for(&schema) {
        Ok(_) => Ok(schema),
        Err(error) => Err(format!("is not a JSON Schema: {error}")),
    });
    match read {
        Ok(schema) => Some(schema),
        Err(message) => {
            section.complain("schema", &message);
            None
        }
    }
}

fn schema_file(path: &Path, shown: &str) -> Result<serde_json::Value, String> {
    let text = read_text(path).map_err(|message| format!("{shown} {message}"))?;
    match serde_json::from_str(&text) {
        Ok(schema @ serde_json::Value::Object(_)) => Ok(schema),
        Ok(_) => Err(format!("{shown} must hold a JSON object")),
        Err(error) => Err(format!("{shown} is not valid JSON: {error}")),
    }
}
