//! `outlast jobs watch`: follows one job until it is finished, prints each change and shows its progress. Reads the job's
//! stream, or long-polls where there is none and for `--json`. Retries while the server is unreachable, as in a restart.

use std::time::Duration;

use serde_json::Value;

use super::show::describe;
use super::{attempts, is_terminal, verdict};
use crate::client::Answer;
use crate::client::stream::Frame;
use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{self, cell};
use crate::progress_bar::Screen;

/// Long-poll time: the server's maximum.
const WAIT: Duration = Duration::from_secs(30);
/// Between two tries while the server is unreachable, and after a response without a change.
const PAUSE: Duration = Duration::from_secs(1);
/// Tries in a row before giving up: a restart takes less than this many pauses.
const TRIES_MAX: u32 = 60;

pub(crate) async fn run(session: &Session, id: &str) -> Result<(), Failure> {
    let mut screen = Screen::open();
    let watched = watch(session, id, &mut screen).await;
    screen.clear()?;
    watched
}

async fn watch(session: &Session, id: &str, screen: &mut Screen) -> Result<(), Failure> {
    let streamed = if session.is_json { 0 } else { follow(session, id, screen).await? };
    let mut job = session.client.job(id, &[], Duration::ZERO).await?;
    let mut last_seq = print_change(session, &job, streamed, screen)?;
    while !is_terminal(&job.json) {
        let version = version(&job.json);
        let next = screen.redraw_during(next_answer(session, id, version)).await??;
        if self::version(&next.json) == version {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        last_seq = print_change(session, &next, last_seq, screen)?;
        job = next;
    }
    verdict(&job.json)
}

/// Prints events until the job is finished or the stream ends. Returns the number of the last event.
async fn follow(session: &Session, id: &str, screen: &mut Screen) -> Result<u64, Failure> {
    let mut last_seq = 0;
    while let Some(mut stream) = session.client.stream(id, last_seq).await {
        while let Some(frame) = screen.redraw_during(stream.next()).await? {
            let event = match frame {
                Frame::Progress(progress) => {
                    screen.progress(&progress)?;
                    continue;
                }
                Frame::End => return Ok(last_seq),
                Frame::Event(event) => event,
            };
            print_event(&event, screen)?;
            last_seq = seq(&event).max(last_seq);
        }
        tokio::time::sleep(stream.retry).await;
    }
    Ok(last_seq)
}

/// The job once it is newer than `version`, or unchanged after the wait.
async fn next_answer(session: &Session, id: &str, version: u64) -> Result<Answer, Failure> {
    let query = [("wait", format!("{}s", WAIT.as_secs())), ("version", version.to_string())];
    let mut tries = 0;
    loop {
        match session.client.job(id, &query, WAIT).await {
            Err(failure) if failure.is_temporary && tries < TRIES_MAX => {
                if tries == 0 {
                    output::note(&format!("{}; retrying", failure.message));
                }
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Prints what happened after event `last_seq` and returns the number of the last event seen.
fn print_change(session: &Session, job: &Answer, last_seq: u64, screen: &mut Screen) -> Result<u64, Failure> {
    if session.is_json {
        output::print_json_line(&job.text)?;
        return Ok(last_seq);
    }
    let mut seen = last_seq;
    for event in job.json.get("events").and_then(Value::as_array).into_iter().flatten() {
        if seq(event) > last_seq {
            print_event(event, screen)?;
            seen = seen.max(seq(event));
        }
    }
    if is_terminal(&job.json) {
        screen.clear()?;
    }
    screen.line(&format!("{}  attempts {}", cell(&job.json, "status"), attempts(&job.json)))?;
    if let Some(progress) = job.json.get("progress").filter(|progress| progress.is_object() && !is_terminal(&job.json))
    {
        screen.progress(progress)?;
    }
    Ok(seen)
}

fn print_event(event: &Value, screen: &mut Screen) -> Result<(), Failure> {
    screen.line(&format!("{}  {}  {}", cell(event, "at"), cell(event, "type"), describe(event)))
}

fn seq(event: &Value) -> u64 {
    event.get("seq").and_then(Value::as_u64).unwrap_or_default()
}

fn version(job: &Value) -> u64 {
    job.get("version").and_then(Value::as_u64).unwrap_or_default()
}
