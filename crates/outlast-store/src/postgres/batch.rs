//! The writes of a transaction as statements, each for the rows of all jobs at once.

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, join_all};
use outlast_core::gate::HoldCause;
use outlast_core::object::DELETE_DELAY;
use outlast_core::{Queue, QueueId, Status};
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::artifacts::{DROP_CHECKPOINTS, KEEP_CHECKPOINTS, KEEP_SECTIONS, PUT_OBJECTS, SCHEDULE_DELETE};
use super::claim_cursor::ReadyRank;
use super::columns::Rows;
use super::rows::{Cell, cells, row_sum, spec_json, text_sum};
use super::session::{Session, Sql};
use super::state_codec::pack;
use super::unit_of_work::{LoadedRow, RowState, UnitOfWork};
use crate::checksum::Table;
use crate::codec::events::code;
use crate::codec::row::IndexEntry;
use crate::dead_letters::failed_at;

/// Everything that is to be sent, borrowed from the writes: for each statement its rows.
#[derive(Default)]
pub(super) struct WriteBatch<'w> {
    tables: Vec<Rows<'w>>,
    tally: BTreeMap<i32, [i64; 7]>,
}

/// The order in which statements are sent. The counts come last: their rows are the only ones that transactions of one
/// queue share, and so are locked for as short as possible.
static ORDER: [&Sql; 24] = [
    &INSERT_JOB,
    &UPDATE_JOB,
    &UPDATE_PAYLOAD,
    &DELETE_JOBS,
    &DELETE_TURNS,
    &INSERT_TURNS,
    &DELETE_DEAD,
    &INSERT_DEAD,
    &KEEP_RESULTS,
    &DELETE_RESULTS,
    &DROP_CHECKPOINTS,
    &KEEP_CHECKPOINTS,
    &KEEP_SECTIONS,
    &SCHEDULE_DELETE,
    &PUT_OBJECTS,
    &INSERT_HISTORY,
    &INSERT_LABELS,
    &DELETE_LABELS,
    &TAKE_KEYS,
    &DROP_KEYS,
    &DELETE_KEYS,
    &UPDATE_GATES,
    &SET_ASIDE,
    &COUNT,
];

/// The value of `ready_and_alarm.queue` for alarms. Queues are numbered from 1.
pub(super) const ALARMS: i32 = 0;

impl<'w> WriteBatch<'w> {
    pub(super) fn of(writes: &'w UnitOfWork, slot: i16) -> WriteBatch<'w> {
        let mut batch = WriteBatch::default();
        writes.entries().for_each(|entry| batch.add(entry));
        for (seq, body) in &writes.payloads {
            batch.push(&UPDATE_PAYLOAD, cells![*seq, &**body, text_sum(Table::Payload, *seq, body)]);
        }
        for (seq, body) in &writes.results {
            match body {
                Some(body) => batch.push(&KEEP_RESULTS, cells![*seq, &**body, text_sum(Table::Result, *seq, body)]),
                None => batch.push(&DELETE_RESULTS, cells![*seq]),
            }
        }
        for (seq, first, events) in &writes.history {
            let sum = row_sum(Table::History, &cells![*seq, *first, &**events]);
            batch.push(&INSERT_HISTORY, cells![*seq, *first, &**events, sum]);
        }
        writes.labels.iter().for_each(|(label, seq)| batch.push(&INSERT_LABELS, cells![*label, *seq]));
        writes.labels_gone.iter().for_each(|(label, seq)| batch.push(&DELETE_LABELS, cells![*label, *seq]));
        writes.keys.iter().for_each(|(hash, seq)| batch.push(&TAKE_KEYS, cells![*hash, *seq]));
        // In order, so that two transactions which drop the same keys do not wait for each other.
        let mut keys_gone = writes.keys_gone.clone();
        keys_gone.sort_unstable();
        for (hash, seq) in keys_gone {
            batch.push(&DROP_KEYS, cells![hash, seq]);
            batch.push(&DELETE_KEYS, cells![hash]);
        }
        writes.gates.values().for_each(|queue| batch.add_gate(queue));
        writes.artifacts.add_to(&mut batch);
        writes.set_aside.iter().for_each(|seq| batch.push(&SET_ASIDE, cells![*seq]));
        for (queue, [pending, queued, running, succeeded, failed, cancelled, expired]) in
            std::mem::take(&mut batch.tally)
        {
            let counts = [pending, queued, running, succeeded, failed, cancelled, expired];
            if counts.iter().any(|count| *count != 0) {
                let row = cells![queue, slot, pending, queued, running, succeeded, failed, cancelled, expired];
                batch.push(&COUNT, row);
            }
        }
        batch.tables.sort_by_key(|rows| ORDER.iter().position(|sql| std::ptr::eq(*sql, rows.sql)));
        batch
    }

    /// One more row for a statement.
    pub(super) fn push<const N: usize>(&mut self, sql: &'static Sql, row: [Cell<'w>; N]) {
        match self.tables.iter_mut().find(|rows| std::ptr::eq(rows.sql, sql)) {
            Some(rows) => rows.push(row),
            None => {
                let mut rows = Rows::new(sql);
                rows.push(row);
                self.tables.push(rows);
            }
        }
    }

    fn add(&mut self, entry: &'w LoadedRow) {
        let (record, job) = (&entry.record, &entry.record.job);
        let (seq, status) = (record.seq, code(&Status::ALL, job.status()));
        match entry.fate {
            RowState::Untouched | RowState::Gone => return,
            RowState::Changed if entry.before.is_none() => {
                let (created_at, queue, payload) =
                    (job.created_at.as_millis(), queue_number(job.queue), &*job.spec.payload);
                let (spec, sum) = (spec_json(&job.spec), text_sum(Table::Payload, seq, payload));
                self.push(&INSERT_JOB, cells![seq, created_at, queue, status, pack(record), spec, payload, sum]);
            }
            RowState::Changed | RowState::Rearmed => self.push(&UPDATE_JOB, cells![seq, status, pack(record)]),
            RowState::Deleted => self.push(&DELETE_JOBS, cells![seq, LATE_MILLIS]),
        }
        let after = (entry.fate != RowState::Deleted).then(|| IndexEntry::of(record));
        self.move_line(entry.before, after, seq);
        self.move_dead(entry, after);
        self.move_alarm(entry.before, after, seq);
        for (place, sign) in [(entry.before, -1), (after, 1)] {
            if let Some(place) = place {
                let counts = self.tally.entry(queue_number(place.queue)).or_default();
                if let Some(count) = counts.get_mut(usize::from(code(&Status::ALL, place.status))) {
                    *count += sign;
                }
            }
        }
    }

    fn move_line(&mut self, before: Option<IndexEntry>, after: Option<IndexEntry>, seq: i64) {
        let of = |status: Status, place: Option<IndexEntry>| place.filter(|place| place.status == status);
        let turn = |place: IndexEntry| {
            let rank = ReadyRank::of(&place, seq);
            cells![queue_number(place.queue), rank.place, rank.ready_at, seq]
        };
        let (from, to) = (of(Status::Queued, before), of(Status::Queued, after));
        if from.map(|place| place.ready_at) != to.map(|place| place.ready_at) {
            from.into_iter().for_each(|place| self.push(&DELETE_TURNS, turn(place)));
            to.into_iter().for_each(|place| self.push(&INSERT_TURNS, turn(place)));
        }
    }

    fn move_dead(&mut self, entry: &LoadedRow, after: Option<IndexEntry>) {
        let of = |place: Option<IndexEntry>| place.filter(|place| place.status == Status::Failed);
        let (from, to, record) = (of(entry.before), of(after), &entry.record);
        let (seq, failed_at) = (record.seq, failed_at(&record.job).unwrap_or(record.job.created_at).as_millis());
        // A job that was replayed and failed again has another time.
        if from.is_some() != to.is_some() || entry.fate == RowState::Changed {
            from.into_iter().for_each(|place| self.push(&DELETE_DEAD, cells![queue_number(place.queue), seq]));
            to.into_iter().for_each(|place| self.push(&INSERT_DEAD, cells![queue_number(place.queue), seq, failed_at]));
        }
    }

    fn move_alarm(&mut self, before: Option<IndexEntry>, after: Option<IndexEntry>, seq: i64) {
        let (from, to) = (before.and_then(|place| place.wake_at), after.and_then(|place| place.wake_at));
        if from != to {
            from.into_iter().for_each(|at| self.push(&DELETE_TURNS, cells![ALARMS, 0, at.as_millis(), seq]));
            to.into_iter().for_each(|at| self.push(&INSERT_TURNS, cells![ALARMS, 0, at.as_millis(), seq]));
        }
    }

    fn add_gate(&mut self, queue: &Queue) {
        let hold = queue.hold;
        let probe = hold.and_then(|hold| hold.probe).map(|probe| probe.as_u128().to_be_bytes().to_vec());
        let (cause, round) = hold.map_or((0, 0), |hold| (code(&HoldCause::ALL, hold.cause), hold.round.cast_signed()));
        let until = hold.map(|hold| hold.until.as_millis());
        self.push(&UPDATE_GATES, cells![queue_number(queue.id), until, probe, cause, round, queue.gcra.0]);
    }

    pub(super) async fn ready(&self, session: &Session) -> Result<(), Error> {
        let statements: Vec<&Sql> = self.tables.iter().map(|rows| rows.sql).collect();
        session.ready(&statements).await
    }

    /// All in one flight, in order.
    pub(super) async fn send(&self, session: &Session) -> Result<(), Error> {
        let statements: Vec<_> = self.tables.iter().map(|rows| (rows.sql, rows.parameters())).collect();
        let sent: Vec<BoxFuture<'_, Result<u64, Error>>> = statements
            .iter()
            .map(|(sql, parameters)| -> BoxFuture<'_, Result<u64, Error>> {
                Box::pin(session.execute(sql, parameters))
            })
            .collect();
        for outcome in join_all(sent).await {
            outcome?;
        }
        Ok(())
    }
}

fn queue_number(queue: QueueId) -> i32 {
    queue.0.cast_signed()
}

const I8: Type = Type::INT8_ARRAY;
const I4: Type = Type::INT4_ARRAY;
const I2: Type = Type::INT2_ARRAY;
const BYTES: Type = Type::BYTEA_ARRAY;
const TEXT: Type = Type::TEXT_ARRAY;

pub(super) static INSERT_JOB: Sql = Sql {
    text: "
        INSERT INTO job (seq, created_at, queue, status, state, spec, payload, payload_checksum)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)",
    types: &[I8, I8, I4, I2, BYTES, TEXT, TEXT, I4],
};
pub(super) static UPDATE_JOB: Sql = Sql {
    text: "
        UPDATE job
        SET status = new.status, state = new.state
        FROM unnest($1, $2, $3) AS new (seq, status, state)
        WHERE job.seq = new.seq",
    types: &[I8, I2, BYTES],
};
static UPDATE_PAYLOAD: Sql = Sql {
    text: "
        UPDATE job
        SET payload = new.payload, payload_checksum = new.checksum
        FROM unnest($1, $2, $3) AS new (seq, payload, checksum)
        WHERE job.seq = new.seq",
    types: &[I8, TEXT, I4],
};
/// An upload to an object of a deleted job may continue for a while.
const LATE_MILLIS: i64 = DELETE_DELAY.as_secs().cast_signed() * 1_000;
/// One statement for all tables that have rows of a job by its number alone.
static DELETE_JOBS: Sql = Sql {
    text: "
        WITH results AS (DELETE FROM result WHERE seq = ANY ($1)),
             checkpoints AS (DELETE FROM checkpoint WHERE seq = ANY ($1)),
             sections AS (DELETE FROM section WHERE job = ANY ($1)),
             objects AS (
                 UPDATE object
                 SET delete_after = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
                     + CASE WHEN attached THEN 0 ELSE gone.late END
                 FROM unnest($1, $2) AS gone (seq, late)
                 WHERE object.job = gone.seq AND delete_after IS NULL
             ),
             histories AS (DELETE FROM history WHERE job = ANY ($1))
        DELETE FROM job WHERE seq = ANY ($1)",
    types: &[I8, I8],
};
pub(super) static DELETE_TURNS: Sql = Sql {
    text: "
        DELETE FROM ready_and_alarm
        USING unnest($1, $2, $3, $4) AS gone (queue, place, at, seq)
        WHERE ready_and_alarm.queue = gone.queue AND ready_and_alarm.place = gone.place AND ready_and_alarm.at = gone.at AND ready_and_alarm.seq = gone.seq",
    types: &[I4, I2, I8, I8],
};
pub(super) static INSERT_TURNS: Sql = Sql {
    text: "INSERT INTO ready_and_alarm (queue, place, at, seq) SELECT * FROM unnest($1, $2, $3, $4)",
    types: &[I4, I2, I8, I8],
};
static DELETE_DEAD: Sql = Sql {
    text: "DELETE FROM dead_letter USING unnest($1, $2) AS gone (queue, seq) WHERE dead_letter.queue = gone.queue AND dead_letter.seq = gone.seq",
    types: &[I4, I8],
};
static INSERT_DEAD: Sql = Sql {
    text: "INSERT INTO dead_letter (queue, seq, failed_at) SELECT * FROM unnest($1, $2, $3)",
    types: &[I4, I8, I8],
};
static KEEP_RESULTS: Sql = Sql {
    text: "
        INSERT INTO result (seq, body, checksum)
        SELECT * FROM unnest($1, $2, $3)
        ON CONFLICT (seq) DO UPDATE SET body = excluded.body, checksum = excluded.checksum",
    types: &[I8, TEXT, I4],
};
static DELETE_RESULTS: Sql = Sql { text: "DELETE FROM result WHERE seq = ANY ($1)", types: &[I8] };
static INSERT_HISTORY: Sql = Sql {
    text: "INSERT INTO history (job, first, events, checksum) SELECT * FROM unnest($1, $2, $3, $4)",
    types: &[I8, I8, BYTES, I4],
};
static INSERT_LABELS: Sql = Sql {
    text: "INSERT INTO label (label, seq) SELECT * FROM unnest($1, $2) ON CONFLICT DO NOTHING",
    types: &[I8, I8],
};
static DELETE_LABELS: Sql = Sql {
    text: "DELETE FROM label USING unnest($1, $2) AS gone (label, seq) WHERE label.label = gone.label AND label.seq = gone.seq",
    types: &[I8, I8],
};
static TAKE_KEYS: Sql = Sql {
    text: "
        UPDATE dedupe
        SET seqs = dedupe.seqs || taken.seqs
        FROM (SELECT hash, array_agg(seq ORDER BY seq) AS seqs FROM unnest($1, $2) AS one (hash, seq) GROUP BY hash)
            AS taken
        WHERE dedupe.hash = taken.hash",
    types: &[I8, I8],
};
static DROP_KEYS: Sql = Sql {
    text: "
        UPDATE dedupe
        SET seqs = ARRAY(SELECT seq FROM unnest(dedupe.seqs) AS seq WHERE NOT seq = ANY (gone.seqs))
        FROM (SELECT hash, array_agg(seq) AS seqs FROM unnest($1, $2) AS one (hash, seq) GROUP BY hash) AS gone
        WHERE dedupe.hash = gone.hash",
    types: &[I8, I8],
};
static DELETE_KEYS: Sql =
    Sql { text: "DELETE FROM dedupe WHERE hash = ANY ($1) AND cardinality(seqs) = 0", types: &[I8] };
static UPDATE_GATES: Sql = Sql {
    text: "
        UPDATE queue
        SET hold_until = new.hold_until, hold_probe = new.hold_probe, hold_cause = new.hold_cause,
            hold_round = new.hold_round, gcra = new.gcra
        FROM unnest($1, $2, $3, $4, $5, $6) AS new (id, hold_until, hold_probe, hold_cause, hold_round, gcra)
        WHERE queue.id = new.id",
    types: &[I4, I8, BYTES, I2, I4, I8],
};
static SET_ASIDE: Sql = Sql { text: "DELETE FROM ready_and_alarm WHERE seq = ANY ($1)", types: &[I8] };
pub(super) static COUNT: Sql = Sql {
    text: "
        INSERT INTO queue_count AS known (queue, slot, pending, queued, running, succeeded, failed, cancelled, expired)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (queue, slot) DO UPDATE
        SET pending = known.pending + excluded.pending, queued = known.queued + excluded.queued,
            running = known.running + excluded.running, succeeded = known.succeeded + excluded.succeeded,
            failed = known.failed + excluded.failed, cancelled = known.cancelled + excluded.cancelled,
            expired = known.expired + excluded.expired",
    types: &[I4, I2, I8, I8, I8, I8, I8, I8, I8],
};
