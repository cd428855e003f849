//! A large result, collected through the server: the same file in the same client as nginx serves it with sendfile. The two
//! take turns; the file is in the page cache for both.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answer;
use crate::clock;
use crate::connection;
use crate::nginx::Nginx;
use crate::process::Server;
use crate::report::{Limit, Report};
use crate::request::{Publish, Target};
use crate::settings::Settings;

const MIB: u64 = 1024 * 1024;
const FILE_BYTES: u64 = 256 * MIB;
const QUICK_FILE_BYTES: u64 = 16 * MIB;
/// Downloads of each, in turns.
const TURNS: u32 = 8;
const BUFFER_BYTES: usize = 256 * 1024;
const TRANSFER_WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let length = if settings.is_quick { QUICK_FILE_BYTES } else { FILE_BYTES };
    let server = Server::start(&settings.server, &settings.dir).await?;
    let id = finished_job(&server.target, length).await?;
    let object = object_of(&server.data_dir(), length)?;
    let folder = object.parent().context("the object has no folder")?;
    let name = object.file_name().and_then(|name| name.to_str()).context("the object has no name")?;
    let nginx = Nginx::serve(folder, &settings.dir)?;
    let plain = Target { address: nginx.address, key: "".into() };
    let request_plain = plain.get(&format!("/{name}"));

    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    // The first turn is not counted; its bytes are compared.
    for turn in 0..=TURNS {
        let link = link(&server.target, &id).await?;
        let times = [
            download(&server.target, &server.target.get(&link), length, turn == 0).await?,
            download(&plain, &request_plain, length, turn == 0).await?,
        ];
        if turn > 0 {
            ours += times[0];
            theirs += times[1];
        }
    }
    let speed = |time: Duration| format!("{:.0} MiB/s", (length / MIB) as f64 * f64::from(TURNS) / time.as_secs_f64());
    report.note("download from the server and from nginx", format!("{} and {}", speed(ours), speed(theirs)));
    report.figure("download / nginx", theirs.as_secs_f64() / ours.as_secs_f64(), "", Limit::AtLeast(0.5));
    Ok(())
}

/// A succeeded job with a result of this length.
async fn finished_job(target: &Target, length: u64) -> Result<String> {
    let mut publish = Publish::new(target);
    connection::call_once(target, publish.numbered(0), &[202]).await?;
    let answer = connection::call_once(target, &target.receive(1), &[200]).await?;
    let jobs = answer::received(&answer.body)?;
    let job = jobs.first().context("the job that was published is not handed out")?;
    upload(target, job.id, job.lease, length).await?;
    connection::call_once(target, &target.acknowledge(job.id, job.lease), &[200]).await?;
    Ok(job.id.to_owned())
}

async fn upload(target: &Target, id: &str, lease: &str, length: u64) -> Result<()> {
    let head = format!(
        "PUT /v1/jobs/{id}/result?filename=report.bin HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         x-outlast-lease: {lease}\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n",
        target.address, target.key
    );
    let exchange = async {
        let mut stream = connect(target).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut sent = 0;
        while sent < length {
            let piece = content(sent, BUFFER_BYTES.min(usize::try_from(length - sent)?));
            stream.write_all(&piece).await?;
            sent += piece.len() as u64;
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        ensure!(text.starts_with("HTTP/1.1 201 "), "the upload was answered with {text}");
        Ok(())
    };
    tokio::time::timeout(TRANSFER_WITHIN, exchange).await.context("the upload did not end in time")?
}

/// Where the result is collected this time.
async fn link(target: &Target, id: &str) -> Result<String> {
    let exchange = async {
        let mut stream = connect(target).await?;
        stream.write_all(&target.get(&format!("/v1/jobs/{id}/result"))).await?;
        let mut read = vec![0; BUFFER_BYTES];
        let mut filled = 0;
        loop {
            let count = stream.read(read.get_mut(filled..).unwrap_or_default()).await?;
            ensure!(count > 0, "the server closed the connection");
            filled += count;
            if let Some(head) = connection::head(read.get(..filled).unwrap_or_default()) {
                return location(&String::from_utf8_lossy(head));
            }
        }
    };
    tokio::time::timeout(TRANSFER_WITHIN, exchange).await.context("no answer in time")?
}

/// Path and query of the link.
fn location(head: &str) -> Result<String> {
    let header = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim())
    });
    let Some(url) = header.filter(|_| head.starts_with("HTTP/1.1 307 ")) else {
        bail!("no link to the result was answered: {head}");
    };
    let Some((_, rest)) = url.split_once("://") else {
        return Ok(url.to_owned());
    };
    let path = rest.find('/').and_then(|slash| rest.get(slash..)).context("the link has no path")?;
    Ok(path.to_owned())
}

/// Reads the whole answer. Gives the time from sending the request to the last byte.
async fn download(target: &Target, request: &[u8], length: u64, is_compared: bool) -> Result<Duration> {
    let exchange = async {
        let mut stream = connect(target).await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let start = clock::now();
        stream.write_all(request).await?;
        let mut filled = 0;
        let head_bytes = loop {
            let count = stream.read(buffer.get_mut(filled..).unwrap_or_default()).await?;
            ensure!(count > 0, "the answer ended in its head");
            filled += count;
            let read = buffer.get(..filled).unwrap_or_default();
            if let Some(head) = connection::head(read) {
                ensure!(head.starts_with(b"HTTP/1.1 200 "), "not a download: {}", String::from_utf8_lossy(head));
                ensure!(connection::body_bytes(head)? == Some(usize::try_from(length)?), "another length than stored");
                break head.len();
            }
        };
        let mut received = 0;
        let mut piece = head_bytes..filled;
        loop {
            let bytes = buffer.get(piece).unwrap_or_default();
            ensure!(!is_compared || bytes == content(received, bytes.len()), "other bytes than stored");
            received += bytes.len() as u64;
            if received >= length {
                return Ok(start.elapsed());
            }
            let count = stream.read(&mut buffer).await?;
            ensure!(count > 0, "the download ended after {received} bytes");
            piece = 0..count;
        }
    };
    tokio::time::timeout(TRANSFER_WITHIN, exchange).await.context("the download did not end in time")?
}

async fn connect(target: &Target) -> Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "a benchmark calls the servers it has started")]
    let stream = TcpStream::connect(target.address).await;
    stream.with_context(|| format!("cannot connect to {}", target.address))
}

/// What stands in the file from there on; a short period of no power of two, so that a piece out of place is noticed.
fn content(from: u64, length: usize) -> Vec<u8> {
    const PERIOD: u64 = 251;
    let first = from % PERIOD;
    (first..).map(|place| u8::try_from(place % PERIOD).unwrap_or(0)).take(length).collect()
}

/// The one file of this length in the data directory.
fn object_of(data_dir: &Path, length: u64) -> Result<PathBuf> {
    let mut folders = vec![data_dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let facts = entry.metadata()?;
            if facts.is_dir() {
                folders.push(entry.path());
            } else if facts.len() == length {
                return Ok(entry.path());
            }
        }
    }
    bail!("the result is not stored in {}", data_dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_followed_whether_or_not_it_names_the_host() {
        for url in ["/v1/objects/x?sig=1", "http://127.0.0.1:80/v1/objects/x?sig=1"] {
            let head = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}\r\n\r\n");

            assert_eq!(location(&head).unwrap(), "/v1/objects/x?sig=1");
        }
        assert!(location("HTTP/1.1 200 OK\r\nlocation: /x\r\n\r\n").is_err());
    }

    #[test]
    fn pieces_of_the_content_fit_together() {
        let whole = content(0, 1000);

        assert_eq!([content(0, 300), content(300, 700)].concat(), whole);
    }
}
