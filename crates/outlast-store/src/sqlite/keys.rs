//! Namespaces and API keys inside the writer. Keys are few and read into memory by the engine, so every read is plain.

use outlast_core::{NamespaceId, Timestamp};
use rusqlite::{Row, params};

use super::faults::Fault;
use super::row_checksums::{self, verify};
use super::write::unreadable;
use super::writer::WriterState;
use crate::checksum::Table;
use crate::error::Error;
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation, is_last_admin};

/// Without the index, which may have lost one: a namespace that is not found would be created again, without its jobs.
const NAMESPACES: &str = "SELECT id, name, checksum FROM namespace NOT INDEXED LIMIT 1000000";
const NEXT_NAMESPACE: &str = "SELECT coalesce(max(id), 0) + 1 FROM namespace";
const INSERT_NAMESPACE: &str = "INSERT INTO namespace (id, name, checksum) VALUES (?1, ?2, ?3)";

const INSERT_KEY: &str = "
    INSERT INTO api_key (namespace, name, prefix, hash, scopes, created_at, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const HAS_KEYS: &str = "SELECT EXISTS (SELECT 1 FROM api_key)";
const ALL_KEYS: &str = "
    SELECT api_key.id, api_key.namespace, api_key.name, api_key.prefix, api_key.hash, api_key.scopes, api_key.created_at,
           api_key.expires_at, api_key.revoked_at, api_key.checksum, namespace.name
    FROM api_key
    LEFT JOIN namespace ON namespace.id = api_key.namespace
    ORDER BY api_key.id
    LIMIT 1000000";

/// Its parameters are the columns under the checksum, and the checksum.
const UPDATE_KEY: &str = "UPDATE api_key SET scopes = ?6, revoked_at = ?9, checksum = ?10 WHERE id = ?1";
const CHECKSUM: usize = 9;

const SEALING_KEY: &str = "sealing_key";

impl WriterState<'_> {
    pub(super) fn sealing_key(&mut self, key: i64, replaces: &[i64]) -> Result<i64, Fault> {
        match self.noted(SEALING_KEY)? {
            Some(present) if !replaces.contains(&present) => Ok(present),
            _ => self.note(SEALING_KEY, key).map(|()| key),
        }
    }

    pub(super) fn namespace(&mut self, name: &str) -> Result<NamespaceId, Fault> {
        let mut statement = self.connection.prepare_cached(NAMESPACES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            verify(Table::Namespace, row, 0..2, 2)?;
            if row.get_ref(1)?.as_str().is_ok_and(|known| known == name) {
                return Ok(NamespaceId(row.get(0)?));
            }
        }
        let id: u32 = self.connection.prepare_cached(NEXT_NAMESPACE)?.query_row([], |row| row.get(0))?;
        let mut insert = self.connection.prepare_cached(INSERT_NAMESPACE)?;
        row_checksums::execute(&mut insert, Table::Namespace, params![id, name])?;
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
        let added =
            added.ok_or_else(|| Fault::Unsound(Error::Corrupt("a key that was just added is gone".to_owned())))?;
        self.write_key(&added)?;
        Ok(added)
    }

    pub(super) fn add_first_key(&mut self, key: &NewKey) -> Result<Option<KeyRecord>, Fault> {
        // A damaged key does not work, and is no reason to make another one.
        let has_keys: bool = self.connection.prepare_cached(HAS_KEYS)?.query_row([], |row| row.get(0))?;
        match has_keys {
            false => self.add_key(key).map(Some),
            true => Ok(None),
        }
    }

    /// All but those that are damaged, which do not work.
    pub(super) fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        let mut statement = self.connection.prepare_cached(ALL_KEYS).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            match key(row) {
                Ok(key) => keys.push(key),
                Err(error) => self.note_damage(&error),
            }
        }
        Ok(keys)
    }

    pub(super) fn revoke_key(
        &mut self,
        namespace: Option<NamespaceId>,
        id: KeyId,
        force: bool,
    ) -> Result<Revocation, Fault> {
        let visible = |key: &&KeyRecord| key.id == id && namespace.is_none_or(|namespace| key.namespace == namespace);
        let keys = self.keys()?;
        let Some(mut key) = keys.iter().find(visible).cloned() else {
            return Ok(Revocation::NotFound);
        };
        if !force && is_last_admin(&key, &keys, self.now) {
            return Ok(Revocation::LastAdmin);
        }
        key.revoked_at = key.revoked_at.or(Some(self.now));
        self.write_key(&key)?;
        Ok(Revocation::Revoked(key))
    }

    fn write_key(&self, key: &KeyRecord) -> Result<(), Fault> {
        let scopes = serde_json::to_string(&key.scopes).map_err(|error| Error::Corrupt(error.to_string()))?;
        let columns = params![
            key.id.0,
            key.namespace.0,
            key.name,
            key.prefix,
            key.hash,
            scopes,
            key.created_at.as_millis(),
            key.expires_at.map(Timestamp::as_millis),
            key.revoked_at.map(Timestamp::as_millis),
        ];
        row_checksums::execute(&mut *self.connection.prepare_cached(UPDATE_KEY)?, Table::ApiKey, columns)?;
        Ok(())
    }
}

fn key(row: &Row<'_>) -> Result<KeyRecord, Error> {
    verify(Table::ApiKey, row, 0..CHECKSUM, CHECKSUM)?;
    let corrupt = |error: rusqlite::Error| Error::Corrupt(format!("api key: {error}"));
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(corrupt);
    let scopes: String = row.get(5).map_err(corrupt)?;
    Ok(KeyRecord {
        id: KeyId(row.get(0).map_err(corrupt)?),
        namespace: NamespaceId(row.get(1).map_err(corrupt)?),
        namespace_name: row.get(CHECKSUM + 1).map_err(corrupt)?,
        name: row.get(2).map_err(corrupt)?,
        prefix: row.get(3).map_err(corrupt)?,
        hash: row.get(4).map_err(corrupt)?,
        scopes: serde_json::from_str(&scopes).map_err(|error| Error::Corrupt(format!("api key: {error}")))?,
        created_at: time(6)?.unwrap_or_default(),
        expires_at: time(7)?,
        revoked_at: time(8)?,
    })
}
