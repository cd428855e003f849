//! `schema.sql` of PostgreSQL is what the migrations make together. It is compared by what the database has then;
//! SQLite keeps the text of its tables, so there the store itself compares.

use outlast_store::postgres::{MIGRATIONS, SCHEMA};
use outlast_tests::postgres::{Database, Postgres};

/// One line per thing: tables, indexes and sequences with their storage, columns, constraints.
const CATALOG: &str = "
    SELECT concat_ws(' ', relkind, relname, relpersistence, ARRAY(SELECT unnest(reloptions) ORDER BY 1))
    FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', 'column', relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
                     attstorage, attcompression, attcollation::regcollation, pg_get_expr(adbin, adrelid))
    FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
    ORDER BY 1";

fn made_by(scripts: &[&str]) -> Database {
    let database = Postgres::shared().database();
    scripts.iter().for_each(|script| drop(database.psql(script)));
    database
}

fn catalog(database: &Database) -> Vec<String> {
    database.psql(CATALOG).lines().map(str::to_owned).collect()
}

#[test]
fn schema_sql_of_postgres_is_the_sum_of_the_migrations() {
    let scripts: Vec<&str> = MIGRATIONS.iter().map(|(_, _, text)| *text).collect();
    let (sum, steps) = (catalog(&made_by(&[SCHEMA])), catalog(&made_by(&scripts)));

    for line in sum.iter().filter(|line| !steps.contains(line)) {
        println!("only in schema.sql: {line}");
    }
    for line in steps.iter().filter(|line| !sum.contains(line)) {
        println!("only by the migrations: {line}");
    }
    assert!(sum == steps && sum.len() > 50, "the two differ, or nothing was compared");
}

/// The control: each kind of difference shows.
#[test]
fn a_schema_that_differs_a_little_is_noticed() {
    let scripts: Vec<&str> = MIGRATIONS.iter().map(|(_, _, text)| *text).collect();
    let sound = catalog(&made_by(&scripts));
    for change in [
        "ALTER TABLE queue ALTER COLUMN gcra SET DEFAULT 1",
        "ALTER TABLE queue ALTER COLUMN hold_round TYPE bigint",
        "ALTER TABLE queue ALTER COLUMN secrets SET NOT NULL",
        "ALTER TABLE queue RESET (fillfactor)",
        "ALTER TABLE job ALTER COLUMN payload SET STORAGE PLAIN",
        "ALTER TABLE crash_epoch SET LOGGED",
        "ALTER TABLE job DROP CONSTRAINT job_status_check",
        "DROP INDEX operation_open",
        "DROP TABLE label",
    ] {
        let database = made_by(&scripts);
        database.psql(change);
        assert_ne!(catalog(&database), sound, "{change}");
    }
}
