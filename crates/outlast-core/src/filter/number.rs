//! Numbers compare by what they are, not by how they are stored: 1000 is 1000.0, and 2^53 is not 2^53 + 1.

use std::cmp::Ordering;

use serde_json::Number;

/// 2^64: above every integer that JSON numbers are kept as, and exact.
const BEYOND_INTEGERS: f64 = 18_446_744_073_709_551_616.0;

/// Exact for integers of 64 bits and for floats, in any mixture.
pub(super) fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => compare_with_float(one, other.as_f64()?),
        (None, Some(other)) => compare_with_float(other, one.as_f64()?).map(Ordering::reverse),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn compare_with_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND_INTEGERS {
        return Some(Ordering::Less);
    }
    if float <= -BEYOND_INTEGERS {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^64 fits")]
    let whole = float.trunc() as i128;
    let by_fraction = || 0.0.partial_cmp(&float.fract());
    match integer.cmp(&whole) {
        Ordering::Equal => by_fraction(),
        unequal => Some(unequal),
    }
}
