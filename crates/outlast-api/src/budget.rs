//! Budgets: how much of one thing (request slots, request bytes, waiting requests, connections) this process holds at
//! once, and how much of it one sender may have. A charge grows with what really arrived and gives it back when
//! dropped. Every share shrinks as the whole fills, so that no number of greedy senders takes the room of the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use outlast_core::{JobId, NamespaceId};
use outlast_store::keys::KeyId;
use tokio::time::Instant;

use crate::error::{Code, Problem};

/// The sender that a charge is counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Key {
        namespace: NamespaceId,
        key: KeyId,
    },
    /// Holders of tokens to one job. They never use up the share of the key that minted the tokens.
    Token {
        namespace: NamespaceId,
        key: KeyId,
        job: JobId,
    },
    /// A sender that has not shown a key, or whose signature is not checked yet.
    Address(IpAddr),
}

/// Which part of a budget a charge may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Ordinary,
    /// Also the reserved part: for what keeps the lease of a living worker.
    Vital,
}

/// One group of senders that has a share of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Level {
    Namespace(NamespaceId),
    Key(KeyId),
    /// All tokens that one key minted.
    Tokens(KeyId),
    Token(KeyId, JobId),
    /// All senders without a key.
    Anonymous,
    Address(IpAddr),
}

/// How much of a budget one sender may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Of the whole, while no other sender holds any of it. It shrinks with the square of what is free: however many
    /// greedy senders come one after the other, about `1 / 2n` of the whole stays free behind `n` of them with 50
    /// percent each. In proportion to what is free, each would halve it. 100: no bound.
    pub(crate) percent: usize,
    /// A sender may always have this much, as long as the whole has it.
    pub(crate) least: usize,
    /// A sender never has more than this.
    pub(crate) most: usize,
}

/// The shares of all kinds of senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) namespace: Share,
    pub(crate) key: Share,
    pub(crate) tokens: Share,
    pub(crate) token: Share,
    pub(crate) anonymous: Share,
    pub(crate) address: Share,
}

impl Share {
    /// With nothing guaranteed and no fixed bound.
    pub(crate) const fn percent(percent: usize) -> Share {
        Share { percent, least: 0, most: usize::MAX }
    }

    pub(crate) const fn at_least(self, least: usize) -> Share {
        Share { least, ..self }
    }

    pub(crate) const fn at_most(self, most: usize) -> Share {
        Share { most, ..self }
    }

    /// Whether a sender may hold so much when then `free` of the `whole` is left.
    fn allows(self, held: usize, free: usize, whole: usize) -> bool {
        // Nearly every charge is that small, and then nothing has to be divided.
        if held <= self.least.min(self.most) {
            return true;
        }
        let of_free = match self.percent {
            100.. => usize::MAX,
            percent => {
                let [free, whole, percent] = [free, whole.max(1), percent].map(|number| number as u128);
                let kept = 100 - percent;
                usize::try_from(free * free * percent * 100 / (whole * kept * kept)).unwrap_or(usize::MAX)
            }
        };
        held <= of_free.max(self.least).min(self.most)
    }
}

impl Shares {
    /// A key has at most `key_percent`; the others follow from it. With 100 there are no shares.
    pub(crate) fn of_key(key_percent: usize) -> Shares {
        let scaled = |percent: usize| Share::percent(if key_percent >= 100 { 100 } else { percent });
        Shares {
            namespace: scaled((100 + key_percent) / 2),
            key: scaled(key_percent),
            tokens: scaled(key_percent / 2),
            token: scaled((key_percent / 8).max(1)),
            anonymous: scaled(key_percent * 2 / 3),
            address: scaled((key_percent / 4).max(1)),
        }
    }

    fn of(&self, level: Level) -> Share {
        match level {
            Level::Namespace(_) => self.namespace,
            Level::Key(_) => self.key,
            Level::Tokens(_) => self.tokens,
            Level::Token(..) => self.token,
            Level::Anonymous => self.anonymous,
            Level::Address(_) => self.address,
        }
    }
}

/// Why a charge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    what: &'static str,
    /// `None`: the whole is in use.
    level: Option<Level>,
}

impl Full {
    /// The sender itself is the cause, not the load of others.
    #[cfg(test)]
    fn is_own_share(&self) -> bool {
        !matches!(self.level, None | Some(Level::Anonymous))
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Problem {
        let what = full.what;
        let whose = match full.level {
            None => {
                let detail = format!("all {what} of this server are in use; nothing was stored, try again");
                return Problem::new(Code::Overloaded, detail);
            }
            Some(Level::Anonymous) => {
                let detail = format!("the {what} for senders without a key are in use; nothing was stored, try again");
                return Problem::new(Code::Overloaded, detail);
            }
            Some(Level::Namespace(_)) => "this namespace",
            Some(Level::Key(_)) => "this key",
            Some(Level::Tokens(_)) => "the tokens of this key",
            Some(Level::Token(..)) => "the tokens to this job",
            Some(Level::Address(_)) => "this address",
        };
        let detail = format!("the share of {whose} in this server's {what} is in use; nothing was stored, try again");
        Problem::new(Code::TooManyRequests, detail)
    }
}

/// A bounded amount of one thing that all requests share.
pub(crate) struct Budget {
    /// As messages name it: "request slots".
    what: &'static str,
    shares: Shares,
    used: Mutex<[Pool; 2]>,
}

/// The ordinary part of a budget, or the reserved one.
struct Pool {
    whole: usize,
    used: usize,
    by_level: HashMap<Level, usize, RandomState>,
    /// Since when the whole of it refuses every charge.
    exhausted_since: Option<Instant>,
}

impl Budget {
    /// `reserved` of the `whole` is for vital charges.
    pub(crate) fn new(what: &'static str, whole: usize, reserved: usize, shares: Shares) -> Arc<Budget> {
        let reserved = reserved.min(whole);
        let pools = [Pool::new(whole - reserved), Pool::new(reserved)];
        Arc::new(Budget { what, shares, used: Mutex::new(pools) })
    }

    /// A charge of nothing, which can grow.
    pub(crate) fn open(self: &Arc<Self>, holder: Holder, priority: Priority) -> Charge {
        Charge { budget: Arc::clone(self), holder: holder.normalised(), priority, held: [0, 0] }
    }

    pub(crate) fn take(self: &Arc<Self>, holder: Holder, priority: Priority, amount: usize) -> Result<Charge, Full> {
        let mut charge = self.open(holder, priority);
        charge.grow(amount)?;
        Ok(charge)
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    /// The amount that all senders hold now.
    pub(crate) fn used(&self) -> usize {
        self.lock().iter().map(|pool| pool.used).sum()
    }

    /// The share of the room for ordinary charges that is in use, from 0 to 100.
    pub(crate) fn load_percent(&self) -> u64 {
        let [ordinary, _] = &*self.lock();
        let percent = ordinary.used.saturating_mul(100).checked_div(ordinary.whole);
        percent.and_then(|percent| u64::try_from(percent).ok()).map_or(100, |percent| percent.min(100))
    }

    /// For how long ordinary charges have been refused for want of room; nothing once an eighth of it is free again.
    pub(crate) fn exhausted_for(&self) -> Duration {
        let pools = self.lock();
        let full = pools.iter().next().filter(|pool| pool.used >= pool.whole - pool.whole / 8);
        full.and_then(|pool| pool.exhausted_since).map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, [Pool; 2]> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The amount of a budget that one sender holds; returned on drop. Owned, so that a response body can carry it.
pub(crate) struct Charge {
    budget: Arc<Budget>,
    holder: Holder,
    priority: Priority,
    /// Of the ordinary part and of the reserved one.
    held: [usize; 2],
}

impl Charge {
    /// Takes so much more, or nothing.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Full> {
        if amount == 0 {
            return Ok(());
        }
        let [ordinary, reserved] = &mut *self.budget.lock();
        let [of_ordinary, of_reserved] = &mut self.held;
        let refused = match ordinary.add(self.holder, amount, &self.budget.shares) {
            Ok(()) => {
                *of_ordinary += amount;
                return Ok(());
            }
            Err(level) => Full { what: self.budget.what, level },
        };
        if self.priority == Priority::Ordinary {
            return Err(refused);
        }
        reserved.add(self.holder, amount, &self.budget.shares).map_err(|_| refused)?;
        *of_reserved += amount;
        Ok(())
    }

    /// Takes so much more whatever the bounds say: for what must not fail any more.
    pub(crate) fn grow_anyway(&mut self, amount: usize) {
        let [ordinary, _] = &mut *self.budget.lock();
        let [of_ordinary, _] = &mut self.held;
        ordinary.put(self.holder, amount);
        *of_ordinary += amount;
    }

    /// Gives everything back; it can grow again.
    pub(crate) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held == [0, 0] {
            return;
        }
        for (pool, amount) in self.budget.lock().iter_mut().zip(held) {
            pool.remove(self.holder, amount);
        }
    }

    #[cfg(test)]
    fn amount(&self) -> usize {
        self.held.iter().sum()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

impl Pool {
    fn new(whole: usize) -> Pool {
        Pool { whole, used: 0, by_level: HashMap::default(), exhausted_since: None }
    }

    /// On refusal: whose share is full; `None` for the whole.
    fn add(&mut self, holder: Holder, amount: usize, shares: &Shares) -> Result<(), Option<Level>> {
        let Some(free) = self.whole.checked_sub(self.used.saturating_add(amount)) else {
            self.exhausted_since.get_or_insert_with(Instant::now);
            return Err(None);
        };
        self.exhausted_since = None;
        // From the narrowest to the widest: the message names what the sender can do something about.
        let levels = holder.levels();
        for (at, level) in levels.into_iter().flatten().enumerate() {
            let held = self.by_level.entry(level).or_insert(0);
            *held = held.saturating_add(amount);
            if !shares.of(level).allows(*held, free, self.whole) {
                levels.into_iter().flatten().take(at + 1).for_each(|level| self.give_back(level, amount));
                return Err(Some(level));
            }
        }
        self.used += amount;
        Ok(())
    }

    fn put(&mut self, holder: Holder, amount: usize) {
        self.used += amount;
        for level in holder.levels().into_iter().flatten() {
            *self.by_level.entry(level).or_insert(0) += amount;
        }
    }

    fn remove(&mut self, holder: Holder, amount: usize) {
        if amount == 0 {
            return;
        }
        self.used = self.used.saturating_sub(amount);
        holder.levels().into_iter().flatten().for_each(|level| self.give_back(level, amount));
    }

    fn give_back(&mut self, level: Level, amount: usize) {
        if let Entry::Occupied(mut held) = self.by_level.entry(level) {
            *held.get_mut() = held.get().saturating_sub(amount);
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl Holder {
    fn normalised(self) -> Holder {
        match self {
            Holder::Address(address) => Holder::Address(network(address)),
            holder => holder,
        }
    }

    /// The groups it belongs to, the narrowest first.
    fn levels(self) -> [Option<Level>; 3] {
        match self {
            Holder::Key { namespace, key } => [Some(Level::Key(key)), Some(Level::Namespace(namespace)), None],
            Holder::Token { namespace, key, job } => {
                [Some(Level::Token(key, job)), Some(Level::Tokens(key)), Some(Level::Namespace(namespace))]
            }
            Holder::Address(address) => [Some(Level::Address(address)), Some(Level::Anonymous), None],
        }
    }
}

/// The address as it is counted: one host easily has all addresses of an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests;
