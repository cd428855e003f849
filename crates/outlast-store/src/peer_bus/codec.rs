//! A signal set as bytes. Messages come from a place that others may write to: they are read with bounds at every step, what is
//! not exactly of this form is nothing, and reading never panics.
//!
//! `version u8 · node u64 · flags u8 · namespaces u16 × u32 · queues u16 × (namespace u32, changed u8, more u32, length u8,
//! name) · jobs u16 × u128`, little-endian, and nothing after it. Progress has messages of another version, see `progress`:
//! a node of before them drops those and misses no wake-up.

pub mod progress;

use outlast_core::queue::is_name;
use outlast_core::{JobId, NamespaceId};

use super::SignalSet;
use super::signals::{JOBS_MAX, QUEUES_MAX, QueueSignals};

const VERSION: u8 = 1;

const EVERYTHING: u8 = 1;
const ALL_JOBS: u8 = 2;
const KEYS: u8 = 4;
const OPERATIONS: u8 = 8;

/// The longest message there can be: every list full, every name as long as it may be. A longer one is not even read.
pub const BYTES_MAX: usize = 16 + QUEUES_MAX * (4 + 10 + 128) + JOBS_MAX * 16;

/// A message of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct BusMessage {
    pub node: u64,
    pub news: SignalSet,
}

/// All of the news but progress.
pub fn encode(node: u64, news: &SignalSet) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + news.queue_count() * 32 + news.jobs.len() * 16);
    bytes.push(VERSION);
    bytes.extend(node.to_le_bytes());
    bytes.push(flags(news));
    bytes.extend(count(news.namespaces.len()));
    for namespace in &news.namespaces {
        bytes.extend(namespace.0.to_le_bytes());
    }
    bytes.extend(count(news.queue_count()));
    for (namespace, queues) in &news.queues {
        for (name, queue) in queues {
            bytes.extend(namespace.0.to_le_bytes());
            bytes.push(u8::from(queue.changed));
            bytes.extend(queue.more.to_le_bytes());
            bytes.push(u8::try_from(name.len()).unwrap_or(0));
            bytes.extend(name.as_bytes());
        }
    }
    bytes.extend(count(news.jobs.len()));
    for id in &news.jobs {
        bytes.extend(id.as_u128().to_le_bytes());
    }
    bytes
}

/// `None` for anything that is not a message of a known version.
pub fn decode(bytes: &[u8]) -> Option<BusMessage> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let mut reader = MessageReader(bytes);
    let version = reader.byte()?;
    let node = u64::from_le_bytes(reader.array()?);
    let news = match version {
        VERSION => read(&mut reader)?,
        progress::VERSION => progress::read(&mut reader)?,
        _ => return None,
    };
    reader.0.is_empty().then_some(BusMessage { node, news })
}

/// Reads the part after the node.
fn read(reader: &mut MessageReader<'_>) -> Option<SignalSet> {
    let flags = reader.byte()?;
    if flags & !(EVERYTHING | ALL_JOBS | KEYS | OPERATIONS) != 0 {
        return None;
    }
    let mut news = SignalSet::default();
    news.everything = flags & EVERYTHING != 0;
    news.all_jobs = flags & ALL_JOBS != 0;
    news.keys = flags & KEYS != 0;
    news.operations = flags & OPERATIONS != 0;
    for _ in 0..reader.count(QUEUES_MAX)? {
        news.namespaces.insert(reader.namespace()?);
    }
    for _ in 0..reader.count(QUEUES_MAX)? {
        let (namespace, name, queue) = reader.queue()?;
        news.at_queue(namespace, name, queue);
    }
    for _ in 0..reader.count(JOBS_MAX)? {
        news.jobs.insert(reader.job()?);
    }
    Some(news)
}

fn flags(news: &SignalSet) -> u8 {
    let all =
        [(news.everything, EVERYTHING), (news.all_jobs, ALL_JOBS), (news.keys, KEYS), (news.operations, OPERATIONS)];
    all.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag)
}

fn count(length: usize) -> [u8; 2] {
    // The lists of news are shorter than this by their bounds.
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

/// The bytes that are left to read.
struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        (count <= most).then_some(count)
    }

    fn namespace(&mut self) -> Option<NamespaceId> {
        Some(NamespaceId(u32::from_le_bytes(self.array()?)))
    }

    fn queue(&mut self) -> Option<(NamespaceId, &'a str, QueueSignals)> {
        let namespace = self.namespace()?;
        let changed = match self.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let more = u32::from_le_bytes(self.array()?);
        let length = usize::from(self.byte()?);
        let name = std::str::from_utf8(self.take(length)?).ok().filter(|name| is_name(name))?;
        Some((namespace, name, QueueSignals { more, changed }))
    }

    fn job(&mut self) -> Option<JobId> {
        JobId::from_u128(u128::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests;
