//! Twilio signs the address and, of a form, its parameters. Any other body is not signed itself: the address carries its
//! digest, which must be there and be right, else a body could be put under the signature of another.

use std::borrow::Cow;

use http::HeaderName;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::Request;
use super::key::{Encoding, Message};
use super::signature::{Rejection, SignedMessage, only};
use crate::inbound::media;

pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
/// The parameter of the address that holds the digest of the body in hexadecimal digits.
pub(super) const BODY_DIGEST: &str = "bodySHA256";

pub(super) fn signed_message<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    let signature = Encoding::Base64.decode(only(request.headers, &SIGNATURE)?).ok_or(Rejection::Unreadable)?;
    let is_form = media::is_form(request.headers);
    let has_digest = check_digest(request.url, request.body)?;
    if !is_form && !has_digest {
        return Err(Rejection::Missing);
    }
    let parameters = if is_form { sorted_parameters(request.body) } else { String::new() };
    let messages = addresses(request.url).into_iter().map(|address| message(address, parameters.clone())).collect();
    Ok(SignedMessage { messages, signatures: vec![signature] })
}

pub(super) fn message(address: Cow<'_, str>, parameters: String) -> Message<'_> {
    let address = match address {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    vec![address, Cow::Owned(parameters.into_bytes())]
}

/// Names and values in the order of the names, without anything between. A value that comes twice under a name counts once,
/// as in Twilio's own libraries.
pub(super) fn sorted_parameters(body: &[u8]) -> String {
    let mut pairs: Vec<_> = form_urlencoded::parse(body).collect();
    pairs.sort();
    pairs.dedup();
    pairs.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]).collect()
}

/// Whether the address has a digest of the body. A wrong one, or two, is refused.
fn check_digest(url: &str, body: &[u8]) -> Result<bool, Rejection> {
    let address = url.split('#').next().unwrap_or_default();
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let mut digests = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == BODY_DIGEST);
    let Some((_, digest)) = digests.next() else { return Ok(false) };
    if digests.next().is_some() {
        return Err(Rejection::Repeated);
    }
    // The digest is no secret: it stands in the address.
    match Encoding::Hex.decode(&digest).as_deref() == Some(Sha256::digest(body).as_slice()) {
        true => Ok(true),
        false => Err(Rejection::Mismatch),
    }
}

/// The address as it is, and with the port left out or the usual one written: Twilio does either.
fn addresses(url: &str) -> Vec<Cow<'_, str>> {
    let mut addresses = vec![Cow::Borrowed(url)];
    let Some((scheme, rest)) = url.split_once("://") else { return addresses };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let other = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => format!("{scheme}://{host}{tail}"),
        _ => {
            let port = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
            format!("{scheme}://{authority}:{port}{tail}")
        }
    };
    addresses.push(Cow::Owned(other));
    addresses
}
