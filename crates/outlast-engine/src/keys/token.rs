//! Capabilities that are carried by whoever holds them: tokens to one job for a browser, links to one object. Nothing is
//! stored. Each is a few numbers, sealed: nobody can make, read or change one, and it opens only as what it was made for.
//! All of them die with the key that minted them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use outlast_core::{JobId, NamespaceId, ObjectKey, Timestamp};
use outlast_store::Error;
use outlast_store::keys::KeyId;

use super::Keys;
use super::scope::{Principal, Word};
use crate::seal::Seal;

/// How a token begins, so that it is recognised where it should not be: in a log, in a repository.
pub const TOKEN_MARK: &str = "olt_";

/// What a capability is sealed for. One of a kind does not open as another.
const TOKEN_PLACE: &[u8] = b"token";
const LINK_PLACE: &[u8] = b"link";

/// A token is this long at most; longer text is not looked at.
const TEXT_BYTES_MAX: usize = 512;

/// What a token lets its holder do with its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Can {
    /// See the job, its log and its streams.
    Read,
    /// See how far the job is: its status, progress and times, and no data of its publisher or its worker.
    Watch,
    /// See the output, beside what `Watch` shows.
    Output,
    Cancel,
    /// Get the result.
    Download,
}

impl Can {
    pub const ALL: [Can; 5] = [Can::Read, Can::Watch, Can::Output, Can::Cancel, Can::Download];

    pub fn as_str(self) -> &'static str {
        match self {
            Can::Read => "read",
            Can::Watch => "watch",
            Can::Output => "output",
            Can::Cancel => "cancel",
            Can::Download => "download",
        }
    }

    pub fn parse(text: &str) -> Option<Can> {
        Can::ALL.into_iter().find(|can| can.as_str() == text)
    }

    /// What a key must have to hand this on.
    pub fn needs(self) -> Word {
        match self {
            Can::Read | Can::Watch | Can::Output | Can::Download => Word::Read,
            Can::Cancel => Word::Manage,
        }
    }

    /// Its bit in a token. Tokens live for days, so these do not change.
    fn bit(self) -> u8 {
        match self {
            Can::Read => 1,
            Can::Cancel => 2,
            Can::Download => 4,
            Can::Watch => 8,
            Can::Output => 16,
        }
    }
}

/// Access to one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub job: JobId,
    pub namespace: NamespaceId,
    /// The key that minted it.
    pub key: KeyId,
    pub can: Vec<Can>,
    pub expires_at: Timestamp,
}

/// How much of a job a caller sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSight {
    Whole,
    /// Status, progress and times; the output only where it is said.
    Watch {
        output: bool,
    },
}

impl Token {
    /// May its holder make a call that needs this? A holder that may watch reads a part of what there is to read.
    pub fn allows(&self, can: Can) -> bool {
        self.can.contains(&can) || (can == Can::Read && self.can.contains(&Can::Watch))
    }

    pub fn sight(&self) -> JobSight {
        match self.can.contains(&Can::Read) {
            true => JobSight::Whole,
            false => JobSight::Watch { output: self.can.contains(&Can::Output) },
        }
    }
}

/// What a link may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Get,
    Put,
}

/// Access to one object, for one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Names the namespace and the job, too.
    pub object: ObjectKey,
    /// The key that minted it.
    pub key: KeyId,
    pub act: Act,
    pub expires_at: Timestamp,
}

impl Keys {
    /// A token of the caller's key. It ends no later than the key.
    pub fn mint_token(&self, caller: &Principal, job: JobId, can: Vec<Can>, life: Duration) -> (String, Token) {
        let (namespace, key) = (caller.namespace, caller.key);
        let token = Token { job, namespace, key, can, expires_at: self.end_of(key, life) };
        (format!("{TOKEN_MARK}{}", self.sealed(&token.to_bytes(), TOKEN_PLACE)), token)
    }

    /// The token behind the text and the key it is of. The same `None` for what was made up, changed, is over, or is of a key
    /// that is no more.
    pub async fn open_token(&self, text: &str) -> Result<Option<(Token, Principal)>, Error> {
        let bytes = text.strip_prefix(TOKEN_MARK).and_then(|text| self.opened(text, TOKEN_PLACE));
        let Some(token) = bytes.and_then(|bytes| Token::from_bytes(&bytes)) else {
            return Ok(None);
        };
        if self.clock.now() >= token.expires_at {
            return Ok(None);
        }
        let principal = self.principal(token.key).await?.filter(|principal| principal.namespace == token.namespace);
        Ok(principal.map(|principal| (token, principal)))
    }

    /// A link of the caller's key. It ends no later than the key.
    pub fn mint_link(&self, key: KeyId, object: ObjectKey, act: Act, life: Duration) -> (String, Link) {
        let link = Link { object, key, act, expires_at: self.end_of(key, life) };
        (self.sealed(&link.to_bytes(), LINK_PLACE), link)
    }

    /// The link behind the text, if it is good for this. The same `None` whatever is wrong with it.
    pub async fn open_link(&self, text: &str, act: Act) -> Result<Option<Link>, Error> {
        let link = self.opened(text, LINK_PLACE).and_then(|bytes| Link::from_bytes(&bytes));
        let Some(link) = link.filter(|link| link.act == act && self.clock.now() < link.expires_at) else {
            return Ok(None);
        };
        let principal = self.principal(link.key).await?;
        Ok(principal.filter(|principal| principal.namespace == link.object.namespace).map(|_| link))
    }

    fn end_of(&self, key: KeyId, life: Duration) -> Timestamp {
        let end = self.clock.now().plus(life);
        self.expiry(key).flatten().map_or(end, |expires_at| end.min(expires_at))
    }

    fn sealed(&self, bytes: &[u8], place: &[u8]) -> String {
        self.random.draw(|entropy| to_text(&self.seal, bytes, place, entropy))
    }

    fn opened(&self, text: &str, place: &[u8]) -> Option<Vec<u8>> {
        from_text(&self.seal, text, place)
    }
}

fn to_text(seal: &Seal, bytes: &[u8], place: &[u8], entropy: &mut dyn outlast_core::Entropy) -> String {
    URL_SAFE_NO_PAD.encode(seal.seal(bytes, place, entropy))
}

fn from_text(seal: &Seal, text: &str, place: &[u8]) -> Option<Vec<u8>> {
    let text = Some(text).filter(|text| text.len() <= TEXT_BYTES_MAX)?;
    seal.open(&URL_SAFE_NO_PAD.decode(text).ok()?, place).ok()
}

impl Token {
    /// Fixed places, nothing optional: there is one way to write a token.
    fn to_bytes(&self) -> Vec<u8> {
        let can = self.can.iter().fold(0, |bits, can| bits | can.bit());
        [
            &self.job.as_u128().to_be_bytes()[..],
            &self.namespace.0.to_be_bytes(),
            &self.key.0.to_be_bytes(),
            &[can],
            &self.expires_at.as_millis().to_be_bytes(),
        ]
        .concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Token> {
        let (job, rest) = bytes.split_first_chunk()?;
        let (namespace, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let ([bits], rest) = rest.split_first_chunk()?;
        Some(Token {
            job: JobId::from_u128(u128::from_be_bytes(*job))?,
            namespace: NamespaceId(u32::from_be_bytes(*namespace)),
            key: KeyId(u32::from_be_bytes(*key)),
            can: Can::ALL.into_iter().filter(|can| bits & can.bit() != 0).collect(),
            expires_at: Timestamp::from_millis(i64::from_be_bytes(rest.try_into().ok()?)),
        })
    }
}

impl Link {
    fn to_bytes(self) -> Vec<u8> {
        [
            &self.object.namespace.0.to_be_bytes()[..],
            &self.object.job.as_u128().to_be_bytes(),
            &self.object.epoch.to_be_bytes(),
            &self.object.random.to_be_bytes(),
            &self.key.0.to_be_bytes(),
            &[u8::from(self.act == Act::Put)],
            &self.expires_at.as_millis().to_be_bytes(),
        ]
        .concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Link> {
        let (namespace, rest) = bytes.split_first_chunk()?;
        let (job, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (random, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let ([act], rest) = rest.split_first_chunk()?;
        Some(Link {
            object: ObjectKey {
                namespace: NamespaceId(u32::from_be_bytes(*namespace)),
                job: JobId::from_u128(u128::from_be_bytes(*job))?,
                epoch: u64::from_be_bytes(*epoch),
                random: u64::from_be_bytes(*random),
            },
            key: KeyId(u32::from_be_bytes(*key)),
            act: if *act == 1 { Act::Put } else { Act::Get },
            expires_at: Timestamp::from_millis(i64::from_be_bytes(rest.try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests;
