//! How long-running work looks on the wire: progress, checkpoints, sections. Saved work is sent byte for byte,
//! so that big numbers are not rounded.

use std::fmt::Write;

use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::object::digest_text;
use outlast_core::{JobId, Progress, Timestamp};
use outlast_store::artifacts::Artifacts;
use serde_json::json;

/// Written by hand, since workers report often.
pub(crate) fn progress(out: &mut String, progress: &Progress) {
    let report = &progress.report;
    out.push('{');
    put(out, "pct", report.pct);
    put_text(out, "stage", report.stage.as_deref());
    put(out, "stagePct", report.stage_pct);
    put(out, "stagesDone", report.stages_done);
    put(out, "stagesTotal", report.stages_total);
    put(out, "itemsDone", report.items_done);
    put(out, "itemsTotal", report.items_total);
    put_text(out, "message", report.message.as_deref());
    put_time(out, "startedAt", Some(progress.started_at));
    put_time(out, "at", Some(progress.at));
    put_time(out, "eta", progress.eta);
    out.pop();
    out.push('}');
}

pub(crate) fn accepted_progress(id: JobId, said: &Progress) -> String {
    let mut out = String::with_capacity(320);
    let _ = write!(out, "{{\"id\":\"{id}\",\"accepted\":true,\"progress\":");
    progress(&mut out, said);
    out.push('}');
    out
}

fn put(out: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    let _ = match value {
        Some(value) => write!(out, "\"{name}\":{value},"),
        None => write!(out, "\"{name}\":null,"),
    };
}

fn put_text(out: &mut String, name: &str, text: Option<&str>) {
    let _ = write!(out, "\"{name}\":{},", json!(text));
}

fn put_time(out: &mut String, name: &str, at: Option<Timestamp>) {
    let _ = match at {
        Some(at) => write!(out, "\"{name}\":\"{at}\","),
        None => write!(out, "\"{name}\":null,"),
    };
}

/// A checkpoint with its data, or with where its data is.
pub(crate) fn checkpoint(base: &str, id: JobId, checkpoint: &Checkpoint) -> String {
    let (data, url, sha256) = match &checkpoint.data {
        CheckpointData::Inline(text) => (&**text, None, None),
        CheckpointData::Object(object) => {
            ("null", Some(format!("{base}/v1/jobs/{id}/checkpoint/blob")), Some(digest_text(&object.sha256)))
        }
    };
    format!(
        "{{\"schemaVersion\":{},\"data\":{data},\"length\":{},\"at\":\"{}\",\"replays\":{},\"attempt\":{},\"blobUrl\":{},\
         \"sha256\":{}}}",
        checkpoint.schema_version,
        checkpoint.length(),
        checkpoint.at,
        checkpoint.replays,
        checkpoint.attempt,
        json!(url),
        json!(sha256),
    )
}

/// Its metadata, without the data.
pub(crate) fn checkpoint_meta(kept: &Artifacts) -> serde_json::Value {
    let checkpoint = kept.checkpoint.as_ref();
    json!({
        "schemaVersion": checkpoint.map(|checkpoint| checkpoint.schema_version),
        "length": checkpoint.map(Checkpoint::length),
        "at": checkpoint.map(|checkpoint| checkpoint.at.to_string()),
        "attempt": checkpoint.map(|checkpoint| checkpoint.attempt),
        "sections": kept.sections.len(),
    })
}

pub(crate) fn section(out: &mut String, section: &Section) {
    let _ = write!(
        out,
        "{{\"name\":{},\"at\":\"{}\",\"length\":{},\"value\":{}}}",
        json!(section.name),
        section.at,
        section.body.len(),
        section.body
    );
}
