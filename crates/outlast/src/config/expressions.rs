//! Filters and paths of the file, read by the rules that will judge events.

use outlast_core::filter::{Filter, Path};

/// `None` and what is wrong with it, by column, if it is no filter.
pub(crate) fn filter(text: &str) -> Result<Filter, String> {
    Filter::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn path(text: &str) -> Result<Path, String> {
    Path::parse(text).map_err(|error| format!("must be a JSONPath such as $.data.id: {error}"))
}
