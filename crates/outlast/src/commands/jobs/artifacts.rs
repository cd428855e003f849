//! `outlast jobs checkpoint` and `outlast jobs sections`: shows what a worker has saved for the next attempt.

use std::path::Path;

use serde_json::Value;

use crate::client::Call;
use crate::commands::Session;
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, cell, escape};
use crate::progress_bar::size;

/// More sections than a job can have; the list is followed to its end.
const SECTIONS_MAX: usize = 100_000;

pub(crate) async fn show_checkpoint(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "jobs", id, "checkpoint"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let mut table = Table::bare();
    for field in ["schemaVersion", "at", "replays", "attempt", "length", "sha256"] {
        table.row(&[field.to_owned(), cell(&answer.json, field)]);
    }
    output::print(&table.render())?;
    match answer.raw("data").filter(|_| !is_blob(&answer.json)) {
        Some(data) => output::print(&format!("\n{}\n", escape(&data))),
        None => {
            output::note("its data is a blob; write it to a file with -o FILE");
            Ok(())
        }
    }
}

/// Writes the checkpoint's data, without its metadata.
pub(crate) async fn write_checkpoint(session: &Session, id: &str, file: &Path) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "jobs", id, "checkpoint"])).await?;
    match answer.raw("data").filter(|_| !is_blob(&answer.json)) {
        Some(data) => std::fs::write(file, data)
            .map_err(|error| Failure::new(Exit::Refused, format!("{}: {error}", file.display())))?,
        None => session.client.fetch(Call::get(&["v1", "jobs", id, "checkpoint", "blob"]), file).await?,
    }
    let length = answer.json.get("length").and_then(Value::as_u64).map(size).unwrap_or_default();
    output::note(&format!("{}: schema version {}, {length}", file.display(), cell(&answer.json, "schemaVersion")));
    Ok(())
}

pub(crate) async fn list_sections(session: &Session, id: &str) -> Result<(), Failure> {
    let page = session.client.list(&["v1", "jobs", id, "sections"], &[], None, SECTIONS_MAX).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    if page.items.is_empty() {
        return output::print("no sections\n");
    }
    let mut table = Table::new(&["name", "saved", "bytes"]);
    table.align_right(2);
    for section in page.values() {
        table.row(&[cell(&section, "name"), cell(&section, "at"), cell(&section, "length")]);
    }
    output::print(&table.render())
}

pub(crate) async fn show_section(session: &Session, id: &str, name: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "jobs", id, "sections", name])).await?;
    output::print_json(&answer.text)
}

fn is_blob(checkpoint: &Value) -> bool {
    checkpoint.get("blobUrl").is_some_and(|url| !url.is_null())
}
