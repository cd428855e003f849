//! How much work one look at an event may be. Work is paid for before it is done, at its worst case, so a filter and an event
//! that would take seconds together end with [`Exhausted`] at once.

use serde_json::Value;

/// A step is about a nanosecond: comparing two small values, or one state of a regular expression on one byte.
const STEPS: u64 = 50_000_000;
/// Deeper events are not searched: the search recurses as deep. JSON that is read by `serde_json` is never deeper.
const EVENT_DEPTH_MAX: u64 = 128;
/// So many bytes of text are compared in the time of one value.
const TEXT_BYTES_PER_VALUE: u64 = 64;

/// The filter is too expensive for this event; it is not known whether the event passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the term at column {column} takes too many steps on this event: {term}")]
pub struct Exhausted {
    pub column: usize,
    pub term: String,
}

/// There are not enough steps left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overrun;

/// For one event.
pub(super) struct StepBudget {
    left: u64,
    /// Of the event, measured when it is first needed.
    extent: Option<Extent>,
}

impl StepBudget {
    pub(super) fn full() -> StepBudget {
        StepBudget { left: STEPS, extent: None }
    }

    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Overrun> {
        self.left = self.left.checked_sub(steps).ok_or(Overrun)?;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        STEPS - self.left
    }

    pub(super) fn extent(&mut self, event: &Value) -> Result<Extent, Overrun> {
        if let Some(extent) = self.extent {
            return Ok(extent);
        }
        let extent = Extent::of(event, self.left)?;
        self.spend(extent.values)?;
        self.extent = Some(extent);
        Ok(extent)
    }
}

/// How large an event is for somebody who searches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// All values in it, long texts and names counted more than once.
    pub values: u64,
    /// The same, each value counted once for every value that it lies in, itself included: what a visit of all subtrees takes.
    pub nested: u64,
    /// 1 for a value that holds no others.
    pub depth: u64,
}

impl Extent {
    /// Does not recurse, and stops at `values_max`.
    fn of(event: &Value, values_max: u64) -> Result<Extent, Overrun> {
        let mut extent = Extent { values: 0, nested: 0, depth: 0 };
        let mut waiting = vec![(event, 1_u64)];
        while let Some((value, depth)) = waiting.pop() {
            let weight = 1 + text_bytes(value) / TEXT_BYTES_PER_VALUE;
            extent.values += weight;
            extent.nested += weight * depth;
            extent.depth = extent.depth.max(depth);
            if extent.values > values_max || depth > EVENT_DEPTH_MAX {
                return Err(Overrun);
            }
            match value {
                Value::Array(elements) => waiting.extend(elements.iter().map(|element| (element, depth + 1))),
                Value::Object(members) => waiting.extend(members.values().map(|member| (member, depth + 1))),
                _ => {}
            }
        }
        Ok(extent)
    }
}

fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Object(members) => members.keys().map(|name| name.len() as u64).sum(),
        _ => 0,
    }
}
