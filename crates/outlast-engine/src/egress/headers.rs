//! Headers that a queue may add to its deliveries: valid, bounded, and none that would break the delivery or speak for us.

use http::{HeaderName, HeaderValue};

pub const HEADERS_MAX: usize = 20;
/// Names and values together.
pub const HEADERS_BYTES_MAX: usize = 8 * 1024;

const RESERVED: [&str; 9] =
    ["host", "connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "cookie", "expect"];
const RESERVED_PREFIXES: [&str; 4] = ["proxy-", "webhook-", "content-", "x-outlast-"];

/// Why a header may not be set; to be shown after its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedHeader {
    #[error(
        "is not a header that may be set: it must be a valid name and value, and not one of Host, Connection, \
         Keep-Alive, Content-*, Transfer-Encoding, Upgrade, TE, Trailer, Cookie, Expect, Proxy-*, webhook-* or x-outlast-*"
    )]
    Header,
    #[error("must have at most {HEADERS_MAX} entries and {HEADERS_BYTES_MAX} bytes in all")]
    TooMany,
}

/// One header of a queue, as it will be sent.
pub fn custom_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), RefusedHeader> {
    let name = HeaderName::try_from(name).map_err(|_| RefusedHeader::Header)?;
    let value = HeaderValue::try_from(value).map_err(|_| RefusedHeader::Header)?;
    let is_reserved =
        RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
    if is_reserved { Err(RefusedHeader::Header) } else { Ok((name, value)) }
}

/// The bound on all headers of a queue together.
pub fn check_amount<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), RefusedHeader> {
    let (mut count, mut bytes) = (0, 0);
    for (name, value) in headers {
        count += 1;
        bytes += name.len() + value.len();
    }
    if count > HEADERS_MAX || bytes > HEADERS_BYTES_MAX { Err(RefusedHeader::TooMany) } else { Ok(()) }
}
