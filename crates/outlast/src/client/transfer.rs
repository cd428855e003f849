//! Bodies that are too large for memory: a file sent as it is read, and an answer written to a file as it comes.

use std::path::Path;
use std::time::Duration;

use reqwest::{Body, Response};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::{Answer, Call, Client, refusal};
use crate::failure::{Exit, Failure};

/// A transfer in which nothing moves for this long has broken off.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// File name and media type of a result.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub filename: Option<String>,
    /// The media type.
    pub kind: String,
}

impl Client {
    /// Sends a file as the body; the answer whatever its status. Takes as long as the bytes need.
    pub(crate) async fn upload(&self, call: Call<'_>, path: &Path, kind: &str) -> Result<Answer, Failure> {
        let file = tokio::fs::File::open(path).await.map_err(|error| unusable(path, &error))?;
        let length = file.metadata().await.map_err(|error| unusable(path, &error))?.len();
        let request = self.request(call)?.header("content-type", kind).header("content-length", length);
        let response = request.body(Body::from(file)).send().await;
        self.read(response.map_err(|error| self.unreachable(&error, self.timeout))?, self.timeout).await
    }

    /// Writes the body of a successful answer to a file.
    pub(crate) async fn fetch(&self, call: Call<'_>, path: &Path) -> Result<(), Failure> {
        let segments: Vec<String> = call.path.iter().map(|segment| (*segment).to_owned()).collect();
        let mut response = self.open(call).await?;
        if !response.status().is_success() {
            let answer = self.whole(response).await?;
            return Err(refusal::failure(&answer, &segments, &self.key_source));
        }
        let mut file = tokio::fs::File::create(path).await.map_err(|error| unusable(path, &error))?;
        while let Some(chunk) = self.chunk(&mut response).await? {
            file.write_all(&chunk).await.map_err(|error| unusable(path, &error))?;
        }
        file.flush().await.map_err(|error| unusable(path, &error))
    }

    /// The head of an answer, whose body is read with [`Client::chunk`].
    pub(crate) async fn open(&self, call: Call<'_>) -> Result<Response, Failure> {
        let sent = timeout(self.timeout, self.request(call)?.send()).await;
        let answered = sent.map_err(|_| self.silent(self.timeout))?;
        answered.map_err(|error| self.unreachable(&error, self.timeout))
    }

    /// The whole of an answer.
    pub(crate) async fn whole(&self, response: Response) -> Result<Answer, Failure> {
        let read = timeout(self.timeout, self.read(response, self.timeout)).await;
        read.map_err(|_| self.silent(self.timeout))?
    }

    /// Goes where a redirecting answer points, without the key: the link is all that it takes. Asks for the bytes from
    /// `from` on.
    pub(crate) async fn follow(&self, redirect: &Response, from: u64) -> Result<Response, Failure> {
        let location = redirect.headers().get("location").and_then(|location| location.to_str().ok());
        let link = location.and_then(|location| redirect.url().join(location).ok());
        let link = link.filter(|link| matches!(link.scheme(), "http" | "https"));
        let link = link.ok_or_else(|| Failure::new(Exit::Refused, "the server points to nowhere"))?;
        let mut request = self.http.get(link);
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let answered = timeout(self.timeout, request.send()).await.map_err(|_| self.silent(self.timeout))?;
        answered.map_err(|error| self.unreachable(&error.without_url(), self.timeout))
    }

    /// The next part of a body; `None` at its end.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, Failure> {
        let read = timeout(SILENCE_MAX, response.chunk()).await.map_err(|_| self.silent(SILENCE_MAX))?;
        read.map_err(|error| self.unreachable(&error, SILENCE_MAX))
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Refused, format!("{}: {error}", path.display()))
}
