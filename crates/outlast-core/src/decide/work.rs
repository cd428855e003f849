//! While the work goes on: heartbeats, progress, checkpoints, sections, output, uploads. Only the holder of the lease may
//! say any of it, and none of it moves the job.

use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, Doom, Effect, OUTPUT_BYTES_MAX, Refusal};
use crate::checkpoint::{Checkpoint, Data, Section};
use crate::event::EventKind;
use crate::ids::Lease;
use crate::object::{Object, Role};
use crate::progress::Progress;
use crate::state::{Directives, ResultMeta, Running, State};

use super::draft::Draft;
use super::holder;

pub(super) fn heartbeat(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    extend: Option<Duration>,
    (progress, checkpoint): (Option<Arc<Progress>>, Option<Arc<Checkpoint>>),
) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.heartbeat_at = Some(draft.now);
    // Never shortens a lease: a worker that heartbeats early must not lose time it already has.
    running.expires_at = running.expires_at.max(draft.now.plus(extend.unwrap_or(running.extension)));
    if let Some(progress) = &progress {
        take_progress(&mut draft, &mut running, progress);
    }
    if let Some(checkpoint) = checkpoint {
        keep_checkpoint(&mut draft, &mut running, checkpoint);
    }
    Ok(go_on(draft, running))
}

pub(super) fn progress(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    progress: &Arc<Progress>,
) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    take_progress(&mut draft, &mut running, progress);
    Ok(go_on(draft, running))
}

/// A checkpoint proves life, but only a heartbeat extends the lease.
pub(super) fn checkpoint(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    checkpoint: Arc<Checkpoint>,
    progress: Option<Arc<Progress>>,
) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    if let Some(progress) = &progress {
        take_progress(&mut draft, &mut running, progress);
    }
    keep_checkpoint(&mut draft, &mut running, checkpoint);
    Ok(go_on(draft, running))
}

pub(super) fn section(mut draft: Draft<'_>, lease: Option<Lease>, section: Arc<Section>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.work.is_stalled = false;
    let section = Arc::new(Section { at: draft.now, ..Section::clone(&section) });
    draft.job.headway.has_sections = true;
    draft.job.headway.moved_at = Some(draft.now);
    draft.event(EventKind::Checkpoint {
        schema_version: 0,
        section: Some(section.name.clone()),
        length: u64::try_from(section.body.len()).unwrap_or(u64::MAX),
    });
    draft.effect(Effect::KeepSection(section));
    Ok(go_on(draft, running))
}

pub(super) fn output(mut draft: Draft<'_>, lease: Option<Lease>, text: Arc<str>) -> Result<Change, Refusal> {
    let running = holder(&draft, lease)?;
    let bytes = draft.job.headway.output_bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Refusal::OutputFull);
    }
    draft.job.headway.output_bytes = bytes;
    let attempt = draft.job.attempt;
    draft.event(EventKind::Output { attempt, text });
    Ok(go_on(draft, running))
}

pub(super) fn upload(mut draft: Draft<'_>, lease: Option<Lease>, object: Arc<Object>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.work.has_uploads = true;
    draft.effect(Effect::Expect(object));
    Ok(go_on(draft, running))
}

/// A later upload of the same hand-out takes the place of an earlier one.
pub(super) fn finalize(mut draft: Draft<'_>, lease: Option<Lease>, object: Arc<Object>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.upload = Some(ResultMeta { length: object.length, inline: false });
    if std::mem::replace(&mut draft.job.headway.has_upload, true) {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Result), kept: true, at: draft.now }));
    }
    draft.effect(Effect::Keep(object));
    Ok(go_on(draft, running))
}

pub(super) fn direct(draft: Draft<'_>, directives: Directives) -> Result<Change, Refusal> {
    let mut running = draft.running().ok_or(Refusal::NotRunning { status: draft.job.status() })?;
    running.work.directives = directives;
    Ok(go_on(draft, running))
}

fn go_on(mut draft: Draft<'_>, running: Running) -> Change {
    draft.job.state = State::Running(running);
    draft.change()
}

/// What was known before is not forgotten: a report may come from a node that knew less.
fn take_progress(draft: &mut Draft<'_>, running: &mut Running, progress: &Arc<Progress>) {
    let known = running.work.progress.as_deref();
    let joined = known.map_or_else(|| progress.settled(), |known| progress.joined(known).settled());
    if known.is_none_or(|known| joined.has_moved_since(known)) {
        draft.job.headway.moved_at = Some(draft.now);
        running.work.is_stalled = false;
    }
    running.work.progress = Some(Arc::new(joined));
}

fn keep_checkpoint(draft: &mut Draft<'_>, running: &mut Running, checkpoint: Arc<Checkpoint>) {
    let checkpoint = Arc::new(Checkpoint {
        at: draft.now,
        run: draft.job.run,
        attempt: draft.job.attempt,
        ..Checkpoint::clone(&checkpoint)
    });
    running.work.directives.checkpoint_now = false;
    let has_earlier = std::mem::replace(&mut draft.job.headway.has_checkpoint, true);
    draft.event(EventKind::Checkpoint {
        schema_version: checkpoint.schema_version,
        section: None,
        length: checkpoint.length(),
    });
    if has_earlier {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Checkpoint), kept: true, at: draft.now }));
    }
    if let Data::Object(object) = &checkpoint.data {
        draft.effect(Effect::Keep(Arc::clone(object)));
    }
    draft.effect(Effect::KeepCheckpoint(checkpoint));
}
