//! `outlast jobs result`: downloads a job's result, inline or by the server's link. A file is written as `NAME.part`,
//! checked against the recorded length and hash, and then renamed; an interrupted download resumes.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::object::digest_text;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::client::Call;
use crate::commands::Session;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::progress_bar::{Transfer, size};

/// Tries in a row in which nothing came, before giving up, and the pause between them.
const TRIES_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// As much of a file is hashed at once.
const BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    id: String,
    /// File to write; - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

/// The length and hash that the server has recorded.
struct Recorded {
    length: Option<u64>,
    sha256: Option<String>,
}

/// How an answer goes on.
enum Source {
    /// It is the result itself, and this is its text.
    Inline(String),
    /// The bytes from `offset` on.
    Bytes { response: Response, offset: u64 },
}

pub(crate) async fn run(session: &Session, args: &Args) -> Result<(), Failure> {
    let job = session.client.job(&args.id, &[], Duration::ZERO).await?;
    let recorded = Recorded::read(job.json.get("resultMeta").unwrap_or(&Value::Null));
    if args.output == Path::new("-") {
        return to_stdout(session, &args.id, &recorded).await;
    }
    let part = part_of(&args.output);
    let mut sink = Sink::open(part.clone())?;
    fetch(session, &args.id, &mut sink, &recorded).await?;
    let (length, sha256) = (sink.length, sink.sha256());
    if let Err(failure) = recorded.check(length, &sha256) {
        // The next try must not go on from bytes that are wrong.
        let _ = std::fs::remove_file(&part);
        return Err(failure);
    }
    std::fs::rename(&part, &args.output).map_err(|error| unusable(&args.output, &error))?;
    output::note(&format!("{}: {}, sha256 {sha256}", args.output.display(), size(length)));
    Ok(())
}

async fn to_stdout(session: &Session, id: &str, recorded: &Recorded) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut response = match open(session, id, 0).await? {
        Source::Inline(text) if is_terminal => return output::print_json(&text),
        Source::Inline(text) => return output::print(&text),
        Source::Bytes { response, .. } => response,
    };
    if is_terminal {
        // Its bytes are unknown and could steer the terminal.
        return Err(Failure::usage("the result is a file")
            .with_hint("write it to a file with -o FILE, or pipe it to a program"));
    }
    let (mut length, mut hash) = (0, Sha256::new());
    while let Some(chunk) = session.client.chunk(&mut response).await? {
        hash.update(&chunk);
        length += byte_count(chunk.len());
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&chunk).map_err(|error| unusable(Path::new("stdout"), &error))?;
    }
    recorded.check(length, &digest_text(&hash.finalize()))
}

/// Fetches all that is missing in the sink. A fresh link is asked for at each try, since links are short-lived.
async fn fetch(session: &Session, id: &str, sink: &mut Sink, recorded: &Recorded) -> Result<(), Failure> {
    if recorded.length.is_some_and(|length| length <= sink.length) {
        // An earlier try has got all of it and was ended then, or this is the rest of something else.
        if recorded.check(sink.length, &sink.sha256()).is_ok() {
            return Ok(());
        }
        sink.restart()?;
    }
    let mut transfer = Transfer::of(recorded.length);
    let mut tries = 0;
    loop {
        let before = sink.length;
        let ended = fetch_once(session, id, sink, &mut transfer).await;
        let failure = match ended {
            Err(failure) if failure.is_temporary => failure,
            other => {
                transfer.end();
                return other;
            }
        };
        tries = if sink.length > before { 1 } else { tries + 1 };
        if tries > TRIES_MAX {
            transfer.end();
            return Err(failure);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn fetch_once(session: &Session, id: &str, sink: &mut Sink, transfer: &mut Transfer) -> Result<(), Failure> {
    let (mut response, offset) = match open(session, id, sink.length).await? {
        Source::Inline(text) => {
            sink.restart()?;
            return sink.write(text.as_bytes());
        }
        Source::Bytes { response, offset } => (response, offset),
    };
    if offset != sink.length {
        sink.restart()?;
    }
    while let Some(chunk) = session.client.chunk(&mut response).await? {
        sink.write(&chunk)?;
        transfer.at(sink.length);
    }
    Ok(())
}

/// Asks for the result, and follows the link where there is one.
async fn open(session: &Session, id: &str, from: u64) -> Result<Source, Failure> {
    let client = &session.client;
    let path = ["v1", "jobs", id, "result"];
    let response = client.open(Call::get(&path)).await?;
    if !response.status().is_redirection() {
        let answer = client.whole(response).await?;
        return match answer.status.is_success() {
            true => Ok(Source::Inline(answer.text)),
            false => Err(client.refusal(&answer, id)),
        };
    }
    let response = client.follow(&response, from).await?;
    match response.status() {
        StatusCode::OK => Ok(Source::Bytes { response, offset: 0 }),
        StatusCode::PARTIAL_CONTENT => Ok(Source::Bytes { response, offset: from }),
        // The partial file is as long as the result, or longer: restart.
        StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => Box::pin(open(session, id, 0)).await,
        status => {
            let is_temporary = status.is_server_error() || status == StatusCode::FORBIDDEN;
            let message = format!("the link to the result was answered with {status}");
            Err(Failure { is_temporary, ..Failure::new(Exit::Refused, message) })
        }
    }
}

impl Recorded {
    fn read(meta: &Value) -> Recorded {
        let sha256 = meta.get("sha256").and_then(Value::as_str);
        Recorded { length: meta.get("length").and_then(Value::as_u64), sha256: sha256.map(str::to_owned) }
    }

    fn check(&self, length: u64, sha256: &str) -> Result<(), Failure> {
        if self.length.is_some_and(|recorded| recorded != length) {
            let recorded = self.length.unwrap_or_default();
            let message = format!("the result has {recorded} bytes, but {length} bytes were received");
            return Err(Failure::new(Exit::Refused, message).with_hint("try again"));
        }
        if self.sha256.as_ref().is_some_and(|recorded| !recorded.eq_ignore_ascii_case(sha256)) {
            let message = format!("the download is not the result: its SHA-256 is {sha256}");
            return Err(Failure::new(Exit::Refused, message).with_hint("try again"));
        }
        Ok(())
    }
}

/// The file being written: its length and the hash of what is in it.
struct Sink {
    path: PathBuf,
    file: std::fs::File,
    length: u64,
    hash: Sha256,
}

impl Sink {
    /// Goes on with what an earlier try has left.
    fn open(path: PathBuf) -> Result<Sink, Failure> {
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).append(true).create(true).open(&path);
        let mut file = opened.map_err(|error| unusable(&path, &error))?;
        let (mut length, mut hash, mut buffer) = (0, Sha256::new(), vec![0; BUFFER_BYTES]);
        loop {
            let read = std::io::Read::read(&mut file, &mut buffer).map_err(|error| unusable(&path, &error))?;
            if read == 0 {
                return Ok(Sink { path, file, length, hash });
            }
            hash.update(buffer.get(..read).unwrap_or_default());
            length += byte_count(read);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| unusable(&self.path, &error))?;
        self.hash.update(bytes);
        self.length += byte_count(bytes.len());
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Failure> {
        self.file.set_len(0).map_err(|error| unusable(&self.path, &error))?;
        (self.length, self.hash) = (0, Sha256::new());
        Ok(())
    }

    fn sha256(&self) -> String {
        digest_text(&self.hash.clone().finalize())
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn byte_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Refused, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_checked_against_its_record() {
        let recorded = Recorded::read(&json!({"length": 3, "sha256": "AB"}));

        assert!(recorded.check(3, "ab").is_ok());
        assert!(recorded.check(4, "ab").is_err());
        assert!(recorded.check(3, "cd").is_err());
        assert!(Recorded::read(&Value::Null).check(3, "cd").is_ok());
    }

    #[test]
    fn a_file_is_gone_on_with_and_hashed_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.pdf.part");
        std::fs::write(&path, "hello ").unwrap();

        let mut sink = Sink::open(path.clone()).unwrap();
        sink.write(b"world").unwrap();

        assert_eq!(std::fs::read(&path).unwrap(), b"hello world");
        assert_eq!(sink.length, 11);
        assert_eq!(sink.sha256(), "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
        sink.restart().unwrap();
        sink.write(b"x").unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), sink.length), (&b"x"[..], 1));
    }
}
