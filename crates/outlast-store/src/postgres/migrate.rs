//! Forward-only migrations. All that are missing commit together with their numbers, under a lock, so that any number of
//! nodes may start at once and a crash leaves either all or nothing.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::options::OpenError;

/// Number, name and text of each migration, in order. Never edited after a release. The numbers are those of SQLite.
pub const MIGRATIONS: &[(u32, &str, &str)] = &[(1, "schema", include_str!("migrations/0001_schema.sql"))];

/// The sum of all migrations, for readers; a test keeps it equal.
pub const SCHEMA: &str = include_str!("schema.sql");

/// A start that waits longer, for another node that migrates or for a lock on a table, fails with the reason, and
/// nothing has changed.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '60s'";
/// Any constant will do; it only has to differ from other programs' in the same database.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7302586910117)";
const MAKE_LIST: &str = "
    CREATE TABLE IF NOT EXISTS outlast_schema (
        number     integer PRIMARY KEY,
        name       text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    )";
const HAS_LIST: &str = "SELECT to_regclass('outlast_schema') IS NOT NULL";
const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM outlast_schema";
const NOTE: &str = "INSERT INTO outlast_schema (number, name) VALUES ($1, $2)";

pub(super) fn known() -> u32 {
    MIGRATIONS.last().map_or(0, |(number, _, _)| *number)
}

/// The number of the last migration, if there is a store.
pub(super) async fn found(client: &Client) -> Result<Option<u32>, Error> {
    let has_list = client.query_typed(HAS_LIST, &[]).await?.first().is_some_and(|row| row.get(0));
    if !has_list {
        return Ok(None);
    }
    let newest = client.query_typed(NEWEST, &[]).await?;
    Ok(newest.first().and_then(|row| u32::try_from(row.get::<_, i32>(0)).ok()))
}

pub(super) async fn migrate(client: &mut Client) -> Result<(), OpenError> {
    if found(client).await? == Some(known()) {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(LOCK_TIMEOUT).await?;
    transaction.batch_execute(LOCK).await?;
    // Another node may have done it while this one waited.
    transaction.batch_execute(MAKE_LIST).await?;
    let newest = transaction.query_typed(NEWEST, &[]).await?;
    let found = newest.first().and_then(|row| u32::try_from(row.get::<_, i32>(0)).ok()).unwrap_or(0);
    if found > known() {
        return Err(OpenError::Newer { found, known: known() });
    }
    for (number, name, text) in MIGRATIONS.iter().filter(|(number, _, _)| *number > found) {
        transaction.batch_execute(text).await?;
        let stored = i32::try_from(*number).unwrap_or(i32::MAX);
        transaction.execute_typed(NOTE, &[(&stored, Type::INT4), (name, Type::TEXT)]).await?;
        tracing::info!(number, name, "schema migrated");
    }
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migrations_have_the_numbers_and_names_of_sqlite() {
        let names = |list: &[(u32, &'static str, &'static str)]| -> Vec<(u32, &'static str)> {
            list.iter().map(|(number, name, _)| (*number, *name)).collect()
        };

        assert_eq!(names(MIGRATIONS), names(crate::sqlite::MIGRATIONS));
    }
}
