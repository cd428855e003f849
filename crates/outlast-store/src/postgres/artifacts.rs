//! Data beside a job: checkpoint, sections, objects. Written with the transaction's other writes, one statement per
//! table; read by single statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::change::ScheduledDelete;
use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::{Job, JobId, Object, ObjectKey, Role, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::WriteBatch;
use super::queue_cache::queue_columns;
use super::read::{self, AFTER_QUEUE, ReadView};
use super::rows::{Cell, cells, get, job_columns, row_sum, text_sum, verify};
use super::session::Sql;
use super::shared::StoreContext;
use super::transact::{Fault, Tx};
use crate::artifacts::{Artifacts, DueDeletions, InlineResult, OBJECTS_MAX, ObjectInspection, StoredObject};
use crate::checksum::Table;
use crate::codec::events::code;
use crate::error::Error;
use crate::job_detail::{ResultDetail, has_inline_result};
use crate::jobs::Reach;
use crate::page::{EncodedSize, PAGE_BYTES_MAX, PageSize};

/// The artifacts that a transaction will write.
#[derive(Debug, Default)]
pub(super) struct ArtifactWrites {
    checkpoints: BTreeMap<i64, Arc<Checkpoint>>,
    sections: BTreeMap<(i64, Box<str>), Arc<Section>>,
    /// Jobs whose checkpoint and sections go, before the ones above come.
    dropped: Vec<i64>,
    objects: BTreeMap<ObjectKey, PendingObject>,
    /// For objects that are in the database already.
    dooms: Vec<(i64, ScheduledDelete)>,
}

/// An object that this transaction brings, as it will stand in the end.
#[derive(Debug)]
struct PendingObject {
    seq: i64,
    object: Arc<Object>,
    attached: bool,
    delete_after: Option<Timestamp>,
}

impl ArtifactWrites {
    pub(super) fn keep_checkpoint(&mut self, seq: i64, checkpoint: Arc<Checkpoint>) {
        self.checkpoints.insert(seq, checkpoint);
    }

    pub(super) fn keep_section(&mut self, seq: i64, section: Arc<Section>) {
        self.sections.insert((seq, section.name.clone()), section);
    }

    /// The sections of a job that this transaction has saved.
    pub(super) fn section_names(&self, seq: i64) -> impl Iterator<Item = &str> {
        let of_job = self.sections.range((seq, Box::from(""))..).take_while(move |((job, _), _)| *job == seq);
        of_job.map(|((_, name), _)| &**name)
    }

    pub(super) fn drop_checkpoints(&mut self, seq: i64) {
        self.checkpoints.remove(&seq);
        self.sections.retain(|(job, _), _| *job != seq);
        self.dropped.push(seq);
    }

    pub(super) fn put_object(&mut self, seq: i64, object: Arc<Object>, attached: bool) {
        self.objects.insert(object.key, PendingObject { seq, object, attached, delete_after: None });
    }

    /// Concerns what is in the database, and what this transaction has brought before.
    pub(super) fn schedule_delete(&mut self, seq: i64, schedule_delete: ScheduledDelete) {
        let is_meant = |pending: &PendingObject| {
            let role_fits = schedule_delete.role.is_none_or(|role| role == pending.object.role);
            pending.seq == seq
                && pending.attached == schedule_delete.attached
                && role_fits
                && pending.delete_after.is_none()
        };
        self.objects.values_mut().filter(|pending| is_meant(pending)).for_each(|pending| {
            pending.delete_after = Some(schedule_delete.at);
        });
        self.dooms.push((seq, schedule_delete));
    }
}

impl ArtifactWrites {
    pub(super) fn add_to<'w>(&'w self, batch: &mut WriteBatch<'w>) {
        self.dropped.iter().for_each(|seq| batch.push(&DROP_CHECKPOINTS, cells![*seq]));
        for (seq, Checkpoint { schema_version, at, replays, attempt, data }) in
            self.checkpoints.iter().map(|(seq, checkpoint)| (*seq, &**checkpoint))
        {
            let (data, object) = match data {
                CheckpointData::Inline(text) => (Some(&**text), None),
                CheckpointData::Object(object) => (None, Some(object.key.to_string())),
            };
            let numbers = [at.as_millis(), (*replays).into(), (*attempt).into()];
            let sum = checkpoint_sum(seq, (*schema_version).into(), numbers, data, object.as_deref());
            let (replays, attempt) = (replays.cast_signed(), attempt.cast_signed());
            let row = cells![seq, *schema_version, at.as_millis(), replays, attempt, data, object, sum];
            batch.push(&KEEP_CHECKPOINTS, row);
        }
        for ((seq, name), section) in &self.sections {
            let (at, body) = (section.at.as_millis(), &*section.body);
            batch.push(&KEEP_SECTIONS, cells![*seq, &**name, at, body, section_sum(*seq, name, at, body)]);
        }
        for (seq, schedule_delete) in &self.dooms {
            let role = schedule_delete.role.map(|role| code(&Role::ALL, role));
            batch.push(&SCHEDULE_DELETE, cells![*seq, schedule_delete.attached, role, schedule_delete.at.as_millis()]);
        }
        for PendingObject { seq, object, attached, delete_after } in self.objects.values() {
            let row = cells![
                object.key.to_string(),
                *seq,
                code(&Role::ALL, object.role),
                *attached,
                delete_after.map(Timestamp::as_millis),
                object.length.cast_signed(),
                object.sha256.as_slice(),
                object.content_type.as_deref(),
                object.filename.as_deref(),
                object.upload.as_deref(),
                object.parts,
                object.copied_from.map(u64::cast_signed),
                object.checksums.as_deref(),
                object_sum(object),
            ];
            batch.push(&PUT_OBJECTS, row);
        }
    }
}

const I8: Type = Type::INT8_ARRAY;
const I4: Type = Type::INT4_ARRAY;
const I2: Type = Type::INT2_ARRAY;
const BOOL: Type = Type::BOOL_ARRAY;
const BYTES: Type = Type::BYTEA_ARRAY;
const TEXT: Type = Type::TEXT_ARRAY;

pub(super) static DROP_CHECKPOINTS: Sql = Sql {
    text: "
        WITH sections AS (DELETE FROM section WHERE job = ANY ($1))
        DELETE FROM checkpoint WHERE seq = ANY ($1)",
    types: &[I8],
};
pub(super) static KEEP_CHECKPOINTS: Sql = Sql {
    text: "
        INSERT INTO checkpoint (seq, schema_version, at, replays, attempt, data, object, checksum)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (seq) DO UPDATE
        SET schema_version = excluded.schema_version, at = excluded.at, replays = excluded.replays,
            attempt = excluded.attempt, data = excluded.data, object = excluded.object, checksum = excluded.checksum",
    types: &[I8, I8, I8, I4, I4, TEXT, TEXT, I4],
};
pub(super) static KEEP_SECTIONS: Sql = Sql {
    text: "
        INSERT INTO section (job, name, at, body, checksum)
        SELECT * FROM unnest($1, $2, $3, $4, $5)
        ON CONFLICT (job, name) DO UPDATE SET at = excluded.at, body = excluded.body, checksum = excluded.checksum",
    types: &[I8, TEXT, I8, TEXT, I4],
};
/// Several for one job: the earliest counts.
pub(super) static SCHEDULE_DELETE: Sql = Sql {
    text: "
        UPDATE object
        SET delete_after = schedule_delete.at
        FROM (
            SELECT job, attached, role, min(at) AS at
            FROM unnest($1, $2, $3, $4) AS one (job, attached, role, at)
            GROUP BY job, attached, role
        ) AS schedule_delete
        WHERE object.job = schedule_delete.job AND object.attached = schedule_delete.attached AND object.delete_after IS NULL
            AND (schedule_delete.role IS NULL OR object.role = schedule_delete.role)",
    types: &[I8, BOOL, I2, I8],
};
pub(super) static PUT_OBJECTS: Sql = Sql {
    text: "
        INSERT INTO object (key, job, role, attached, delete_after, length, sha256, content_type, filename, upload, parts,
                            copied_from, checksums, checksum)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        ON CONFLICT (key) DO UPDATE
        SET attached = excluded.attached, delete_after = excluded.delete_after, length = excluded.length, sha256 = excluded.sha256,
            content_type = excluded.content_type, filename = excluded.filename, upload = excluded.upload,
            parts = excluded.parts, copied_from = excluded.copied_from, checksums = excluded.checksums,
            damaged_at = NULL, checksum = excluded.checksum",
    types: &[TEXT, I8, I2, BOOL, I8, I8, BYTES, TEXT, TEXT, TEXT, I4, I8, BYTES, I4],
};

macro_rules! object_columns {
    () => {
        "object.key, object.role, object.attached, object.delete_after, object.length, object.sha256, object.content_type,
         object.filename, object.upload, object.downloads, object.parts, object.copied_from, object.checksums,
         object.damaged_at, object.checksum"
    };
}

static KEPT: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text, ",
        queue_columns!(),
        ", ARRAY(SELECT name FROM section WHERE section.job = job.seq ORDER BY name LIMIT 10000),
          checkpoint.schema_version, checkpoint.at, checkpoint.replays, checkpoint.attempt, checkpoint.data,
          checkpoint.object, checkpoint.checksum, ",
        object_columns!(),
        " FROM job
          CROSS JOIN LATERAL (SELECT * FROM queue WHERE queue.id = job.queue OFFSET 0) AS queue
          LEFT JOIN checkpoint ON checkpoint.seq = job.seq
          LEFT JOIN object ON object.key = checkpoint.object
          WHERE job.seq = $1"
    ),
    types: &[Type::INT8],
};
/// The lengths are found without reading the bodies.
static SECTIONS: Sql = Sql {
    text: "
        SELECT job, name, at, body, checksum
        FROM (
            SELECT job, name, at, body, checksum,
                sum(octet_length(body)) OVER (ORDER BY name) - octet_length(body) AS bytes_before
            FROM section
            WHERE job = $1 AND name > $2
            ORDER BY name
            LIMIT $3
        ) AS page
        WHERE bytes_before < $4
        ORDER BY name",
    types: &[Type::INT8, Type::TEXT, Type::INT8, Type::INT8],
};
static SECTION: Sql = Sql {
    text: "SELECT job, name, at, body, checksum FROM section WHERE job = $1 AND name = $2",
    types: &[Type::INT8, Type::TEXT],
};
static OBJECTS: Sql = Sql {
    text: concat!(
        "SELECT ",
        object_columns!(),
        " FROM object WHERE job = $1 ORDER BY delete_after IS NOT NULL, key DESC LIMIT $2"
    ),
    types: &[Type::INT8, Type::INT8],
};
static DOWNLOADS: Sql = Sql { text: "SELECT downloads FROM result WHERE seq = $1", types: &[Type::INT8] };
static RESULT: Sql = Sql { text: "SELECT body, downloads, checksum FROM result WHERE seq = $1", types: &[Type::INT8] };
static DUE_DELETIONS: Sql = Sql {
    text: "SELECT key, upload, delete_after FROM object WHERE delete_after IS NOT NULL ORDER BY delete_after LIMIT $1",
    types: &[Type::INT8],
};
static POSTPONE: Sql = Sql {
    text: "UPDATE object SET delete_after = $2 WHERE key = ANY ($1) AND delete_after IS NOT NULL",
    types: &[Type::TEXT_ARRAY, Type::INT8],
};
static FORGET: Sql =
    Sql { text: "DELETE FROM object WHERE key = ANY ($1) AND delete_after IS NOT NULL", types: &[Type::TEXT_ARRAY] };
static FOUND_SOUND: Sql = Sql {
    text: "UPDATE object SET damaged_at = NULL, checksums = $2 WHERE key = $1",
    types: &[Type::TEXT, Type::BYTEA],
};
static FOUND_DAMAGED: Sql =
    Sql { text: "UPDATE object SET damaged_at = $2 WHERE key = $1", types: &[Type::TEXT, Type::INT8] };
static COUNT_INLINE: Sql =
    Sql { text: "UPDATE result SET downloads = downloads + 1 WHERE seq = $1", types: &[Type::INT8] };
static COUNT_OBJECT: Sql = Sql {
    text: "UPDATE object SET downloads = downloads + 1 WHERE job = $1 AND role = $2 AND attached",
    types: &[Type::INT8, Type::INT2],
};

/// First column of a checkpoint in [`KEPT`], and of its object.
const CHECKPOINT: usize = AFTER_QUEUE + 1;
const CHECKPOINT_OBJECT: usize = CHECKPOINT + 7;

pub(super) async fn artifacts(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
    let Some((row, record, _)) = read::find(look, &KEPT, reach, id, &[]).await? else {
        return Ok(None);
    };
    let sections: Vec<Box<str>> = get::<Vec<&str>>(&row, AFTER_QUEUE)?.into_iter().map(Into::into).collect();
    let checkpoint = checkpoint(&row, record.seq)?;
    let work_summary = record.job.work_summary;
    if work_summary.has_checkpoint && checkpoint.is_none() || work_summary.has_sections && sections.is_empty() {
        return Err(Error::Corrupt(format!("job row {}: what was saved for it is lost", record.seq)));
    }
    Ok(Some(Artifacts { checkpoint, sections }))
}

fn checkpoint(row: &Row, seq: i64) -> Result<Option<Checkpoint>, Error> {
    let Some(schema_version) = get::<Option<i64>>(row, CHECKPOINT)? else {
        return Ok(None);
    };
    let numbers =
        [get(row, CHECKPOINT + 1)?, get::<i32>(row, CHECKPOINT + 2)?.into(), get::<i32>(row, CHECKPOINT + 3)?.into()];
    let sum = checkpoint_sum(seq, schema_version, numbers, get(row, CHECKPOINT + 4)?, get(row, CHECKPOINT + 5)?);
    verify(Table::Checkpoint, &seq.to_string(), get(row, CHECKPOINT + 6)?, sum)?;
    let data = match get::<Option<&str>>(row, CHECKPOINT + 4)? {
        Some(text) => CheckpointData::Inline(text.into()),
        None => CheckpointData::Object(Arc::new(stored(row, CHECKPOINT_OBJECT)?.object)),
    };
    Ok(Some(Checkpoint {
        schema_version: u32::try_from(schema_version)
            .map_err(|_| Error::Corrupt("schema_version of a checkpoint".to_owned()))?,
        at: Timestamp::from_millis(get(row, CHECKPOINT + 1)?),
        replays: get::<i32>(row, CHECKPOINT + 2)?.cast_unsigned(),
        attempt: get::<i32>(row, CHECKPOINT + 3)?.cast_unsigned(),
        data,
    }))
}

pub(super) async fn sections(
    look: &ReadView<'_>,
    reach: &Reach,
    id: JobId,
    after: Option<&str>,
    limit: usize,
) -> Result<Option<Vec<Section>>, Error> {
    let Some(seq) = read::seq(look, reach, id).await? else {
        return Ok(None);
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bytes_max = i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX);
    let (mut sections, mut size) = (Vec::new(), PageSize::default());
    for row in &look.read(&SECTIONS, &[&seq, &after.unwrap_or_default(), &limit, &bytes_max]).await? {
        let section = a_section(row)?;
        size.add(section.written());
        sections.push(section);
        if size.is_full() {
            break;
        }
    }
    Ok(Some(sections))
}

pub(super) async fn section(
    look: &ReadView<'_>,
    reach: &Reach,
    id: JobId,
    name: &str,
) -> Result<Option<Section>, Error> {
    let Some(seq) = read::seq(look, reach, id).await? else {
        return Ok(None);
    };
    look.read(&SECTION, &[&seq, &name]).await?.first().map(a_section).transpose()
}

fn a_section(row: &Row) -> Result<Section, Error> {
    let (job, name): (i64, &str) = (get(row, 0)?, get(row, 1)?);
    let (at, body): (i64, &str) = (get(row, 2)?, get(row, 3)?);
    verify(Table::Section, &job.to_string(), get(row, 4)?, section_sum(job, name, at, body))?;
    Ok(Section { name: name.into(), at: Timestamp::from_millis(at), body: body.into() })
}

pub(super) async fn objects(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
    match read::seq(look, reach, id).await? {
        Some(seq) => objects_of(look, seq).await.map(Some),
        None => Ok(None),
    }
}

async fn objects_of(look: &ReadView<'_>, seq: i64) -> Result<Vec<StoredObject>, Error> {
    let most = i64::try_from(OBJECTS_MAX).unwrap_or(i64::MAX);
    look.read(&OBJECTS, &[&seq, &most]).await?.iter().map(|row| stored(row, 0)).collect()
}

fn stored(row: &Row, from: usize) -> Result<StoredObject, Error> {
    let corrupt = |column: &str| Error::Corrupt(format!("{column} of an object"));
    let role = usize::try_from(get::<i16>(row, from + 1)?).map_err(|_| corrupt("role"))?;
    let text = |at: usize| get::<Option<&str>>(row, from + at).map(|text| text.map(Into::into));
    let object = Object {
        key: get::<&str>(row, from)?.parse().map_err(|_| corrupt("key"))?,
        role: *Role::ALL.get(role).ok_or_else(|| corrupt("role"))?,
        length: get::<i64>(row, from + 4)?.cast_unsigned(),
        sha256: get::<&[u8]>(row, from + 5)?.try_into().map_err(|_| corrupt("sha256"))?,
        content_type: text(6)?,
        filename: text(7)?,
        upload: text(8)?,
        parts: u16::try_from(get::<i32>(row, from + 10)?).map_err(|_| corrupt("parts"))?,
        copied_from: get::<Option<i64>>(row, from + 11)?.map(i64::cast_unsigned),
        checksums: get::<Option<&[u8]>>(row, from + 12)?.map(Into::into),
    };
    verify(Table::Object, &object.key.to_string(), get(row, from + 14)?, object_sum(&object))?;
    Ok(StoredObject {
        object,
        attached: get(row, from + 2)?,
        delete_after: get::<Option<i64>>(row, from + 3)?.map(Timestamp::from_millis),
        downloads: get::<i64>(row, from + 9)?.cast_unsigned(),
        damaged_at: get::<Option<i64>>(row, from + 13)?.map(Timestamp::from_millis),
    })
}

pub(super) async fn result(look: &ReadView<'_>, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
    let Some((_, record, _)) = read::reached(look, reach, id).await? else {
        return Ok(None);
    };
    let seq = record.seq;
    let rows = look.read(&RESULT, &[&seq]).await?;
    let inline = |row: &Row| -> Result<InlineResult, Error> {
        let body: &str = get(row, 0)?;
        verify(Table::Result, &seq.to_string(), get(row, 2)?, text_sum(Table::Result, seq, body))?;
        Ok(InlineResult { body: body.into(), downloads: get::<i64>(row, 1)?.cast_unsigned() })
    };
    let found = rows.first().map(inline).transpose()?;
    if has_inline_result(&record.job) && found.is_none() {
        return Err(lost_result(seq));
    }
    Ok(found)
}

/// Facts about the result, without reading it.
pub(super) async fn result_detail(look: &ReadView<'_>, seq: i64, job: &Job) -> Result<Option<ResultDetail>, Error> {
    if has_inline_result(job) {
        let rows = look.read(&DOWNLOADS, &[&seq]).await?;
        let downloads = rows.first().map(|row| get::<i64>(row, 0)).transpose()?.ok_or_else(|| lost_result(seq))?;
        return Ok(Some(ResultDetail::Inline { downloads: downloads.cast_unsigned() }));
    }
    if !job.has_uploaded_result() {
        return Ok(None);
    }
    Ok(objects_of(look, seq)
        .await?
        .into_iter()
        .find(StoredObject::is_result)
        .map(|stored| ResultDetail::Object(Box::new(stored))))
}

fn lost_result(seq: i64) -> Error {
    Error::Corrupt(format!("job row {seq}: its result is lost"))
}

fn section_sum(job: i64, name: &str, at: i64, body: &str) -> i32 {
    row_sum(Table::Section, &cells![job, name, at, body])
}

fn checkpoint_sum(
    seq: i64,
    schema_version: i64,
    [at, replays, attempt]: [i64; 3],
    data: Option<&str>,
    object: Option<&str>,
) -> i32 {
    row_sum(Table::Checkpoint, &cells![seq, schema_version, at, replays, attempt, data, object])
}

/// Not what changes: whether it is kept, when it is deleted, and how often it was read.
fn object_sum(object: &Object) -> i32 {
    let (role, length) = (code(&Role::ALL, object.role), object.length.cast_signed());
    let (kind, filename, upload) =
        (object.content_type.as_deref(), object.filename.as_deref(), object.upload.as_deref());
    let row = cells![object.key.to_string(), role, length, object.sha256.as_slice(), kind, filename, upload];
    row_sum(Table::Object, &row)
}

pub(super) async fn count_download(seq: i64, tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.begin_write().await?;
    tx.session.execute(&COUNT_INLINE, &[&seq]).await?;
    let role = i16::from(code(&Role::ALL, Role::Result));
    tx.session.execute(&COUNT_OBJECT, &[&seq, &role]).await?;
    Ok(())
}

pub(super) async fn record_inspection(key: &str, found: &ObjectInspection, tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.begin_write().await?;
    match found {
        ObjectInspection::Sound(checksums) => tx.session.execute(&FOUND_SOUND, &[&key, &&**checksums]).await?,
        ObjectInspection::Damaged => tx.session.execute(&FOUND_DAMAGED, &[&key, &tx.now.as_millis()]).await?,
    };
    Ok(())
}

pub(super) async fn due_deletions(shared: &Arc<StoreContext>, limit: usize) -> Result<DueDeletions, Error> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut doomed = DueDeletions::default();
    let now = shared.now();
    for row in shared.read(&DUE_DELETIONS, &[&most]).await? {
        let at = Timestamp::from_millis(get(&row, 2)?);
        if at > now || doomed.objects.len() >= limit {
            doomed.next = Some(at);
            break;
        }
        let key: ObjectKey =
            get::<&str>(&row, 0)?.parse().map_err(|_| Error::Corrupt("key of an object".to_owned()))?;
        doomed.objects.push((key, get::<Option<&str>>(&row, 1)?.map(Into::into)));
    }
    Ok(doomed)
}

pub(super) async fn forget_objects(keys: &[String], tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.begin_write().await?;
    tx.session.execute(&FORGET, &[&keys]).await?;
    Ok(())
}

pub(super) async fn postpone_deletions(keys: &[String], until: Timestamp, tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.begin_write().await?;
    tx.session.execute(&POSTPONE, &[&keys, &until.as_millis()]).await?;
    Ok(())
}
