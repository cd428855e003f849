//! What the scenarios read from the server's JSON answers. Fields are borrowed from the answer; all others are skipped.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
struct Received<'a> {
    #[serde(borrow)]
    jobs: Vec<Job<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct Job<'a> {
    pub(crate) id: &'a str,
    pub(crate) lease: &'a str,
    #[serde(borrow)]
    payload: Payload<'a>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    seq: &'a str,
}

impl Job<'_> {
    pub(crate) fn sequence(&self) -> Result<u64> {
        u64::from_str_radix(self.payload.seq, 16).context("the payload came back changed")
    }
}

#[derive(Deserialize)]
struct Outcomes {
    results: Vec<Accepted>,
}

#[derive(Deserialize)]
struct Accepted {
    accepted: bool,
}

#[derive(Deserialize)]
struct Batch {
    jobs: Vec<BatchEntry>,
}

#[derive(Deserialize)]
struct BatchEntry {
    id: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Queue {
    counts: Counts,
}

/// Jobs of a queue by state.
#[derive(Deserialize, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) running: u64,
    pub(crate) succeeded: u64,
}

pub(crate) fn received(body: &[u8]) -> Result<Vec<Job<'_>>> {
    let received: Received = serde_json::from_slice(body).context("the answer to a receive is not understood")?;
    Ok(received.jobs)
}

/// The job that a push delivery carries; it has the same fields as a received one.
pub(crate) fn delivered(body: &[u8]) -> Result<Job<'_>> {
    serde_json::from_slice(body).context("a delivery is not understood")
}

/// Fails unless each of the `expected` outcomes was accepted.
pub(crate) fn all_accepted(body: &[u8], expected: usize) -> Result<()> {
    let outcomes: Outcomes = serde_json::from_slice(body).context("the answer to outcomes is not understood")?;
    let accepted = outcomes.results.iter().filter(|result| result.accepted).count();
    ensure!(accepted == expected, "{accepted} of {expected} outcomes were accepted");
    Ok(())
}

/// Fails unless each of the `expected` jobs of a batch was stored.
pub(crate) fn all_published(body: &[u8], expected: usize) -> Result<()> {
    let batch: Batch = serde_json::from_slice(body).context("the answer to a batch publish is not understood")?;
    let stored = batch.jobs.iter().filter(|entry| entry.id.is_some()).count();
    ensure!(stored == expected, "{stored} of {expected} jobs were stored");
    Ok(())
}

pub(crate) fn counts(body: &[u8]) -> Result<Counts> {
    let queue: Queue = serde_json::from_slice(body).context("the queue object is not understood")?;
    Ok(queue.counts)
}

/// Does the job say that it runs? Its JSON is not parsed: that would cost the generator more than the server.
pub(crate) fn is_running(body: &[u8]) -> bool {
    const RUNNING: &[u8] = b"\"status\":\"running\"";
    body.windows(RUNNING.len()).any(|window| window == RUNNING)
}

/// Was the event new, and did a queue take it? Not parsed, as above.
pub(crate) fn made_one_job(body: &[u8]) -> bool {
    const NEW: &[u8] = b"\"duplicate\":false";
    const ONE: &[u8] = b"\"jobs_created\":1}";
    body.windows(NEW.len()).any(|window| window == NEW) && body.windows(ONE.len()).any(|window| window == ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_received_job_gives_id_lease_and_number() {
        let body = br#"{"jobs":[{"id":"j","attempt":1,"lease":"l","payload":{"seq":"00ff","text":"t"}}]}"#;

        let jobs = received(body).unwrap();

        let job = jobs.first().unwrap();
        assert_eq!((job.id, job.lease), ("j", "l"));
        assert_eq!(job.sequence().unwrap(), 255);
    }

    #[test]
    fn one_refused_outcome_is_noticed() {
        let body = br#"{"results":[{"id":"a","accepted":true},{"id":"b","accepted":false,"error":{}}]}"#;

        assert!(all_accepted(body, 2).is_err());
    }

    #[test]
    fn one_refused_job_of_a_batch_is_noticed() {
        let body = br#"{"jobs":[{"id":"a","status":"queued"},{"error":{"code":"x"}}]}"#;

        assert!(all_published(body, 2).is_err());
    }

    #[test]
    fn an_event_that_is_repeated_or_taken_by_nobody_is_noticed() {
        assert!(made_one_job(br#"{"event_id":"e","duplicate":false,"jobs_created":1}"#));
        assert!(!made_one_job(br#"{"event_id":"e","duplicate":true,"jobs_created":0}"#));
        assert!(!made_one_job(br#"{"event_id":"e","duplicate":false,"jobs_created":0}"#));
    }
}
