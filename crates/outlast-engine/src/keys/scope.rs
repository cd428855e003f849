//! What a key may do: a word, optionally for one queue only.

use std::fmt;
use std::sync::Arc;

use outlast_core::NamespaceId;
use outlast_core::queue::is_name;
use outlast_store::jobs::Reach;
use outlast_store::keys::KeyId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Publish,
    Consume,
    Read,
    /// Includes `read`.
    Manage,
    /// Includes everything.
    Admin,
}

impl Word {
    pub const ALL: [Word; 5] = [Word::Publish, Word::Consume, Word::Read, Word::Manage, Word::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Word::Publish => "publish",
            Word::Consume => "consume",
            Word::Read => "read",
            Word::Manage => "manage",
            Word::Admin => "admin",
        }
    }

    fn includes(self, other: Word) -> bool {
        self == other || self == Word::Admin || (self == Word::Manage && other == Word::Read)
    }
}

/// `publish`, or `publish:mail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub word: Word,
    pub queue: Option<String>,
}

impl Scope {
    pub fn parse(text: &str) -> Option<Scope> {
        let (word, queue) = match text.split_once(':') {
            Some((word, queue)) => (word, Some(queue)),
            None => (text, None),
        };
        let word = Word::ALL.into_iter().find(|known| known.as_str() == word)?;
        if queue.is_some_and(|queue| !is_name(queue)) || (word == Word::Admin && queue.is_some()) {
            return None;
        }
        Some(Scope { word, queue: queue.map(str::to_owned) })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.queue {
            Some(queue) => write!(f, "{}:{queue}", self.word.as_str()),
            None => f.write_str(self.word.as_str()),
        }
    }
}

/// Who calls: a key's namespace and scopes. The namespace comes from the key and from nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    pub key: KeyId,
    pub namespace: NamespaceId,
    pub namespace_name: Arc<str>,
    pub scopes: Arc<[Scope]>,
}

impl Principal {
    /// What the key reaches with `word`; `None` when it does not have that scope at all.
    pub fn reach(&self, word: Word) -> Option<Reach> {
        let fitting = || self.scopes.iter().filter(|scope| scope.word.includes(word));
        if fitting().any(|scope| scope.queue.is_none()) {
            return Some(Reach::Namespace(self.namespace));
        }
        let queues: Vec<String> = fitting().filter_map(|scope| scope.queue.clone()).collect();
        (!queues.is_empty()).then(|| Reach::Queues(self.namespace, queues.into()))
    }

    /// An admin of the default namespace runs the server and may make keys for other namespaces.
    pub fn is_operator(&self) -> bool {
        &*self.namespace_name == DEFAULT_NAMESPACE && self.scopes.iter().any(|scope| scope.word == Word::Admin)
    }
}

pub const DEFAULT_NAMESPACE: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(scopes: &[&str]) -> Principal {
        let scopes: Vec<Scope> = scopes.iter().map(|text| Scope::parse(text).unwrap()).collect();
        Principal { key: KeyId(1), namespace: NamespaceId(7), namespace_name: "default".into(), scopes: scopes.into() }
    }

    #[test]
    fn a_scope_reaches_what_its_word_includes_and_no_more() {
        for (scopes, word, reaches) in [
            (&["admin"][..], Word::Publish, true),
            (&["manage"], Word::Read, true),
            (&["manage"], Word::Publish, false),
            (&["read"], Word::Manage, false),
            (&["publish", "consume:mail"], Word::Consume, true),
        ] {
            assert_eq!(principal(scopes).reach(word).is_some(), reaches, "{scopes:?} {word:?}");
        }
    }

    #[test]
    fn a_bound_scope_reaches_its_queues_only() {
        let bound = principal(&["consume:a", "consume:b", "publish"]);

        assert_eq!(
            bound.reach(Word::Consume),
            Some(Reach::Queues(NamespaceId(7), ["a".to_owned(), "b".to_owned()].into()))
        );
        assert_eq!(bound.reach(Word::Publish), Some(Reach::Namespace(NamespaceId(7))));
    }

    #[test]
    fn scopes_that_make_no_sense_are_not_read() {
        for text in ["", "publish:", "admin:mail", "Publish", "publish:a b", "lease", "read:_x"] {
            assert_eq!(Scope::parse(text), None, "{text}");
        }
    }
}
