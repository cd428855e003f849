//! Reads the progress pipe of one program, line by line, into the outbox. Stops when the program has ended and the pipe is
//! empty, because a process outside the program's group may hold the pipe open.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::outbox::Outbox;
use super::protocol;
use crate::output;

/// A longer line is left out. Room for a checkpoint that is stored as a blob.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// As much is read after the end at most; a pipe holds less.
const REST_BYTES_MAX: usize = 1024 * 1024;
/// At most this many invalid lines are logged per job.
const COMPLAINTS_MAX: usize = 10;

pub(crate) struct ProgressReader {
    job: String,
    outbox: Arc<Outbox>,
    unread: Vec<u8>,
    /// The rest of a line that is too long is being left out.
    is_skipping: bool,
    complaints: usize,
}

impl ProgressReader {
    pub(crate) fn new(job: &str, outbox: Arc<Outbox>) -> ProgressReader {
        ProgressReader { job: job.to_owned(), outbox, unread: Vec::new(), is_skipping: false, complaints: 0 }
    }

    /// Reads until `ended` fires. Closes the outbox.
    pub(crate) async fn carry(
        mut self,
        (receiver, sender): (pipe::Receiver, pipe::Sender),
        ended: oneshot::Receiver<()>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        let mut ended = ended;
        loop {
            tokio::select! {
                _ = &mut ended => break,
                ready = receiver.readable() => {
                    let Ok(()) = ready else { break };
                    // Not ready after all, or no writer is left: the next round waits again.
                    let Ok(length) = receiver.try_read(&mut buffer) else { continue };
                    self.take(buffer.get(..length).unwrap_or_default()).await;
                }
            }
        }
        drop(sender);
        // Read past the runtime, which may not know of the last bytes yet.
        if let Ok(rest) = receiver.into_nonblocking_fd() {
            self.take_rest(File::from(rest), &mut buffer).await;
        }
        self.take(b"\n").await;
        self.outbox.close();
    }

    /// Reads the rest of the pipe.
    async fn take_rest(&mut self, mut rest: File, buffer: &mut [u8]) {
        let mut total = 0;
        while let Ok(length @ 1..) = rest.read(buffer)
            && total < REST_BYTES_MAX
        {
            total += length;
            self.take(buffer.get(..length).unwrap_or_default()).await;
        }
    }

    async fn take(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        self.append(parts.next().unwrap_or_default());
        for part in parts {
            self.end_line().await;
            self.append(part);
        }
    }

    fn append(&mut self, part: &[u8]) {
        if self.unread.len() + part.len() > LINE_BYTES_MAX {
            self.unread.clear();
            self.is_skipping = true;
        }
        if !self.is_skipping {
            self.unread.extend_from_slice(part);
        }
    }

    async fn end_line(&mut self) {
        let line = std::mem::take(&mut self.unread);
        if std::mem::take(&mut self.is_skipping) {
            self.complain(&format!("a line has more than {LINE_BYTES_MAX} bytes"));
            return;
        }
        match protocol::read(&String::from_utf8_lossy(&line)) {
            Some(Ok(report)) => self.outbox.put(report).await,
            Some(Err(why)) => self.complain(&why),
            None => {}
        }
    }

    fn complain(&mut self, why: &str) {
        self.complaints += 1;
        if self.complaints <= COMPLAINTS_MAX {
            output::note(&format!("job {}: invalid line on the progress pipe skipped: {why}", self.job));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::commands::worker::protocol::{Durable, Report};

    async fn outputs(outbox: &Outbox) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(Report::Durable(Durable::Output { text })) = outbox.take().await {
            texts.push(text);
        }
        texts
    }

    #[tokio::test]
    async fn lines_are_put_together_from_parts_and_read_to_the_end() {
        let outbox = Arc::new(Outbox::default());
        let (mut program, receiver) = pipe::pipe().unwrap();
        let (own, _) = pipe::pipe().unwrap();
        let (end, ended) = oneshot::channel();
        let reading = tokio::spawn(ProgressReader::new("j", Arc::clone(&outbox)).carry((receiver, own), ended));
        program.write_all(b"output one\nout").await.unwrap();
        let first = outbox.take().await;
        program.write_all(b"put two\nnonsense\noutput three").await.unwrap();

        end.send(()).unwrap();
        reading.await.unwrap();

        assert!(matches!(first, Some(Report::Durable(Durable::Output { text })) if text == "one\n"));
        assert_eq!(outputs(&outbox).await, ["two\n", "three\n"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_left_out_and_the_next_is_read() {
        let outbox = Arc::new(Outbox::default());
        let mut lines = ProgressReader::new("j", Arc::clone(&outbox));

        for _ in 0..LINE_BYTES_MAX / 1024 + 2 {
            lines.take(&[b'x'; 1024]).await;
        }
        lines.take(b"\noutput next\n").await;
        outbox.close();

        assert_eq!(outputs(&outbox).await, ["next\n"]);
        assert_eq!(lines.complaints, 1);
    }
}
