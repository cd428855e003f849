//! What the configuration file declares and this node acts on: sources, and queues with what they take of them. Held in
//! memory only; all nodes of a store read the same file. Replaced as a whole when the file is read again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use outlast_core::dedupe::KEY_BYTES_MAX;
use outlast_core::filter::Projection;
use outlast_core::object::digest_text;
use outlast_core::{NamespaceId, Subscription};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::provider;
use super::verify::{Scheme, Verifier};

#[derive(Debug)]
pub struct Catalog {
    /// Where the queues are that sources feed.
    pub namespace: NamespaceId,
    pub sources: Vec<Arc<Source>>,
    pub queues: BTreeMap<String, DeclaredQueue>,
}

/// Where a provider sends its events.
pub struct Source {
    pub name: Arc<str>,
    pub path: String,
    /// The address as the provider knows it, where its scheme signs that.
    pub url: String,
    pub verifier: Verifier,
    /// From where events may come; anywhere if empty.
    pub allowed: Vec<IpNet>,
    pub schema: Option<Schema>,
    pub body_max: usize,
    /// In order of their queues' names.
    pub subscribers: Vec<Subscriber>,
    /// The parts of an event that scheme, schema and subscribers ask about.
    pub projection: Projection,
}

/// What events must look like.
pub type Schema = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

/// A queue that takes some events of a source.
pub struct Subscriber {
    pub queue: Arc<str>,
    pub wants: Subscription,
}

/// A queue of the file.
#[derive(Default)]
pub struct DeclaredQueue {
    /// Settings that the file has, as they are called on the wire: nobody else may change them.
    pub settings: Vec<String>,
    /// The digest of a key that opens this queue.
    pub key: Option<[u8; 32]>,
    pub source: Option<String>,
    pub events: Vec<String>,
    pub filter: Option<String>,
    pub idempotency_key: Option<String>,
}

impl Catalog {
    /// What a server without a file has. The namespace is nobody's: nothing leads to it.
    pub fn nothing() -> Catalog {
        Catalog { namespace: NamespaceId(0), sources: Vec::new(), queues: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.queues.is_empty()
    }

    pub fn source_at(&self, path: &str) -> Option<&Arc<Source>> {
        self.sources.iter().find(|source| source.path == path)
    }

    pub fn source(&self, name: &str) -> Option<&Arc<Source>> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    /// The queues that this key opens: several may have the same one. All are compared, each in constant time.
    pub(crate) fn opened_by(&self, presented: &[u8; 32]) -> Vec<&str> {
        let opens = |queue: &DeclaredQueue| queue.key.as_ref().is_some_and(|key| bool::from(key.ct_eq(presented)));
        self.queues.iter().filter(|(_, queue)| opens(queue)).map(|(name, _)| name.as_str()).collect()
    }
}

impl DeclaredQueue {
    pub fn digest(key: &str) -> [u8; 32] {
        Sha256::digest(key.as_bytes()).into()
    }
}

impl Source {
    /// What has to be kept of an event while it is decided about.
    pub fn projection(scheme: &Scheme, has_schema: bool, subscribers: &[Subscriber]) -> Projection {
        let mut projection = if has_schema { Projection::everything() } else { provider::looked_at(scheme) };
        for subscriber in subscribers {
            subscriber.wants.add_to_projection(&mut projection);
        }
        projection
    }

    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.is_empty() || self.allowed.iter().any(|block| block.contains(&address))
    }
}

impl Subscriber {
    /// The idempotency key of the job that comes of this event. One that is too long stands as its digest.
    pub(crate) fn key_of(&self, event: &Value) -> Option<Box<str>> {
        let key = self.wants.key_of(event)?;
        Some(match key.len() {
            length if length <= KEY_BYTES_MAX => key.into(),
            _ => digest_text(&Sha256::digest(key.as_bytes())).into(),
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeclaredQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclaredQueue").field("settings", &self.settings).finish_non_exhaustive()
    }
}
