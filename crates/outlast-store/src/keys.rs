//! API keys as stored: never the key itself, only its SHA-256 and a public prefix to find it by.

use outlast_core::{NamespaceId, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

#[derive(Clone, Debug, PartialEq)]
pub struct NewKey {
    pub namespace: NamespaceId,
    pub name: String,
    pub prefix: String,
    pub hash: [u8; 32],
    /// `word` or `word:queue`.
    pub scopes: Vec<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub name: String,
    pub prefix: String,
    pub hash: [u8; 32],
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl KeyRecord {
    /// Works at this time, and may do everything in its namespace.
    fn is_live_admin(&self, now: Timestamp) -> bool {
        let is_live = self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at);
        is_live && self.scopes.iter().any(|scope| scope == ADMIN)
    }
}

const ADMIN: &str = "admin";

/// The answer to a revocation.
#[derive(Clone, Debug, PartialEq)]
pub enum Revocation {
    Revoked(KeyRecord),
    NotFound,
    /// Without it no key of its namespace could make another one; it works as before.
    LastAdmin,
}

/// Is it the only working admin key of its namespace?
pub fn is_last_admin(key: &KeyRecord, keys: &[KeyRecord], now: Timestamp) -> bool {
    let is_other = |other: &&KeyRecord| other.id != key.id && other.namespace == key.namespace;
    key.is_live_admin(now) && !keys.iter().filter(is_other).any(|other| other.is_live_admin(now))
}
