//! How a source proves where its events come from: the options `verify` and those of a plain HMAC.

use outlast_engine::inbound::verify::{Algorithm, BadForm, Encoding, HmacForm, Place, Scheme};

use super::super::expressions;
use super::super::reader::Section;

const HMAC: &str = "hmac";
const ENCODINGS: &[(&str, Encoding)] = &[("hex", Encoding::Hex), ("base64", Encoding::Base64)];
const ALGORITHMS: &[(&str, Algorithm)] =
    &[("sha1", Algorithm::Sha1), ("sha256", Algorithm::Sha256), ("sha512", Algorithm::Sha512)];
/// Where most senders have the id of an event.
const ID_PLACE: &str = "$.id";

/// Reads `verify` and the options that belong to it. Reports what is wrong with them and returns any scheme then.
pub(crate) fn read(section: &mut Section) -> Scheme {
    scheme(section).unwrap_or(Scheme::Stripe)
}

fn scheme(section: &mut Section) -> Option<Scheme> {
    let words: Vec<(&str, Option<&str>)> = Scheme::NAMES.iter().map(|name| (*name, Some(*name))).collect();
    let asked = section.choice("verify", &words, None);
    let given: Vec<&str> = OPTIONS.into_iter().filter(|name| section.is_set(name)).collect();
    let form = hmac(section, asked == Some(HMAC));
    match asked {
        Some(HMAC) => form.map(Scheme::Hmac),
        Some(name) => {
            for option in given {
                section.complain(option, "has a meaning with verify: hmac only");
            }
            Scheme::named(name)
        }
        None => None,
    }
}

const OPTIONS: [&str; 6] = ["header", "prefix", "encoding", "algorithm", "type_path", "type_header"];

/// Takes the options whether they are wanted or not: what is left over would be unknown.
fn hmac(section: &mut Section, is_wanted: bool) -> Option<HmacForm> {
    let header = section.optional_text("header");
    let prefix = section.optional_text("prefix").unwrap_or_default();
    let encoding = section.optional("encoding", |section| section.choice("encoding", ENCODINGS, Encoding::Hex));
    let algorithm = section.optional("algorithm", |section| section.choice("algorithm", ALGORITHMS, Algorithm::Sha256));
    let (type_path, type_header) = (section.optional_text("type_path"), section.optional_text("type_header"));
    if !is_wanted {
        return None;
    }
    let Some(header) = header else {
        section.complain("header", "is required with verify: hmac; it names the header with the signature");
        return None;
    };
    let form =
        HmacForm::new(&header, &prefix, encoding.unwrap_or(Encoding::Hex), algorithm.unwrap_or(Algorithm::Sha256));
    let form = match form {
        Ok(form) => form,
        Err(BadForm::Prefix) => {
            section.complain("prefix", "must be at most 64 visible ASCII characters such as sha256=");
            return None;
        }
        Err(_) => {
            section.complain("header", "must be the name of a header such as x-signature");
            return None;
        }
    };
    match (type_path, type_header) {
        (None, None) => Some(form),
        (Some(_), Some(_)) => {
            section.complain("type_header", "cannot stand beside type_path: the type of an event has one place");
            None
        }
        (Some(path), None) => {
            if let Err(message) = expressions::path(&path) {
                section.complain("type_path", &message);
                return None;
            }
            with_place(section, form, "type_path", &path)
        }
        (None, Some(header)) => with_place(section, form, "type_header", &header),
    }
}

fn with_place(section: &mut Section, form: HmacForm, option: &'static str, text: &str) -> Option<HmacForm> {
    let placed = Place::parse(text).and_then(|place| form.with_places(place, Place::parse(ID_PLACE)?));
    placed.map_err(|error| section.complain(option, &error.to_string())).ok()
}
