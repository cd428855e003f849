//! Queue changes (I-03): a queue ends with the last acknowledged setting, or with one of unknown ending sent after it.

use std::collections::BTreeMap;

use super::{Action, Operation, Rule, Snapshot, Violation, violation};

pub(super) fn check(operations: &[Operation], snapshot: &Snapshot) -> Vec<Violation> {
    let mut possible: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut acknowledged: BTreeMap<&str, u64> = BTreeMap::new();
    let mut in_order: Vec<&Operation> = operations.iter().collect();
    in_order.sort_by_key(|operation| operation.started);
    for operation in in_order {
        let Action::ChangeQueue { queue, value } = &operation.action else {
            continue;
        };
        let values = possible.entry(queue).or_default();
        if operation.is_acknowledged() {
            values.clear();
            acknowledged.insert(queue, *value);
        }
        if operation.may_have_happened() {
            values.push(*value);
        }
    }

    let mut violations = Vec::new();
    for (queue, last) in acknowledged {
        let values = &possible[queue];
        let found = snapshot.queues.get(queue);
        if !found.is_some_and(|value| values.contains(value)) {
            let detail = format!("acknowledged {last}, possible {values:?}, found {found:?}");
            violations.push(violation(Rule::QueueChangeLost, queue, detail));
        }
    }
    violations
}
