//! The media type of a body. Verification and reading both ask here, so that they cannot disagree on what a body is.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// The media type in lower case and without its parameters; `None` where none is given or it is not readable.
pub(super) fn essence(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (!essence.is_empty()).then_some(essence)
}

pub(super) fn is_form(headers: &HeaderMap) -> bool {
    essence(headers).as_deref() == Some(FORM)
}
