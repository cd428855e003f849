//! A problem of a configuration and the place where it was written.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The embedded defaults.
    Defaults,
    /// A file; line and column count from 1, and are 0 for the file as a whole.
    File {
        path: Arc<str>,
        line: u64,
        column: u64,
    },
    Environment(&'static str),
    Flag(&'static str),
    /// The sum of all layers, where no single place is to blame.
    Merged,
}

impl Origin {
    pub(crate) fn file(path: &Path) -> Origin {
        Origin::File { path: path.to_string_lossy().into(), line: 0, column: 0 }
    }

    /// The same source, at a position in it.
    pub(crate) fn at(&self, line: u64, column: u64) -> Origin {
        match self {
            Origin::File { path, .. } => Origin::File { path: path.clone(), line, column },
            other => other.clone(),
        }
    }

    /// For sorting problems into reading order; values from outside the file come last.
    pub(crate) fn position(&self) -> (u64, u64) {
        match self {
            Origin::File { line, column, .. } => (*line, *column),
            _ => (u64::MAX, 0),
        }
    }

    /// Where relative paths that were written here start from.
    pub(crate) fn directory(&self) -> PathBuf {
        match self {
            Origin::File { path, .. } => Path::new(&**path).parent().map(Path::to_path_buf).unwrap_or_default(),
            _ => PathBuf::new(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Defaults => f.write_str("embedded defaults"),
            Origin::File { path, line: 0, .. } => f.write_str(path),
            Origin::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::Merged => f.write_str("configuration"),
        }
    }
}

/// One thing to repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub origin: Origin,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(origin: Origin, message: impl Into<String>) -> Problem {
        Problem { origin, message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Problem {
        Problem { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
