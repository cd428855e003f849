//! Looks for damage in the database of an embedded store: reads all of it and changes nothing.

use std::path::Path;

use outlast_store::sqlite::inspect;

use super::{Check, Verdict};

/// So many findings are named.
const SHOWN_MAX: usize = 20;

pub(crate) fn check(data: &Path) -> Option<Check> {
    if !data.join("outlast.db").exists() {
        return None;
    }
    let findings = match inspect(data) {
        Ok(findings) => findings,
        Err(error) => return Some(Check::new("database", Verdict::Fail, error.to_string())),
    };
    if findings.is_empty() {
        return Some(Check::new("database", Verdict::Ok, "all rows and pages pass their checks"));
    }
    let more = findings.len().saturating_sub(SHOWN_MAX);
    let mut shown = findings.into_iter().take(SHOWN_MAX).collect::<Vec<_>>().join("; ");
    if more > 0 {
        shown.push_str(&format!("; and {more} more"));
    }
    Some(Check::new("database", Verdict::Fail, format!("{shown}. Restore from a backup what is damaged")))
}
