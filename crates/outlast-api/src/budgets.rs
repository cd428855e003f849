//! The budgets of one process: request slots, request bytes, waiting requests, streams, and bodies that are read only to be
//! thrown away. `docs/decisions/0029` says how the shares were chosen.

use std::sync::Arc;

use crate::budget::{Budget, Share, Shares};
use crate::limits::Limits;

/// The part of slots and bytes that only vital requests may use.
const RESERVED_PART: usize = 8;
/// Slots that a key may always have; addresses and tokens get a quarter of it.
const SLOTS_LEAST: usize = 32;
/// A waiting request or a stream costs only its connection, so a key may have most of the places.
const WAITERS_KEY_PERCENT: usize = 75;
const WAITERS_LEAST: usize = 32;
/// The usual largest event of a source.
const EVENT_BYTES: usize = 1 << 20;
/// Refused bodies that are read to their end at the same time, in all and from one address.
const DISCARDS: usize = 1024;
const DISCARDS_PER_ADDRESS: usize = 64;

pub(crate) struct Budgets {
    /// Requests being worked on; waiting ones are counted in `waiters`.
    pub(crate) slots: Arc<Budget>,
    /// Bytes of request bodies in memory.
    pub(crate) bytes: Arc<Budget>,
    pub(crate) waiters: Arc<Budget>,
    /// Open streams and WebSockets. They last for up to an hour, so they hold no request slot.
    pub(crate) streams: Arc<Budget>,
    pub(crate) discards: Arc<Budget>,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Budgets {
        let (requests, bytes) = (limits.in_flight_requests, limits.in_flight_bytes);
        Budgets {
            slots: Budget::new("request slots", requests, requests / RESERVED_PART, slot_shares(limits)),
            bytes: Budget::new("bytes for request bodies", bytes, bytes / RESERVED_PART, byte_shares(limits)),
            waiters: Budget::new("places for waiting requests", limits.waiting_requests, 0, waiter_shares(limits)),
            streams: Budget::new("open streams", limits.streams, 0, stream_shares(limits)),
            discards: discards(),
        }
    }
}

/// For refused bodies, and for connections that close behind one.
pub(crate) fn discards() -> Arc<Budget> {
    let shares = Shares::of_key(100);
    let address = shares.address.at_most(DISCARDS_PER_ADDRESS);
    Budget::new("places for refused bodies", DISCARDS, 0, Shares { address, ..shares })
}

fn slot_shares(limits: &Limits) -> Shares {
    let shares = Shares::of_key(limits.key_share_percent);
    Shares {
        namespace: shares.namespace.at_least(SLOTS_LEAST),
        key: shares.key.at_least(SLOTS_LEAST),
        tokens: shares.tokens.at_least(SLOTS_LEAST / 4),
        token: shares.token.at_least(SLOTS_LEAST / 4),
        anonymous: shares.anonymous.at_least(SLOTS_LEAST / 4),
        address: shares.address.at_least(SLOTS_LEAST / 4),
    }
}

/// One body of the largest size always has room in the share of its sender.
fn byte_shares(limits: &Limits) -> Shares {
    let shares = Shares::of_key(limits.key_share_percent);
    let event = limits.batch_bytes.min(EVENT_BYTES);
    Shares {
        namespace: shares.namespace.at_least(limits.batch_bytes),
        key: shares.key.at_least(limits.batch_bytes),
        tokens: shares.tokens.at_least(event),
        token: shares.token.at_least(event),
        anonymous: shares.anonymous.at_least(limits.batch_bytes),
        address: shares.address.at_least(event),
    }
}

fn waiter_shares(limits: &Limits) -> Shares {
    let shares = connection_shares(limits);
    Shares {
        key: shares.key.at_most(limits.waiting_requests_per_key),
        token: shares.token.at_most(limits.waiting_requests_per_token),
        ..shares
    }
}

/// The holders of tokens to one job have as many streams as a key: they watch one job in many browsers.
fn stream_shares(limits: &Limits) -> Shares {
    let shares = connection_shares(limits);
    let (key, token) = (shares.key.at_most(limits.streams_per_key), shares.key.at_most(limits.streams_per_key));
    Shares { key, token, ..shares }
}

/// For what costs little beside its connection.
fn connection_shares(limits: &Limits) -> Shares {
    let percent = if limits.key_share_percent >= 100 { 100 } else { WAITERS_KEY_PERCENT };
    let shares = Shares::of_key(percent);
    let least = |share: Share| share.at_least(WAITERS_LEAST);
    Shares {
        namespace: least(shares.namespace),
        key: least(shares.key),
        tokens: least(shares.tokens),
        token: least(shares.token),
        ..shares
    }
}
