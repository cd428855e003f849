//! The values of a queue's `headers`, which are often credentials: sealed before they are stored, opened for deliveries
//! alone, and masked wherever a queue is shown. A mask that comes back stands for the stored value.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outlast_core::{NamespaceId, Queue, QueueSettings};
use outlast_store::queues::{ExpectedVersion, QueueDraft};

use super::secrets::SecretError;
use super::{Queues, moves};
use crate::egress::headers::check_amount;
use crate::seal::{Seal, Unopened};

/// Shown in the place of every value.
pub const MASK: &str = "****";

/// Begins a sealed value. No header may hold this character, so nobody can send a value that looks sealed.
const SEALED_MARK: char = '\u{1}';

/// The settings as anybody may see them.
pub fn masked(settings: &QueueSettings) -> QueueSettings {
    let headers = settings.headers.keys().map(|name| (name.clone(), MASK.to_owned())).collect();
    QueueSettings { headers, ..settings.clone() }
}

/// The bytes of a sealed value; `None` for one that is in the clear.
fn sealed_bytes(value: &str) -> Option<Vec<u8>> {
    value.strip_prefix(SEALED_MARK).map(|text| STANDARD.decode(text).unwrap_or_default())
}

/// The keys that the values of a queue's headers are sealed with.
pub(crate) fn sealing_keys(queue: &Queue) -> impl Iterator<Item = i64> {
    queue.settings.headers.values().filter_map(|value| Seal::key_of(&sealed_bytes(value)?))
}

/// Bound to queue and name: a value that was copied to another place does not open there.
fn place(namespace: NamespaceId, queue: &str, header: &str) -> Vec<u8> {
    format!("header {} {queue} {header}", namespace.0).into_bytes()
}

impl Queues {
    /// The headers that deliveries of the queue are sent with. Rows of before values were sealed have them in the clear.
    pub(crate) fn open_headers(&self, queue: &Queue) -> Result<BTreeMap<String, String>, SecretError> {
        let open = |(name, value): (&String, &String)| Ok((name.clone(), self.open_value(queue, name, value)?));
        queue.settings.headers.iter().map(open).collect()
    }

    fn open_value(&self, queue: &Queue, header: &str, value: &str) -> Result<String, SecretError> {
        let Some(sealed) = sealed_bytes(value) else {
            return Ok(value.to_owned());
        };
        let sealed_error = |why| SecretError::Sealed { queue: queue.name.clone(), why };
        let bytes = self.seal.open(&sealed, &place(queue.namespace, &queue.name, header)).map_err(sealed_error)?;
        String::from_utf8(bytes).map_err(|_| sealed_error(Unopened::Altered))
    }

    /// Masks the values of `settings` that are those of `queue`, so that the two can be compared.
    pub fn mask_known_headers(&self, queue: &Queue, settings: &mut QueueSettings) {
        let present = self.open_headers(queue).unwrap_or_default();
        for (name, value) in &mut settings.headers {
            if present.get(name) == Some(value) {
                *value = MASK.to_owned();
            }
        }
    }

    /// The settings as they are stored. A masked value stays what it is at `present`, unless the endpoint moves: what the
    /// old host trusts is not sent to the new one unless somebody who knows it says so. An unchanged value stays sealed as
    /// it is, so that saving the same settings again changes nothing.
    pub async fn seal_headers(
        &self,
        namespace: NamespaceId,
        name: &str,
        present: Option<&Queue>,
        mut settings: QueueSettings,
    ) -> Result<QueueSettings, SecretError> {
        let plain = self.plain_headers(present, &settings)?;
        let mut headers = BTreeMap::new();
        for (header, value) in plain {
            let stored = present.and_then(|queue| Some((queue, queue.settings.headers.get(&header)?)));
            let kept = stored.filter(|(queue, stored)| self.is_sealed_form(queue, &header, stored, &value));
            let sealed = match kept {
                Some((_, stored)) => stored.clone(),
                None => self.seal_value(namespace, name, &header, &value).await?,
            };
            headers.insert(header, sealed);
        }
        settings.headers = headers;
        Ok(settings)
    }

    /// The headers that `settings` ask for, with stored values in the place of masks. Their bound holds for these.
    fn plain_headers(
        &self,
        present: Option<&Queue>,
        settings: &QueueSettings,
    ) -> Result<BTreeMap<String, String>, SecretError> {
        let is_moved = present.is_some_and(|queue| moves(&queue.settings, settings));
        let mut plain = BTreeMap::new();
        for (header, value) in &settings.headers {
            let stored = present.and_then(|queue| Some((queue, queue.settings.headers.get(header)?)));
            let is_masked = value == MASK;
            let keeps = is_masked || value.starts_with(SEALED_MARK);
            let value = match stored {
                _ if !keeps => value.clone(),
                Some((queue, stored)) if !(is_masked && is_moved) => self.open_value(queue, header, stored)?,
                _ => return Err(SecretError::NothingToKeep { header: header.clone() }),
            };
            plain.insert(header.clone(), value);
        }
        check_amount(plain.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        Ok(plain)
    }

    /// Is `stored` this value, sealed with the key that seals now?
    fn is_sealed_form(&self, queue: &Queue, header: &str, stored: &str, plain: &str) -> bool {
        let key = sealed_bytes(stored).and_then(|sealed| Seal::key_of(&sealed));
        key == Some(self.seal.fingerprint())
            && self.open_value(queue, header, stored).is_ok_and(|opened| opened == plain)
    }

    async fn seal_value(
        &self,
        namespace: NamespaceId,
        queue: &str,
        header: &str,
        plain: &str,
    ) -> Result<String, SecretError> {
        self.check_sealing_key().await?;
        let place = place(namespace, queue, header);
        let sealed = self.random.draw(|entropy| self.seal.seal(plain.as_bytes(), &place, entropy));
        Ok(format!("{SEALED_MARK}{}", STANDARD.encode(sealed)))
    }

    /// Seals the values that a version before this one has stored in the clear. Returns of how many queues.
    pub async fn seal_clear_headers(&self) -> Result<usize, SecretError> {
        let mut count = 0;
        for (queue, _) in self.store.census().await? {
            let is_clear = queue.settings.headers.values().any(|value| sealed_bytes(value).is_none());
            if !is_clear {
                continue;
            }
            let settings =
                self.seal_headers(queue.namespace, &queue.name, Some(&queue), queue.settings.clone()).await?;
            let draft = QueueDraft { settings, secrets: None };
            // Refused means that another call has just written it, and so has sealed it.
            let expect = ExpectedVersion::Version(queue.version);
            let saved = self.store.save_queue(queue.namespace, &queue.name, draft, expect).await?;
            count += usize::from(saved.is_ok());
        }
        Ok(count)
    }
}

/// The settings without the headers whose values only `lost` keys open.
pub(crate) fn without_lost(queue: &Queue, is_lost: impl Fn(i64) -> bool) -> QueueSettings {
    let keeps = |value: &str| !sealed_bytes(value).and_then(|sealed| Seal::key_of(&sealed)).is_some_and(&is_lost);
    let headers = queue.settings.headers.iter().filter(|(_, value)| keeps(value));
    QueueSettings {
        headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
        ..queue.settings.clone()
    }
}
