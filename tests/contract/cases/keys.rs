//! Namespaces and API keys, and the end of a store.

use std::sync::Arc;

use outlast_store::Error;
use outlast_store::keys::{KeyId, NewKey, Revocation};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, SECOND};

fn new_key(fixture: &Fixture, prefix: &str) -> NewKey {
    NewKey {
        namespace: fixture.ours,
        name: "ci".to_owned(),
        prefix: prefix.to_owned(),
        hash: [7; 32],
        scopes: vec!["publish".to_owned(), "consume:mail".to_owned()],
        expires_at: Some(fixture.now().plus(SECOND)),
    }
}

pub async fn a_namespace_keeps_its_number(fixture: &mut Fixture) {
    let third = fixture.store.namespace("third").await.unwrap();
    fixture.reopen().await;

    assert_eq!(fixture.store.namespace("default").await.unwrap(), fixture.ours);
    assert_eq!(fixture.store.namespace("theirs").await.unwrap(), fixture.theirs);
    assert_eq!(fixture.store.namespace("third").await.unwrap(), third);
    assert!(third != fixture.ours && third != fixture.theirs && fixture.ours != fixture.theirs);
}

pub async fn a_key_is_stored_as_it_was_given(fixture: &mut Fixture) {
    let new = new_key(fixture, "abc");

    let key = fixture.store.add_key(new.clone()).await.unwrap();
    fixture.reopen().await;

    assert_eq!((key.namespace, key.namespace_name.as_str(), key.created_at), (fixture.ours, "default", fixture.now()));
    assert_eq!((&key.name, &key.prefix, key.hash, &key.scopes), (&new.name, &new.prefix, new.hash, &new.scopes));
    assert_eq!((key.expires_at, key.revoked_at), (new.expires_at, None));
    assert_eq!(fixture.store.keys().await.unwrap(), [key]);
}

pub async fn a_key_is_revoked_once_and_only_within_reach(fixture: &mut Fixture) {
    let mine = fixture.store.add_key(new_key(fixture, "abc")).await.unwrap();
    let other = fixture.store.add_key(NewKey { namespace: fixture.theirs, ..new_key(fixture, "def") }).await.unwrap();
    let revoke = async |namespace, id| match fixture.store.revoke_key(namespace, id, false).await.unwrap() {
        Revocation::Revoked(key) => Some(key),
        Revocation::NotFound => None,
        Revocation::LastAdmin => panic!("none of them is an admin's"),
    };

    assert!(revoke(Some(fixture.ours), other.id).await.is_none());
    assert!(revoke(None, KeyId(999)).await.is_none());
    let revoked = revoke(Some(fixture.ours), mine.id).await.unwrap();
    assert_eq!(revoked.revoked_at, Some(fixture.now()));
    fixture.pass(SECOND);
    assert_eq!(revoke(None, mine.id).await.unwrap(), revoked, "the first time counts");
    assert!(revoke(None, other.id).await.unwrap().revoked_at.is_some());
}

/// Without a working admin key there is no way to make another one.
pub async fn the_last_admin_key_of_a_namespace_is_revoked_only_by_force(fixture: &mut Fixture) {
    let admin = |prefix| NewKey { scopes: vec!["admin".to_owned()], expires_at: None, ..new_key(fixture, prefix) };
    let first = fixture.store.add_key(admin("abc")).await.unwrap();
    let second = fixture.store.add_key(admin("def")).await.unwrap();
    let foreign = fixture.store.add_key(NewKey { namespace: fixture.theirs, ..admin("ghi") }).await.unwrap();
    let soon = Some(fixture.now().plus(SECOND));
    fixture.store.add_key(NewKey { expires_at: soon, ..admin("jkl") }).await.unwrap();
    fixture.pass(2 * SECOND);

    // Both at once: one of them is the last.
    let (one, other) =
        tokio::join!(fixture.store.revoke_key(None, first.id, false), fixture.store.revoke_key(None, second.id, false));
    let refused = [one.unwrap(), other.unwrap()].iter().filter(|answer| **answer == Revocation::LastAdmin).count();
    assert_eq!(refused, 1);
    assert_eq!(fixture.store.revoke_key(None, foreign.id, false).await.unwrap(), Revocation::LastAdmin);
    fixture.reopen().await;
    for id in [first.id, second.id, foreign.id] {
        assert!(matches!(fixture.store.revoke_key(None, id, true).await.unwrap(), Revocation::Revoked(_)));
        assert!(matches!(fixture.store.revoke_key(None, id, false).await.unwrap(), Revocation::Revoked(_)));
    }
}

pub async fn keys_are_found_by_when_they_were_made_or_revoked(fixture: &mut Fixture) {
    let old = fixture.store.add_key(new_key(fixture, "abc")).await.unwrap();
    fixture.store.add_key(new_key(fixture, "def")).await.unwrap();
    fixture.pass(SECOND);
    let since = fixture.now();
    assert_eq!(fixture.store.keys_since(since).await.unwrap(), []);

    let new = fixture.store.add_key(new_key(fixture, "ghi")).await.unwrap();
    let Revocation::Revoked(old) = fixture.store.revoke_key(None, old.id, false).await.unwrap() else {
        panic!("the key exists")
    };

    assert_eq!(fixture.store.keys_since(since).await.unwrap(), [old, new]);
    assert_eq!(fixture.store.keys_since(since.plus(SECOND)).await.unwrap(), []);
}

/// Nodes that start together with different keys must not each believe in their own.
pub async fn the_first_sealing_key_stays(fixture: &mut Fixture) {
    let mut racers = JoinSet::new();
    for key in [i64::MIN, -1, 0, 1, 7, 8, 9, i64::MAX] {
        let store = Arc::clone(&fixture.store);
        racers.spawn(async move { store.sealing_key(key, &[]).await.unwrap() });
    }
    let heard = racers.join_all().await;

    assert!(heard.iter().all(|key| *key == heard[0]), "{heard:?}");
    assert_eq!(fixture.store.sealing_key(77, &[]).await.unwrap(), heard[0]);
    fixture.reopen().await;
    assert_eq!(fixture.store.sealing_key(77, &[]).await.unwrap(), heard[0]);

    assert_eq!(fixture.store.sealing_key(77, &[5, 6]).await.unwrap(), heard[0], "not one of those");
    assert_eq!(fixture.store.sealing_key(77, &[heard[0]]).await.unwrap(), 77, "the operator has changed it");
    assert_eq!(fixture.store.sealing_key(78, &[heard[0]]).await.unwrap(), 77);
}

pub async fn a_closed_store_says_so(fixture: &mut Fixture) {
    fixture.store.ping().await.unwrap();
    fixture.store.close().await;

    assert!(matches!(fixture.store.ping().await, Err(Error::Stopped)));
    assert!(matches!(fixture.store.due(1).await, Err(Error::Stopped)));
    assert!(matches!(fixture.store.publish(Vec::new()).await, Err(Error::Stopped)));
    fixture.reopen().await;
    fixture.store.ping().await.unwrap();
}

/// However many ask at once, one key is the first.
pub async fn the_first_key_is_added_once(fixture: &mut Fixture) {
    let mut asked = JoinSet::new();
    for number in 0..8_u8 {
        let key = NewKey { hash: [number; 32], ..new_key(fixture, &format!("key-{number}")) };
        let store = Arc::clone(&fixture.store);
        asked.spawn(async move { store.add_first_key(key).await.unwrap() });
    }
    let added: Vec<_> = asked.join_all().await.into_iter().flatten().collect();

    fixture.reopen().await;
    assert_eq!(added.len(), 1);
    assert_eq!(fixture.store.keys().await.unwrap(), added);
    assert_eq!(fixture.store.add_first_key(new_key(fixture, "late")).await.unwrap(), None);
    let another = fixture.store.add_key(new_key(fixture, "another")).await.unwrap();
    assert_eq!(fixture.store.keys().await.unwrap(), [added[0].clone(), another]);
}
