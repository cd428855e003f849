//! API keys: made, checked, revoked. A key is `ol_`, twelve characters to find it by, `_`, and 43 random ones; the store
//! has only its SHA-256. All keys are in memory, so that a check costs a hash and no read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::{Entropy, NamespaceId, Timestamp};
use outlast_store::Error;
use outlast_store::keys::{KeyId, KeyRecord, NewKey};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::engine::Engine;
use crate::scope::{DEFAULT_NAMESPACE, Principal, Scope, Word};

const MARK: &str = "ol_";
const PREFIX_LENGTH: usize = 12;
const SECRET_LENGTH: usize = 43;
const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Below this an operator's own key could be guessed.
pub const KEY_LENGTH_MIN: usize = 32;

#[derive(Default)]
pub(crate) struct Keys {
    by_prefix: RwLock<HashMap<String, Known>>,
    loading: tokio::sync::Mutex<()>,
}

struct Known {
    id: KeyId,
    hash: [u8; 32],
    principal: Principal,
    expires_at: Option<Timestamp>,
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct KeyRequest {
    pub name: String,
    pub namespace: String,
    pub scopes: Vec<Scope>,
    pub expires_at: Option<Timestamp>,
}

/// The operator's own key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminKeyError {
    #[error(
        "the admin key must start with \"ol_\", have at least {KEY_LENGTH_MIN} characters, and only letters, digits and \"_\""
    )]
    Malformed,
    #[error(
        "another key starts with the same {PREFIX_LENGTH} characters as the admin key; choose a different admin key"
    )]
    PrefixTaken,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Engine {
    /// Reads all keys into memory. To be called before requests are served, and after every change.
    pub async fn load_keys(&self) -> Result<(), Error> {
        // One at a time: an older list must not overwrite a newer one.
        let _turn = self.shared.keys.loading.lock().await;
        let records = self.shared.store.keys().await?;
        let known = records.into_iter().filter(|record| record.revoked_at.is_none()).map(known).collect();
        *self.shared.keys.by_prefix.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Who holds this key. The same `None` for unknown, wrong, expired and revoked ones.
    pub fn authenticate(&self, key: &str) -> Option<Principal> {
        let presented: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let keys = self.shared.keys.by_prefix.read().unwrap_or_else(PoisonError::into_inner);
        let known = keys.get(prefix(key)?)?;
        let right = bool::from(known.hash.ct_eq(&presented));
        let live = known.expires_at.is_none_or(|expires_at| self.now() < expires_at);
        (right && live).then(|| known.principal.clone())
    }

    /// Makes a key; the text is returned this once.
    pub async fn create_key(&self, request: KeyRequest) -> Result<(String, KeyRecord), Error> {
        let text = self.key_text();
        let namespace = self.shared.store.namespace(&request.namespace).await?;
        let record = self.store_key(&text, namespace, request).await?;
        Ok((text, record))
    }

    /// `None` when there is no such key in the caller's namespace; an operator sees all of them.
    pub async fn revoke_key(&self, caller: &Principal, id: KeyId) -> Result<Option<KeyRecord>, Error> {
        let namespace = (!caller.is_operator()).then_some(caller.namespace);
        self.forget_key(namespace, id);
        let revoked = self.shared.store.revoke_key(namespace, id).await?;
        // It is revoked, whatever the reading says: memory has forgotten it already.
        let _ = self.load_keys().await;
        Ok(revoked)
    }

    /// Out of memory before it is out of the store: should the call be dropped half way, the key is refused, not accepted.
    fn forget_key(&self, namespace: Option<NamespaceId>, id: KeyId) {
        let visible = |known: &Known| namespace.is_none_or(|namespace| known.principal.namespace == namespace);
        let mut keys = self.shared.keys.by_prefix.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, known| known.id != id || !visible(known));
    }

    pub async fn keys(&self, caller: &Principal) -> Result<Vec<KeyRecord>, Error> {
        let visible = |record: &KeyRecord| caller.is_operator() || record.namespace == caller.namespace;
        Ok(self.shared.store.keys().await?.into_iter().filter(visible).collect())
    }

    /// Has any key ever been made? If not, this is the first start.
    pub async fn has_keys(&self) -> Result<bool, Error> {
        Ok(!self.shared.store.keys().await?.is_empty())
    }

    /// The operator brings the admin key along: it is valid from now on.
    pub async fn use_admin_key(&self, text: &str) -> Result<(), AdminKeyError> {
        let well_formed = text.starts_with(MARK)
            && text.len() >= KEY_LENGTH_MIN
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !well_formed {
            return Err(AdminKeyError::Malformed);
        }
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let records = self.shared.store.keys().await?;
        match records.iter().find(|record| Some(record.prefix.as_str()) == prefix(text)) {
            Some(record) if record.hash == hash && record.revoked_at.is_none() => return Ok(()),
            Some(_) => return Err(AdminKeyError::PrefixTaken),
            None => {}
        }
        let namespace = self.shared.store.namespace(DEFAULT_NAMESPACE).await?;
        self.store_key(text, namespace, admin_request()).await?;
        Ok(())
    }

    async fn store_key(&self, text: &str, namespace: NamespaceId, request: KeyRequest) -> Result<KeyRecord, Error> {
        let new = NewKey {
            namespace,
            name: request.name,
            prefix: prefix(text).unwrap_or_default().to_owned(),
            hash: Sha256::digest(text.as_bytes()).into(),
            scopes: request.scopes.iter().map(Scope::to_string).collect(),
            expires_at: request.expires_at,
        };
        let record = self.shared.store.add_key(new).await?;
        // The key is stored: a failure to read it back must not be told as "not stored".
        self.load_keys().await.map_err(|_| Error::Indeterminate)?;
        Ok(record)
    }

    /// The text of a new key, valid once it is stored.
    pub fn key_text(&self) -> String {
        let mut entropy = self.shared.entropy.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = MARK.to_owned();
        fill(&mut text, PREFIX_LENGTH, entropy.as_mut());
        text.push('_');
        fill(&mut text, SECRET_LENGTH, entropy.as_mut());
        text
    }
}

fn admin_request() -> KeyRequest {
    let scopes = vec![Scope { word: Word::Admin, queue: None }];
    KeyRequest { name: "admin".to_owned(), namespace: DEFAULT_NAMESPACE.to_owned(), scopes, expires_at: None }
}

/// 43 characters of this alphabet are 256 bits. Values that would favour some characters are thrown away.
fn fill(text: &mut String, length: usize, entropy: &mut dyn Entropy) {
    let mut left = length;
    while left > 0 {
        for byte in entropy.next_u64().to_le_bytes() {
            if left > 0 && byte < 248 {
                text.push(char::from(ALPHABET.get(usize::from(byte % 62)).copied().unwrap_or(b'0')));
                left -= 1;
            }
        }
    }
}

/// The part a key is found by. `None` when it is no key of ours.
fn prefix(key: &str) -> Option<&str> {
    key.strip_prefix(MARK)?.get(..PREFIX_LENGTH)
}

fn known(record: KeyRecord) -> (String, Known) {
    let scopes: Vec<Scope> = record.scopes.iter().filter_map(|text| Scope::parse(text)).collect();
    let principal = Principal {
        namespace: record.namespace,
        namespace_name: Arc::from(record.namespace_name),
        scopes: scopes.into(),
    };
    (record.prefix, Known { id: record.id, hash: record.hash, principal, expires_at: record.expires_at })
}
