//! How stored values become bytes and back, the same on both engines: a job's row, its events, its progress, its id.

pub mod events;
pub(crate) mod job_id;
pub(crate) mod row;
pub(crate) mod work;
