//! From the `Authorization` header to a principal. Unknown, expired, revoked and wrong keys get the same answer.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use outlast_engine::Engine;
use outlast_engine::scope::{Principal, Word};
use outlast_store::jobs::Reach;

use crate::error::{Code, Problem};

pub(crate) async fn authenticate(engine: &Engine, headers: &HeaderMap) -> Result<Principal, Problem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(unauthorized());
    };
    let text = value.to_str().map_err(|_| unauthorized())?;
    let (scheme, key) = text.split_once(' ').ok_or_else(unauthorized)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized());
    }
    engine.authenticate(key.trim()).await?.ok_or_else(unauthorized)
}

/// What the caller reaches with the scope a route needs.
pub(crate) fn authorize(principal: &Principal, word: Word) -> Result<Reach, Problem> {
    principal.reach(word).ok_or_else(|| {
        let detail = format!("this call needs the scope \"{}\", which the key does not have", word.as_str());
        Problem::new(Code::Forbidden, detail)
    })
}

pub(crate) fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send a valid key as \"Authorization: Bearer ol_…\"")
}
