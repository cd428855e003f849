//! Authenticates the caller and determines its reach: by a key in the `Authorization` header, or, on routes that name
//! one job, by a token to that job, in the header or in the query. A key is never taken from a URL. An unknown,
//! expired, revoked or wrong credential always gets the same answer.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use outlast_core::JobId;
use outlast_engine::keys::Keys;
use outlast_engine::keys::scope::{Principal, Word};
use outlast_engine::keys::token::{TOKEN_MARK, Token};
use outlast_store::jobs::Reach;
use tokio::time::Instant;

use crate::error::{Code, Problem};
use crate::failed_keys::FailedKeys;
use crate::routes::{Need, Route};
use crate::sources::Peer;

/// Of every route that answers to a token. It is taken out of the query before anything else is read.
const TOKEN_PARAMETER: &str = "token";

/// The credential of a request.
pub(crate) enum Credential {
    None,
    Key(String),
    Token(String),
}

/// A caller that was let in.
pub(crate) struct Admission {
    /// `None` only on routes that need no key. For a token: its key.
    pub(crate) principal: Option<Principal>,
    /// The reach of the caller's scope for this route.
    pub(crate) reach: Reach,
    /// The token that was sent in place of a key.
    pub(crate) token: Option<Token>,
}

impl Credential {
    /// The header is asked first: who sends one means it.
    pub(crate) fn of(route: &Route, parts: &Parts) -> Credential {
        if parts.headers.contains_key(AUTHORIZATION) {
            return bearer(&parts.headers).map_or(Credential::None, |text| match text.starts_with(TOKEN_MARK) {
                true => Credential::Token(text.to_owned()),
                false => Credential::Key(text.to_owned()),
            });
        }
        let query = parts.uri.query().filter(|_| route.token.is_some()).unwrap_or_default();
        match tokens(query).as_slice() {
            [token] => Credential::Token(token.clone().into_owned()),
            // Two tokens are ambiguous, so neither counts.
            _ => Credential::None,
        }
    }
}

/// The query without the token in it.
pub(crate) fn without_token(query: &str) -> String {
    let kept = query.split('&').filter(|pair| tokens(pair).is_empty());
    kept.collect::<Vec<_>>().join("&")
}

fn tokens(query: &str) -> Vec<Cow<'_, str>> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.filter(|(name, _)| name == TOKEN_PARAMETER).map(|(_, value)| value).collect()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

/// The credential of a request, and its address.
pub(crate) struct Credentials {
    pub(crate) pass: Credential,
    pub(crate) address: IpAddr,
}

impl Credentials {
    pub(crate) fn of(route: &Route, parts: &Parts) -> Credentials {
        let address =
            parts.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(address)| *address);
        Credentials { pass: Credential::of(route, parts), address }
    }
}

pub(crate) async fn admit(
    keys: &Keys,
    failed_keys: &FailedKeys,
    route: &Route,
    credentials: Credentials,
) -> Result<Admission, Problem> {
    let Need::Scope(word) = route.need else {
        return Ok(Admission { principal: None, reach: Reach::Everything, token: None });
    };
    let address = credentials.address;
    match credentials.pass {
        Credential::None => Err(unauthorized()),
        Credential::Key(key) => {
            // A key that is known is never slowed down. Only the others can make the store be read.
            let principal = match keys.known_holder(&key) {
                Some(principal) => Some(principal),
                None => {
                    check_wait(failed_keys, address)?;
                    keys.authenticate(&key).await?
                }
            };
            let principal = principal.ok_or_else(|| refused(failed_keys, address))?;
            let other = route.also_by.and_then(|word| principal.reach(word));
            let reach = authorize(&principal, word).or_else(|problem| other.ok_or(problem))?;
            Ok(Admission { principal: Some(principal), reach, token: None })
        }
        Credential::Token(text) => {
            let opened = keys.open_token(&text).await?;
            let Some((token, principal)) = opened else {
                check_wait(failed_keys, address)?;
                return Err(refused(failed_keys, address));
            };
            if !route.token.is_some_and(|can| token.allows(can)) {
                return Err(Problem::new(Code::Forbidden, "this token does not allow this call"));
            }
            // A token reaches no further than the key that made it.
            let reach = authorize(&principal, word)?;
            Ok(Admission { principal: Some(principal), reach, token: Some(token) })
        }
    }
}

/// An address that has sent too many wrong keys has to wait.
fn check_wait(failed_keys: &FailedKeys, address: IpAddr) -> Result<(), Problem> {
    failed_keys.wait(address, Instant::now()).map_or(Ok(()), |wait| Err(Problem::wrong_key_again(wait)))
}

fn refused(failed_keys: &FailedKeys, address: IpAddr) -> Problem {
    failed_keys.failed(address, Instant::now());
    unauthorized()
}

impl Admission {
    /// A token opens one job, whatever its key reaches; to its holder no other exists.
    pub(crate) fn check_job(&self, parameters: &[(String, String)]) -> Result<(), Problem> {
        let Some(Token { job, .. }) = self.token else {
            return Ok(());
        };
        let named = parameters.iter().find(|(name, _)| name == "id").and_then(|(_, id)| id.parse::<JobId>().ok());
        if named == Some(job) { Ok(()) } else { Err(Problem::job_not_found()) }
    }
}

/// The reach of the caller with the scope that a route needs.
pub(crate) fn authorize(principal: &Principal, word: Word) -> Result<Reach, Problem> {
    principal.reach(word).ok_or_else(|| {
        let detail = format!("this call needs the scope \"{}\", which the key does not have", word.as_str());
        Problem::new(Code::Forbidden, detail)
    })
}

pub(crate) fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send a valid key as \"Authorization: Bearer ol_…\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_taken_out_of_the_query_however_it_is_written() {
        for (query, rest) in [
            ("", ""),
            ("token=olt_x", ""),
            ("after=3&token=olt_x&wait=1", "after=3&wait=1"),
            ("tok%65n=olt_x&after=3", "after=3"),
            ("tokens=1&after=token", "tokens=1&after=token"),
        ] {
            assert_eq!(without_token(query), rest, "{query}");
        }
        assert_eq!(tokens("a=1&token=x&token=y"), ["x", "y"]);
    }
}
