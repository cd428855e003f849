//! How the process asks for memory.

use rustix::thread::disable_transparent_huge_pages;

/// The allocator asks for huge pages, which makes memory resident that nobody has touched: most of a connection's buffers,
/// for one. Measured with 10,000 idle connections, half of the process.
pub(super) fn use_small_pages() {
    if let Err(error) = disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "transparent huge pages stay as they are");
    }
}
