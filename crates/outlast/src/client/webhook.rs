//! A webhook, posted as its provider would do it.

use reqwest::Url;
use reqwest::header::HeaderMap;

use super::{Answer, Client, refusal};
use crate::failure::{Exit, Failure};

impl Client {
    /// Posts to a whole URL; the answer of success. No key goes with it, since the signature is the pass.
    pub(crate) async fn webhook(&self, url: &str, headers: HeaderMap, body: String) -> Result<Answer, Failure> {
        let url = Url::parse(url).map_err(|error| Failure::usage(format!("\"{url}\" is not a URL: {error}")))?;
        let request = self.http.post(url).headers(headers).body(body).timeout(self.timeout);
        let response = request.send().await.map_err(|error| self.unreachable(&error, self.timeout))?;
        let answer = self.read(response, self.timeout).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        // Whatever the status, it is the webhook that was refused and not the caller.
        let failure = refusal::failure(&answer, &[], &self.key_source);
        Err(Failure { exit: Exit::Refused, hint: hint(&answer).or(failure.hint), ..failure })
    }
}

fn hint(answer: &Answer) -> Option<String> {
    let text = match answer.status.as_u16() {
        401 => {
            "is the secret of the file the one that the server was started with, and may this machine send (allowed_ips)?"
        }
        404 => "does the server run with this file?",
        _ => return None,
    };
    Some(text.to_owned())
}
