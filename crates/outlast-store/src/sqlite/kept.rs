//! What is kept beside a job: checkpoint, sections, objects. Written by the writer inside the job's transaction, read by
//! the readers.

use std::sync::Arc;

use outlast_core::change::Doom;
use outlast_core::checkpoint::{Checkpoint, Data, Section};
use outlast_core::object::DOOMED_FOR;
use outlast_core::{JobId, Object, ObjectKey, Role, Timestamp};
use rusqlite::{OptionalExtension, Row, params, params_from_iter};

use super::faults::Fault;
use super::read::Reader;
use super::sealed::{self, verify};
use super::write::{pages, unreadable};
use super::writer::Core;
use crate::checksum::Table;
use crate::error::Error;
use crate::history::code;
use crate::job_detail::{ResultDetail, has_inline_result};
use crate::jobs::Reach;
use crate::kept::{Doomed, Inline, Inspection, Kept, OBJECTS_MAX, Stored};
use crate::page::{PageSize, Written};
use crate::rows::Record;

const KEEP_CHECKPOINT: &str = "
    INSERT OR REPLACE INTO checkpoint (seq, schema_version, at, run, attempt, data, object, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const KEEP_SECTION: &str = "
    INSERT INTO section (job, name, at, body, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (job, name) DO UPDATE SET at = excluded.at, body = excluded.body, checksum = excluded.checksum";
const DROP_CHECKPOINT: &str = "DELETE FROM checkpoint WHERE seq = ?1";
const DROP_SECTIONS: &str = "DELETE FROM section WHERE job = ?1";
const PUT_OBJECT: &str = "
    INSERT INTO object (key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, checksum, parts,
                        copied_from, checksums)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (key) DO UPDATE
    SET kept = excluded.kept, doomed_at = excluded.doomed_at, length = excluded.length, sha256 = excluded.sha256,
        content_type = excluded.content_type, filename = excluded.filename, upload = excluded.upload,
        checksum = excluded.checksum, parts = excluded.parts, copied_from = excluded.copied_from,
        checksums = excluded.checksums, damaged_at = NULL";
/// Its parameters are the columns under the checksum, and the checksum.
const DOOM: &str = "UPDATE object SET doomed_at = ?5, checksum = ?11 WHERE key = ?1";
const PRESENT: &str = "
    SELECT key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_job
    WHERE job = ?1 AND doomed_at IS NULL
    LIMIT 1000000";
const DOOMED: &str = "
    SELECT key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_doomed
    WHERE doomed_at IS NOT NULL
    ORDER BY doomed_at
    LIMIT ?1";
const DOOMED_ONE: &str = "
    SELECT key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object
    WHERE key = ?1 AND doomed_at IS NOT NULL";
const FORGET: &str = "DELETE FROM object WHERE key = ?1 AND doomed_at IS NOT NULL";
const FOUND_SOUND: &str = "UPDATE object SET damaged_at = NULL, checksums = ?2 WHERE key = ?1";
const FOUND_DAMAGED: &str = "UPDATE object SET damaged_at = ?2 WHERE key = ?1";
const COUNT_INLINE: &str = "UPDATE result SET downloads = downloads + 1 WHERE seq = ?1";
const COUNT_OBJECT: &str = "UPDATE object SET downloads = downloads + 1 WHERE job = ?1 AND role = ?2 AND kept";

impl Core<'_> {
    pub(super) fn keep_checkpoint(&mut self, seq: i64, checkpoint: &Checkpoint) -> Result<(), Fault> {
        let (data, object) = match &checkpoint.data {
            Data::Inline(text) => (Some(&**text), None),
            Data::Object(object) => (None, Some(object.key.to_string())),
        };
        let columns = params![
            seq,
            checkpoint.schema_version,
            checkpoint.at.as_millis(),
            checkpoint.replays + 1,
            checkpoint.attempt,
            data,
            object,
        ];
        sealed::execute(&mut *self.connection.prepare_cached(KEEP_CHECKPOINT)?, Table::Checkpoint, columns)?;
        self.dirty_pages += 1 + pages(data.map_or(0, str::len));
        Ok(())
    }

    pub(super) fn keep_section(&mut self, seq: i64, section: &Section) -> Result<(), Fault> {
        let columns = params![seq, section.name, section.at.as_millis(), &*section.body];
        sealed::execute(&mut *self.connection.prepare_cached(KEEP_SECTION)?, Table::Section, columns)?;
        self.dirty_pages += 1 + pages(section.body.len());
        Ok(())
    }

    pub(super) fn drop_checkpoints(&mut self, seq: i64) -> Result<(), Fault> {
        for statement in [DROP_CHECKPOINT, DROP_SECTIONS] {
            self.connection.prepare_cached(statement)?.execute([seq])?;
        }
        Ok(())
    }

    pub(super) fn put_object(&mut self, seq: i64, object: &Object, kept: bool) -> Result<(), Fault> {
        self.dirty_pages += pages(object.checksums.as_deref().map_or(0, <[u8]>::len));
        self.write_object(seq, object, kept, None)
    }

    fn write_object(&self, seq: i64, object: &Object, kept: bool, doomed_at: Option<Timestamp>) -> Result<(), Fault> {
        let columns = params![
            object.key.to_string(),
            seq,
            code(&Role::ALL, object.role),
            kept,
            doomed_at.map(Timestamp::as_millis),
            object.length.cast_signed(),
            object.sha256,
            object.content_type,
            object.filename,
            object.upload,
        ];
        if doomed_at.is_some() {
            sealed::execute(&mut *self.connection.prepare_cached(DOOM)?, Table::Object, columns)?;
            return Ok(());
        }
        let checksum = sealed::sum(Table::Object, columns)?;
        let copied_from = object.copied_from.map(u64::cast_signed);
        let rest = params![checksum, object.parts, copied_from, object.checksums.as_deref()];
        self.connection.prepare_cached(PUT_OBJECT)?.execute(params_from_iter(columns.iter().chain(rest)))?;
        Ok(())
    }

    pub(super) fn record_inspection(&mut self, key: &ObjectKey, found: &Inspection) -> Result<(), Fault> {
        let key = key.to_string();
        match found {
            Inspection::Sound(checksums) => {
                self.connection.prepare_cached(FOUND_SOUND)?.execute(params![key, &**checksums])?;
                self.dirty_pages += pages(checksums.len());
            }
            Inspection::Damaged => {
                self.connection.prepare_cached(FOUND_DAMAGED)?.execute(params![key, self.now.as_millis()])?;
            }
        }
        self.dirty_pages += 1;
        Ok(())
    }

    pub(super) fn doom(&mut self, seq: i64, doom: &Doom) -> Result<(), Fault> {
        self.doom_where(seq, |stored| {
            let is_meant = stored.kept == doom.kept && doom.role.is_none_or(|role| role == stored.object.role);
            is_meant.then_some(doom.at)
        })
    }

    /// Sets when objects of a job are deleted. One whose row is damaged stays.
    fn doom_where(&mut self, seq: i64, when: impl Fn(&Stored) -> Option<Timestamp>) -> Result<(), Fault> {
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
                self.write_object(seq, &stored.object, stored.kept, Some(at))?;
            }
        }
        Ok(())
    }

    /// The job goes, and with it all that was kept beside it; objects wait for their deletion. Who still writes one can do so
    /// for a while.
    pub(super) fn forget_kept(&mut self, seq: i64) -> Result<(), Fault> {
        self.drop_checkpoints(seq)?;
        let (at_once, later) = (self.now, self.now.plus(DOOMED_FOR));
        self.doom_where(seq, |stored| Some(if stored.kept { at_once } else { later }))
    }

    pub(super) fn doomed(&mut self, limit: usize) -> Result<Doomed, Fault> {
        let mut doomed = Doomed::default();
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut statement = self.connection.prepare_cached(DOOMED)?;
        let mut rows = statement.query([most])?;
        while let Some(row) = rows.next()? {
            let stored = match stored(row) {
                Ok(stored) => stored,
                // What its row says is not believed: an object is deleted only if that was wanted.
                Err(error) => {
                    self.note_damage(&error);
                    continue;
                }
            };
            let at = stored.doomed_at.unwrap_or_default();
            if at > self.now || doomed.objects.len() >= limit {
                doomed.next = Some(at);
                break;
            }
            doomed.objects.push((stored.object.key, stored.object.upload));
        }
        Ok(doomed)
    }

    /// One whose row is damaged stays as it is: what the row says is not believed.
    pub(super) fn postpone_objects(&mut self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Fault> {
        for key in keys {
            let mut statement = self.connection.prepare_cached(DOOMED_ONE)?;
            let mut rows = statement.query([key.to_string()])?;
            let Some(row) = rows.next()? else {
                continue;
            };
            let (seq, stored) = (row.get(1)?, stored(row));
            match stored {
                Ok(stored) => self.write_object(seq, &stored.object, stored.kept, Some(until))?,
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
    SELECT seq, schema_version, at, run, attempt, data, object, checksum FROM checkpoint WHERE seq = ?1";
const SECTION_NAMES: &str = "SELECT name FROM section WHERE job = ?1 ORDER BY name LIMIT 10000";
const SECTIONS: &str = "
    SELECT job, name, at, body, checksum FROM section WHERE job = ?1 AND name > ?2 ORDER BY name LIMIT ?3";
const SECTION: &str = "SELECT job, name, at, body, checksum FROM section WHERE job = ?1 AND name = ?2";
const OBJECTS: &str = "
    SELECT key, job, role, kept, doomed_at, length, sha256, content_type, filename, upload, checksum, downloads, parts,
           copied_from, checksums, damaged_at
    FROM object INDEXED BY object_job
    WHERE job = ?1
    ORDER BY doomed_at IS NOT NULL, key DESC
    LIMIT ?2";
const DOWNLOADS: &str = "SELECT downloads FROM result WHERE seq = ?1";
const RESULT: &str = "SELECT seq, body, checksum, downloads FROM result WHERE seq = ?1";

impl Reader<'_> {
    pub(super) fn kept(&self, reach: &Reach, id: JobId) -> Result<Option<Kept>, Error> {
        self.row_of(reach, id)?.map(|record| self.kept_of(&record)).transpose()
    }

    pub(super) fn kept_of(&self, record: &Record) -> Result<Kept, Error> {
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
                Some(Checkpoint { data: Data::Object(Arc::new(object.object)), ..checkpoint })
            }
        };
        let headway = record.job.headway;
        if headway.has_checkpoint && checkpoint.is_none() || headway.has_sections && sections.is_empty() {
            return Err(Error::Corrupt(format!("job row {seq}: what was saved for it is lost")));
        }
        Ok(Kept { checkpoint, sections })
    }

    /// What is known of the result without reading it.
    pub(super) fn result_detail(&self, record: &Record) -> Result<Option<ResultDetail>, Error> {
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
            .find(Stored::is_result)
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

    pub(super) fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<Stored>>, Error> {
        self.seq(reach, id)?.map(|seq| self.objects_of(seq)).transpose()
    }

    fn objects_of(&self, seq: i64) -> Result<Vec<Stored>, Error> {
        let mut statement = self.connection.prepare_cached(OBJECTS).map_err(unreadable)?;
        let most = i64::try_from(OBJECTS_MAX).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![seq, most], |row| Ok(stored(row))).map_err(unreadable)?;
        let mut objects = Vec::new();
        for row in rows {
            objects.push(row.map_err(unreadable)??);
        }
        Ok(objects)
    }

    pub(super) fn result(&self, reach: &Reach, id: JobId) -> Result<Option<Inline>, Error> {
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

fn inline(row: &Row<'_>) -> Result<Inline, Error> {
    verify(Table::Result, row, 0..2, 2)?;
    let body: String = row.get(1).map_err(unreadable)?;
    Ok(Inline { body: body.into(), downloads: row.get::<_, i64>(3).map_err(unreadable)?.cast_unsigned() })
}

/// A checkpoint, and the key of its object if it has one.
fn checkpoint(row: &Row<'_>) -> Result<(Checkpoint, Option<ObjectKey>), Error> {
    verify(Table::Checkpoint, row, 0..7, 7)?;
    let data: Option<String> = row.get(5).map_err(unreadable)?;
    let object: Option<String> = row.get(6).map_err(unreadable)?;
    let checkpoint = Checkpoint {
        schema_version: row.get(1).map_err(unreadable)?,
        at: Timestamp::from_millis(row.get(2).map_err(unreadable)?),
        replays: row.get::<_, u32>(3).map_err(unreadable)?.saturating_sub(1),
        attempt: row.get(4).map_err(unreadable)?,
        data: Data::Inline(data.unwrap_or_default().into()),
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

fn stored(row: &Row<'_>) -> Result<Stored, Error> {
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
    let doomed_at: Option<i64> = row.get(4).map_err(unreadable)?;
    Ok(Stored {
        object,
        kept: row.get(3).map_err(unreadable)?,
        doomed_at: doomed_at.map(Timestamp::from_millis),
        downloads: row.get::<_, i64>(11).map_err(unreadable)?.cast_unsigned(),
        damaged_at: row.get::<_, Option<i64>>(15).map_err(unreadable)?.map(Timestamp::from_millis),
    })
}

fn key(text: &str) -> Result<ObjectKey, Error> {
    text.parse().map_err(|_| Error::Corrupt("key of an object".to_owned()))
}
