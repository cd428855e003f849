//! Arrivals inside the writer: the event and all its jobs in one transaction, once for each id of the provider. Readers
//! list them.

use std::sync::Arc;

use outlast_core::inbound_event::{EventOrigin, InboundEvent, InboundEventId};
use outlast_core::{NamespaceId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, ToSql, params, params_from_iter};

use super::compressed_text::{CompressedText, DecompressedText};
use super::faults::Fault;
use super::publish::SpecEncoding;
use super::read::SnapshotReader;
use super::row_checksums::{self, verify};
use super::rows::headers;
use super::write::{pages, unreadable};
use super::writer::WriterState;
use crate::checksum::Table;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{JobRecord, to_json};
use crate::error::Error;
use crate::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent, created};
use crate::jobs::Published;

pub(super) const INSERT: &str = "
    INSERT INTO inbound_event (seq, namespace, at, source, kind, key, headers, jobs, checksum, body, body_of, body_checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const TAKE_BODY: &str = "
    UPDATE inbound_event
    SET body = (SELECT payload FROM spec WHERE seq = ?2), body_of = NULL
    WHERE seq = ?1 AND body_of = ?2";
/// In the order in which [`inbound_event`] reads them.
const COLUMNS: &str = "
    seq, namespace, at, source, kind, key, headers, jobs, checksum,
    coalesce(body, (SELECT payload FROM spec WHERE spec.seq = body_of)), body_checksum";
/// The same without the body, which lists do not show.
const LISTED_COLUMNS: &str = "seq, namespace, at, source, kind, key, headers, jobs, checksum, '', NULL";
/// The columns of an inbound event but for its body.
const HEAD: usize = 8;
const OLDEST: &str = "
    SELECT seq, namespace, at, source, kind, key, headers, jobs, checksum
    FROM inbound_event
    ORDER BY seq
    LIMIT ?1";
/// The numbers of an event's jobs follow its own.
const JOBS_OF: &str = "
    SELECT seq, payload, idempotency_key, key, tags, not_before, start_by, callback_url, notify_email, traceparent, overrides,
           origin, inbound_event, checksum
    FROM spec
    WHERE seq BETWEEN ?1 + 1 AND ?1 + ?2 AND inbound_event = ?1";
const SPEC_WIDTH: usize = 13;
const GIVE_ORIGIN: &str = "UPDATE spec SET origin = ?12, inbound_event = ?13, checksum = ?14 WHERE seq = ?1";
const DELETE: &str = "DELETE FROM inbound_event WHERE seq <= ?1";

/// An inbound event with all that can be worked out before the writer's turn comes.
pub(super) struct Ready {
    pub(super) new: NewInboundEvent,
    /// The hash of the provider's id.
    pub(super) key_hash: Option<i64>,
    headers: Option<String>,
    body: CompressedText,
}

impl Ready {
    pub(super) fn new(new: NewInboundEvent, ids: JobIdCodec) -> Result<Ready, Error> {
        let key_hash = new.key.as_ref().map(|key| ids.event_key_hash(new.namespace, &new.source, key));
        let headers = (!new.headers.is_empty()).then(|| to_json(&new.headers)).transpose()?;
        let body = CompressedText::new(&new.body);
        Ok(Ready { new, key_hash, headers, body })
    }
}

impl WriterState<'_> {
    /// The inner error refuses all of it before anything is written: a part of a transaction cannot be taken back.
    pub(super) fn ingest(&mut self, inbound_events: &[Ready]) -> Result<Result<Vec<Ingested>, Error>, Fault> {
        // Look up duplicates first only when the quota might be exceeded.
        if !self.has_room(inbound_events.iter()) {
            let mut fresh = Vec::new();
            for ready in inbound_events {
                if self.find_duplicate(ready)?.is_none() {
                    fresh.push(ready);
                }
            }
            if !self.has_room(fresh.into_iter()) {
                return Ok(Err(Error::QuotaReached { waiting_max: self.namespace_waiting_max }));
            }
        }
        Ok(Ok(inbound_events.iter().map(|ready| self.ingest_one(ready)).collect::<Result<_, Fault>>()?))
    }

    /// Those of a call are few.
    fn has_room<'a>(&self, inbound_events: impl Iterator<Item = &'a Ready> + Clone) -> bool {
        let wanted = |namespace: NamespaceId| -> u64 {
            let same = inbound_events.clone().filter(|ready| ready.new.namespace == namespace);
            same.map(|ready| ready.new.jobs.len() as u64).sum()
        };
        inbound_events.clone().map(|ready| ready.new.namespace).all(|namespace| match wanted(namespace) {
            0 => true,
            jobs => self.index.waiting(namespace) + jobs <= self.namespace_waiting_max,
        })
    }

    fn ingest_one(&mut self, ready: &Ready) -> Result<Ingested, Fault> {
        if let Some(id) = self.find_duplicate(ready)? {
            return Ok(Ingested::Existing { id });
        }
        let new = &ready.new;
        let seq = self.next_seq;
        self.next_seq += 1;
        let id = InboundEventId(self.ids.id(seq, self.now));
        let mut jobs = Vec::with_capacity(new.jobs.len());
        for job in &new.jobs {
            let own = (!Arc::ptr_eq(&job.spec.payload, &new.body)).then(|| CompressedText::new(&job.spec.payload));
            let form = SpecEncoding { payload: own.as_ref().unwrap_or(&ready.body), inbound_event: Some(seq) };
            jobs.push(self.publish_one(&new.stamped(job, id), form)?);
        }
        let body_of = self.place_of_body(new, &jobs);
        let body = body_of.is_none().then_some(&ready.body);
        self.dirty_pages += 1 + pages(body.map_or(0, CompressedText::len));
        self.stored_seq = self.stored_seq.max(seq + 1);
        let (at, count) = (self.now.as_millis(), created(&jobs));
        let head = params![seq, new.namespace.0, at, new.source, new.kind, new.key, ready.headers, count];
        let checksum = row_checksums::sum(Table::InboundEvent, head)?;
        let body_checksum = row_checksums::sum_with_digest(Table::Body, seq, ready.body.digest(), &[])?;
        let rest = params![checksum, body, body_of, body_checksum];
        self.statements.insert_inbound_event.execute(params_from_iter(head.iter().chain(rest)))?;
        self.note_event_key(ready, seq)?;
        Ok(Ingested::Created { id, jobs })
    }

    /// A new job with the body as its payload: the text is not stored twice.
    fn place_of_body(&self, new: &NewInboundEvent, jobs: &[Published]) -> Option<i64> {
        jobs.iter().find_map(|job| match job {
            Published::Created { job, .. } if Arc::ptr_eq(&job.spec.payload, &new.body) => Some(self.ids.seq(job.id)),
            _ => None,
        })
    }

    /// Before the payload of a job goes or changes: the event that it came of takes its body, if it stood there.
    pub(super) fn give_body_back(&mut self, record: &JobRecord) -> Result<(), Fault> {
        if let Some(origin) = &record.job.spec.origin {
            self.connection.prepare_cached(TAKE_BODY)?.execute([self.ids.seq(origin.event.0), record.seq])?;
        }
        Ok(())
    }

    pub(super) fn prune_inbound_events(&mut self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        // In order of number, which is the order of time.
        let mut pruned = Vec::new();
        let mut oldest = self.connection.prepare_cached(OLDEST)?;
        let mut rows = oldest.query(params![i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()?
            && row.get::<_, i64>(2)? < before.as_millis()
        {
            pruned.push(Old::read(row, self.ids)?);
        }
        drop(rows);
        drop(oldest);
        let Some(&Old { seq: last, .. }) = pruned.last() else {
            return Ok(0);
        };
        for old in &pruned {
            if let Some(key) = &old.key {
                self.forget_arrival_key(old.namespace, &old.origin.source, key, old.seq)?;
            }
            self.give_origin(old.seq, old.jobs, &old.origin)?;
        }
        // The number of the newest row must not be given out again once the row is gone.
        self.keep_next_seq(last)?;
        Ok(self.connection.prepare_cached(DELETE)?.execute([last])?)
    }

    /// Jobs that outlive the event of this number, or are to live without it, get their origin themselves.
    fn give_origin(&mut self, seq: i64, jobs: u32, origin: &EventOrigin) -> Result<(), Fault> {
        if jobs == 0 {
            return Ok(());
        }
        let mut found: Vec<Vec<Value>> = Vec::new();
        let mut statement = self.connection.prepare_cached(JOBS_OF)?;
        let mut rows = statement.query(params![seq, jobs])?;
        while let Some(row) = rows.next()? {
            match verify(Table::Spec, row, 0..SPEC_WIDTH, SPEC_WIDTH) {
                Ok(()) => found.push((0..SPEC_WIDTH).map(|at| row.get(at)).collect::<Result<_, _>>()?),
                Err(error) => self.note_damage(&error),
            }
        }
        let origin = to_json(origin)?;
        for mut spec in found {
            spec.truncate(SPEC_WIDTH - 2);
            spec.extend([Value::Text(origin.clone()), Value::Null]);
            let columns: Vec<&dyn ToSql> = spec.iter().map(|value| value as &dyn ToSql).collect();
            row_checksums::execute(&mut *self.connection.prepare_cached(GIVE_ORIGIN)?, Table::Spec, &columns)?;
            self.dirty_pages += 1;
        }
        Ok(())
    }
}

/// An event whose retention has ended.
struct Old {
    seq: i64,
    namespace: NamespaceId,
    key: Option<String>,
    jobs: u32,
    origin: EventOrigin,
}

impl Old {
    fn read(row: &Row<'_>, ids: JobIdCodec) -> Result<Old, Fault> {
        verify(Table::InboundEvent, row, 0..HEAD, HEAD)?;
        let (seq, at) = (row.get(0)?, Timestamp::from_millis(row.get(2)?));
        let origin = EventOrigin {
            event: InboundEventId(ids.id(seq, at)),
            source: row.get::<_, String>(3)?.into(),
            kind: row.get::<_, String>(4)?.into(),
            // If they make no sense they go with the event, rather than keep all others from being forgotten.
            headers: headers(row.get(6)?).unwrap_or_default(),
        };
        Ok(Old { seq, namespace: NamespaceId(row.get(1)?), key: row.get(5)?, jobs: row.get(7)?, origin })
    }
}

impl SnapshotReader<'_> {
    pub(super) fn inbound_event(
        &self,
        namespace: NamespaceId,
        id: InboundEventId,
    ) -> Result<Option<InboundEvent>, Error> {
        let sql = format!("SELECT {COLUMNS} FROM inbound_event WHERE seq = ?1 AND namespace = ?2");
        let mut statement = self.connection.prepare_cached(&sql).map_err(unreadable)?;
        let row = params![self.ids.seq(id.0), namespace.0];
        let found = statement.query_row(row, |row| Ok(inbound_event(row, self.ids))).optional().map_err(unreadable)?;
        if found.is_none() && self.damage.may_have_lost(self.ids.seq(id.0)) && self.ids.is_ours(id.0) {
            return Err(Error::Corrupt(format!("inbound_event row {}: the row is lost", self.ids.seq(id.0))));
        }
        Ok(found.transpose()?.map(|(_, inbound_event)| inbound_event).filter(|inbound_event| inbound_event.id == id))
    }

    pub(super) fn inbound_events(&self, list: &ListInboundEvents) -> Result<InboundEventPage, Error> {
        let sql =
            format!("SELECT {LISTED_COLUMNS} FROM inbound_event WHERE seq < ?1 AND namespace = ?2 ORDER BY seq DESC");
        let mut statement = self.connection.prepare_cached(&sql).map_err(unreadable)?;
        let before = list.before.map_or(i64::MAX, u64::cast_signed);
        let parameters = params![before, list.namespace.0];
        let mut listing = list.begin();
        for row in statement.query_map(parameters, |row| Ok(inbound_event(row, self.ids))).map_err(unreadable)? {
            match row.map_err(unreadable).and_then(|inbound_event| inbound_event) {
                Ok(inbound_event) => {
                    if listing.look(inbound_event) {
                        break;
                    }
                }
                // A list leaves out what is damaged, rather than show nothing at all.
                Err(Error::Corrupt(what)) => self.damage.note(&what),
                Err(error) => return Err(error),
            }
        }
        Ok(listing.page())
    }
}

fn inbound_event(row: &Row<'_>, ids: JobIdCodec) -> Result<(i64, InboundEvent), Error> {
    verify(Table::InboundEvent, row, 0..HEAD, HEAD)?;
    verify(Table::Body, row, [0, HEAD + 1].into_iter(), HEAD + 2)?;
    let seq: i64 = row.get(0).map_err(unreadable)?;
    let at = Timestamp::from_millis(row.get(2).map_err(unreadable)?);
    let text = |at: usize| row.get::<_, String>(at).map_err(unreadable);
    let inbound_event = InboundEvent {
        id: InboundEventId(ids.id(seq, at)),
        at,
        source: text(3)?.into(),
        kind: text(4)?.into(),
        key: row.get::<_, Option<String>>(5).map_err(unreadable)?.map(Into::into),
        headers: headers(row.get(6).map_err(unreadable)?)?,
        body: row.get::<_, DecompressedText>(HEAD + 1).map_err(unreadable)?.0.into(),
        jobs: row.get(7).map_err(unreadable)?,
    };
    Ok((seq, inbound_event))
}
