//! Filters and paths as texts: what can be said about them before events come.

/// Longer paths are refused before anything parses them.
const PATH_BYTES_MAX: usize = 1024;
/// Parsers of paths recurse into brackets.
const PATH_BRACKETS_MAX: usize = 32;
const FILTER_BYTES_MAX: usize = 4096;

/// The column (from 1) and what is wrong there. A stand-in: it looks at the length only and accepts every other text, until
/// the parser of `outlast_core::filter` takes its place.
pub(crate) fn check_filter(text: &str) -> Result<(), (usize, String)> {
    if text.len() > FILTER_BYTES_MAX {
        return Err((1, format!("a filter has at most {FILTER_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// What is wrong with a JSONPath. A stand-in, too: it looks at the beginning and at the bounds that a parser needs.
pub(crate) fn check_path(text: &str) -> Result<(), String> {
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'(')).count();
    if !text.starts_with('$') {
        return Err("must be a JSONPath such as $.data.id".to_owned());
    }
    if text.len() > PATH_BYTES_MAX || brackets > PATH_BRACKETS_MAX {
        return Err(format!("must have at most {PATH_BYTES_MAX} bytes and {PATH_BRACKETS_MAX} brackets"));
    }
    Ok(())
}
