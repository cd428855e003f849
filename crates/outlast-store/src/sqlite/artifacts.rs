//! Data beside a job: checkpoint, sections, objects. Written by the writer inside the job's transaction, read by the
//! readers.

use std::sync::Arc;

use outlast_core::change::ScheduledDelete;
use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::object::DELETE_DELAY;
use outlast_core::{JobId, Object, ObjectKey, Role, Timestamp};
use rusqlite::{OptionalExtension, Row, params, params_from_iter};

use super::faults::Fault;
use super::read::SnapshotReader;
use super::row_checksums::{self, verify};
use super::write::{pages, unreadable};
use super::writer::WriterState;
use crate::artifacts::{Artifacts, DueDeletions, InlineResult, OBJECTS_MAX, ObjectInspection, StoredObject};
use crate::checksum::Table;
use crate::codec::events::code;
use crate::codec::row::JobRecord;
use crate::error::Error;
use crate::job_detail::{ResultDetail, has_inline_result};
use crate::jobs::Reach;
use crate::page::{EncodedSize, PageSize};

const KEEP_CHECKPOINT: &str = "
    INSERT OR REPLACE INTO checkpoint (seq, schema_version, at, replays, attempt, data, object, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const KEEP_SECTION: &str = "
    INSERT INTO section (job, name, at, body, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (job, name) DO UPDATE SET at = excluded.at, body = excluded.body, checksum = excluded.checksum";
const DROP_CHECKPOINT: &str = "DELETE FROM checkpoint WHERE seq = ?1";
const DROP_SECTIONS: &str = "DELETE FROM section WHERE job = ?1";
const PUT_OBJECT: &str = "
    INSERT INTO object (key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, checksum, parts,
                        copied_from, checksums)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (key) DO UPDATE
    SET attached = excluded.attached, delete_after = excluded.delete_after, length = excluded.length, sha256 = excluded.sha256,
        content_type = excluded.content_type, filename = excluded.filename, upload = excluded.upload,
        checksum = excluded.checksum, parts = excluded.parts, copied_from = excluded.copied_from,
        checksums = excluded.checksums, damaged_at = NULL";
/// Its parameters are the columns under the checksum, and the checksum.
const SCHEDULE_DELETE: &str = "UPDATE object SET delete_after = ?5, checksum = ?11 WHERE key = ?1";
const PRESENT: &str = "
    SELECT key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_job
    WHERE job = ?1 AND delete_after IS NULL
    LIMIT 1000000";
const DUE_DELETIONS: &str = "
    SELECT key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_delete_after
    WHERE delete_after IS NOT NULL
    ORDER BY delete_after
    LIMIT ?1";
const DOOMED_ONE: &str = "
    SELECT key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object
    WHERE key = ?1 AND delete_after IS NOT NULL";
const FORGET: &str = "DELETE FROM object WHERE key = ?1 AND delete_after IS NOT NULL";
const FOUND_SOUND: &str = "UPDATE object SET damaged_at = NULL, checksums = ?2 WHERE key = ?1";
const FOUND_DAMAGED: &str = "UPDATE object SET damaged_at = ?2 WHERE key = ?1";
const COUNT_INLINE: &str = "UPDATE result SET downloads = downloads + 1 WHERE seq = ?1";
const COUNT_OBJECT: &str = "UPDATE object SET downloads = downloads + 1 WHERE job = ?1 AND role = ?2 AND attached";

impl WriterState<'_> {
    pub(super) fn keep_checkpoint(&mut self, seq: i64, checkpoint: &Checkpoint) -> Result<(), Fault> {
        let (data, object) = match &checkpoint.data {
            CheckpointData::Inline(text) => (Some(&**text), None),
            CheckpointData::Object(object) => (None, Some(object.key.to_string())),
        };
        let columns = params![
            seq,
            checkpoint.schema_version,
            checkpoint.at.as_millis(),
            checkpoint.replays,
            checkpoint.attempt,
            data,
            object,
        ];
        row_checksums::execute(&mut *self.connection.prepare_cached(KEEP_CHECKPOINT)?, Table::Checkpoint, columns)?;
        self.dirty_pages += 1 + pages(data.map_or(0, str::len));
        Ok(())
    }

    pub(super) fn keep_section(&mut self, seq: i64, section: &Section) -> Result<(), Fault> {
        let columns = params![seq, section.name, section.at.as_millis(), &*section.body];
        row_checksums::execute(&mut *self.connection.prepare_cached(KEEP_SECTION)?, Table::Section, columns)?;
        self.dirty_pages += 1 + pages(section.body.len());
        Ok(())
    }

    pub(super) fn drop_checkpoints(&mut self, seq: i64) -> Result<(), Fault> {
        for statement in [DROP_CHECKPOINT, DROP_SECTIONS] {
            self.connection.prepare_cached(statement)?.execute([seq])?;
        }
        Ok(())
    }

    pub(super) fn put_object(&mut self, seq: i64, object: &Object, attached: bool) -> Result<(), Fault> {
        self.dirty_pages += pages(object.checksums.as_deref().map_or(0, <[u8]>::len));
        self.write_object(seq, object, attached, None)
    }

    fn write_object(
        &self,
        seq: i64,
        object: &Object,
        attached: bool,
        delete_after: Option<Timestamp>,
    ) -> Result<(), Fault> {
        let columns = params![
            object.key.to_string(),
            seq,
            code(&Role::ALL, object.role),
            attached,
            delete_after.map(Timestamp::as_millis),
            object.length.cast_signed(),
            object.sha256,
            object.content_type,
            object.filename,
            object.upload,
        ];
        if delete_after.is_some() {
            row_checksums::execute(&mut *self.connection.prepare_cached(SCHEDULE_DELETE)?, Table::Object, columns)?;
            return Ok(());
        }
        let checksum = row_checksums::sum(Table::Object, columns)?;
        let copied_from = object.copied_from.map(u64::cast_signed);
        let rest = params![checksum, object.parts, copied_from, object.checksums.as_deref()];
        self.connection.prepare_cached(PUT_OBJECT)?.execute(params_from_iter(columns.iter().chain(rest)))?;
        Ok(())
    }

    pub(super) fn record_inspection(&mut self, key: &ObjectKey, found: &ObjectInspection) -> Result<(), Fault> {
        let key = key.to_string();
        match found {
            ObjectInspection::Sound(checksums) => {
                self.connection.prepare_cached(FOUND_SOUND)?.execute(params![key, &**checksums])?;
                self.dirty_pages += pages(checksums.len());
            }
            ObjectInspection::Damaged => {
                self.connection.prepare_cached(FOUND_DAMAGED)?.execute(params![key, self.now.as_millis()])?;
            }
        }
        self.dirty_pages += 1;
        Ok(())
    }

    pub(super) fn schedule_delete(&mut self, seq: i64, schedule_delete: &ScheduledDelete) -> Result<(), Fault> {
        self.schedule_delete_where(seq, |stored| {
            let is_meant = stored.attached == schedule_delete.attached
                && schedule_delete.role.is_none_or(|role| role == stored.object.role);
            is_meant.then_some(schedule_delete.at)
        })
    }

    /// Sets when objects of a job are deleted. One whose row is damaged stays.
    fn schedule_delete_where(
        &mut self,
        seq: i64,
        when: impl Fn(&StoredObject) -> Option<Timestamp>,
    ) -> Result<(), Fault> {
        let mut present = Vec::new();
        let mut statement = self.connection.prepare_cached(PRESENT)?;
        let mut rows = statement.query([seq])?;
        while let Some(row) = rows.next()? {
            match stored(row) {
                Ok(object) => present.push(object),
                Err(error) => self.note_damage(&error),
            }
        }
        for stored in present {
            if let Some(at) = when(&stored) {
                self.write_object(seq, &stored.object, stored.attached, Some(at))?;
            }
        }
        Ok(())
    }

    /// Deletes the artifacts of a deleted job; objects wait for their deletion. An upload under way may continue for a
    /// while.
    pub(super) fn forget_kept(&mut self, seq: i64) -> Result<(), Fault> {
        self.drop_checkpoints(seq)?;
        let (at_once, later) = (self.now, self.now.plus(DELETE_DELAY));
        self.schedule_delete_where(seq, |stored| Some(if stored.attached { at_once } else { later }))
    }

    pub(super) fn due_deletions(&mut self, limit: usize) -> Result<DueDeletions, Fault> {
        let mut doomed = DueDeletions::default();
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut statement = self.connection.prepare_cached(DUE_DELETIONS)?;
        let mut rows = statement.query([most])?;
        while let Some(row) = rows.next()? {
            let stored = match stored(row) {
                Ok(stored) => stored,
                // The row is damaged and not trusted: an object is deleted only if that was scheduled.
                Err(error) => {
                    self.note_damage(&error);
                    continue;
                }
            };
            let at = stored.delete_after.unwrap_or_default();
            if at > self.now || doomed.objects.len() >= limit {
                doomed.next = Some(at);
                break;
            }
            doomed.objects.push((stored.object.key, stored.object.upload));
        }
        Ok(doomed)
    }

    /// One whose row is damaged stays as it is: what the row says is not believed.
    pub(super) fn postpone_deletions(&mut self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Fault> {
        for key in keys {
            let mut statement = self.connection.prepare_cached(DOOMED_ONE)?;
            let mut rows = statement.query([key.to_string()])?;
            let Some(row) = rows.next()? else {
                continue;
            };
            let (seq, stored) = (row.get(1)?, stored(row));
            match stored {
                Ok(stored) => self.write_object(seq, &stored.object, stored.attached, Some(until))?,
                Err(error) => self.note_damage(&error),
            }
        }
        self.dirty_pages += 1;
        Ok(())
    }

    pub(super) fn forget_objects(&mut self, keys: &[ObjectKey]) -> Result<(), Fault> {
        for key in keys {
            self.connection.prepare_cached(FORGET)?.execute([key.to_string()])?;
        }
        self.dirty_pages += 1;
        Ok(())
    }

    pub(super) fn count_download(&mut self, id: JobId) -> Result<(), Fault> {
        let seq = self.ids.seq(id);
        self.connection.prepare_cached(COUNT_INLINE)?.execute([seq])?;
        self.connection.prepare_cached(COUNT_OBJECT)?.execute(params![seq, code(&Role::ALL, Role::Result)])?;
        self.dirty_pages += 1;
        Ok(())
    }
}

const CHECKPOINT: &str = "
    SELECT seq, schema_version, at, replays, attempt, data, object, checksum FROM checkpoint WHERE seq = ?1";
const SECTION_NAMES: &str = "SELECT name FROM section WHERE job = ?1 ORDER BY name LIMIT 10000";
const SECTIONS: &str = "
    SELECT job, name, at, body, checksum FROM section WHERE job = ?1 AND name > ?2 ORDER BY name LIMIT ?3";
const SECTION: &str = "SELECT job, name, at, body, checksum FROM section WHERE job = ?1 AND name = ?2";
const OBJECTS: &str = "
    SELECT key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_job
    WHERE job = ?1
    ORDER BY delete_after IS NOT NULL, key DESC
    LIMIT ?2";
const DOWNLOADS: &str = "SELECT downloads FROM result WHERE seq = ?1";
const RESULT: &str = "SELECT seq, body, checksum, downloads FROM result WHERE seq = ?1";

impl SnapshotReader<'_> {
    pub(super) fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        self.row_of(reach, id)?.map(|record| self.artifacts_of(&record)).transpose()
    }

    pub(super) fn artifacts_of(&self, record: &JobRecord) -> Result<Artifacts, Error> {
        let seq = record.seq;
        let mut names = self.connection.prepare_cached(SECTION_NAMES).map_err(unreadable)?;
        let sections = names.query_map([seq], |row| row.get(0)).map_err(unreadable)?;
        let sections = sections.collect::<Result<Vec<Box<str>>, _>>().map_err(unreadable)?;
        let mut statement = self.connection.prepare_cached(CHECKPOINT).map_err(unreadable)?;
        let found = statement.query_row([seq], |row| Ok(checkpoint(row))).optional().map_err(unreadable)?;
        let checkpoint = match found.transpose()? {
            None => None,
            Some((checkpoint, None)) => Some(checkpoint),
            Some((checkpoint, Some(object))) => {
                let objects = self.objects_of(seq)?;
                let object = objects.into_iter().find(|stored| stored.object.key == object);
                let object = object.ok_or_else(|| Error::Corrupt(format!("the checkpoint of job row {seq}")))?;
                Some(Checkpoint { data: CheckpointData::Object(Arc::new(object.object)), ..checkpoint })
            }
        };
        let work_summary = record.job.work_summary;
        if work_summary.has_checkpoint && checkpoint.is_none() || work_summary.has_sections && sections.is_empty() {
            return Err(Error::Corrupt(format!("job row {seq}: what was saved for it is lost")));
        }
        Ok(Artifacts { checkpoint, sections })
    }

    /// Facts about the result, without reading it.
    pub(super) fn result_detail(&self, record: &JobRecord) -> Result<Option<ResultDetail>, Error> {
        if has_inline_result(&record.job) {
            let mut statement = self.connection.prepare_cached(DOWNLOADS).map_err(unreadable)?;
            let found: Option<i64> =
                statement.query_row([record.seq], |row| row.get(0)).optional().map_err(unreadable)?;
            let downloads = found.ok_or_else(|| lost_result(record.seq))?.cast_unsigned();
            return Ok(Some(ResultDetail::Inline { downloads }));
        }
        if !record.job.has_uploaded_result() {
            return Ok(None);
        }
        Ok(self
            .objects_of(record.seq)?
            .into_iter()
            .find(StoredObject::is_result)
            .map(|stored| ResultDetail::Object(Box::new(stored))))
    }

    pub(super) fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        let Some(seq) = self.seq(reach, id)? else {
            return Ok(None);
        };
        let mut statement = self.connection.prepare_cached(SECTIONS).map_err(unreadable)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![seq, after.unwrap_or_default(), limit]).map_err(unreadable)?;
        let (mut sections, mut size) = (Vec::new(), PageSize::default());
        while !size.is_full()
            && let Some(row) = rows.next().map_err(unreadable)?
        {
            let section = section(row)?;
            size.add(section.written());
            sections.push(section);
        }
        Ok(Some(sections))
    }

    pub(super) fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        let Some(seq) = self.seq(reach, id)? else {
            return Ok(None);
        };
        let mut statement = self.connection.prepare_cached(SECTION).map_err(unreadable)?;
        let found = statement.query_row(params![seq, name], |row| Ok(section(row))).optional().map_err(unreadable)?;
        found.transpose()
    }

    pub(super) fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
        self.seq(reach, id)?.map(|seq| self.objects_of(seq)).transpose()
    }

    fn objects_of(&self, seq: i64) -> Result<Vec<StoredObject>, Error> {
        let mut statement = self.connection.prepare_cached(OBJECTS).map_err(unreadable)?;
        let most = i64::try_from(OBJECTS_MAX).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![seq, most], |row| Ok(stored(row))).map_err(unreadable)?;
        let mut objects = Vec::new();
        for row in rows {
            objects.push(row.map_err(unreadable)??);
        }
        Ok(objects)
    }

    pub(super) fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        let Some(record) = self.row_of(reach, id)? else {
            return Ok(None);
        };
        let mut statement = self.connection.prepare_cached(RESULT).map_err(unreadable)?;
        let found = statement.query_row([record.seq], |row| Ok(inline(row))).optional().map_err(unreadable)?;
        let found = found.transpose()?;
        if has_inline_result(&record.job) && found.is_none() {
            return Err(lost_result(record.seq));
        }
        Ok(found)
    }
}

fn lost_result(seq: i64) -> Error {
    Error::Corrupt(format!("job row {seq}: its result is lost"))
}

fn inline(row: &Row<'_>) -> Result<InlineResult, Error> {
    verify(Table::Result, row, 0..2, 2)?;
    let body: String = row.get(1).map_err(unreadable)?;
    Ok(InlineResult { body: body.into(), downloads: row.get::<_, i64>(3).map_err(unreadable)?.cast_unsigned() })
}

/// A checkpoint, and the key of its object if it has one.
fn checkpoint(row: &Row<'_>) -> Result<(Checkpoint, Option<ObjectKey>), Error> {
    verify(Table::Checkpoint, row, 0..7, 7)?;
    let data: Option<String> = row.get(5).map_err(unreadable)?;
    let object: Option<String> = row.get(6).map_err(unreadable)?;
    let checkpoint = Checkpoint {
        schema_version: row.get(1).map_err(unreadable)?,
        at: Timestamp::from_millis(row.get(2).map_err(unreadable)?),
        replays: row.get(3).map_err(unreadable)?,
        attempt: row.get(4).map_err(unreadable)?,
        data: CheckpointData::Inline(data.unwrap_or_default().into()),
    };
    Ok((checkpoint, object.as_deref().map(key).transpose()?))
}

fn section(row: &Row<'_>) -> Result<Section, Error> {
    verify(Table::Section, row, 0..4, 4)?;
    Ok(Section {
        name: row.get(1).map_err(unreadable)?,
        at: Timestamp::from_millis(row.get(2).map_err(unreadable)?),
        body: row.get::<_, String>(3).map_err(unreadable)?.into(),
    })
}

fn stored(row: &Row<'_>) -> Result<StoredObject, Error> {
    verify(Table::Object, row, 0..10, 10)?;
    let role: usize = row.get(2).map_err(unreadable)?;
    let object = Object {
        key: key(&row.get::<_, String>(0).map_err(unreadable)?)?,
        role: *Role::ALL.get(role).ok_or_else(|| Error::Corrupt("role of an object".to_owned()))?,
        length: row.get::<_, i64>(5).map_err(unreadable)?.cast_unsigned(),
        sha256: row.get(6).map_err(unreadable)?,
        content_type: row.get(7).map_err(unreadable)?,
        filename: row.get(8).map_err(unreadable)?,
        upload: row.get(9).map_err(unreadable)?,
        parts: row.get(12).map_err(unreadable)?,
        copied_from: row.get::<_, Option<i64>>(13).map_err(unreadable)?.map(i64::cast_unsigned),
        checksums: row.get::<_, Option<Vec<u8>>>(14).map_err(unreadable)?.map(Into::into),
    };
    let delete_after: Option<i64> = row.get(4).map_err(unreadable)?;
    Ok(StoredObject {
        object,
        attached: row.get(3).map_err(unreadable)?,
        delete_after: delete_after.map(Timestamp::from_millis),
        downloads: row.get::<_, i64>(11).map_err(unreadable)?.cast_unsigned(),
        damaged_at: row.get::<_, Option<i64>>(15).map_err(unreadable)?.map(Timestamp::from_millis),
    })
}

fn key(text: &str) -> Result<ObjectKey, Error> {
    text.parse().map_err(|_| Error::Corrupt("key of an object".to_owned()))
}
