//! Looks at the bytes of a request's head for what the HTTP parser lets pass or hides: a line that ends with a bare
//! line feed, and two ways to tell the length of the body. Both let a proxy in front see another request than we do.
//! Heads that come behind another request's body in the same read are not looked at: no proxy sends those.

use axum::response::Response;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Version};

use crate::error::{Code, Problem};

/// As long as the longest name that is looked for, with its colon.
const NAME_MAX: usize = 18;
const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING_LINE: &[u8] = b"transfer-encoding:";

/// One head, over as many reads as it takes.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// The beginning of the present line.
    line: [u8; NAME_MAX],
    /// Of the present line so far, its end excluded.
    length: usize,
    last: u8,
    lines: usize,
    is_complete: bool,
    faults: Faults,
}

/// The faults of a request head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) bare_line_feed: bool,
    has_length: bool,
    has_encoding: bool,
}

impl Faults {
    pub(super) fn has_both_lengths(self) -> bool {
        self.has_length && self.has_encoding
    }

    /// As a number that can be shared without a lock.
    pub(super) fn bits(self) -> u8 {
        u8::from(self.bare_line_feed) | u8::from(self.has_length) << 1 | u8::from(self.has_encoding) << 2
    }

    pub(super) fn from_bits(bits: u8) -> Faults {
        let [bare_line_feed, has_length, has_encoding] = [1, 2, 4].map(|bit| bits & bit != 0);
        Faults { bare_line_feed, has_length, has_encoding }
    }
}

impl HeadScan {
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults
    }

    /// Takes the next bytes; those behind the end of the head are left alone.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !self.is_complete && !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.append(text);
            if end.is_some() {
                self.end_line();
            }
            rest = after.get(1..).unwrap_or_default();
        }
    }

    fn append(&mut self, text: &[u8]) {
        if let Some(room) = self.line.get_mut(self.length.min(NAME_MAX)..) {
            for (place, byte) in room.iter_mut().zip(text) {
                *place = *byte;
            }
        }
        self.length += text.len();
        self.last = text.last().copied().unwrap_or(self.last);
    }

    fn end_line(&mut self) {
        let is_bare = self.length == 0 || self.last != b'\r';
        self.faults.bare_line_feed |= is_bare;
        let is_empty = self.length == usize::from(!is_bare);
        // Empty lines before a request are allowed.
        self.is_complete = is_empty && self.lines > 0;
        self.lines += usize::from(!is_empty);
        let starts_with = |name: &[u8]| self.line.get(..name.len()).is_some_and(|line| line.eq_ignore_ascii_case(name));
        if self.length > CONTENT_LENGTH.len() && starts_with(CONTENT_LENGTH) {
            self.faults.has_length = true;
        }
        if self.length > TRANSFER_ENCODING_LINE.len() && starts_with(TRANSFER_ENCODING_LINE) {
            self.faults.has_encoding = true;
        }
        (self.length, self.last) = (0, 0);
    }
}

/// The refusal of a request whose head is ambiguous; the connection ends with it.
pub(super) fn refusal<B>(request: &Request<B>, faults: Faults) -> Option<Response> {
    let problem = problem(request.version(), request.headers(), faults)?;
    let mut response = problem.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

fn problem(version: Version, headers: &HeaderMap, faults: Faults) -> Option<Problem> {
    if faults.bare_line_feed {
        return Some(Problem::field("head", "has a line that ends with a bare line feed; send CR LF"));
    }
    if faults.has_both_lengths() {
        return Some(Problem::field("Content-Length", "cannot be given together with Transfer-Encoding"));
    }
    let hosts = headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && version >= Version::HTTP_11) {
        return Some(Problem::field("Host", "must be given once"));
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = match (encodings.next(), encodings.next()) {
        (None, _) => true,
        (Some(encoding), None) => encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    let detail = "the only supported Transfer-Encoding is chunked";
    (!is_plain).then(|| Problem::new(Code::UnsupportedTransferEncoding, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In reads of `size` bytes.
    fn scan(head: &str, size: usize) -> HeadScan {
        let mut scan = HeadScan::default();
        for part in head.as_bytes().chunks(size) {
            scan.read(part);
        }
        scan
    }

    #[test]
    fn faults_are_seen_however_the_head_is_cut() {
        for (head, bare, both) in [
            ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", false, false),
            ("\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", false, false),
            ("GET / HTTP/1.1\nhost: x\r\n\r\n", true, false),
            ("GET / HTTP/1.1\r\nhost: x\n\r\n", true, false),
            ("GET / HTTP/1.1\r\nhost: x\r\n\n", true, false),
            ("GET / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", false, true),
            ("GET / HTTP/1.1\r\ntransfer-encoding:chunked\r\nCONTENT-LENGTH:4\r\n\r\n", false, true),
            ("GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\nx-content-length: 4\r\n\r\n", false, false),
            ("GET / HTTP/1.1\r\nte: x\r\ncontent-lengthy: 4\r\ntransfer-encoding: chunked\r\n\r\n", false, false),
        ] {
            for size in 1..=head.len() {
                let scan = scan(head, size);
                let faults = scan.faults();
                assert!(scan.is_complete(), "{head:?} by {size}");
                assert_eq!((faults.bare_line_feed, faults.has_both_lengths()), (bare, both), "{head:?} by {size}");
                assert_eq!(Faults::from_bits(faults.bits()), faults);
            }
        }
    }

    #[test]
    fn the_body_is_not_looked_at() {
        let scan = scan("POST / HTTP/1.1\r\ncontent-length: 30\r\n\r\na\ntransfer-encoding: chunked\n\n", 64);

        assert!(!scan.faults().bare_line_feed && !scan.faults().has_both_lengths());
    }
}
