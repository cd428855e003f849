//! Queues: saving wakes those who wait, since a changed setting or a resume may let jobs through.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueSettings};
use outlast_store::Error;
use outlast_store::queues::{Expect, SaveRefusal, Saved};

use crate::engine::Engine;

impl Engine {
    pub async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        settings: QueueSettings,
        expect: Expect,
    ) -> Result<Result<Saved, SaveRefusal>, Error> {
        let unheard = self.unheard(vec![Some(namespace)]);
        let saved = unheard.heard(self.shared.store.save_queue(namespace, name, settings.into(), expect).await)?;
        if saved.is_ok() {
            self.shared.wakes.queue_changed(namespace, name);
        }
        Ok(saved)
    }

    pub async fn set_paused(
        &self,
        namespace: NamespaceId,
        name: &str,
        paused: bool,
    ) -> Result<Option<Arc<Queue>>, Error> {
        let unheard = self.unheard(vec![Some(namespace)]);
        let queue = unheard.heard(self.shared.store.set_paused(namespace, name, paused).await)?;
        self.shared.wakes.queue_changed(namespace, name);
        Ok(queue)
    }
}
