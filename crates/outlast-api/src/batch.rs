//! Calls about many jobs: each entry is taken or refused on its own, and answered in its place.

use axum::response::Response;
use http::StatusCode;
use outlast_core::{JobId, Lease};
use serde_json::json;

use crate::error::Problem;
use crate::schema::{Object, Value, Values, read_raw};
use crate::wire;

/// A call's entries: those that could be read, and what is wrong with the others.
pub(crate) struct BatchRequest<T> {
    pub(crate) accepted: Vec<T>,
    refused: BatchRefusals,
}

/// One place for each entry; filled where it was refused.
pub(crate) struct BatchRefusals(Vec<Option<Problem>>);

impl<T> BatchRequest<T> {
    /// Takes the list of this name out of the body; `entry` gets the fields of one entry and its path.
    pub(crate) fn read(
        body: &mut Values<'_>,
        list: &str,
        object: &'static Object,
        entry: impl Fn(Values<'_>, &str) -> Result<T, Problem>,
    ) -> BatchRequest<T> {
        let entries = body.list(list).unwrap_or_default();
        let mut batch =
            BatchRequest { accepted: Vec::with_capacity(entries.len()), refused: BatchRefusals(Vec::new()) };
        for (place, raw) in entries.iter().enumerate() {
            let read = match raw {
                Value::Any(raw) => {
                    let path = format!("{list}[{place}]");
                    read_raw(object, raw, &path).map_err(Problem::invalid).and_then(|values| entry(values, &path))
                }
                _ => Err(Problem::field(list, "must be objects")),
            };
            batch.refused.0.push(match read {
                Ok(accepted) => {
                    batch.accepted.push(accepted);
                    None
                }
                Err(problem) => Some(problem),
            });
        }
        batch
    }

    pub(crate) fn split(self) -> (Vec<T>, BatchRefusals) {
        (self.accepted, self.refused)
    }
}

impl BatchRefusals {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// All answers in order; `answers` has those of the entries that were taken.
    pub(crate) fn answer(self, answers: impl IntoIterator<Item = String>) -> Response {
        let mut answers = answers.into_iter();
        let mut body = String::with_capacity(16 + self.0.len() * 128);
        body.push_str("{\"results\":[");
        for (place, refused) in self.0.into_iter().enumerate() {
            if place > 0 {
                body.push(',');
            }
            match refused {
                Some(problem) => body.push_str(&refusal(None, &problem)),
                None => body.push_str(&answers.next().unwrap_or_default()),
            }
        }
        body.push_str("]}");
        wire::ok(StatusCode::OK, body)
    }
}

pub(crate) fn refusal(id: Option<JobId>, problem: &Problem) -> String {
    json!({"id": id.map(|id| id.to_string()), "accepted": false, "error": problem.to_json()}).to_string()
}

/// Which job an entry is about, and under which lease.
pub(crate) fn job_and_lease(values: &mut Values<'_>) -> Result<(JobId, Option<Lease>), Problem> {
    let id = values.text("id").unwrap_or_default().parse().map_err(|_| Problem::job_not_found())?;
    Ok((id, values.text("lease").and_then(|text| text.parse().ok())))
}
