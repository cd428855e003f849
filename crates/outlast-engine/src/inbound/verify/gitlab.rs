//! GitLab has two kinds of secrets: a secret token, which it sends as it is, and a signing token, with which it signs as
//! Standard Webhooks does. Each live secret is asked in its own way; one that is right is enough.

use http::HeaderName;
use subtle::{Choice, ConstantTimeEq};

use super::Request;
use super::claim::{Doubt, Window, decide, only};
use super::key::Key;
use super::timed;

pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-gitlab-token");

pub(super) fn check(keys: &[Key], request: &Request<'_>, window: Window) -> Result<(), Doubt> {
    let by_token = check_token(keys, request);
    let by_signature = timed::standard(request, window).and_then(|claim| claim.believe(keys));
    by_token.or(by_signature)
}

fn check_token(keys: &[Key], request: &Request<'_>) -> Result<(), Doubt> {
    let given = only(request.headers, &TOKEN)?;
    let mut is_right = Choice::from(0);
    for key in keys {
        let Key::Token(token) = key else { continue };
        is_right |= given.as_bytes().ct_eq(token);
    }
    decide(is_right)
}
