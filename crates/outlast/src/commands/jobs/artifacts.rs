//! `outlast jobs checkpoint` and `outlast jobs sections`: shows what a worker has saved for the next attempt.

use std::path::Path;

use serde_json::Value;

use crate::age;
use crate::client::Call;
use crate::commands::Session;
use crate::failure::{Exit, Failure};
use crate::output::{self, cell, escape, show};
use crate::progress_bar::size;
use crate::table::{Cell, Column, Pairs, Table};

/// More sections than a job can have; the list is followed to its end.
const SECTIONS_MAX: usize = 100_000;

pub(crate) async fn show_checkpoint(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "jobs", id, "checkpoint"])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    let (mut pairs, now) = (Pairs::default(), age::now());
    for field in ["schemaVersion", "at", "replays", "attempt", "length", "sha256"] {
        let value = answer.json.get(field).filter(|value| !value.is_null());
        pairs.row_some(field, value.map(|value| age::stamp(value, now)));
    }
    output::print(&pairs.render(session.display))?;
    match answer.raw("data").filter(|_| !is_blob(&answer.json)) {
        Some(data) => output::print(&format!("\n{}\n", escape(&data))),
        None => {
            output::note("the data is a blob; write it to a file with -o FILE");
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
    session.print_page(&page, "no sections", |page| {
        let columns =
            [Column::text("name"), Column::number("bytes"), Column::fixed("saved"), Column::fixed("at").rank(1)];
        let (mut table, now) = (Table::new(&columns), age::now());
        for section in page.values() {
            let at = section.get("at").unwrap_or(&Value::Null);
            let saved = age::relative(at, now).unwrap_or("-".to_owned());
            table.row([cell(&section, "name"), cell(&section, "length"), saved, show(at)].map(Cell::from));
        }
        table.render(session.display)
    })
}

pub(crate) async fn show_section(session: &Session, id: &str, name: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::get(&["v1", "jobs", id, "sections", name])).await?;
    output::print_json(&answer.text)
}

fn is_blob(checkpoint: &Value) -> bool {
    checkpoint.get("blobUrl").is_some_and(|url| !url.is_null())
}
