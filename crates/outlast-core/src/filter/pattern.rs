//! Regular expressions of filters. They take time in proportion to the text and to their own size, so both are bounded.

use regex::{Regex, RegexBuilder};

/// Limit for all compiled patterns of a filter together, in bytes. `\w` alone takes 32 KiB, since it covers all of
/// Unicode.
pub(super) const BYTES_MAX: usize = 1 << 21;
/// A pattern is compiled within this many bytes, then within twice as many, until it fits.
const BYTES_MIN: usize = 1 << 10;
/// The least size of one state of a compiled pattern, in bytes.
const STATE_BYTES: u64 = 24;
/// The memory in which states are cached while a text is searched, in bytes.
const CACHE_BYTES: usize = 1 << 18;

#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: Regex,
    /// The size limit that was enough to compile it.
    pub bytes: usize,
}

impl Pattern {
    /// `Err` says why not, in one line.
    pub(super) fn parse(text: &str, bytes_max: usize) -> Result<Pattern, String> {
        let mut bytes = BYTES_MIN;
        while bytes <= bytes_max {
            let mut builder = RegexBuilder::new(text);
            builder.size_limit(bytes).dfa_size_limit(CACHE_BYTES).nest_limit(32);
            match builder.build() {
                Ok(regex) => return Ok(Pattern { regex, bytes }),
                Err(regex::Error::CompiledTooBig(_)) => bytes *= 2,
                Err(error) => return Err(reason(&error)),
            }
        }
        Err("the regular expressions of this filter are too big; [a-z] is smaller than \\w, and {10} than {1000}"
            .to_owned())
    }

    /// Anywhere in the text.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// At worst every state is looked at for every byte.
    pub(super) fn cost(&self, text: &str) -> u64 {
        (self.bytes as u64 / STATE_BYTES).saturating_mul(text.len() as u64 + 1)
    }

    pub(super) fn as_str(&self) -> &str {
        self.regex.as_str()
    }
}

/// The last line of what the library says; those before show the pattern.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    format!("not a regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
}
