//! Namespaces and API keys.

use outlast_core::NamespaceId;
use outlast_store::keys::{KeyId, KeyRecord, NewKey, Revocation};

use super::world::World;

impl World {
    pub(super) fn namespace(&mut self, name: &str) -> NamespaceId {
        let next = NamespaceId(self.namespaces.len() as u32 + 1);
        *self.namespaces.entry(name.to_owned()).or_insert(next)
    }

    pub(super) fn add_key(&mut self, key: NewKey) -> KeyRecord {
        let id = KeyId(self.keys.len() as u32 + 1);
        let named = self.namespaces.iter().find(|(_, id)| **id == key.namespace);
        let record = KeyRecord {
            id,
            namespace: key.namespace,
            namespace_name: named.expect("a key belongs to a namespace").0.clone(),
            name: key.name,
            prefix: key.prefix,
            hash: key.hash,
            scopes: key.scopes,
            created_at: self.now,
            expires_at: key.expires_at,
            revoked_at: None,
        };
        self.keys.insert(id, record.clone());
        record
    }

    pub(super) fn keys(&self) -> Vec<KeyRecord> {
        self.keys.values().cloned().collect()
    }

    pub(super) fn revoke_key(&mut self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Revocation {
        let now = self.now;
        let works = |key: &KeyRecord| {
            key.revoked_at.is_none()
                && key.expires_at.is_none_or(|expires_at| expires_at > now)
                && key.scopes.contains(&"admin".to_owned())
        };
        let Some(key) = self.keys.get(&id).filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace))
        else {
            return Revocation::NotFound;
        };
        let admins = self.keys.values().filter(|other| other.namespace == key.namespace && works(other)).count();
        if !force && works(key) && admins == 1 {
            return Revocation::LastAdmin;
        }
        let record = self.keys.get_mut(&id).expect("it was just seen");
        record.revoked_at.get_or_insert(now);
        Revocation::Revoked(record.clone())
    }
}
