//! The signing secrets of a queue: made with it, replaced on request and when its endpoint moves to another host, kept
//! sealed. Two are live while receivers change over.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{NamespaceId, Queue, Timestamp};
use outlast_store::Error;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::{Queues, header_values};
use crate::egress::headers::RefusedHeader;
use crate::seal::{self, Seal, Unopened};
use crate::sign::Secret;

/// How long the old secret still signs beside the new one, unless the caller says otherwise.
pub const OVERLAP_DEFAULT: Duration = Duration::from_secs(86_400);

/// Why secrets cannot be had or stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("the secrets of queue \"{queue}\" cannot be opened: {why}")]
    Sealed { queue: String, why: Unopened },
    #[error("this store's secrets are sealed with key {}, and this node has {}", seal::name(*.store), seal::name(*.node))]
    OtherKey { store: i64, node: i64 },
    #[error("the value of header \"{header}\" is masked, and there is none that could be kept")]
    NothingToKeep { header: String },
    #[error("headers {0}")]
    Headers(#[from] RefusedHeader),
}

/// As it is sealed. The newest secret comes first.
#[derive(Serialize, Deserialize)]
struct Kept {
    secret: String,
    /// Signs until then; the newest one without end.
    until: Option<i64>,
}

/// The secrets of a queue, opened.
pub struct Secrets(Vec<(Secret, Option<Timestamp>)>);

impl Secrets {
    pub(crate) fn one(secret: Secret) -> Secrets {
        Secrets(vec![(secret, None)])
    }

    /// Puts a new one in front; the one before it stays for a while, older ones go.
    pub(crate) fn rotated(mut self, secret: Secret, until: Timestamp) -> Secrets {
        self.0.truncate(1);
        for (_, end) in &mut self.0 {
            *end = Some(until);
        }
        self.0.insert(0, (secret, None));
        self
    }

    pub(crate) fn is_only(&self, secret: &Secret) -> bool {
        matches!(&self.0[..], [(only, None)] if bool::from(only.expose().as_bytes().ct_eq(secret.expose().as_bytes())))
    }

    /// Those that sign at this time, the newest first.
    pub fn live(&self, now: Timestamp) -> Vec<Secret> {
        let live = self.0.iter().filter(|(_, until)| until.is_none_or(|until| until > now));
        live.map(|(secret, _)| secret.clone()).collect()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let kept: Vec<Kept> = self
            .0
            .iter()
            .map(|(secret, until)| Kept { secret: secret.expose().to_owned(), until: until.map(Timestamp::as_millis) })
            .collect();
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Secrets> {
        let kept: Vec<Kept> = serde_json::from_slice(bytes).ok()?;
        let read = |kept: Kept| Some((Secret::from_text(&kept.secret).ok()?, kept.until.map(Timestamp::from_millis)));
        kept.into_iter().map(read).collect::<Option<Vec<_>>>().map(Secrets)
    }
}

/// Bound to namespace and name: what was copied to another queue's row does not open there.
fn place(namespace: NamespaceId, name: &str) -> Vec<u8> {
    format!("queue {} {name}", namespace.0).into_bytes()
}

impl Queues {
    /// Can this node open what is sealed in the store? To be asked before it serves requests.
    pub async fn check_seal(&self) -> Result<(), SecretError> {
        let node = self.seal.fingerprint();
        for (queue, _) in self.store.census().await? {
            let key = queue.secrets.as_deref().and_then(Seal::key_of);
            let mut keys = key.into_iter().chain(header_values::sealing_keys(&queue));
            if let Some(store) = keys.find(|key| !self.seal.knows(*key)) {
                return Err(SecretError::OtherKey { store, node });
            }
        }
        Ok(())
    }

    /// Puts new secrets in the place of those that no key here opens, which are lost. Headers whose value is lost are
    /// removed. Returns of how many queues.
    pub async fn replace_lost_secrets(&self) -> Result<usize, SecretError> {
        let mut count = 0;
        let is_lost = |key: i64| !self.seal.knows(key);
        for (queue, _) in self.store.census().await? {
            let key = queue.secrets.as_deref().and_then(Seal::key_of).filter(|key| is_lost(*key));
            let header_key = header_values::sealing_keys(&queue).find(|key| is_lost(*key));
            let Some(lost) = key.or(header_key) else {
                continue;
            };
            self.store.sealing_key(self.seal.fingerprint(), &[lost]).await?;
            let settings = header_values::without_lost(&queue, is_lost);
            if header_key.is_some() {
                tracing::warn!(queue = queue.name, "headers whose value cannot be opened were removed; set them again");
            }
            let queue = Queue { settings, ..Queue::clone(&queue) };
            match key {
                Some(_) => self.replace_secret(&queue).await?,
                None => self.replace_settings(&queue).await?,
            }
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn new_secret(&self) -> Secret {
        self.random.draw(Secret::generate)
    }

    /// The secrets of a queue; `None` if it has none yet.
    pub(crate) fn open_secrets(&self, queue: &Queue) -> Result<Option<Secrets>, SecretError> {
        let Some(sealed) = &queue.secrets else {
            return Ok(None);
        };
        let sealed_error = |why| SecretError::Sealed { queue: queue.name.clone(), why };
        let bytes = self.seal.open(sealed, &place(queue.namespace, &queue.name)).map_err(sealed_error)?;
        Secrets::from_bytes(&bytes).map(Some).ok_or(sealed_error(Unopened::Altered))
    }

    /// All nodes of a store must seal with one key, else one could not sign for another's queues.
    pub(crate) async fn check_sealing_key(&self) -> Result<(), SecretError> {
        let node = self.seal.fingerprint();
        let store = self.store.sealing_key(node, &self.seal.older()).await?;
        if store == node { Ok(()) } else { Err(SecretError::OtherKey { store, node }) }
    }

    /// Ready to be stored.
    pub(crate) async fn seal_secrets(
        &self,
        namespace: NamespaceId,
        name: &str,
        secrets: &Secrets,
    ) -> Result<Arc<[u8]>, SecretError> {
        self.check_sealing_key().await?;
        let (bytes, place) = (secrets.to_bytes(), place(namespace, name));
        Ok(self.random.draw(|entropy| self.seal.seal(&bytes, &place, entropy)).into())
    }
}
