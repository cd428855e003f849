//! The room of queues: save, pause, delete, read, and their secrets. Saving wakes the consumers, since a changed setting or a resume
//! may let jobs through. A push queue gets its signing secret here, and a new one when its endpoint moves.

pub mod secrets;
pub mod header_values;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, NamespaceId, Queue, QueueId, QueueSettings, SystemQueue, Timestamp};
use outlast_store::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};
use outlast_store::{Error, JobStore};
use url::Url;

use self::secrets::{SecretError, Secrets};
use crate::announcer::Announcer;
use crate::detached::DetachedCalls;
use crate::engine::Parts;
use crate::random::Random;
use crate::seal::Seal;
use crate::sign::Secret;

/// A change without a condition is retried this often when another call changed the queue first.
const TRIES: u32 = 5;

/// A queue as a caller wants it.
#[derive(Clone, Debug)]
pub struct QueueChange {
    pub settings: QueueSettings,
    /// The only signing secret from now on; the engine makes one where there is none.
    pub secret: Option<Secret>,
}

/// A saved queue.
#[derive(Debug)]
pub struct SavedQueue {
    pub saved: StoredQueue,
    /// To be shown this once.
    pub new_secret: Option<Secret>,
}

/// A rotated secret.
#[derive(Debug)]
pub struct Rotated {
    pub queue: Arc<Queue>,
    pub secret: Secret,
    /// The secret before it signs until then.
    pub previous_until: Option<Timestamp>,
}

pub struct Queues {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) detached: Arc<DetachedCalls>,
    /// For secrets and header values that are stored.
    pub(crate) seal: Arc<Seal>,
}

impl Queues {
    pub(crate) fn new(parts: &Parts) -> Queues {
        let Parts { store, clock, random, announcer, detached, seal, .. } = parts.clone();
        Queues { store, clock, random, announcer, detached, seal }
    }

    pub async fn get(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
        self.store.queue(namespace, name).await
    }

    pub async fn list(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        self.store.queues(namespace, after, limit).await
    }

    /// Since when the oldest queued job of each queue can be handed out, for the metrics.
    pub async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        self.store.oldest_waiting().await
    }

    /// All queues of all namespaces, for the metrics.
    pub async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        self.store.census().await
    }

    pub async fn save(
        &self,
        namespace: NamespaceId,
        name: &str,
        change: QueueChange,
        expect: ExpectedVersion,
    ) -> Result<Result<SavedQueue, SaveRefusal>, SecretError> {
        let mut refused = SaveRefusal::NotFound;
        for _ in 0..TRIES {
            let present = self.store.queue(namespace, name).await?.map(|(queue, _)| queue);
            let new_secret = self.secret_for(present.as_deref(), &change);
            let secrets = match &new_secret {
                Some(secret) => Some(self.seal_secrets(namespace, name, &Secrets::one(secret.clone())).await?),
                None => None,
            };
            // The decision above holds only for this version of the queue.
            let seen =
                present.as_ref().map_or(ExpectedVersion::Absent, |queue| ExpectedVersion::Version(queue.version));
            let condition = if expect == ExpectedVersion::Anything { seen } else { expect };
            let settings = self.seal_headers(namespace, name, present.as_deref(), change.settings.clone()).await?;
            let draft = QueueDraft { settings, secrets };
            match self.store_queue(namespace, name, draft, condition).await? {
                Ok(saved) => return Ok(Ok(SavedQueue { saved, new_secret })),
                Err(refusal) if expect != ExpectedVersion::Anything => return Ok(Err(refusal)),
                Err(refusal) => refused = refusal,
            }
        }
        Ok(Err(refused))
    }

    /// A new secret, if one is needed: a caller that changes the URL must not get deliveries signed for the host before.
    fn secret_for(&self, present: Option<&Queue>, change: &QueueChange) -> Option<Secret> {
        if let Some(given) = change.secret.as_ref().filter(|_| change.settings.is_push()) {
            // The one that signs already: saying so again changes nothing.
            let signs = present.and_then(|queue| self.open_secrets(queue).ok().flatten());
            return (!signs.is_some_and(|secrets| secrets.is_only(given))).then(|| given.clone());
        }
        if !change.settings.is_push() {
            return None;
        }
        let keeps =
            present.is_some_and(|queue| queue.secrets.is_some() && origin(&queue.settings) == origin(&change.settings));
        (!keeps).then(|| self.new_secret())
    }

    async fn store_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error> {
        let (store, announcer, name) = (Arc::clone(&self.store), Arc::clone(&self.announcer), Arc::<str>::from(name));
        let call = async move {
            let saved = store.save_queue(namespace, &name, draft, expect).await;
            if matches!(saved, Ok(Ok(_)) | Err(Error::Indeterminate)) {
                announcer.queue_changed(namespace, &name);
            }
            saved
        };
        self.detached.commit(call).await
    }

    /// A system queue is made by its first job; this makes it before.
    pub async fn make_system_queue(&self, namespace: NamespaceId, queue: &SystemQueue) -> Result<(), SecretError> {
        let change = QueueChange { settings: (queue.settings)(), secret: None };
        // Refused means that it is there.
        self.save(namespace, queue.name, change, ExpectedVersion::Absent).await.map(|_| ())
    }

    /// Puts a new secret in front; the one before it signs for `overlap` more. `None` when there is no such push queue.
    pub async fn rotate_secret(
        &self,
        namespace: NamespaceId,
        name: &str,
        given: Option<Secret>,
        overlap: Duration,
    ) -> Result<Option<Rotated>, SecretError> {
        let secret = given.unwrap_or_else(|| self.new_secret());
        for _ in 0..TRIES {
            let Some((queue, _)) = self.store.queue(namespace, name).await? else {
                return Ok(None);
            };
            let until = self.clock.now().plus(overlap);
            let (secrets, previous_until) = match self.open_secrets(&queue)? {
                Some(secrets) => (secrets.rotated(secret.clone(), until), Some(until)),
                None => (Secrets::one(secret.clone()), None),
            };
            let sealed = self.seal_secrets(namespace, name, &secrets).await?;
            // Sealed anew where an older key has sealed it: after this the queue needs that key no more.
            let settings = self.seal_headers(namespace, name, Some(&queue), queue.settings.clone()).await?;
            let draft = QueueDraft { settings, secrets: Some(sealed) };
            if let Ok(saved) = self.store_queue(namespace, name, draft, ExpectedVersion::Version(queue.version)).await?
            {
                return Ok(Some(Rotated { queue: saved.queue, secret, previous_until }));
            }
        }
        Err(Error::Overloaded.into())
    }

    /// The queue with these settings and the secrets that it has.
    pub(crate) async fn replace_settings(&self, queue: &Queue) -> Result<(), SecretError> {
        let draft = QueueDraft { settings: queue.settings.clone(), secrets: None };
        // Refused means that another call has just changed it.
        self.store_queue(queue.namespace, &queue.name, draft, ExpectedVersion::Version(queue.version)).await?.ok();
        Ok(())
    }

    /// A new secret that is not shown; `rotate_secret` shows one.
    pub(crate) async fn replace_secret(&self, queue: &Queue) -> Result<(), SecretError> {
        let secrets = self.seal_secrets(queue.namespace, &queue.name, &Secrets::one(self.new_secret())).await?;
        let draft = QueueDraft { settings: queue.settings.clone(), secrets: Some(secrets) };
        // Refused means that another call has just changed it, and so has made one.
        self.store_queue(queue.namespace, &queue.name, draft, ExpectedVersion::Version(queue.version)).await?.ok();
        Ok(())
    }

    /// The secrets a push queue signs with; made now if it has none, as our own queue of callbacks when it is new.
    pub(crate) async fn signing_secrets(&self, queue: &Queue) -> Result<Secrets, SecretError> {
        let mut present = self.open_secrets(queue)?;
        while present.is_none() {
            let sealed = self.seal_secrets(queue.namespace, &queue.name, &Secrets::one(self.new_secret())).await?;
            let Some((newest, _)) = self.store.queue(queue.namespace, &queue.name).await? else {
                return Ok(Secrets::one(self.new_secret()));
            };
            if newest.secrets.is_none() {
                let draft = QueueDraft { settings: newest.settings.clone(), secrets: Some(sealed) };
                let expect = ExpectedVersion::Version(newest.version);
                // Refused means that another call has just made some.
                let _ = self.store_queue(queue.namespace, &queue.name, draft, expect).await?;
            }
            present = match self.store.queue(queue.namespace, &queue.name).await? {
                Some((newest, _)) => self.open_secrets(&newest)?,
                None => None,
            };
        }
        Ok(present.unwrap_or_else(|| Secrets::one(self.new_secret())))
    }

    /// Deletes a queue that has no jobs. Its dispatcher and its waiting consumers are woken.
    pub async fn delete(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        let (store, announcer, name) = (Arc::clone(&self.store), Arc::clone(&self.announcer), Arc::<str>::from(name));
        let call = async move {
            let deleted = store.delete_queue(namespace, &name).await;
            if matches!(deleted, Ok(Ok(())) | Err(Error::Indeterminate)) {
                announcer.queue_changed(namespace, &name);
            }
            deleted
        };
        self.detached.commit(call).await
    }

    pub async fn set_paused(
        &self,
        namespace: NamespaceId,
        name: &str,
        paused: bool,
    ) -> Result<Option<Arc<Queue>>, Error> {
        let (store, announcer, name) = (Arc::clone(&self.store), Arc::clone(&self.announcer), Arc::<str>::from(name));
        let call = async move {
            let queue = store.set_paused(namespace, &name, paused).await;
            announcer.queue_changed(namespace, &name);
            queue
        };
        self.detached.commit(call).await
    }
}

/// Does the endpoint move to another host, port or scheme?
pub fn moves(old: &QueueSettings, new: &QueueSettings) -> bool {
    old.webhook_url.is_some() && origin(old) != origin(new)
}

/// Scheme, host and port of the endpoint.
fn origin(settings: &QueueSettings) -> Option<(String, String, Option<u16>)> {
    let url = Url::parse(settings.webhook_url.as_deref()?).ok()?;
    Some((url.scheme().to_owned(), url.host_str()?.to_owned(), url.port_or_known_default()))
}
