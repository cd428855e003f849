//! GitLab has two kinds of secrets: a secret token, which it sends as it is, and a signing token, with which it signs as
//! Standard Webhooks does. Each live secret is asked in its own way; one that is right is enough.

use http::HeaderName;
use subtle::{Choice, ConstantTimeEq};

use super::Request;
use super::key::Key;
use super::signature::{Rejection, Window, decide, only};
use super::timestamped_hmac;

pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-gitlab-token");

pub(super) fn check(keys: &[Key], request: &Request<'_>, window: Window) -> Result<(), Rejection> {
    let by_token = check_token(keys, request);
    let by_signature = timestamped_hmac::standard(request, window).and_then(|message| message.verify(keys));
    by_token.or(by_signature)
}

fn check_token(keys: &[Key], request: &Request<'_>) -> Result<(), Rejection> {
    let given = only(request.headers, &TOKEN)?;
    let mut is_right = Choice::from(0);
    for key in keys {
        let Key::Token(token) = key else { continue };
        is_right |= given.as_bytes().ct_eq(token);
    }
    decide(is_right)
}
