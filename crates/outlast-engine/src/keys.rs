//! The room of API keys, and of the tokens and links they mint. A key is `ol_`, twelve characters to find it by, `_`, and 43 random
//! ones; the store has only its SHA-256. All keys are in memory, so that a check costs a hash and no read.

pub mod scope;
pub mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use outlast_core::{Clock, Entropy, NamespaceId, Timestamp};
use outlast_store::keys::{KeyId, KeyRecord, NewKey, Revocation, is_last_admin};
use outlast_store::peer_bus::{PeerBus, Signal};
use outlast_store::{Error, JobStore};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use self::scope::{DEFAULT_NAMESPACE, Principal, Scope, Word};
use crate::counters::Counters;
use crate::engine::Parts;
use crate::inbound::catalog::Catalog;
use crate::lifecycle::Lifecycle;
use crate::random::Random;
use crate::seal::Seal;
use crate::single_flight::SingleFlight;

const MARK: &str = "ol_";
const PREFIX_LENGTH: usize = 12;
const SECRET_LENGTH: usize = 43;
const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Below this an operator's own key could be guessed.
pub const KEY_LENGTH_MIN: usize = 32;
/// The configuration takes no longer one.
const KEY_LENGTH_MAX: usize = 255;

/// Where nodes share a store, each reads changed keys this often, also without a signal: every node refuses a revoked key
/// well within five seconds.
const RELOAD: Duration = Duration::from_secs(2);
/// Longer than a transaction takes: a change may be committed this long after the time that stands in it.
const OVERLAP: Duration = Duration::from_secs(60);
/// All keys are read again this often, should the database's clock have been set back.
const RELOAD_WHOLE: Duration = Duration::from_secs(60);
/// Keys that are not known may make the store read at most this often.
const MISS_PAUSE: Duration = Duration::from_millis(200);
/// No sleep until the end of a key is longer; timers of years overflow.
const WATCH_MAX: Duration = Duration::from_secs(86_400);
/// The pause after a store error, before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

pub struct Keys {
    store: Arc<dyn JobStore>,
    peer_bus: Arc<dyn PeerBus>,
    clock: Arc<dyn Clock>,
    random: Arc<Random>,
    lifecycle: Arc<Lifecycle>,
    counters: Arc<Counters>,
    /// For tokens and links.
    seal: Arc<Seal>,
    /// The configuration file may declare keys of queues.
    catalog: watch::Receiver<Arc<Catalog>>,
    table: RwLock<KeyTable>,
    /// Changes whenever a key ends, for callers that hold one for long.
    gone: watch::Sender<()>,
    /// Held by the task that reads; knows what was read.
    loading: tokio::sync::Mutex<Option<Loaded>>,
    /// Notified when another node has changed keys.
    pub(crate) changed: Notify,
    /// Reads for the sake of unknown keys.
    lookups: SingleFlight<(), Result<(), Error>>,
    /// When the last one began.
    looked_up_at: Mutex<Option<Instant>>,
}

/// The keys that are neither revoked nor forgotten, by prefix and by number.
#[derive(Default)]
struct KeyTable {
    by_prefix: HashMap<String, Known>,
    prefixes: HashMap<KeyId, String>,
}

impl KeyTable {
    fn insert(&mut self, (prefix, known): (String, Known)) {
        self.prefixes.insert(known.id, prefix.clone());
        self.by_prefix.insert(prefix, known);
    }

    fn remove(&mut self, id: KeyId) -> Option<Known> {
        self.by_prefix.remove(&self.prefixes.remove(&id)?)
    }

    fn of(&self, id: KeyId) -> Option<&Known> {
        self.by_prefix.get(self.prefixes.get(&id)?)
    }
}

/// How far the keys in memory are known to be those of the store.
#[derive(Clone, Copy)]
struct Loaded {
    /// All changes before this time have been read, but for those of transactions that took long.
    changes_until: Timestamp,
    /// When all keys were last read.
    whole_at: Instant,
}

struct Known {
    id: KeyId,
    hash: [u8; 32],
    principal: Principal,
    expires_at: Option<Timestamp>,
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct KeyRequest {
    pub name: String,
    pub namespace: String,
    pub scopes: Vec<Scope>,
    pub expires_at: Option<Timestamp>,
}

/// The operator's own key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdminKeyError {
    #[error(
        "the admin key must start with \"ol_\", have at least {KEY_LENGTH_MIN} characters, and only letters, digits and \"_\""
    )]
    Malformed,
    #[error(
        "another key starts with the same {PREFIX_LENGTH} characters as the admin key; choose a different admin key"
    )]
    PrefixTaken,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Keys {
    pub(crate) fn new(parts: &Parts, catalog: watch::Receiver<Arc<Catalog>>) -> Keys {
        let Parts { store, peer_bus, clock, random, lifecycle, counters, seal, .. } = parts.clone();
        Keys {
            store,
            peer_bus,
            clock,
            random,
            lifecycle,
            counters,
            seal,
            catalog,
            table: RwLock::default(),
            gone: watch::Sender::default(),
            loading: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            lookups: SingleFlight::default(),
            looked_up_at: Mutex::default(),
        }
    }

    /// Reads the keys into memory, all of them at first, then what has changed. To be called before requests are served, and
    /// after every change.
    pub async fn load(&self) -> Result<(), Error> {
        // One at a time: an older list must not overwrite a newer one.
        let mut loaded = self.loading.lock().await;
        let (began, store) = (self.clock.now(), &self.store);
        let known = loaded.filter(|loaded| loaded.whole_at.elapsed() < RELOAD_WHOLE);
        let (records, whole_at) = match known {
            Some(known) => (store.keys_since(known.changes_until.minus(OVERLAP)).await?, known.whole_at),
            None => (store.keys().await?, Instant::now()),
        };
        *loaded = Some(Loaded { changes_until: began, whole_at });
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let before = if known.is_none() { std::mem::take(&mut *table) } else { KeyTable::default() };
        let mut is_gone = false;
        for record in records {
            match record.revoked_at {
                Some(_) => is_gone |= table.remove(record.id).is_some(),
                None => table.insert(known_of(record)),
            }
        }
        is_gone |= before.prefixes.keys().any(|id| !table.prefixes.contains_key(id));
        drop(table);
        if is_gone {
            self.gone.send_replace(());
        }
        Ok(())
    }

    /// Ends when the caller's key does: revoked, or over its time. Costs nothing while no key ends. Cancel-safe.
    pub async fn key_ended(&self, caller: &Principal) {
        let mut gone = self.gone.subscribe();
        loop {
            gone.borrow_and_update();
            let Some(expires_at) = self.expiry(caller.key) else {
                return;
            };
            let left = expires_at.map_or(WATCH_MAX, |expires_at| expires_at.since(self.clock.now()).min(WATCH_MAX));
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                // The sender is as old as the engine, so it is there.
                _ = gone.changed() => {}
                () = sleep(left) => {}
            }
        }
    }

    /// When the key will be over, if ever; `None` when it is no more.
    pub(crate) fn expiry(&self, id: KeyId) -> Option<Option<Timestamp>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.of(id).map(|known| known.expires_at)
    }

    /// Who holds this key, as far as this node knows without reading the store.
    pub fn known_holder(&self, key: &str) -> Option<Principal> {
        self.check_key(key).flatten().or_else(|| self.holder_of_queue_key(key))
    }

    /// Who holds this key. The same `None` for unknown, wrong, expired and revoked ones. Reads the store only for a key
    /// that another node may just have made.
    pub async fn authenticate(&self, key: &str) -> Result<Option<Principal>, Error> {
        if let Some(answer) = self.check_key(key) {
            return Ok(answer);
        }
        if let Some(principal) = self.holder_of_queue_key(key) {
            return Ok(Some(principal));
        }
        if !self.is_shared() || !is_well_formed(key) {
            return Ok(None);
        }
        self.look_for_key().await?;
        Ok(self.check_key(key).flatten())
    }

    /// A key of the configuration file opens the queues that have it there, for their workers.
    fn holder_of_queue_key(&self, key: &str) -> Option<Principal> {
        let declared = Arc::clone(&self.catalog.borrow());
        let queues = declared.opened_by(&Sha256::digest(key.as_bytes()).into());
        let scopes = queues.into_iter().map(|queue| Scope { word: Word::Consume, queue: Some(queue.to_owned()) });
        let scopes: Arc<[Scope]> = scopes.collect();
        (!scopes.is_empty()).then(|| Principal {
            key: KeyId(0),
            namespace: declared.namespace,
            namespace_name: DEFAULT_NAMESPACE.into(),
            scopes,
        })
    }

    /// `None` when nothing is known about such a key.
    fn check_key(&self, key: &str) -> Option<Option<Principal>> {
        let presented: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let known = table.by_prefix.get(prefix(key)?)?;
        let right = bool::from(known.hash.ct_eq(&presented));
        let live = known.expires_at.is_none_or(|expires_at| self.clock.now() < expires_at);
        Some((right && live).then(|| known.principal.clone()))
    }

    /// Who a key is of, by its number: `None` when it is revoked, over, or was never there. Reads the store only for a key that
    /// another node may just have made.
    pub(crate) async fn principal(&self, id: KeyId) -> Result<Option<Principal>, Error> {
        if let Some(principal) = self.known_principal(id) {
            return Ok(Some(principal));
        }
        if !self.is_shared() {
            return Ok(None);
        }
        self.look_for_key().await?;
        Ok(self.known_principal(id))
    }

    fn known_principal(&self, id: KeyId) -> Option<Principal> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let known = table.of(id)?;
        let live = known.expires_at.is_none_or(|expires_at| self.clock.now() < expires_at);
        live.then(|| known.principal.clone())
    }

    /// Waits for a read of all keys that began after this call. Concurrent callers share one, and it does not begin before the
    /// last one is [`MISS_PAUSE`] old: an unknown key costs its sender time, and the store next to nothing.
    async fn look_for_key(&self) -> Result<(), Error> {
        let looked_up_at = || self.looked_up_at.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = async {
            let last = *looked_up_at();
            if let Some(last) = last {
                sleep_until(last + MISS_PAUSE).await;
            }
        };
        let read = || {
            *looked_up_at() = Some(Instant::now());
            self.load()
        };
        self.lookups.share_after((), pause, read).await
    }

    /// Keeps up with keys that other nodes make and revoke.
    pub(crate) async fn run_loading(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        let mut pause = RELOAD;
        while !*stopping.borrow() {
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = self.changed.notified() => {}
                () = sleep(self.random.jitter(pause)) => {}
            }
            pause = match self.load().await {
                Ok(()) => RELOAD,
                Err(Error::Stopped) => break,
                Err(error) => {
                    tracing::warn!(%error, "keys could not be read; trying again");
                    self.counters.loop_failures.add(1);
                    RETRY_PAUSE
                }
            };
        }
        tracing::debug!("the loading of keys has ended");
    }

    /// The namespace of this name, made if there is none.
    pub async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        self.store.namespace(name).await
    }

    fn is_shared(&self) -> bool {
        self.peer_bus.poll_interval().is_some()
    }

    /// Makes a key; the text is returned this once.
    pub async fn create(&self, request: KeyRequest) -> Result<(String, KeyRecord), Error> {
        let text = self.key_text();
        let namespace = self.store.namespace(&request.namespace).await?;
        let record = self.store_key(&text, namespace, request).await?;
        Ok((text, record))
    }

    /// A key of the caller's namespace; an operator reaches all of them. The last admin key is left alone without `force`.
    pub async fn revoke(&self, caller: &Principal, id: KeyId, force: bool) -> Result<Revocation, Error> {
        let namespace = (!caller.is_operator()).then_some(caller.namespace);
        // Asked before it is forgotten: a key that stays must work all the while.
        if !force && self.is_last_admin(id).await? {
            return Ok(Revocation::LastAdmin);
        }
        self.forget_key(namespace, id);
        let revoked = self.store.revoke_key(namespace, id, force).await?;
        if revoked == Revocation::LastAdmin {
            // Another admin key was revoked in between. This one works again once all keys have been read.
            *self.loading.lock().await = None;
        }
        self.peer_bus.publish(Signal::KeysChanged);
        // It is revoked, whatever the reading says: memory has forgotten it already.
        let _ = self.load().await;
        Ok(revoked)
    }

    async fn is_last_admin(&self, id: KeyId) -> Result<bool, Error> {
        let keys = self.store.keys().await?;
        Ok(keys.iter().find(|key| key.id == id).is_some_and(|key| is_last_admin(key, &keys, self.clock.now())))
    }

    /// Out of memory before it is out of the store: should the call be dropped half way, the key is refused, not accepted.
    fn forget_key(&self, namespace: Option<NamespaceId>, id: KeyId) {
        let is_visible = |known: &Known| namespace.is_none_or(|namespace| known.principal.namespace == namespace);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.of(id).is_some_and(is_visible) {
            table.remove(id);
        }
        drop(table);
        self.gone.send_replace(());
    }

    pub async fn list(&self, caller: &Principal) -> Result<Vec<KeyRecord>, Error> {
        let visible = |record: &KeyRecord| caller.is_operator() || record.namespace == caller.namespace;
        Ok(self.store.keys().await?.into_iter().filter(visible).collect())
    }

    /// Has any key ever been made? If not, this is the first start.
    pub async fn has_any(&self) -> Result<bool, Error> {
        Ok(!self.store.keys().await?.is_empty())
    }

    /// The operator brings the admin key along: it is valid from now on.
    pub async fn use_admin_key(&self, text: &str) -> Result<(), AdminKeyError> {
        if !is_well_formed(text) {
            return Err(AdminKeyError::Malformed);
        }
        if self.has_admin_key(text).await? {
            return Ok(());
        }
        let namespace = self.store.namespace(DEFAULT_NAMESPACE).await?;
        match self.store_key(text, namespace, admin_request()).await {
            Ok(_) => Ok(()),
            // Another node that starts with the same key may have been quicker.
            Err(_) if self.is_shared() && self.has_admin_key(text).await? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The first start brings a key that it made up. False when another node's was first: this one is not valid then.
    pub async fn use_first_key(&self, text: &str) -> Result<bool, AdminKeyError> {
        if !is_well_formed(text) {
            return Err(AdminKeyError::Malformed);
        }
        let namespace = self.store.namespace(DEFAULT_NAMESPACE).await?;
        let added = self.store.add_first_key(new_key(text, namespace, admin_request())).await?;
        self.peer_bus.publish(Signal::KeysChanged);
        self.load().await?;
        // Nodes of one directory have the same key in their file.
        Ok(added.is_some() || self.has_admin_key(text).await?)
    }

    async fn has_admin_key(&self, text: &str) -> Result<bool, AdminKeyError> {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let records = self.store.keys().await?;
        match records.iter().find(|record| Some(record.prefix.as_str()) == prefix(text)) {
            Some(record) if record.hash == hash && record.revoked_at.is_none() => Ok(true),
            Some(_) => Err(AdminKeyError::PrefixTaken),
            None => Ok(false),
        }
    }

    async fn store_key(&self, text: &str, namespace: NamespaceId, request: KeyRequest) -> Result<KeyRecord, Error> {
        let record = self.store.add_key(new_key(text, namespace, request)).await?;
        self.peer_bus.publish(Signal::KeysChanged);
        // The key is stored: a failure to read it back must not be told as "not stored".
        self.load().await.map_err(|_| Error::Indeterminate)?;
        Ok(record)
    }

    /// The text of a new key, valid once it is stored.
    pub fn key_text(&self) -> String {
        let mut text = MARK.to_owned();
        self.random.draw(|entropy| {
            fill(&mut text, PREFIX_LENGTH, entropy);
            text.push('_');
            fill(&mut text, SECRET_LENGTH, entropy);
        });
        text
    }
}

fn new_key(text: &str, namespace: NamespaceId, request: KeyRequest) -> NewKey {
    NewKey {
        namespace,
        name: request.name,
        prefix: prefix(text).unwrap_or_default().to_owned(),
        hash: Sha256::digest(text.as_bytes()).into(),
        scopes: request.scopes.iter().map(Scope::to_string).collect(),
        expires_at: request.expires_at,
    }
}

fn admin_request() -> KeyRequest {
    let scopes = vec![Scope { word: Word::Admin, queue: None }];
    KeyRequest { name: "admin".to_owned(), namespace: DEFAULT_NAMESPACE.to_owned(), scopes, expires_at: None }
}

/// 43 characters of this alphabet are 256 bits. Values that would favour some characters are thrown away.
fn fill(text: &mut String, length: usize, entropy: &mut dyn Entropy) {
    let mut left = length;
    while left > 0 {
        for byte in entropy.next_u64().to_le_bytes() {
            if left > 0 && byte < 248 {
                text.push(char::from(ALPHABET.get(usize::from(byte % 62)).copied().unwrap_or(b'0')));
                left -= 1;
            }
        }
    }
}

/// The part a key is found by. `None` when it is no key of ours.
fn prefix(key: &str) -> Option<&str> {
    key.strip_prefix(MARK)?.get(..PREFIX_LENGTH)
}

/// Can the text be a key of ours?
pub fn is_well_formed(key: &str) -> bool {
    key.starts_with(MARK)
        && (KEY_LENGTH_MIN..=KEY_LENGTH_MAX).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn known_of(record: KeyRecord) -> (String, Known) {
    let scopes: Vec<Scope> = record.scopes.iter().filter_map(|text| Scope::parse(text)).collect();
    let principal = Principal {
        key: record.id,
        namespace: record.namespace,
        namespace_name: Arc::from(record.namespace_name),
        scopes: scopes.into(),
    };
    (record.prefix, Known { id: record.id, hash: record.hash, principal, expires_at: record.expires_at })
}
