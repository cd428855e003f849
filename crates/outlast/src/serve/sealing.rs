//! The key that signing secrets are sealed with: the operator's own, or one made at the first start and kept beside the
//! data. Never in the store itself: who reads a backup of it must not be able to open them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use outlast_core::Entropy;
use outlast_engine::ports::SystemEntropy;
use outlast_engine::queues::Queues;
use outlast_engine::queues::secrets::SecretError;
use outlast_engine::seal::{KEY_BYTES, Seal};

use super::files::write_private;
use crate::config::Config;

/// 32 bytes in hexadecimal.
const KEY_DIGITS: usize = 2 * KEY_BYTES;

fn key_path(directory: &Path) -> PathBuf {
    directory.join("secret.key")
}

/// The keys, and whether the first one has just been made and is not written yet.
pub(super) struct Keys {
    pub(super) seal: Seal,
    new: Option<String>,
}

/// The keys of the configuration, else of the file, else a new one.
pub(super) fn keys(config: &Config) -> anyhow::Result<Keys> {
    if let Some(own) = &config.secret_key {
        return Ok(Keys { seal: parse(own.expose()).context("secret_key cannot be used")?, new: None });
    }
    let path = key_path(&config.data);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let seal = parse(&text).with_context(|| format!("{} cannot be used", path.display()))?;
            Ok(Keys { seal, new: None })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = new_key()?;
            Ok(Keys { seal: parse(&text)?, new: Some(text) })
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Refuses to start a server that could not sign; then keeps a new key.
pub(super) async fn settle(queues: &Queues, new: Option<String>, config: &Config) -> anyhow::Result<()> {
    let path = key_path(&config.data);
    if config.forgets_secrets {
        let count = queues.replace_lost_secrets().await?;
        tracing::warn!(count, "signing secrets were replaced; rotate the secrets of these queues to see new ones");
    }
    if let Err(error) = queues.check_seal().await {
        let advice = match &config.secret_key {
            Some(_) => "OUTLAST_SECRET_KEY must hold the key that they were sealed with; older keys may follow it, separated by commas".to_owned(),
            None => format!("put the key they were sealed with into {} or OUTLAST_SECRET_KEY; all nodes need the same one. If it is lost, start once with --forget-secrets", path.display()),
        };
        bail!("signing secrets in this store cannot be opened: {error}; {advice}");
    }
    if let Some(text) = new {
        write_private(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match queues.seal_clear_headers().await {
        Ok(0) => Ok(()),
        Ok(count) => {
            tracing::info!(queues = count, "sealed header values that were stored in the clear");
            Ok(())
        }
        Err(error @ SecretError::OtherKey { .. }) => {
            tracing::warn!(%error, "cannot seal header values that are stored in the clear; give this node the secret_key of the others");
            Ok(())
        }
        Err(error) => Err(error).context("cannot seal header values that are stored in the clear"),
    }
}

/// Keys separated by commas or white space; the first one seals.
fn parse(text: &str) -> anyhow::Result<Seal> {
    let mut keys = Vec::new();
    for word in text.split(|at: char| at == ',' || at.is_whitespace()).filter(|word| !word.is_empty()) {
        keys.push(key(word).context("a key is 64 hexadecimal digits, such as `openssl rand -hex 32` prints")?);
    }
    let Some((first, others)) = keys.split_first() else {
        bail!("there is no key in it");
    };
    Ok(Seal::new(first, others))
}

fn key(word: &str) -> Option<[u8; KEY_BYTES]> {
    if word.len() != KEY_DIGITS || !word.is_ascii() {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(word.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn new_key() -> anyhow::Result<String> {
    let mut entropy = SystemEntropy::seed()?;
    Ok((0..4).map(|_| format!("{:016x}", entropy.next_u64())).collect())
}

impl Keys {
    pub(super) fn split(self) -> (Seal, Option<String>) {
        (self.seal, self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_hexadecimal_and_nothing_else() {
        let (one, two) = (new_key().unwrap(), new_key().unwrap());

        assert_ne!(one, two);
        assert!(parse(&one).is_ok() && parse(&format!("{one},{two}\n")).is_ok());
        for wrong in ["", " ,", "abc", &one[1..], &one.replace(|_| true, "x"), &format!("{one},short")] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
