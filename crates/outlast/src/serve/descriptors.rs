//! File descriptors: one per connection, and a process begins with fewer than it may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For files, the listeners, deliveries and connections to databases.
const BESIDE_CONNECTIONS: u64 = 1024;

/// Raises the limit of this process as far as it is allowed to, and warns when that is not enough for `connections`.
pub(super) fn raise(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let allowed = if is_raised { maximum } else { current };
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(BESIDE_CONNECTIONS);
    // None means no limit.
    if let Some(allowed) = allowed.filter(|allowed| *allowed < needed) {
        tracing::warn!(allowed, needed, "fewer file descriptors than limits.connections may need; raise the limit");
    }
}
