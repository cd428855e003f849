//! Namespaces and API keys. Keys are few and read into memory by the engine, so every read is plain.

use std::sync::Arc;

use outlast_core::{NamespaceId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rows::{Cell, get, row_sum, text, verify};
use super::session::Sql;
use super::shared::StoreContext;
use super::transact::{Fault, Tx};
use crate::checksum::Table;
use crate::codec::row::from_json;
use crate::error::Error;
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation, is_last_admin};

static FIND_NAMESPACE: Sql = Sql { text: "SELECT id FROM namespace WHERE name = $1", types: &[Type::TEXT] };
static INSERT_NAMESPACE: Sql = Sql {
    text: "INSERT INTO namespace (name) VALUES ($1) ON CONFLICT (name) DO NOTHING RETURNING id",
    types: &[Type::TEXT],
};

static KEEP_SEALING_KEY: Sql = Sql {
    text: "
        INSERT INTO meta (name, value)
        VALUES ('sealing_key', $1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value = ANY ($2)",
    types: &[Type::INT8, Type::INT8_ARRAY],
};
static SEALING_KEY: Sql = Sql { text: "SELECT value FROM meta WHERE name = 'sealing_key'", types: &[] };

pub(super) async fn sealing_key(key: i64, replaces: &[i64], tx: &mut Tx<'_>) -> Result<i64, Fault> {
    tx.begin_write().await?;
    tx.session.execute(&KEEP_SEALING_KEY, &[&key, &replaces]).await?;
    let rows = tx.session.query(&SEALING_KEY, &[]).await?;
    Ok(rows.first().map_or(key, |row| row.get(0)))
}

/// Two nodes that bring the same key along at the same time add it once.
static INSERT_KEY: Sql = Sql {
    text: "
        INSERT INTO api_key (namespace, name, prefix, hash, scopes, created_at, expires_at, checksum)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (prefix) DO NOTHING",
    types: &[Type::INT4, Type::BYTEA, Type::TEXT, Type::BYTEA, Type::TEXT, Type::INT8, Type::INT8, Type::INT4],
};

/// One row for the whole database: the transaction that inserts it makes the first key, and others wait for its end.
static TAKE_FIRST_KEY: Sql = Sql {
    text: "INSERT INTO meta (name, value) VALUES ('first_key', $1) ON CONFLICT (name) DO NOTHING RETURNING value",
    types: &[Type::INT8],
};
static HAS_KEYS: Sql = Sql { text: "SELECT EXISTS (SELECT FROM api_key)", types: &[] };

macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT api_key.id, api_key.namespace, namespace.name, api_key.name, api_key.prefix, api_key.hash,
                    api_key.scopes, api_key.created_at, api_key.expires_at, api_key.revoked_at, api_key.checksum
             FROM api_key
             JOIN namespace ON namespace.id = api_key.namespace ",
            $rest
        )
    };
}
static ALL_KEYS: Sql = Sql { text: select_keys!("ORDER BY api_key.id"), types: &[] };
static KEYS_SINCE: Sql = Sql {
    text: select_keys!("WHERE api_key.created_at >= $1 OR api_key.revoked_at >= $1 ORDER BY api_key.id"),
    types: &[Type::INT8],
};
static KEY_BY_PREFIX: Sql = Sql { text: select_keys!("WHERE api_key.prefix = $1"), types: &[Type::TEXT] };
static KEY_BY_ID: Sql = Sql { text: select_keys!("WHERE api_key.id = $1"), types: &[Type::INT4] };
static REVOKE_KEY: Sql = Sql {
    text: "UPDATE api_key SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1",
    types: &[Type::INT4, Type::INT8],
};

pub(super) async fn namespace(name: &str, tx: &mut Tx<'_>) -> Result<NamespaceId, Fault> {
    tx.begin_write().await?;
    loop {
        // Looking first wastes no number; the insert may still lose a race.
        for sql in [&FIND_NAMESPACE, &INSERT_NAMESPACE] {
            if let Some(row) = tx.session.query(sql, &[&name]).await?.first() {
                return Ok(NamespaceId(row.get::<_, i32>(0).cast_unsigned()));
            }
        }
    }
}

pub(super) async fn add(key: &NewKey, tx: &mut Tx<'_>) -> Result<KeyRecord, Fault> {
    let scopes = serde_json::to_string(&key.scopes).map_err(|error| Error::Corrupt(error.to_string()))?;
    tx.begin_write().await?;
    let (now, expires_at) = (tx.now.as_millis(), key.expires_at.map(Timestamp::as_millis));
    let (namespace, hash) = (key.namespace.0.cast_signed(), key.hash.to_vec());
    let cells = [
        Cell::Number(namespace.into()),
        Cell::Bytes(key.name.as_bytes()),
        Cell::Text(&key.prefix),
        Cell::Bytes(&hash),
        Cell::Text(&scopes),
        Cell::Number(now),
        Cell::number(expires_at),
    ];
    let sum = row_sum(Table::ApiKey, &cells);
    let name = key.name.as_bytes();
    tx.session.execute(&INSERT_KEY, &[&namespace, &name, &key.prefix, &hash, &scopes, &now, &expires_at, &sum]).await?;
    let rows = tx.session.query(&KEY_BY_PREFIX, &[&key.prefix]).await?;
    let added = rows.first().map(read_key).transpose()?.filter(|record| record.hash == key.hash);
    added.ok_or_else(|| Fault::Refused(Error::Corrupt("another key has the same prefix".to_owned())))
}

pub(super) async fn add_first(key: &NewKey, tx: &mut Tx<'_>) -> Result<Option<KeyRecord>, Fault> {
    tx.begin_write().await?;
    let is_first = !tx.session.query(&TAKE_FIRST_KEY, &[&tx.now.as_millis()]).await?.is_empty();
    // A database that an earlier version began has keys and no such row.
    let has_keys = tx.session.query(&HAS_KEYS, &[]).await?.first().is_some_and(|row| row.get(0));
    match is_first && !has_keys {
        true => add(key, tx).await.map(Some),
        false => Ok(None),
    }
}

/// Of two revocations of admin keys the second waits here, and then sees what the first one has left.
static LOCK_ADMINS: Sql = Sql {
    text: "
        SELECT id
        FROM api_key
        WHERE namespace = $1 AND revoked_at IS NULL AND position('\"admin\"' IN scopes) > 0
        ORDER BY id
        FOR UPDATE",
    types: &[Type::INT4],
};
static KEYS_OF: Sql = Sql {
    text: select_keys!("WHERE api_key.namespace = $1 AND api_key.revoked_at IS NULL ORDER BY api_key.id"),
    types: &[Type::INT4],
};

async fn is_last(key: &KeyRecord, tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let namespace = key.namespace.0.cast_signed();
    tx.session.query(&LOCK_ADMINS, &[&namespace]).await?;
    let rows = tx.session.query(&KEYS_OF, &[&namespace]).await?;
    // A damaged key does not work.
    let keys: Vec<KeyRecord> = rows.iter().filter_map(|row| read_key(row).ok()).collect();
    Ok(is_last_admin(key, &keys, tx.now))
}

pub(super) async fn revoke(
    namespace: Option<NamespaceId>,
    id: KeyId,
    force: bool,
    tx: &mut Tx<'_>,
) -> Result<Revocation, Fault> {
    tx.begin_write().await?;
    let number = id.0.cast_signed();
    let visible = |key: &KeyRecord| namespace.is_none_or(|namespace| key.namespace == namespace);
    let find = async |tx: &mut Tx<'_>| -> Result<Option<KeyRecord>, Fault> {
        let rows = tx.session.query(&KEY_BY_ID, &[&number]).await?;
        Ok(rows.first().map(read_key).transpose()?)
    };
    let Some(key) = find(tx).await?.filter(visible) else {
        return Ok(Revocation::NotFound);
    };
    if !force && is_last(&key, tx).await? {
        return Ok(Revocation::LastAdmin);
    }
    tx.session.execute(&REVOKE_KEY, &[&number, &tx.now.as_millis()]).await?;
    Ok(find(tx).await?.map_or(Revocation::NotFound, Revocation::Revoked))
}

/// All but those that are damaged, which do not work.
pub(super) async fn all(shared: &Arc<StoreContext>) -> Result<Vec<KeyRecord>, Error> {
    let rows = shared.read(&ALL_KEYS, &[]).await?;
    Ok(rows.iter().filter_map(|row| shared.noted(read_key(row)).ok()).collect())
}

pub(super) async fn since(shared: &Arc<StoreContext>, since: Timestamp) -> Result<Vec<KeyRecord>, Error> {
    shared.read(&KEYS_SINCE, &[&since.as_millis()]).await?.iter().map(read_key).collect()
}

/// Not whether it is revoked, which comes later.
fn check_key(row: &Row) -> Result<(), Error> {
    let cells = [
        Cell::Number(get::<i32>(row, 1)?.into()),
        Cell::Bytes(get(row, 3)?),
        Cell::Text(get(row, 4)?),
        Cell::Bytes(get(row, 5)?),
        Cell::Text(get(row, 6)?),
        Cell::Number(get(row, 7)?),
        Cell::number(get(row, 8)?),
    ];
    verify(Table::ApiKey, &get::<i32>(row, 0)?.to_string(), get(row, 10)?, row_sum(Table::ApiKey, &cells))
}

fn read_key(row: &Row) -> Result<KeyRecord, Error> {
    check_key(row)?;
    let hash = <[u8; 32]>::try_from(get::<&[u8]>(row, 5)?);
    let time = |at: usize| get::<Option<i64>>(row, at).map(|at| at.map(Timestamp::from_millis));
    Ok(KeyRecord {
        id: KeyId(get::<i32>(row, 0)?.cast_unsigned()),
        namespace: NamespaceId(get::<i32>(row, 1)?.cast_unsigned()),
        namespace_name: get(row, 2)?,
        name: text(row, 3)?.unwrap_or_default().into(),
        prefix: get(row, 4)?,
        hash: hash.map_err(|_| Error::Corrupt("column hash of an API key".to_owned()))?,
        scopes: from_json(get(row, 6)?)?,
        created_at: Timestamp::from_millis(get(row, 7)?),
        expires_at: time(8)?,
        revoked_at: time(9)?,
    })
}
