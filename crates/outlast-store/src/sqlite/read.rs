//! Readers: read-only connections beside the writer, used from the blocking pool. They see what is committed, and
//! nothing is answered before it is committed, so everyone reads their own writes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::{Event, JobId, QueueId, Status};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::directory::database_path;
use super::hot::{select_listed, select_record};
use super::options::OpenError;
use super::registry::Shared;
use super::rows::{Record, record};
use super::store::keep_plans;
use super::write::unreadable;
use crate::error::Error;
use crate::history::{Log, RUN_BYTES_MAX, Span};
use crate::ids::Ids;
use crate::jobs::{Found, JobPage, ListJobs, Reach};
use crate::page::{PageSize, Written};
use crate::step::label;

/// Readers at work at once; what they hold in memory is bounded by it.
const READERS_MAX: usize = 16;
/// Connections kept open between reads.
const KEEP_MAX: usize = 8;
const PAGE_CACHE_KIB: i64 = 2048;
/// Rows one page of a list looks at.
const LOOK_MAX: i64 = 5000;

#[derive(Debug)]
pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    seats: Arc<Semaphore>,
    path: std::path::PathBuf,
    ids: Ids,
    queues: Shared,
}

impl Readers {
    pub(super) fn new(directory: &Path, ids: Ids, queues: Shared) -> Readers {
        Readers {
            idle: Mutex::new(Vec::new()),
            seats: Arc::new(Semaphore::new(READERS_MAX)),
            path: database_path(directory),
            ids,
            queues,
        }
    }

    /// Runs `work` on a connection in the blocking pool.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Reader<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(self);
        let seat = Arc::clone(&self.seats).acquire_owned().await.map_err(|_| Error::Stopped)?;
        let task = tokio::task::spawn_blocking(move || {
            let connection = readers.connection().map_err(|error| Error::Unreadable(error.to_string()))?;
            // One snapshot for all statements: the writer may move rows between two of them.
            connection.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).map_err(unreadable)?;
            let answer = work(&Reader { connection: &connection, ids: readers.ids, queues: &readers.queues });
            connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(unreadable)?;
            readers.give_back(connection);
            answer.map(|answer| (answer, seat))
        });
        // The seat is free when the caller has the answer: answers that wait for their callers are bounded too.
        let (answer, _seat) = task.await.map_err(|_| Error::Stopped)??;
        Ok(answer)
    }

    fn connection(&self) -> Result<Connection, OpenError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        keep_plans(&connection)?;
        connection.pragma_update(None, "cache_size", -PAGE_CACHE_KIB)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEEP_MAX {
            idle.push(connection);
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) ids: Ids,
    queues: &'a Shared,
}

/// The runs of a [`Span`], and no other.
const RUNS: &str = "
    SELECT first, events
    FROM history
    WHERE job = ?1
        AND first >= COALESCE((SELECT max(first) FROM history WHERE job = ?1 AND first <= ?2), ?2)
        AND first <= ?3
    ORDER BY first
    LIMIT ?4";

fn runs(connection: &Connection, job: i64, span: &Span) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    let mut statement = connection.prepare_cached(RUNS)?;
    let mut rows = statement.query([job, span.from, span.to, span.runs_max])?;
    let (mut runs, mut bytes) = (Vec::new(), 0);
    while bytes < RUN_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        let run: Vec<u8> = row.get(1)?;
        bytes += run.len();
        runs.push((row.get(0)?, run));
    }
    Ok(runs)
}

const NEWEST: &str = "SELECT seq, queue, status FROM job WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
const NEWEST_OF_QUEUE: &str = "
    SELECT seq, queue, status
    FROM job INDEXED BY job_queue
    WHERE queue = ?3 AND seq < ?1
    ORDER BY seq DESC
    LIMIT ?2";
const NEWEST_DEAD: &str = "
    SELECT seq, queue, status
    FROM job INDEXED BY job_dead
    WHERE queue = ?3 AND status = 4 AND seq < ?1
    ORDER BY seq DESC
    LIMIT ?2";
const NEWEST_LABELLED: &str = "
    SELECT job.seq, job.queue, job.status
    FROM label
    JOIN job ON job.seq = label.seq
    WHERE label.label = ?3 AND label.seq < ?1
    ORDER BY label.seq DESC
    LIMIT ?2";

impl Reader<'_> {
    pub(super) fn job(&self, reach: &Reach, id: JobId) -> Result<Option<Found>, Error> {
        Ok(self.record(reach, id)?.map(|(_, found)| found))
    }

    fn record(&self, reach: &Reach, id: JobId) -> Result<Option<(Record, Found)>, Error> {
        let Some(record) = self.row(self.ids.seq(id))?.filter(|record| record.job.id == id) else {
            return Ok(None);
        };
        let queue = self.queues.get(record.job.queue).filter(|queue| reach.covers(queue));
        Ok(queue.map(|queue| {
            let job = record.job.clone();
            (record, Found { job, queue })
        }))
    }

    fn row(&self, seq: i64) -> Result<Option<Record>, Error> {
        self.select(&select_record(), seq)
    }

    fn select(&self, sql: &str, seq: i64) -> Result<Option<Record>, Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(unreadable)?;
        let ids = self.ids;
        statement.query_row([seq], |row| Ok(record(row, ids))).optional().map_err(unreadable)?.transpose()
    }

    pub(super) fn events(
        &self,
        reach: &Reach,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Event>>, Error> {
        let Some((record, _)) = self.record(reach, id)? else {
            return Ok(None);
        };
        let runs = runs(self.connection, record.seq, &Span::of_page(after, limit)).map_err(unreadable)?;
        let log = Log { created_at: record.job.created_at, count: record.job.events, inline: &record.history };
        log.page(&runs, after, limit).map(Some)
    }

    /// The row of a job within reach.
    pub(super) fn seq(&self, reach: &Reach, id: JobId) -> Result<Option<i64>, Error> {
        Ok(self.record(reach, id)?.map(|(record, _)| record.seq))
    }

    pub(super) fn jobs(&self, list: &ListJobs) -> Result<JobPage, Error> {
        let (rows, next) = self.matching_rows(list)?;
        let sql = select_listed();
        let (mut jobs, mut size) = (Vec::with_capacity(rows.len()), PageSize::default());
        for seq in rows {
            let Some(record) = self.select(&sql, seq)? else {
                continue;
            };
            let Some(queue) = self.queues.get(record.job.queue) else {
                continue;
            };
            if list.fits_labels(&record.job.spec) {
                size.add(record.job.written());
                jobs.push(Found { job: record.job, queue });
            }
            if size.is_full() {
                return Ok(JobPage { jobs, next: Some(seq.cast_unsigned()) });
            }
        }
        Ok(JobPage { jobs, next })
    }

    /// Rows that match by queue and status, newest first, and where to go on.
    fn matching_rows(&self, list: &ListJobs) -> Result<(Vec<i64>, Option<u64>), Error> {
        let nothing = (Vec::new(), None);
        let Some(source) = self.source(list) else {
            return Ok(nothing);
        };
        let before = list.before.map_or(i64::MAX, u64::cast_signed);
        let mut statement = self.connection.prepare_cached(source.statement).map_err(unreadable)?;
        let mut rows = match &source.argument {
            Argument::None => statement.query(params![before, LOOK_MAX]),
            Argument::Queue(queue) => statement.query(params![before, LOOK_MAX, queue.0]),
            Argument::Label(label) => statement.query(params![before, LOOK_MAX, label]),
        }
        .map_err(unreadable)?;
        let (mut found, mut looked, mut last) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next().map_err(unreadable)? {
            last = row.get(0).map_err(unreadable)?;
            looked += 1;
            let queue = QueueId(row.get(1).map_err(unreadable)?);
            let status: usize = row.get(2).map_err(unreadable)?;
            let status_fits = list.status.is_none_or(|wanted| Status::ALL.get(status) == Some(&wanted));
            let queue_fits = self.queues.get(queue).is_some_and(|queue| {
                list.reach.covers(&queue) && list.queue.as_ref().is_none_or(|name| *name == queue.name)
            });
            if status_fits && queue_fits {
                found.push(last);
            }
            if found.len() >= list.limit {
                return Ok((found, Some(last.cast_unsigned())));
            }
        }
        Ok((found, (looked >= LOOK_MAX).then_some(last.cast_unsigned())))
    }

    /// The narrowest index for a list; `None` when nothing can match.
    fn source(&self, list: &ListJobs) -> Option<Source> {
        let namespace = match &list.reach {
            Reach::Everything => None,
            Reach::Namespace(namespace) | Reach::Queues(namespace, _) => Some(*namespace),
        };
        if let Some(namespace) = namespace {
            let tag = list.tags.first().map(|(name, value)| label(namespace, name, value));
            let key = list.key.as_ref().map(|key| label(namespace, "", key));
            if let Some(label) = tag.or(key) {
                return Some(Source { statement: NEWEST_LABELLED, argument: Argument::Label(label) });
            }
            if let Some(name) = &list.queue {
                let queue = self.queues.find(namespace, name)?;
                let statement = if list.status == Some(Status::Failed) { NEWEST_DEAD } else { NEWEST_OF_QUEUE };
                return Some(Source { statement, argument: Argument::Queue(queue.id) });
            }
        }
        Some(Source { statement: NEWEST, argument: Argument::None })
    }
}

struct Source {
    statement: &'static str,
    argument: Argument,
}

enum Argument {
    None,
    Queue(QueueId),
    Label(String),
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    /// Three jobs, of which each has a thousand runs of five events.
    fn filled() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        for job in 1..=3 {
            for run in 0..1000 {
                connection
                    .execute("INSERT INTO history (job, first, events) VALUES (?1, ?2, x'00')", [job, run * 5 + 1])
                    .unwrap();
            }
        }
        connection
    }

    #[test]
    fn a_page_reads_the_runs_that_hold_it_and_no_other() {
        let connection = filled();

        for (after, limit, expected) in [
            (0, 1, vec![1]),
            (4, 1, vec![1]),
            (5, 1, vec![6]),
            (2501, 10, vec![2501, 2506, 2511]),
            (9000, 10, vec![4996]),
        ] {
            let found = runs(&connection, 2, &Span::of_page(after, limit)).unwrap();
            assert_eq!(found.into_iter().map(|(first, _)| first).collect::<Vec<_>>(), expected, "{after}, {limit}");
        }
        assert_eq!(runs(&connection, 4, &Span::of_page(0, 100)).unwrap(), []);
    }

    // The steps of SQLite's machine are what reading rows costs.
    #[test]
    fn a_page_at_the_end_of_a_long_log_costs_as_much_as_one_at_its_beginning() {
        let connection = filled();
        let steps = |after: u64| {
            let span = Span::of_page(after, 10);
            let mut statement = connection.prepare(RUNS).unwrap();
            let found = statement.query_map([2, span.from, span.to, span.runs_max], |_| Ok(())).unwrap().count();
            assert_eq!(found, 3);
            statement.get_status(StatementStatus::VmStep)
        };

        let (first, last) = (steps(1), steps(4981));

        assert!(first > 10 && last <= first + 5, "{first} steps for the first page, {last} for the last");
    }
}
