//! Reads: single statements outside any transaction, on any connection. They see what is committed, and nothing is
//! answered before it is committed, so everyone reads their own writes on every node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Event, JobId, NamespaceId, Queue, QueueId, Status};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::causes;
use super::queue_cache::{QUEUE_COLUMNS, queue_columns};
use super::rows::{COLUMNS, Cell, get, job_columns, record, row_sum, verify};
use super::session::{Parameter, Session, Sql};
use super::shared::StoreContext;
use crate::checked_decide::label;
use crate::checksum::Table;
use crate::codec::events::{CHUNK_BYTES_MAX, ChunkSpan, EventLog};
use crate::codec::row::JobRecord;
use crate::error::Error;
use crate::job_detail::{JobDetail, LogView, callback_of, has_artifacts};
use crate::jobs::{FoundJob, JobPage, ListJobs, Reach};
use crate::page::{EncodedSize, PageSize};

/// Rows one page of a list looks at.
const LOOK_MAX: i64 = 5000;
/// Jobs of a page that are read at once: with the longest texts they take about as much as a full page.
const JOBS_AT_ONCE: usize = 50;
/// How long a read is tried again while the database cannot be reached.
const RETRY_MAX: Duration = Duration::from_secs(3);
const READ_MAX: Duration = Duration::from_secs(2);

pub(super) static JOB: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", job.payload, ",
        queue_columns!(),
        " FROM job
          CROSS JOIN LATERAL (SELECT * FROM queue WHERE queue.id = job.queue OFFSET 0) AS queue
          WHERE job.seq = $1"
    ),
    types: &[Type::INT8],
};
static JOBS: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text, ",
        queue_columns!(),
        " FROM job
          CROSS JOIN LATERAL (SELECT * FROM queue WHERE queue.id = job.queue OFFSET 0) AS queue
          WHERE job.seq = ANY ($1)
          ORDER BY job.seq DESC"
    ),
    types: &[Type::INT8_ARRAY],
};
/// One statement, so that a chunk that moves from the row to the history is seen in one place and not in two or none. Of the
/// history it reads the chunks of a [`ChunkSpan`] and no other.
pub(super) static EVENTS: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text, ",
        queue_columns!(),
        ", chunks.firsts, chunks.events, chunks.checksums
          FROM job
          CROSS JOIN LATERAL (SELECT * FROM queue WHERE queue.id = job.queue OFFSET 0) AS queue
          CROSS JOIN LATERAL (
              SELECT array_agg(chunk.first ORDER BY chunk.first) AS firsts, array_agg(chunk.events ORDER BY chunk.first) AS events,
                     array_agg(chunk.checksum ORDER BY chunk.first) AS checksums
              FROM (
                  SELECT history.first, history.events, history.checksum,
                      sum(octet_length(history.events)) OVER (ORDER BY history.first) - octet_length(history.events)
                          AS bytes_before
                  FROM history
                  WHERE history.job = job.seq
                      AND history.first >= COALESCE(
                          (SELECT older.first
                           FROM history AS older
                           WHERE older.job = job.seq AND older.first <= $2
                           ORDER BY older.first DESC
                           LIMIT 1),
                          $2)
                      AND history.first <= $3
                  ORDER BY history.first
                  LIMIT $4
              ) AS chunk
              WHERE chunk.bytes_before < $5
          ) AS chunks
          WHERE job.seq = $1"
    ),
    types: &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};
static REACHED: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text, ",
        queue_columns!(),
        " FROM job
          CROSS JOIN LATERAL (SELECT * FROM queue WHERE queue.id = job.queue OFFSET 0) AS queue
          WHERE job.seq = $1"
    ),
    types: &[Type::INT8],
};

/// First column after a job and its queue.
pub(super) const AFTER_QUEUE: usize = COLUMNS + QUEUE_COLUMNS;

static NEWEST: Sql = Sql {
    text: "SELECT seq, queue, status FROM job WHERE seq < $1 ORDER BY seq DESC LIMIT $2",
    types: &[Type::INT8, Type::INT8],
};
static NEWEST_OF_QUEUE: Sql = Sql {
    text: "SELECT seq, queue, status FROM job WHERE queue = $3 AND seq < $1 ORDER BY seq DESC LIMIT $2",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static NEWEST_DEAD: Sql = Sql {
    text: "
        SELECT job.seq, job.queue, job.status
        FROM dead_letter
        JOIN job ON job.seq = dead_letter.seq
        WHERE dead_letter.queue = $3 AND dead_letter.seq < $1
        ORDER BY dead_letter.seq DESC
        LIMIT $2",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static NEWEST_LABELLED: Sql = Sql {
    text: "
        SELECT job.seq, job.queue, job.status
        FROM label
        JOIN job ON job.seq = label.seq
        WHERE label.label = $3 AND label.seq < $1
        ORDER BY label.seq DESC
        LIMIT $2",
    types: &[Type::INT8, Type::INT8, Type::INT8],
};
static QUEUES_OF: Sql =
    Sql { text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE id = ANY ($1)"), types: &[Type::INT4_ARRAY] };
static QUEUE: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2"),
    types: &[Type::INT4, Type::TEXT],
};

impl StoreContext {
    /// Runs a statement that only reads; tried again for a while when the connection fails.
    pub(super) async fn read(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let started = Instant::now();
        loop {
            if self.is_closed() {
                return Err(Error::Stopped);
            }
            let why = match timeout(READ_MAX, self.read_once(sql, parameters)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(ReadFault::Refused(why))) => return Err(Error::Unreadable(why)),
                Ok(Err(ReadFault::Damaged(why))) => return Err(Error::Corrupt(why)),
                Ok(Err(ReadFault::Again(why))) => why,
                Err(_) => "no answer came in time".to_owned(),
            };
            if started.elapsed() > RETRY_MAX {
                tracing::warn!(why, "a read was given up");
                return Err(Error::Unavailable);
            }
            sleep(Duration::from_millis(30)).await;
        }
    }

    async fn read_once(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, ReadFault> {
        let session = self.session().await.map_err(ReadFault::Again)?;
        session.begun();
        match session.query(sql, parameters).await {
            Ok(rows) => {
                session.ended();
                Ok(rows)
            }
            Err(error) if error.code().is_some_and(is_damage) => {
                session.ended();
                Err(ReadFault::Damaged(causes(&error)))
            }
            Err(error) if error.code().is_some_and(|code| !super::transact::may_pass(code)) => {
                session.ended();
                Err(ReadFault::Refused(causes(&error)))
            }
            Err(error) => Err(ReadFault::Again(causes(&error))),
        }
    }
}

/// The server itself found that a page or an index makes no sense.
pub(super) fn is_damage(code: &SqlState) -> bool {
    *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED
}

enum ReadFault {
    Damaged(String),
    Refused(String),
    Again(String),
}

/// Where a read looks: at what is committed by now, statement by statement, or at one snapshot.
pub(super) struct ReadView<'s> {
    shared: &'s Arc<StoreContext>,
    snapshot: Option<&'s Session>,
}

impl std::ops::Deref for ReadView<'_> {
    type Target = StoreContext;

    fn deref(&self) -> &StoreContext {
        self.shared
    }
}

impl<'s> ReadView<'s> {
    /// Each statement on any connection.
    pub(super) fn anew(shared: &'s Arc<StoreContext>) -> ReadView<'s> {
        ReadView { shared, snapshot: None }
    }

    pub(super) async fn read(&self, sql: &Sql, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let Some(session) = self.snapshot else {
            return self.shared.read(sql, parameters).await;
        };
        match timeout(READ_MAX, session.query(sql, parameters)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) if error.code().is_some_and(is_damage) => Err(Error::Corrupt(causes(&error))),
            Ok(Err(error)) if error.code().is_some_and(|code| !super::transact::may_pass(code)) => {
                Err(Error::Unreadable(causes(&error)))
            }
            Ok(Err(_)) | Err(_) => Err(Error::Unavailable),
        }
    }
}

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// All of it in one snapshot; tried again for a while when the connection fails.
pub(super) async fn job_detail(
    shared: &Arc<StoreContext>,
    reach: &Reach,
    id: JobId,
) -> Result<Option<JobDetail>, Error> {
    let started = Instant::now();
    loop {
        if shared.is_closed() {
            return Err(Error::Stopped);
        }
        match job_detail_once(shared, reach, id).await {
            Err(Error::Unavailable) if started.elapsed() <= RETRY_MAX => sleep(Duration::from_millis(30)).await,
            answer => return answer,
        }
    }
}

async fn job_detail_once(shared: &Arc<StoreContext>, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
    let session = shared.session().await.map_err(|_| Error::Unavailable)?;
    // A session that is dropped before the transaction has ended is not used again.
    session.begun();
    let send = async |text| match timeout(READ_MAX, session.send(text)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Error::Unavailable),
    };
    send(SNAPSHOT).await?;
    let answer = job_detail_in(&ReadView { shared, snapshot: Some(&session) }, reach, id).await;
    // A statement that was refused has ended the transaction; so does this.
    send("COMMIT").await?;
    session.ended();
    answer
}

async fn job_detail_in(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
    let Some((_, record, queue)) = find(look, &JOB, reach, id, &[]).await? else {
        return Ok(None);
    };
    let found = FoundJob { job: record.job, queue };
    let mut log = LogView::of(&found.job);
    while let Some((after, limit)) = log.wanted() {
        log.add(events(look, reach, id, after, limit).await?.unwrap_or_default());
    }
    let artifacts = match has_artifacts(&found.job) {
        true => super::artifacts::artifacts(look, reach, id).await?,
        false => None,
    };
    let result = super::artifacts::result_detail(look, record.seq, &found.job).await?;
    let callback = match callback_of(&found) {
        Some(list) => jobs(look, &list).await?.jobs.pop(),
        None => None,
    };
    let (events, moves) = log.into_parts();
    Ok(Some(JobDetail { found, events, moves, artifacts, result, callback }))
}

/// The row of a job within reach; `more` are the statement's parameters after the job's.
pub(super) async fn find(
    look: &ReadView<'_>,
    sql: &Sql,
    reach: &Reach,
    id: JobId,
    more: &[Parameter<'_>],
) -> Result<Option<(Row, JobRecord, Arc<Queue>)>, Error> {
    let seq = look.ids.seq(id);
    let mut parameters: Vec<Parameter<'_>> = vec![&seq];
    parameters.extend_from_slice(more);
    let rows = look.read(sql, &parameters).await?;
    let Some(row) = rows.into_iter().next() else {
        return Ok(None);
    };
    let record = record(&row, look.ids)?;
    let queue = look.registry.queue(&row, COLUMNS)?;
    Ok((record.job.id == id && reach.covers(&queue)).then_some((row, record, queue)))
}

pub(super) async fn job(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
    Ok(find(look, &JOB, reach, id, &[]).await?.map(|(_, record, queue)| FoundJob { job: record.job, queue }))
}

pub(super) async fn events(
    look: &ReadView<'_>,
    reach: &Reach,
    id: JobId,
    after: u64,
    limit: usize,
) -> Result<Option<Vec<Event>>, Error> {
    let span = ChunkSpan::of_page(after, limit);
    let bytes_max = i64::try_from(CHUNK_BYTES_MAX).unwrap_or(i64::MAX);
    let bounds: [Parameter<'_>; 4] = [&span.from, &span.to, &span.chunks_max, &bytes_max];
    let Some((row, record, _)) = find(look, &EVENTS, reach, id, &bounds).await? else {
        return Ok(None);
    };
    let firsts = get::<Option<Vec<i64>>>(&row, AFTER_QUEUE)?.unwrap_or_default();
    let events = get::<Option<Vec<Vec<u8>>>>(&row, AFTER_QUEUE + 1)?.unwrap_or_default();
    let checksums = get::<Option<Vec<Option<i32>>>>(&row, AFTER_QUEUE + 2)?.unwrap_or_default();
    let chunks: Vec<(i64, Vec<u8>)> = firsts.into_iter().zip(events).collect();
    for ((first, events), stored) in chunks.iter().zip(checksums) {
        let cells = [Cell::Number(record.seq), Cell::Number(*first), Cell::Bytes(events)];
        verify(Table::History, &record.seq.to_string(), stored, row_sum(Table::History, &cells))?;
    }
    let log = EventLog { created_at: record.job.created_at, count: record.job.events, inline: &record.history };
    log.page(&chunks, after, limit).map(Some)
}

/// A job within reach, without its payload.
pub(super) async fn reached(
    look: &ReadView<'_>,
    reach: &Reach,
    id: JobId,
) -> Result<Option<(Row, JobRecord, Arc<Queue>)>, Error> {
    find(look, &REACHED, reach, id, &[]).await
}

/// The row of a job within reach.
pub(super) async fn seq(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<i64>, Error> {
    Ok(reached(look, reach, id).await?.map(|(_, record, _)| record.seq))
}

pub(super) async fn jobs(look: &ReadView<'_>, list: &ListJobs) -> Result<JobPage, Error> {
    let (seqs, next) = matching_rows(look, list).await?;
    if seqs.is_empty() {
        return Ok(JobPage { jobs: Vec::new(), next });
    }
    let (mut jobs, mut size) = (Vec::with_capacity(seqs.len()), PageSize::default());
    for some in seqs.chunks(JOBS_AT_ONCE) {
        for row in &look.read(&JOBS, &[&some]).await? {
            let record = match record(row, look.ids) {
                Ok(record) => record,
                // A list leaves out what is damaged, rather than show nothing at all.
                Err(Error::Corrupt(what)) => {
                    look.damage.note(&what);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let queue = look.registry.queue(row, COLUMNS)?;
            // The job may have moved on between the two statements.
            let status_fits = list.status.is_none_or(|status| record.job.status() == status);
            if status_fits && list.fits_labels(&record.job.spec) && list.reach.covers(&queue) {
                size.add(record.job.written());
                jobs.push(FoundJob { job: record.job, queue });
            }
            if size.is_full() {
                return Ok(JobPage { jobs, next: Some(record.seq.cast_unsigned()) });
            }
        }
    }
    Ok(JobPage { jobs, next })
}

/// The jobs of these rows, without their payloads; those that are gone or damaged are left out.
pub(super) async fn jobs_at(look: &ReadView<'_>, seqs: &[i64]) -> Result<BTreeMap<i64, FoundJob>, Error> {
    let mut jobs = BTreeMap::new();
    for some in seqs.chunks(JOBS_AT_ONCE) {
        for row in &look.read(&JOBS, &[&some]).await? {
            match record(row, look.ids) {
                Ok(record) => {
                    let queue = look.registry.queue(row, COLUMNS)?;
                    jobs.insert(record.seq, FoundJob { job: record.job, queue });
                }
                Err(Error::Corrupt(what)) => look.damage.note(&what),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(jobs)
}

/// Rows that match by queue and status, newest first, and where to go on.
async fn matching_rows(look: &ReadView<'_>, list: &ListJobs) -> Result<(Vec<i64>, Option<u64>), Error> {
    let Some((sql, argument)) = source(look, list).await? else {
        return Ok((Vec::new(), None));
    };
    let before = list.before.map_or(i64::MAX, u64::cast_signed);
    let rows = match argument {
        None => look.read(sql, &[&before, &LOOK_MAX]).await?,
        Some(argument) => look.read(sql, &[&before, &LOOK_MAX, &argument]).await?,
    };
    let queues = queues_of(look, &rows).await?;
    let (mut found, mut last) = (Vec::new(), 0);
    for row in &rows {
        last = row.get(0);
        let queue = QueueId(row.get::<_, i32>(1).cast_unsigned());
        let status = usize::try_from(row.get::<_, i16>(2)).ok().and_then(|status| Status::ALL.get(status));
        let status_fits = list.status.is_none_or(|wanted| status == Some(&wanted));
        let queue_fits = queues.iter().find(|known| known.id == queue).is_some_and(|queue| {
            list.reach.covers(queue) && list.queue.as_ref().is_none_or(|name| *name == queue.name)
        });
        if status_fits && queue_fits {
            found.push(last);
        }
        if found.len() >= list.limit {
            return Ok((found, Some(last.cast_unsigned())));
        }
    }
    let looked_all = i64::try_from(rows.len()).unwrap_or(i64::MAX) < LOOK_MAX;
    Ok((found, (!looked_all).then_some(last.cast_unsigned())))
}

async fn queues_of(look: &ReadView<'_>, rows: &[Row]) -> Result<Vec<Arc<Queue>>, Error> {
    let mut ids: Vec<i32> = rows.iter().map(|row| row.get(1)).collect();
    ids.sort_unstable();
    ids.dedup();
    look.read(&QUEUES_OF, &[&ids]).await?.iter().map(|row| look.registry.queue(row, 0)).collect()
}

/// The narrowest index for a list; `None` when nothing can match.
async fn source(look: &ReadView<'_>, list: &ListJobs) -> Result<Option<(&'static Sql, Option<i64>)>, Error> {
    let Some(namespace) = list.reach.namespace() else {
        return Ok(Some((&NEWEST, None)));
    };
    let tag = list.tags.first().map(|(name, value)| label(namespace, name, value));
    let key = list.key.as_ref().map(|key| label(namespace, "", key));
    if let Some(label) = tag.or(key) {
        return Ok(Some((&NEWEST_LABELLED, Some(look.ids.label_hash(&label)))));
    }
    let Some(name) = &list.queue else {
        return Ok(Some((&NEWEST, None)));
    };
    let Some(queue) = queue(look, namespace, name).await? else {
        return Ok(None);
    };
    let sql = if list.status == Some(Status::Failed) { &NEWEST_DEAD } else { &NEWEST_OF_QUEUE };
    Ok(Some((sql, Some(i64::from(queue.id.0)))))
}

pub(super) async fn queue(
    look: &ReadView<'_>,
    namespace: NamespaceId,
    name: &str,
) -> Result<Option<Arc<Queue>>, Error> {
    let rows = look.read(&QUEUE, &[&namespace.0.cast_signed(), &name]).await?;
    rows.first().map(|row| look.registry.queue(row, 0)).transpose()
}
