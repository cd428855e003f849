//! T17, T38: a capability opens as what it is, or not at all.

use super::*;
use crate::ports::Counting;

fn token() -> Token {
    Token {
        job: JobId::new(Timestamp::from_millis(1_763_238_999_042), 77),
        namespace: NamespaceId(3),
        key: KeyId(9),
        can: vec![Can::Read, Can::Download],
        expires_at: Timestamp::from_millis(1_763_242_599_042),
    }
}

fn link() -> Link {
    let object = ObjectKey { namespace: NamespaceId(3), job: token().job, epoch: 4, random: 0xfeed };
    Link { object, key: KeyId(9), act: Act::Put, expires_at: token().expires_at }
}

fn seal() -> Seal {
    Seal::new(&[1; 32], &[])
}

#[test]
fn tokens_and_links_are_read_back_as_they_were_written() {
    for bits in 0..8_u8 {
        let can = Can::ALL.into_iter().filter(|can| bits & can.bit() != 0).collect();
        let token = Token { can, ..token() };
        assert_eq!(Token::from_bytes(&token.to_bytes()), Some(token));
    }
    for act in [Act::Get, Act::Put] {
        let link = Link { act, ..link() };
        assert_eq!(Link::from_bytes(&link.to_bytes()), Some(link));
    }
}

#[test]
fn a_token_is_no_link_and_a_link_is_no_token() {
    let mut entropy = Counting(0);
    let (token, link) = (token().to_bytes(), link().to_bytes());
    let as_token = to_text(&seal(), &token, TOKEN_PLACE, &mut entropy);
    let as_link = to_text(&seal(), &link, LINK_PLACE, &mut entropy);

    assert_eq!(from_text(&seal(), &as_token, TOKEN_PLACE), Some(token.clone()), "the control");
    assert_eq!(from_text(&seal(), &as_link, LINK_PLACE), Some(link.clone()), "the control");
    assert_eq!(from_text(&seal(), &as_token, LINK_PLACE), None);
    assert_eq!(from_text(&seal(), &as_link, TOKEN_PLACE), None);
    assert_eq!((Token::from_bytes(&link), Link::from_bytes(&token)), (None, None), "nor are their lengths the same");
}

#[test]
fn every_changed_character_and_every_cut_spoils_it() {
    let text = to_text(&seal(), &token().to_bytes(), TOKEN_PLACE, &mut Counting(0));
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/. %";

    let mut tried = 0;
    for at in 0..text.len() {
        for letter in alphabet.iter().filter(|letter| **letter != text.as_bytes()[at]) {
            let mut changed = text.clone().into_bytes();
            changed[at] = *letter;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(from_text(&seal(), &changed, TOKEN_PLACE), None, "{at}: {changed}");
            tried += 1;
        }
        assert_eq!(from_text(&seal(), &text[..at], TOKEN_PLACE), None, "cut to {at}");
    }
    assert!(tried > 5_000, "{tried} changes");
    assert_eq!(from_text(&seal(), &format!("{text}A"), TOKEN_PLACE), None);
    assert_eq!(from_text(&seal(), &"A".repeat(100_000), TOKEN_PLACE), None);
}

#[test]
fn it_opens_on_every_node_with_the_same_key_and_on_no_other() {
    let text = to_text(&seal(), &token().to_bytes(), TOKEN_PLACE, &mut Counting(0));

    assert!(from_text(&Seal::new(&[2; 32], &[[1; 32]]), &text, TOKEN_PLACE).is_some(), "an older key still opens");
    assert_eq!(from_text(&Seal::new(&[2; 32], &[]), &text, TOKEN_PLACE), None);
}

#[test]
fn nothing_of_it_can_be_read_without_the_key() {
    let sealed = URL_SAFE_NO_PAD.decode(to_text(&seal(), &token().to_bytes(), TOKEN_PLACE, &mut Counting(0))).unwrap();

    let job = token().job.as_u128().to_be_bytes();
    assert!(!sealed.windows(8).any(|bytes| job.windows(8).any(|part| part == bytes)));
}
