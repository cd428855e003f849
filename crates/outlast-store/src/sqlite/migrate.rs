//! Forward-only migrations. The number reached is SQLite's `user_version`; each migration and its number commit
//! together, so a crash leaves either all of one or nothing of it.

use rusqlite::{Connection, TransactionBehavior};

use super::options::OpenError;

/// Number, name and text of each migration, in order. Never edited after a release.
pub const MIGRATIONS: &[(u32, &str, &str)] = &[(1, "schema", include_str!("migrations/0001_schema.sql"))];

/// The sum of all migrations, for readers; a test keeps it equal.
pub const SCHEMA: &str = include_str!("schema.sql");

pub(super) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let known = MIGRATIONS.last().map_or(0, |(number, _, _)| *number);
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    for (number, name, text) in MIGRATIONS.iter().filter(|(number, _, _)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
        transaction.execute_batch(text)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
        tracing::info!(number, name, "schema migrated");
    }
    Ok(())
}

const TABLES: &str = "
    SELECT sql
    FROM sqlite_schema
    WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
    ORDER BY name
    LIMIT 1000";

/// The schema that `script` gives, normalised for comparison; what the test of `schema.sql` uses.
pub fn migrated_schema(scripts: &[&str]) -> Result<Vec<String>, rusqlite::Error> {
    let connection = Connection::open_in_memory()?;
    for script in scripts {
        connection.execute_batch(script)?;
    }
    let mut statement = connection.prepare(TABLES)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    // SQLite puts a column that was added later on the line of the previous one.
    let plain =
        |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ,", ",").replace(" )", ")");
    rows.map(|sql| sql.map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_sql_is_the_sum_of_the_migrations() {
        let scripts: Vec<&str> = MIGRATIONS.iter().map(|(_, _, text)| *text).collect();

        assert_eq!(migrated_schema(&[SCHEMA]).unwrap(), migrated_schema(&scripts).unwrap());
    }

    #[test]
    fn migrations_are_numbered_from_one_without_gaps() {
        for (at, (number, _, _)) in (1..).zip(MIGRATIONS) {
            assert_eq!(*number, at);
        }
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 999).unwrap();

        assert!(matches!(migrate(&mut connection), Err(OpenError::Newer { found: 999, .. })));
    }
}
