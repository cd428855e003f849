//! Plants a violated invariant: jobs with attempt number 0, which no job has, in rows that are sound otherwise. For
//! stores that no process has open.

use std::path::Path;

use crate::postgres::Database;

/// The oldest `count` jobs in the data directory of an embedded store.
pub fn plant_in_sqlite(directory: &Path, count: usize) {
    let connection = rusqlite::Connection::open(directory.join("outlast.db")).expect("the file opens");
    connection.pragma_update(None, "ignore_check_constraints", true).expect("a pragma");
    let plant = "UPDATE job SET attempt = 0, checksum = NULL WHERE seq IN (SELECT seq FROM job ORDER BY seq LIMIT ?1)";
    assert_eq!(connection.execute(plant, [count]).expect("the rows are written"), count);
}

/// The oldest `count` jobs of a database.
pub fn plant_in_postgres(database: &Database, count: usize) {
    let rows = database.psql(&format!("SELECT seq, encode(state, 'hex') FROM job ORDER BY seq LIMIT {count}"));
    assert_eq!(rows.lines().count(), count);
    for row in rows.lines() {
        let (seq, state) = row.split_once('|').expect("two columns");
        let planted = without_attempt(state.trim());
        database.psql(&format!("UPDATE job SET state = decode('{planted}', 'hex') WHERE seq = {seq}"));
    }
}

/// The state in its first form, which has no checksum. Behind the form's number stand the numbers present, detail,
/// priority, version, replays and attempt, of seven bits in each byte.
fn without_attempt(state: &str) -> String {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("hex"), 16).expect("hex");
    let state: Vec<u8> = state.as_bytes().chunks(2).map(byte).collect();
    assert_eq!(state[0], 2, "another form of the state");
    let mut planted = vec![1];
    planted.extend_from_slice(&state[5..]);
    let attempt = (1..planted.len()).filter(|at| planted[*at] < 0x80).nth(4).expect("five numbers") + 1;
    assert_eq!(planted[attempt], 1, "the first attempt");
    planted[attempt] = 0;
    planted.iter().map(|byte| format!("{byte:02x}")).collect()
}
