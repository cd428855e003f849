//! Calls whose answer is never heard: the caller went away in the middle, or the store could not say how it ended. What
//! they did was not announced, so everybody who may be concerned looks for himself. Without this a delayed job could miss
//! its alarm, and a waiting receive its job.

use outlast_core::NamespaceId;
use outlast_core::queue::CALLBACKS;
use outlast_store::Error;

use crate::engine::Engine;

/// Armed from before the call until its answer is in hand. Only the caller's namespace is disturbed; the loops, which work
/// for all namespaces, name none.
pub(crate) struct Unheard<'a> {
    engine: &'a Engine,
    namespaces: Vec<Option<NamespaceId>>,
    armed: bool,
}

impl Engine {
    pub(crate) fn unheard(&self, namespaces: Vec<Option<NamespaceId>>) -> Unheard<'_> {
        Unheard { engine: self, namespaces, armed: true }
    }
}

impl Unheard<'_> {
    /// The answer is here. Only a store that does not know itself leaves anything in doubt.
    pub(crate) fn heard<T>(mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.armed = matches!(answer, Err(Error::Indeterminate));
        answer
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let shared = &self.engine.shared;
        shared.reports.doubt_all();
        shared.sweep.look_for_all();
        shared.operation_started.notify_one();
        for namespace in self.namespaces.iter().flatten() {
            shared.push.look_for(*namespace, CALLBACKS);
        }
        shared.wakes.namespaces_changed(&self.namespaces);
    }
}
