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
