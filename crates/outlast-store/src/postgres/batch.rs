//! The writes of a transaction as columns: one array per column, one statement per table.

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, join_all};
use outlast_core::gate::{Cause, Hold};
use outlast_core::object::DOOMED_FOR;
use outlast_core::{QueueId, Status, Timestamp};
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::kept::KeptColumns;
use super::marks::Rank;
use super::packed::pack;
use super::rows::{Cell, Record, row_sum, spec_json, text_sum};
use super::session::{Parameter, Session, Sql};
use super::write::{Entry, Fate, Place, Writes};
use crate::checksum::Table;
use crate::history::code;

/// Everything that is to be sent, borrowed from the writes.
#[derive(Default)]
pub(super) struct Batch<'w> {
    born: Jobs,
    specs: Vec<Option<String>>,
    changed: Jobs,
    deleted: Vec<i64>,
    turns: Turns,
    turns_gone: Turns,
    dead: Turns,
    dead_gone: Turns,
    born_payloads: (Vec<&'w str>, Vec<i32>),
    payloads: (Vec<i64>, Vec<&'w str>, Vec<i32>),
    results: (Vec<i64>, Vec<&'w str>, Vec<i32>),
    results_gone: Vec<i64>,
    history: Runs<'w>,
    kept: KeptColumns<'w>,
    labels: Pairs,
    labels_gone: Pairs,
    keys: Pairs,
    keys_gone: Pairs,
    holds: Holds,
    paces: (Vec<i32>, Vec<i64>),
    set_aside: Vec<i64>,
    tally: BTreeMap<i32, [i64; 7]>,
    tally_columns: (Vec<i32>, Vec<i16>, [Vec<i64>; 7]),
}

/// Queues with their hold: its end, probe, cause and round.
#[derive(Default)]
struct Holds {
    queue: Vec<i32>,
    until: Vec<Option<i64>>,
    probe: Vec<Option<Vec<u8>>>,
    cause: Vec<i16>,
    round: Vec<i32>,
}

type Pairs = (Vec<i64>, Vec<i64>);

/// Runs of events: job, first event, events and checksum.
type Runs<'w> = (Vec<i64>, Vec<i64>, Vec<&'w [u8]>, Vec<i32>);

/// Rows of `turn`, and of `dead`, which has only the first and the last column.
#[derive(Default)]
struct Turns {
    queue: Vec<i32>,
    place: Vec<i16>,
    at: Vec<i64>,
    seq: Vec<i64>,
}

impl Holds {
    fn push(&mut self, queue: QueueId, hold: Option<Hold>) {
        self.queue.push(queue.0.cast_signed());
        self.until.push(hold.map(|hold| hold.until.as_millis()));
        self.probe.push(hold.and_then(|hold| hold.probe).map(|probe| probe.as_u128().to_be_bytes().to_vec()));
        self.cause.push(hold.map_or(0, |hold| i16::from(code(&Cause::ALL, hold.cause))));
        self.round.push(hold.map_or(0, |hold| hold.round.cast_signed()));
    }
}

/// Rows of `job`.
#[derive(Default)]
struct Jobs {
    seq: Vec<i64>,
    created_at: Vec<i64>,
    queue: Vec<i32>,
    status: Vec<i16>,
    state: Vec<Vec<u8>>,
}

impl Jobs {
    fn push(&mut self, record: &Record) {
        self.seq.push(record.seq);
        self.created_at.push(record.job.created_at.as_millis());
        self.queue.push(record.job.queue.0.cast_signed());
        self.status.push(i16::try_from(status_slot(record.job.status())).unwrap_or(0));
        self.state.push(pack(record));
    }
}

/// The stored form of a status, and its place among the counts.
fn status_slot(status: Status) -> usize {
    Status::ALL.iter().position(|one| *one == status).unwrap_or(0)
}

impl Turns {
    /// In the line of its queue.
    fn push(&mut self, place: Place, seq: i64) {
        let rank = Rank::of(&place, seq);
        self.push_row(place.queue.0.cast_signed(), rank.place, rank.ready_at, seq);
    }

    /// An alarm.
    fn push_alarm(&mut self, at: Timestamp, seq: i64) {
        self.push_row(ALARMS, 0, at.as_millis(), seq);
    }

    fn push_row(&mut self, queue: i32, place: i16, at: i64, seq: i64) {
        self.queue.push(queue);
        self.place.push(place);
        self.at.push(at);
        self.seq.push(seq);
    }
}

/// Stands in `turn.queue` for the clock. Queues are numbered from 1.
pub(super) const ALARMS: i32 = 0;

fn push(pairs: &mut Pairs, pair: (i64, i64)) {
    pairs.0.push(pair.0);
    pairs.1.push(pair.1);
}

impl<'w> Batch<'w> {
    pub(super) fn of(writes: &'w Writes, slot: i16) -> Batch<'w> {
        let mut batch = Batch::default();
        for entry in writes.entries() {
            batch.add(entry);
        }
        for (seq, body) in &writes.payloads {
            batch.payloads.0.push(*seq);
            batch.payloads.1.push(body);
            batch.payloads.2.push(text_sum(Table::Payload, *seq, body));
        }
        for (seq, body) in &writes.results {
            match body {
                Some(body) => {
                    batch.results.0.push(*seq);
                    batch.results.1.push(body);
                    batch.results.2.push(text_sum(Table::Result, *seq, body));
                }
                None => batch.results_gone.push(*seq),
            }
        }
        for (seq, first, events) in &writes.history {
            batch.history.0.push(*seq);
            batch.history.1.push(*first);
            batch.history.2.push(events);
            let cells = [Cell::Number(*seq), Cell::Number(*first), Cell::Bytes(events)];
            batch.history.3.push(row_sum(Table::History, &cells));
        }
        writes.labels.iter().for_each(|pair| push(&mut batch.labels, *pair));
        writes.labels_gone.iter().for_each(|pair| push(&mut batch.labels_gone, *pair));
        writes.keys.iter().for_each(|pair| push(&mut batch.keys, *pair));
        // In order, so that two transactions which drop the same keys do not wait for each other.
        let mut keys_gone = writes.keys_gone.clone();
        keys_gone.sort_unstable();
        keys_gone.into_iter().for_each(|pair| push(&mut batch.keys_gone, pair));
        for (queue, hold) in &writes.holds {
            batch.holds.push(*queue, *hold);
        }
        for (queue, pace) in &writes.paces {
            batch.paces.0.push(queue.0.cast_signed());
            batch.paces.1.push(pace.0);
        }
        batch.kept = KeptColumns::of(&writes.kept);
        batch.set_aside.clone_from(&writes.set_aside);
        batch.count(slot);
        batch
    }

    fn add(&mut self, entry: &'w Entry) {
        let (seq, record) = (entry.record.seq, &entry.record);
        match entry.fate {
            Fate::Untouched | Fate::Gone => return,
            Fate::Changed if entry.before.is_none() => {
                self.born.push(record);
                self.specs.push(spec_json(&record.job.spec));
                self.born_payloads.0.push(&record.job.spec.payload);
                self.born_payloads.1.push(text_sum(Table::Payload, seq, &record.job.spec.payload));
            }
            Fate::Changed | Fate::Rearmed => self.changed.push(record),
            Fate::Deleted => self.deleted.push(seq),
        }
        let after = (entry.fate != Fate::Deleted).then(|| Place::of(record));
        self.move_line(entry.before, after, seq);
        self.move_alarm(entry.before, after, seq);
        for (place, sign) in [(entry.before, -1), (after, 1)] {
            if let Some(place) = place {
                let counts = self.tally.entry(place.queue.0.cast_signed()).or_default();
                if let Some(count) = counts.get_mut(status_slot(place.status)) {
                    *count += sign;
                }
            }
        }
    }

    fn move_line(&mut self, before: Option<Place>, after: Option<Place>, seq: i64) {
        let of = |status: Status, place: Option<Place>| place.filter(|place| place.status == status);
        let (from, to) = (of(Status::Queued, before), of(Status::Queued, after));
        if from.map(|place| place.ready_at) != to.map(|place| place.ready_at) {
            from.into_iter().for_each(|place| self.turns_gone.push(place, seq));
            to.into_iter().for_each(|place| self.turns.push(place, seq));
        }
        let (from, to) = (of(Status::Failed, before), of(Status::Failed, after));
        if from.is_some() != to.is_some() {
            from.into_iter().for_each(|place| self.dead_gone.push(place, seq));
            to.into_iter().for_each(|place| self.dead.push(place, seq));
        }
    }

    fn move_alarm(&mut self, before: Option<Place>, after: Option<Place>, seq: i64) {
        let (from, to) = (before.and_then(|place| place.wake_at), after.and_then(|place| place.wake_at));
        if from != to {
            from.into_iter().for_each(|at| self.turns_gone.push_alarm(at, seq));
            to.into_iter().for_each(|at| self.turns.push_alarm(at, seq));
        }
    }

    fn count(&mut self, slot: i16) {
        for (queue, counts) in std::mem::take(&mut self.tally) {
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            self.tally_columns.0.push(queue);
            self.tally_columns.1.push(slot);
            for (column, count) in self.tally_columns.2.iter_mut().zip(counts) {
                column.push(count);
            }
        }
    }

    pub(super) async fn ready(&self, session: &Session) -> Result<(), Error> {
        let statements: Vec<&Sql> = self.statements().into_iter().map(|(sql, _)| sql).collect();
        session.ready(&statements).await
    }

    /// All in one flight, in this order.
    pub(super) async fn send(&self, session: &Session) -> Result<(), Error> {
        let statements = self.statements();
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

    /// The statements that have something to do. The counts come last: their rows are the only ones that transactions of
    /// one queue share, and so are locked for as short as possible.
    fn statements<'b>(&'b self) -> Vec<(&'static Sql, Vec<Parameter<'b>>)> {
        let mut list: Vec<(&'static Sql, Vec<Parameter<'b>>)> = Vec::with_capacity(8);
        let mut add = |sql: &'static Sql, rows: usize, parameters: Vec<Parameter<'b>>| {
            if rows > 0 {
                list.push((sql, parameters));
            }
        };
        let (born, changed) = (&self.born, &self.changed);
        let (payloads, checksums) = &self.born_payloads;
        let insert: Vec<Parameter<'b>> =
            vec![&born.seq, &born.created_at, &born.queue, &born.status, &born.state, &self.specs, payloads, checksums];
        add(&INSERT_JOB, born.seq.len(), insert);
        add(&UPDATE_JOB, changed.seq.len(), vec![&changed.seq, &changed.status, &changed.state]);
        add(&UPDATE_PAYLOAD, self.payloads.0.len(), vec![&self.payloads.0, &self.payloads.1, &self.payloads.2]);
        add(&DELETE_JOBS, self.deleted.len(), vec![&self.deleted, &LATE_MILLIS]);
        let gone = &self.turns_gone;
        add(&DELETE_TURNS, gone.seq.len(), vec![&gone.queue, &gone.place, &gone.at, &gone.seq]);
        let turns = &self.turns;
        add(&INSERT_TURNS, turns.seq.len(), vec![&turns.queue, &turns.place, &turns.at, &turns.seq]);
        add(&DELETE_DEAD, self.dead_gone.seq.len(), vec![&self.dead_gone.queue, &self.dead_gone.seq]);
        add(&INSERT_DEAD, self.dead.seq.len(), vec![&self.dead.queue, &self.dead.seq]);
        add(&KEEP_RESULTS, self.results.0.len(), vec![&self.results.0, &self.results.1, &self.results.2]);
        add(&DELETE_RESULTS, self.results_gone.len(), vec![&self.results_gone]);
        for (sql, rows, parameters) in self.kept.statements() {
            add(sql, rows, parameters);
        }
        let history = &self.history;
        add(&INSERT_HISTORY, history.0.len(), vec![&history.0, &history.1, &history.2, &history.3]);
        add(&INSERT_LABELS, self.labels.0.len(), vec![&self.labels.0, &self.labels.1]);
        add(&DELETE_LABELS, self.labels_gone.0.len(), vec![&self.labels_gone.0, &self.labels_gone.1]);
        add(&TAKE_KEYS, self.keys.0.len(), vec![&self.keys.0, &self.keys.1]);
        add(&DROP_KEYS, self.keys_gone.0.len(), vec![&self.keys_gone.0, &self.keys_gone.1]);
        add(&DELETE_KEYS, self.keys_gone.0.len(), vec![&self.keys_gone.0]);
        let holds = &self.holds;
        let hold: Vec<Parameter<'b>> = vec![&holds.queue, &holds.until, &holds.probe, &holds.cause, &holds.round];
        add(&UPDATE_HOLDS, holds.queue.len(), hold);
        add(&UPDATE_PACES, self.paces.0.len(), vec![&self.paces.0, &self.paces.1]);
        add(&SET_ASIDE, self.set_aside.len(), vec![&self.set_aside]);
        let (queue, slot, [pending, queued, running, succeeded, failed, cancelled, expired]) = &self.tally_columns;
        let tally: Vec<Parameter<'_>> =
            vec![queue, slot, pending, queued, running, succeeded, failed, cancelled, expired];
        add(&COUNT, queue.len(), tally);
        list
    }
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
/// Who still writes an object of a job that goes can do so for a while.
static LATE_MILLIS: i64 = DOOMED_FOR.as_secs().cast_signed() * 1_000;
/// One statement for all tables that have rows of a job by its number alone.
static DELETE_JOBS: Sql = Sql {
    text: "
        WITH results AS (DELETE FROM result WHERE seq = ANY ($1)),
             checkpoints AS (DELETE FROM checkpoint WHERE seq = ANY ($1)),
             sections AS (DELETE FROM section WHERE job = ANY ($1)),
             objects AS (
                 UPDATE object
                 SET doomed_at = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
                     + CASE WHEN kept THEN 0 ELSE $2 END
                 WHERE job = ANY ($1) AND doomed_at IS NULL
             ),
             histories AS (DELETE FROM history WHERE job = ANY ($1))
        DELETE FROM job WHERE seq = ANY ($1)",
    types: &[I8, Type::INT8],
};
pub(super) static DELETE_TURNS: Sql = Sql {
    text: "
        DELETE FROM turn
        USING unnest($1, $2, $3, $4) AS gone (queue, place, at, seq)
        WHERE turn.queue = gone.queue AND turn.place = gone.place AND turn.at = gone.at AND turn.seq = gone.seq",
    types: &[I4, I2, I8, I8],
};
pub(super) static INSERT_TURNS: Sql = Sql {
    text: "INSERT INTO turn (queue, place, at, seq) SELECT * FROM unnest($1, $2, $3, $4)",
    types: &[I4, I2, I8, I8],
};
static DELETE_DEAD: Sql = Sql {
    text: "DELETE FROM dead USING unnest($1, $2) AS gone (queue, seq) WHERE dead.queue = gone.queue AND dead.seq = gone.seq",
    types: &[I4, I8],
};
static INSERT_DEAD: Sql = Sql { text: "INSERT INTO dead (queue, seq) SELECT * FROM unnest($1, $2)", types: &[I4, I8] };
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
static UPDATE_HOLDS: Sql = Sql {
    text: "
        UPDATE queue
        SET hold_until = new.hold_until, hold_probe = new.hold_probe, hold_cause = new.hold_cause,
            hold_round = new.hold_round
        FROM unnest($1, $2, $3, $4, $5) AS new (id, hold_until, hold_probe, hold_cause, hold_round)
        WHERE queue.id = new.id",
    types: &[I4, I8, BYTES, I2, I4],
};
static UPDATE_PACES: Sql = Sql {
    text: "UPDATE queue SET pace = new.pace FROM unnest($1, $2) AS new (id, pace) WHERE queue.id = new.id",
    types: &[I4, I8],
};
static SET_ASIDE: Sql = Sql { text: "DELETE FROM turn WHERE seq = ANY ($1)", types: &[I8] };
pub(super) static COUNT: Sql = Sql {
    text: "
        INSERT INTO tally AS known (queue, slot, pending, queued, running, succeeded, failed, cancelled, expired)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (queue, slot) DO UPDATE
        SET pending = known.pending + excluded.pending, queued = known.queued + excluded.queued,
            running = known.running + excluded.running, succeeded = known.succeeded + excluded.succeeded,
            failed = known.failed + excluded.failed, cancelled = known.cancelled + excluded.cancelled,
            expired = known.expired + excluded.expired",
    types: &[I4, I2, I8, I8, I8, I8, I8, I8, I8],
};
