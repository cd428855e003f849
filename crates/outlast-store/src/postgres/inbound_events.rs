//! Arrivals: the event and all its jobs in one transaction, once for each id of the provider.

use std::sync::Arc;

use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{NamespaceId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::publish::PublishPart;
use super::rows::{Cell, get, row_sum, text, text_sum, verify};
use super::session::{Parameter, Sql};
use super::shared::StoreContext;
use super::transact::{Fault, Opening, Tx};
use crate::checksum::Table;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{from_json, to_json};
use crate::error::Error;
use crate::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent, created};
use crate::jobs::{NewJob, Published};
use crate::publish::Publisher;

/// Inserts the events with new ids. A racing transaction with the same id waits here for the other.
static INSERT: Sql = Sql {
    text: "
        INSERT INTO inbound_event (seq, namespace, at, source, kind, key, headers, body, checksum, body_checksum, jobs)
        SELECT seq, namespace, $11, source, kind, key, headers, body, checksum, body_checksum, jobs
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
            AS new (jobs, seq, namespace, source, kind, key, headers, body, checksum, body_checksum)
        ORDER BY namespace, source, key
        ON CONFLICT (namespace, source, key) WHERE key IS NOT NULL DO NOTHING
        RETURNING seq",
    types: &[
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8,
    ],
};
static FIND: Sql = Sql {
    text: "SELECT seq, at FROM inbound_event WHERE namespace = $1 AND source = $2 AND key = $3",
    types: &[Type::INT4, Type::TEXT, Type::BYTEA],
};
static COUNT_JOBS: Sql = Sql {
    text: "
        UPDATE inbound_event
        SET jobs = made.jobs
        FROM unnest($1, $2) AS made (seq, jobs)
        WHERE inbound_event.seq = made.seq",
    types: &[Type::INT8_ARRAY, Type::INT4_ARRAY],
};
macro_rules! columns {
    () => {
        "seq, namespace, at, source, kind, key, headers, body, jobs, checksum, body_checksum"
    };
}
static ONE: Sql = Sql {
    text: concat!("SELECT ", columns!(), " FROM inbound_event WHERE seq = $1 AND namespace = $2"),
    types: &[Type::INT8, Type::INT4],
};
/// Without the body.
static NEWEST: Sql = Sql {
    text: "
        SELECT seq, namespace, at, source, kind, key, headers, NULL::text, jobs, checksum, NULL::integer
        FROM inbound_event
        WHERE seq < $1 AND namespace = $2
        ORDER BY seq DESC
        LIMIT $3",
    types: &[Type::INT8, Type::INT4, Type::INT8],
};
static PRUNE: Sql = Sql {
    text: "
        DELETE FROM inbound_event
        WHERE seq = ANY (
            ARRAY(SELECT oldest.seq FROM (SELECT seq, at FROM inbound_event ORDER BY seq LIMIT $2) AS oldest WHERE oldest.at < $1)
        )
        RETURNING seq",
    types: &[Type::INT8, Type::INT8],
};

/// All of a call in one transaction; each inbound event is new with all its jobs, or changes nothing.
pub(super) async fn ingest(inbound_events: &[&NewInboundEvent], tx: &mut Tx<'_>) -> Result<Vec<Ingested>, Fault> {
    let jobs: usize = inbound_events.iter().map(|new| new.jobs.len()).sum();
    let queues = inbound_events.iter().flat_map(|new| &new.jobs).map(|job| (job.namespace, &*job.queue)).collect();
    let opening = Opening { numbered: true, seqs: inbound_events.len() + jobs, queues, ..Opening::default() };
    let opened = tx.begin(opening, async { Ok(()) }).await?;
    let (numbers, job_numbers) = opened.seqs.split_at(inbound_events.len().min(opened.seqs.len()));
    let taken = take_ids(inbound_events, numbers, tx).await?;

    let mut stamped: Vec<NewJob> = Vec::with_capacity(jobs);
    for (new, seq) in inbound_events.iter().zip(numbers).filter(|(_, seq)| taken.contains(seq)) {
        let id = InboundEventId(tx.shared.ids.id(*seq, tx.now));
        stamped.extend(new.jobs.iter().map(|job| new.stamped(job, id)));
    }
    let part = PublishPart::new(stamped.iter().collect(), Publisher::User);
    let job_numbers = job_numbers.iter().copied().take(stamped.len()).collect();
    let mut published = part.finish(&opened.queues, job_numbers, tx).await?.into_iter();

    let (mut answers, mut made) = (Vec::with_capacity(inbound_events.len()), Vec::new());
    for (new, seq) in inbound_events.iter().zip(numbers) {
        if !taken.contains(seq) {
            answers.push(Ingested::Existing { id: find(new, tx).await? });
            continue;
        }
        let jobs: Vec<Published> = published.by_ref().take(new.jobs.len()).collect();
        if let Some(Published::QuotaReached { waiting_max }) =
            jobs.iter().find(|job| matches!(job, Published::QuotaReached { .. }))
        {
            // The others of this transaction are not to blame, but half an inbound event must not stay.
            return Err(Error::QuotaReached { waiting_max: *waiting_max }.into());
        }
        let count = created(&jobs).cast_signed();
        if count != expected(new) {
            made.push((*seq, count));
        }
        answers.push(Ingested::Created { id: InboundEventId(tx.shared.ids.id(*seq, tx.now)), jobs });
    }
    if !made.is_empty() {
        let (seqs, jobs): (Vec<i64>, Vec<i32>) = made.into_iter().unzip();
        tx.session.query(&COUNT_JOBS, &[&seqs, &jobs]).await?;
    }
    Ok(answers)
}

/// How many jobs come of it, unless one of them is a repetition or its queue is gone.
fn expected(new: &NewInboundEvent) -> i32 {
    i32::try_from(new.jobs.len()).unwrap_or(i32::MAX)
}

/// The numbers of those that are new.
async fn take_ids(inbound_events: &[&NewInboundEvent], numbers: &[i64], tx: &mut Tx<'_>) -> Result<Vec<i64>, Fault> {
    let jobs: Vec<i32> = inbound_events.iter().map(|new| expected(new)).collect();
    let namespaces: Vec<i32> = inbound_events.iter().map(|new| new.namespace.0.cast_signed()).collect();
    let sources: Vec<&str> = inbound_events.iter().map(|new| &*new.source).collect();
    let kinds: Vec<&[u8]> = inbound_events.iter().map(|new| new.kind.as_bytes()).collect();
    let keys: Vec<Option<&[u8]>> =
        inbound_events.iter().map(|new| new.key.as_ref().map(|key| key.as_bytes())).collect();
    let mut headers: Vec<Option<String>> = Vec::with_capacity(inbound_events.len());
    for new in inbound_events {
        headers.push((!new.headers.is_empty()).then(|| to_json(&new.headers)).transpose()?);
    }
    let bodies: Vec<&str> = inbound_events.iter().map(|new| &*new.body).collect();
    let (seqs, now) = (numbers.to_vec(), tx.now.as_millis());
    let mut checksums: Vec<i32> = Vec::with_capacity(inbound_events.len());
    for ((new, seq), headers) in inbound_events.iter().zip(&seqs).zip(&headers) {
        checksums.push(checksum(&[
            Cell::Number(*seq),
            Cell::Number(new.namespace.0.into()),
            Cell::Number(now),
            Cell::Text(&new.source),
            Cell::Bytes(new.kind.as_bytes()),
            Cell::bytes(new.key.as_ref().map(|key| key.as_bytes())),
            Cell::text(headers.as_deref()),
        ]));
    }
    let body_checksums: Vec<i32> =
        bodies.iter().zip(&seqs).map(|(body, seq)| text_sum(Table::Body, *seq, body)).collect();
    let columns: [Parameter<'_>; 11] =
        [&jobs, &seqs, &namespaces, &sources, &kinds, &keys, &headers, &bodies, &checksums, &body_checksums, &now];
    let rows = tx.session.query(&INSERT, &columns).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The event that this one duplicates.
async fn find(new: &NewInboundEvent, tx: &mut Tx<'_>) -> Result<InboundEventId, Fault> {
    let key = new.key.as_ref().map(|key| key.as_bytes());
    let rows = tx.session.query(&FIND, &[&new.namespace.0.cast_signed(), &&*new.source, &key]).await?;
    // Pruned at this moment, or sent twice in one call and refused: the sender's retry decides.
    let row = rows.first().ok_or(Error::Overloaded)?;
    Ok(InboundEventId(tx.shared.ids.id(row.get(0), Timestamp::from_millis(row.get(1)))))
}

pub(super) async fn one(
    shared: &Arc<StoreContext>,
    namespace: NamespaceId,
    id: InboundEventId,
) -> Result<Option<InboundEvent>, Error> {
    let (seq, namespace) = (shared.ids.seq(id.0), namespace.0.cast_signed());
    let rows = shared.read(&ONE, &[&seq, &namespace]).await?;
    let found = rows.first().map(|row| inbound_event(row, shared.ids)).transpose()?;
    Ok(found.map(|(_, inbound_event)| inbound_event).filter(|inbound_event| inbound_event.id == id))
}

pub(super) async fn list(shared: &Arc<StoreContext>, list: &ListInboundEvents) -> Result<InboundEventPage, Error> {
    let mut before = list.before.map_or(i64::MAX, u64::cast_signed);
    let mut listing = list.begin();
    loop {
        let rows = shared.read(&NEWEST, &[&before, &list.namespace.0.cast_signed(), &ROWS_AT_ONCE]).await?;
        for row in &rows {
            before = get(row, 0)?;
            let listed = match inbound_event(row, shared.ids) {
                Ok(listed) => listed,
                // A list leaves out what is damaged, rather than show nothing at all.
                Err(Error::Corrupt(what)) => {
                    shared.damage.note(&what);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if listing.look(listed) {
                return Ok(listing.page());
            }
        }
        if i64::try_from(rows.len()).unwrap_or(i64::MAX) < ROWS_AT_ONCE {
            return Ok(listing.page());
        }
    }
}

/// Rows of a list that are in memory at once.
const ROWS_AT_ONCE: i64 = 200;

pub(super) async fn prune(before: Timestamp, limit: usize, tx: &mut Tx<'_>) -> Result<usize, Fault> {
    tx.begin_write().await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(tx.session.query(&PRUNE, &[&before.as_millis(), &limit]).await?.len())
}

/// Not how many jobs came of it, which is known only after they were made.
fn checksum(cells: &[Cell<'_>]) -> i32 {
    row_sum(Table::InboundEvent, cells)
}

fn inbound_event(row: &Row, ids: JobIdCodec) -> Result<(i64, InboundEvent), Error> {
    let sum = checksum(&[
        Cell::Number(get(row, 0)?),
        Cell::Number(get::<i32>(row, 1)?.into()),
        Cell::Number(get(row, 2)?),
        Cell::Text(get(row, 3)?),
        Cell::Bytes(get(row, 4)?),
        Cell::bytes(get(row, 5)?),
        Cell::text(get(row, 6)?),
    ]);
    let (seq, at) = (get::<i64>(row, 0)?, Timestamp::from_millis(get(row, 2)?));
    let name = seq.to_string();
    verify(Table::InboundEvent, &name, get(row, 9)?, sum)?;
    let body: Option<&str> = get(row, 7)?;
    if let Some(body) = body {
        verify(Table::Body, &name, get(row, 10)?, text_sum(Table::Body, seq, body))?;
    }
    let inbound_event = InboundEvent {
        id: InboundEventId(ids.id(seq, at)),
        at,
        source: get::<&str>(row, 3)?.into(),
        kind: text(row, 4)?.unwrap_or_default().into(),
        key: text(row, 5)?,
        headers: get::<Option<&str>>(row, 6)?.map(from_json).transpose()?.unwrap_or_default(),
        body: body.unwrap_or_default().into(),
        jobs: get::<i32>(row, 8)?.cast_unsigned(),
    };
    Ok((seq, inbound_event))
}
