//! The way PostgreSQL takes for the hot statements: by an index, whatever the tables hold and however old the
//! statistics are. The plans are kept in `plans.txt`; `make gen` rewrites them.

use std::fs;
use std::path::Path;

use outlast_store::postgres::{Options, PostgresStore};
use outlast_tests::ports::SeededEntropy;
use outlast_tests::postgres::Postgres;

#[tokio::test]
async fn the_plans_of_the_hot_statements_are_the_known_ones() {
    let database = Postgres::shared().database();
    let store = PostgresStore::open(Options::new(
        &database.url,
        Box::new(SeededEntropy::new(1)),
        outlast_api::callback::compose,
    ))
    .await
    .unwrap();
    let empty = written(&store).await;
    // Tables that look full to the planner: the way must stay the same.
    database.psql(
        "INSERT INTO job (seq, created_at, queue, status, state, payload)
         SELECT number, 0, 1, 3, '', '' FROM generate_series(1, 20000) AS number;
         INSERT INTO ready_and_alarm (queue, place, at, seq) SELECT 1, 100, number, number FROM generate_series(1, 20000) AS number;
         ANALYZE",
    );
    let full = written(&store).await;

    assert_eq!(full, empty, "the way changes when the tables fill");
    let detour = full.lines().find(|line| line.contains("Seq Scan") || line.contains("Bitmap"));
    assert_eq!(detour, None, "a hot statement reads more than it has to:\n{full}");
    compare(&full);
}

async fn written(store: &PostgresStore) -> String {
    let plans = store.plans().await.unwrap();
    plans.into_iter().map(|(name, plan)| format!("-- {name}\n{plan}\n\n")).collect()
}

fn compare(plans: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/plans.txt");
    if std::env::var_os("OUTLAST_GEN").is_some() {
        fs::write(&path, plans).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(plans, known, "the plans have changed; if that is meant, run `make gen`");
}
