//! Namespaces and API keys inside the writer. Keys are few and read into memory by the engine, so every read is plain.

use outlast_core::{NamespaceId, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use super::write::unreadable;
use super::writer::{Core, Fault};
use crate::error::Error;
use crate::keys::{KeyId, KeyRecord, NewKey};

const FIND_NAMESPACE: &str = "SELECT id FROM namespace WHERE name = ?1";
const INSERT_NAMESPACE: &str = "INSERT INTO namespace (name) VALUES (?1)";

const INSERT_KEY: &str = "
    INSERT INTO api_key (namespace, name, prefix, hash, scopes, created_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const ALL_KEYS: &str = "
    SELECT api_key.id, api_key.namespace, namespace.name, api_key.name, api_key.prefix, api_key.hash, api_key.scopes,
           api_key.created_at, api_key.expires_at, api_key.revoked_at
    FROM api_key
    JOIN namespace ON namespace.id = api_key.namespace
    ORDER BY api_key.id
    LIMIT 1000000";

const REVOKE_KEY: &str = "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";

const SEALING_KEY: &str = "SELECT value FROM meta WHERE name = 'sealing_key'";
const REPLACE_SEALING_KEY: &str = "UPDATE meta SET value = ?1 WHERE name = 'sealing_key' AND value = ?2";
const KEEP_SEALING_KEY: &str = "INSERT OR IGNORE INTO meta (name, value) VALUES ('sealing_key', ?1)";

impl Core<'_> {
    pub(super) fn sealing_key(&mut self, key: i64, replaces: &[i64]) -> Result<i64, Fault> {
        self.connection.prepare_cached(KEEP_SEALING_KEY)?.execute([key])?;
        for old in replaces {
            self.connection.prepare_cached(REPLACE_SEALING_KEY)?.execute([key, *old])?;
        }
        Ok(self.connection.prepare_cached(SEALING_KEY)?.query_row([], |row| row.get(0))?)
    }

    pub(super) fn namespace(&mut self, name: &str) -> Result<NamespaceId, Fault> {
        let found: Option<u32> =
            self.connection.prepare_cached(FIND_NAMESPACE)?.query_row([name], |row| row.get(0)).optional()?;
        if let Some(id) = found {
            return Ok(NamespaceId(id));
        }
        self.connection.prepare_cached(INSERT_NAMESPACE)?.execute([name])?;
        let id = u32::try_from(self.connection.last_insert_rowid())
            .map_err(|_| Error::Corrupt("too many namespaces were made".to_owned()))?;
        Ok(NamespaceId(id))
    }

    pub(super) fn add_key(&mut self, key: &NewKey) -> Result<KeyRecord, Fault> {
        let scopes = serde_json::to_string(&key.scopes).map_err(|error| Error::Corrupt(error.to_string()))?;
        self.connection.prepare_cached(INSERT_KEY)?.execute(params![
            key.namespace.0,
            key.name,
            key.prefix,
            key.hash,
            scopes,
            self.now.as_millis(),
            key.expires_at.map(Timestamp::as_millis),
        ])?;
        let id = self.connection.last_insert_rowid();
        let added = self.keys()?.into_iter().find(|record| i64::from(record.id.0) == id);
        added.ok_or_else(|| Fault::Unsound(Error::Corrupt("a key that was just added is gone".to_owned())))
    }

    pub(super) fn add_first_key(&mut self, key: &NewKey) -> Result<Option<KeyRecord>, Fault> {
        match self.keys()?.is_empty() {
            true => self.add_key(key).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        let mut statement = self.connection.prepare_cached(ALL_KEYS).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            keys.push(key(row)?);
        }
        Ok(keys)
    }

    pub(super) fn revoke_key(&mut self, namespace: Option<NamespaceId>, id: KeyId) -> Result<Option<KeyRecord>, Fault> {
        let visible = |key: &KeyRecord| key.id == id && namespace.is_none_or(|namespace| key.namespace == namespace);
        if !self.keys()?.iter().any(visible) {
            return Ok(None);
        }
        self.connection.prepare_cached(REVOKE_KEY)?.execute(params![id.0, self.now.as_millis()])?;
        Ok(self.keys()?.into_iter().find(visible))
    }
}

fn key(row: &Row<'_>) -> Result<KeyRecord, Error> {
    let corrupt = |error: rusqlite::Error| Error::Corrupt(format!("api key: {error}"));
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(corrupt);
    let scopes: String = row.get(6).map_err(corrupt)?;
    Ok(KeyRecord {
        id: KeyId(row.get(0).map_err(corrupt)?),
        namespace: NamespaceId(row.get(1).map_err(corrupt)?),
        namespace_name: row.get(2).map_err(corrupt)?,
        name: row.get(3).map_err(corrupt)?,
        prefix: row.get(4).map_err(corrupt)?,
        hash: row.get(5).map_err(corrupt)?,
        scopes: serde_json::from_str(&scopes).map_err(|error| Error::Corrupt(format!("api key: {error}")))?,
        created_at: time(7)?.unwrap_or_default(),
        expires_at: time(8)?,
        revoked_at: time(9)?,
    })
}
