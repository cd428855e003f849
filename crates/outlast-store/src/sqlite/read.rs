//! Readers: read-only connections beside the writer, used from the blocking pool. They see what is committed, and
//! nothing is answered before it is committed, so everyone reads their own writes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::{Event, JobId, QueueId, Status};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::directory::database_path;
use super::options::OpenError;
use super::queue_cache::CommittedQueues;
use super::row_checksums::verify;
use super::rows::record;
use super::scan::first_reachable;
use super::statements::select_record;
use super::store::keep_plans;
use super::write::{is_lost, unreadable};
use crate::checked_decide::label;
use crate::checksum::Table;
use crate::codec::events::{CHUNK_BYTES_MAX, ChunkSpan, EventLog};
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::JobRecord;
use crate::damage::Damage;
use crate::error::Error;
use crate::job_detail::{JobDetail, LogView, callback_of, has_artifacts};
use crate::jobs::{FoundJob, JobPage, ListJobs, Reach};
use crate::page::{EncodedSize, PageSize};

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
    ids: JobIdCodec,
    queues: CommittedQueues,
    damage: Damage,
}

impl Readers {
    pub(super) fn new(directory: &Path, ids: JobIdCodec, queues: CommittedQueues, damage: Damage) -> Readers {
        Readers {
            idle: Mutex::new(Vec::new()),
            seats: Arc::new(Semaphore::new(READERS_MAX)),
            path: database_path(directory),
            ids,
            queues,
            damage,
        }
    }

    /// Runs `work` on a connection in the blocking pool.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&SnapshotReader<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(self);
        let seat = Arc::clone(&self.seats).acquire_owned().await.map_err(|_| Error::Stopped)?;
        let task = tokio::task::spawn_blocking(move || {
            let connection = readers.connection().map_err(|error| Error::Unreadable(error.to_string()))?;
            // One snapshot for all statements: the writer may move rows between two of them.
            connection.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).map_err(unreadable)?;
            let answer = work(&SnapshotReader {
                connection: &connection,
                ids: readers.ids,
                queues: &readers.queues,
                damage: &readers.damage,
            });
            if let Err(Error::Corrupt(what)) = &answer {
                readers.damage.note(what);
            }
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

pub(super) struct SnapshotReader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) ids: JobIdCodec,
    pub(super) queues: &'a CommittedQueues,
    pub(super) damage: &'a Damage,
}

/// The chunks of a [`ChunkSpan`], and no other.
const CHUNKS: &str = "
    SELECT job, first, events, checksum
    FROM history
    WHERE job = ?1
        AND first >= COALESCE((SELECT max(first) FROM history WHERE job = ?1 AND first <= ?2), ?2)
        AND first <= ?3
    ORDER BY first
    LIMIT ?4";

fn chunks(connection: &Connection, job: i64, span: &ChunkSpan) -> Result<Vec<(i64, Vec<u8>)>, Error> {
    let mut statement = connection.prepare_cached(CHUNKS).map_err(unreadable)?;
    let mut rows = statement.query([job, span.from, span.to, span.chunks_max]).map_err(unreadable)?;
    let (mut chunks, mut bytes) = (Vec::new(), 0);
    while bytes < CHUNK_BYTES_MAX
        && let Some(row) = rows.next().map_err(unreadable)?
    {
        verify(Table::History, row, 0..3, 3)?;
        let chunk: Vec<u8> = row.get(2).map_err(unreadable)?;
        bytes += chunk.len();
        chunks.push((row.get(1).map_err(unreadable)?, chunk));
    }
    Ok(chunks)
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
    FROM job INDEXED BY job_dead_letter
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

impl SnapshotReader<'_> {
    pub(super) fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
        Ok(self.record(reach, id)?.map(|(_, found)| found))
    }

    fn record(&self, reach: &Reach, id: JobId) -> Result<Option<(JobRecord, FoundJob)>, Error> {
        let seq = self.ids.seq(id);
        let Some(record) = self.row(seq)? else {
            return match is_lost(self.connection, self.damage, self.ids, id)? {
                true => Err(Error::Corrupt(format!("job row {seq}: the row is lost"))),
                false => Ok(None),
            };
        };
        if record.job.id != id {
            return Ok(None);
        }
        let queue = self.queues.get(record.job.queue).filter(|queue| reach.covers(queue));
        Ok(queue.map(|queue| {
            let job = record.job.clone();
            (record, FoundJob { job, queue })
        }))
    }

    pub(super) fn row(&self, seq: i64) -> Result<Option<JobRecord>, Error> {
        let mut statement = self.connection.prepare_cached(&select_record()).map_err(unreadable)?;
        let ids = self.ids;
        let found = statement.query_row([seq], |row| Ok(record(row, ids))).optional().map_err(unreadable);
        found.and_then(Option::transpose).map_err(|error| match error {
            Error::Corrupt(what) => Error::Corrupt(format!("job row {seq}: {what}")),
            other => other,
        })
    }

    pub(super) fn events(
        &self,
        reach: &Reach,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Event>>, Error> {
        let record = self.row_of(reach, id)?;
        record.map(|record| self.events_of(&record, after, limit)).transpose()
    }

    fn events_of(&self, record: &JobRecord, after: u64, limit: usize) -> Result<Vec<Event>, Error> {
        let chunks = chunks(self.connection, record.seq, &ChunkSpan::of_page(after, limit))?;
        let log = EventLog { created_at: record.job.created_at, count: record.job.events, inline: &record.history };
        log.page(&chunks, after, limit)
    }

    /// All of it in the snapshot of this reader.
    pub(super) fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        let Some((record, found)) = self.record(reach, id)? else {
            return Ok(None);
        };
        let mut log = LogView::of(&found.job);
        while let Some((after, limit)) = log.wanted() {
            log.add(self.events_of(&record, after, limit)?);
        }
        let artifacts = has_artifacts(&found.job).then(|| self.artifacts_of(&record)).transpose()?;
        let callback = match callback_of(&found) {
            Some(list) => self.jobs(&list)?.jobs.pop(),
            None => None,
        };
        let result = self.result_detail(&record)?;
        let (events, moves) = log.into_parts();
        Ok(Some(JobDetail { found, events, moves, artifacts, result, callback }))
    }

    pub(super) fn row_of(&self, reach: &Reach, id: JobId) -> Result<Option<JobRecord>, Error> {
        Ok(self.record(reach, id)?.map(|(record, _)| record))
    }

    /// The row of a job within reach.
    pub(super) fn seq(&self, reach: &Reach, id: JobId) -> Result<Option<i64>, Error> {
        Ok(self.record(reach, id)?.map(|(record, _)| record.seq))
    }

    pub(super) fn jobs(&self, list: &ListJobs) -> Result<JobPage, Error> {
        let (rows, next) = self.matching_rows(list)?;
        let (mut jobs, mut size) = (Vec::with_capacity(rows.len()), PageSize::default());
        for seq in rows {
            let mut record = match self.row(seq) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                // A list leaves out what is damaged, rather than show nothing at all.
                Err(Error::Corrupt(what)) => {
                    self.damage.note(&what);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(queue) = self.queues.get(record.job.queue) else {
                continue;
            };
            if list.fits_labels(&record.job.spec) {
                size.add(record.job.written());
                // Lists do not show the payload; it was read because the row's checksum covers it.
                Arc::make_mut(&mut record.job.spec).payload = "".into();
                jobs.push(FoundJob { job: record.job, queue });
            }
            if size.is_full() {
                return Ok(JobPage { jobs, next: Some(seq.cast_unsigned()) });
            }
        }
        Ok(JobPage { jobs, next })
    }

    /// Rows that match by queue and status, newest first, and where to go on.
    fn matching_rows(&self, list: &ListJobs) -> Result<(Vec<i64>, Option<u64>), Error> {
        let Some(source) = self.source(list) else {
            return Ok((Vec::new(), None));
        };
        let mut page = ListQuery::from(list);
        match self.walk(list, &source, &mut page) {
            Err(Error::Corrupt(what)) => {
                self.damage.note(&what);
                self.walk_over_damage(list)
            }
            walked => walked.map(|()| page.end()),
        }
    }

    /// Without an index, and around pages of the table that cannot be read.
    fn walk_over_damage(&self, list: &ListJobs) -> Result<(Vec<i64>, Option<u64>), Error> {
        let source = ListSource { statement: NEWEST, argument: Argument::None };
        let mut page = ListQuery::from(list);
        loop {
            match self.walk(list, &source, &mut page) {
                Err(Error::Corrupt(what)) => self.damage.note(&what),
                walked => return walked.map(|()| page.end()),
            }
            let can_reach = |distance: i64| {
                let row = params![page.last.saturating_sub(distance), 1];
                self.connection.query_row(NEWEST, row, |_| Ok(())).optional().is_ok()
            };
            match first_reachable(can_reach) {
                Some(distance) => page.last = page.last.saturating_sub(distance),
                None => return Ok((page.found, None)),
            }
        }
    }

    fn walk(&self, list: &ListJobs, source: &ListSource, page: &mut ListQuery) -> Result<(), Error> {
        let before = page.last;
        let mut statement = self.connection.prepare_cached(source.statement).map_err(unreadable)?;
        let mut rows = match &source.argument {
            Argument::None => statement.query(params![before, LOOK_MAX]),
            Argument::Queue(queue) => statement.query(params![before, LOOK_MAX, queue.0]),
            Argument::Label(label) => statement.query(params![before, LOOK_MAX, label]),
        }
        .map_err(unreadable)?;
        while !page.is_full()
            && let Some(row) = rows.next().map_err(unreadable)?
        {
            page.last = row.get(0).map_err(unreadable)?;
            page.looked += 1;
            // A row that makes no sense here makes none below either, where it is listed.
            let queue = row.get(1).map(QueueId).ok().and_then(|queue| self.queues.get(queue));
            let status = row.get::<_, usize>(2).ok().and_then(|status| Status::ALL.get(status));
            let status_fits = list.status.is_none_or(|wanted| status == Some(&wanted));
            let queue_fits = queue.is_some_and(|queue| {
                list.reach.covers(&queue) && list.queue.as_ref().is_none_or(|name| *name == queue.name)
            });
            if status_fits && queue_fits {
                page.found.push(page.last);
            }
        }
        Ok(())
    }

    /// The narrowest index for a list; `None` when nothing can match.
    fn source(&self, list: &ListJobs) -> Option<ListSource> {
        let namespace = match &list.reach {
            Reach::Everything => None,
            Reach::Namespace(namespace) | Reach::Queues(namespace, _) => Some(*namespace),
        };
        if let Some(namespace) = namespace {
            let tag = list.tags.first().map(|(name, value)| label(namespace, name, value));
            let key = list.key.as_ref().map(|key| label(namespace, "", key));
            if let Some(label) = tag.or(key) {
                return Some(ListSource { statement: NEWEST_LABELLED, argument: Argument::Label(label) });
            }
            if let Some(name) = &list.queue {
                let queue = self.queues.find(namespace, name)?;
                let statement = if list.status == Some(Status::Failed) { NEWEST_DEAD } else { NEWEST_OF_QUEUE };
                return Some(ListSource { statement, argument: Argument::Queue(queue.id) });
            }
        }
        Some(ListSource { statement: NEWEST, argument: Argument::None })
    }
}

/// A page of a list in the making.
struct ListQuery {
    found: Vec<i64>,
    limit: usize,
    looked: i64,
    last: i64,
}

impl ListQuery {
    fn from(list: &ListJobs) -> ListQuery {
        let last = list.before.map_or(i64::MAX, u64::cast_signed);
        ListQuery { found: Vec::new(), limit: list.limit, looked: 0, last }
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }

    /// The rows, and where to go on.
    fn end(self) -> (Vec<i64>, Option<u64>) {
        let has_more = self.is_full() || self.looked >= LOOK_MAX;
        (self.found, has_more.then_some(self.last.cast_unsigned()))
    }
}

struct ListSource {
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

    /// Three jobs, of which each has a thousand chunks of five events.
    fn filled() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        for job in 1..=3 {
            for chunk in 0..1000 {
                connection
                    .execute("INSERT INTO history (job, first, events) VALUES (?1, ?2, x'00')", [job, chunk * 5 + 1])
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
            let found = chunks(&connection, 2, &ChunkSpan::of_page(after, limit)).unwrap();
            assert_eq!(found.into_iter().map(|(first, _)| first).collect::<Vec<_>>(), expected, "{after}, {limit}");
        }
        assert_eq!(chunks(&connection, 4, &ChunkSpan::of_page(0, 100)).unwrap(), []);
    }

    // The steps of SQLite's machine are what reading rows costs.
    #[test]
    fn a_page_at_the_end_of_a_long_log_costs_as_much_as_one_at_its_beginning() {
        let connection = filled();
        let steps = |after: u64| {
            let span = ChunkSpan::of_page(after, 10);
            let mut statement = connection.prepare(CHUNKS).unwrap();
            let found = statement.query_map([2, span.from, span.to, span.chunks_max], |_| Ok(())).unwrap().count();
            assert_eq!(found, 3);
            statement.get_status(StatementStatus::VmStep)
        };

        let (first, last) = (steps(1), steps(4981));

        assert!(first > 10 && last <= first + 5, "{first} steps for the first page, {last} for the last");
    }
}
