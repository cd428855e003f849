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

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(name: &str, value: &str) -> bool {
        custom_header(name, value).is_ok()
    }

    // (T27)
    #[test]
    fn a_header_that_would_break_the_delivery_or_speak_for_us_is_refused() {
        for name in [
            "Host",
            "host",
            "HOST",
            "Connection",
            "Keep-Alive",
            "Content-Length",
            "content-type",
            "Content-Encoding",
            "Transfer-Encoding",
            "transfer-encoding",
            "Upgrade",
            "TE",
            "te",
            "Trailer",
            "Cookie",
            "Expect",
            "Proxy-Authorization",
            "proxy-connection",
            "PROXY-x",
            "webhook-id",
            "Webhook-Signature",
            "webhook-timestamp",
            "x-outlast-lease",
            "X-Outlast-Signature",
            "x-outlast-anything",
        ] {
            assert!(!takes(name, "x"), "{name}");
        }
        for name in ["Authorization", "x-api-key", "X-Request-Id", "User-Agent", "accept", "x-webhook-id", "hostname"] {
            assert!(takes(name, "x"), "{name}");
        }
    }

    #[test]
    fn no_byte_that_ends_a_line_or_a_name_gets_into_a_header() {
        for byte in 0..=0x7f_u8 {
            let inside = format!("x-a{}b", char::from(byte));
            let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            assert_eq!(takes(&inside, "x"), is_token, "name with byte {byte}");

            let value = format!("a{}b", char::from(byte));
            let is_text = byte == b'\t' || (0x20..0x7f).contains(&byte);
            assert_eq!(takes("x-a", &value), is_text, "value with byte {byte}");
        }
        for (name, value) in [
            ("", "x"),
            ("x a", "x"),
            ("x-a:", "x"),
            ("x-ä", "x"),
            ("x-a\r\nx-b: y", "x"),
            ("x-a", "x\r\nx-b: y"),
            ("x-a", "x\n y"),
            ("x-a", "x\ry"),
            ("x-a", "x\0"),
            ("x-a", "x\r\n\r\nPOST / HTTP/1.1"),
        ] {
            assert!(!takes(name, value), "{name:?}: {value:?}");
        }
    }

    #[test]
    fn the_amount_of_headers_is_bounded() {
        let check = |count: usize, bytes: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("x-{number:02}")).collect();
            let value = "v".repeat(bytes);
            check_amount(names.iter().map(|name| (name.as_str(), value.as_str())))
        };

        assert_eq!(check(HEADERS_MAX, 1), Ok(()));
        assert_eq!(check(HEADERS_MAX + 1, 1), Err(RefusedHeader::TooMany));
        assert_eq!(check(8, 1020), Ok(()));
        assert_eq!(check(8, 1021), Err(RefusedHeader::TooMany));
    }
}
