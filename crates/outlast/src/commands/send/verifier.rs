//! The scheme and secrets of a source of the file, as the engine takes them.

use outlast_engine::inbound::verify::{Algorithm, Encoding, HmacForm, Place, Scheme, Verifier};

use crate::config::Secret;
use crate::config::sources::SourceConfig;
use crate::config::sources::verify::{self, EventType, Hmac, Verify};
use crate::failure::Failure;

pub(crate) fn verifier(source: &SourceConfig) -> Result<Verifier, Failure> {
    let secrets: Vec<&str> = source.secrets.iter().map(Secret::expose).collect();
    let refuse = |why: String| Failure::usage(format!("source \"{}\": {why}", source.name));
    let scheme = scheme(&source.verify).map_err(refuse)?;
    Verifier::new(scheme, &secrets, source.tolerance).map_err(|error| refuse(error.to_string()))
}

fn scheme(verify: &Verify) -> Result<Scheme, String> {
    match verify {
        Verify::Hmac(hmac) => form(hmac).map(Scheme::Hmac),
        named => Scheme::named(named.name()).ok_or_else(|| format!("\"{}\" is not a scheme", named.name())),
    }
}

fn form(hmac: &Hmac) -> Result<HmacForm, String> {
    let encoding = match hmac.encoding {
        verify::Encoding::Hex => Encoding::Hex,
        verify::Encoding::Base64 => Encoding::Base64,
    };
    let algorithm = match hmac.algorithm {
        verify::Algorithm::Sha1 => Algorithm::Sha1,
        verify::Algorithm::Sha256 => Algorithm::Sha256,
        verify::Algorithm::Sha512 => Algorithm::Sha512,
    };
    let form = HmacForm::new(&hmac.header, &hmac.prefix, encoding, algorithm).map_err(|error| error.to_string())?;
    let text = match &hmac.event_type {
        Some(EventType::Path(text) | EventType::Header(text)) => text,
        None => return Ok(form),
    };
    let event_type = Place::parse(text).map_err(|error| error.to_string())?;
    let event_id = form.event_id().clone();
    form.with_places(event_type, event_id).map_err(|error| error.to_string())
}
