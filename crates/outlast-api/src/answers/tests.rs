//! Answers are counted while any part of them is unsent.

use outlast_core::NamespaceId;
use outlast_store::keys::KeyId;

use super::*;
use crate::wire;

const HOLDER: Holder = Holder::Key { namespace: NamespaceId(1), key: KeyId(1) };

fn answers() -> Answers {
    Answers::new(&Limits { answer_bytes: 4 * PAGE_BYTES_MAX, ..Limits::default() })
}

fn answer(bytes: usize) -> Response {
    wire::ok(http::StatusCode::OK, "x".repeat(bytes))
}

#[tokio::test]
async fn a_large_answer_is_counted_until_its_last_piece_is_gone() {
    let answers = answers();

    let sealed = answers.seal(answer(PAGE_BYTES_MAX), HOLDER, RouteEffect::Read).unwrap_or_else(|_| panic!("refused"));
    assert_eq!(answers.used(), PAGE_BYTES_MAX);
    let mut body = sealed.into_body();
    assert_eq!(body.size_hint().exact(), u64::try_from(PAGE_BYTES_MAX).ok());
    let (mut length, mut last) = (0, None);
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        assert!(piece.len() <= PIECE_BYTES);
        length += piece.len();
        last = Some(piece);
    }
    drop(body);

    assert_eq!((length, answers.used()), (PAGE_BYTES_MAX, PAGE_BYTES_MAX));
    drop(last);
    assert_eq!(answers.used(), 0);
}

#[test]
fn a_read_beyond_the_share_is_refused_and_a_write_is_answered() {
    let answers = answers();
    let mut unsent = Vec::new();
    let refused = loop {
        match answers.seal(answer(PAGE_BYTES_MAX), HOLDER, RouteEffect::Read) {
            Ok(sealed) => unsent.push(sealed),
            Err(problem) => break problem,
        }
    };

    assert_eq!(refused.into_response().status(), http::StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(unsent.len(), 2);
    assert!(answers.check_room(HOLDER, Weight::Page).is_err());
    assert!(answers.seal(answer(SMALL_MAX), HOLDER, RouteEffect::Read).is_ok());
    assert!(answers.seal(answer(PAGE_BYTES_MAX), HOLDER, RouteEffect::Write).is_ok());
    assert!(answers.frame(HOLDER, "x".repeat(PAGE_BYTES_MAX).into()).is_err());
    assert!(answers.frame(HOLDER, "x".repeat(SMALL_FRAME_MAX).into()).is_ok());
    unsent.clear();
    assert_eq!(answers.used(), 0);
}
