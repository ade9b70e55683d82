//! Payloads are returned unchanged, inline or in pieces.

use bytes::Bytes;

use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES};
use windlass_core::store::Piece;
use windlass_core::{NewJob, Payload};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, again, id, job, settlement};

/// Pseudo-random bytes of all values.
fn noise(bytes: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    (0..bytes).map(|_| random.u8(..)).collect()
}

async fn comes_back(store: &Subject, number: i64, bytes: Bytes) {
    let payload = Payload::Inline(bytes);
    store.add([NewJob { payload: payload.clone(), ..job(number) }]).await;
    assert_eq!(store.get(number).await.payload_bytes, payload.len());
    assert!(store.job_payload(&acme(), id(number)).await.unwrap().as_ref() == Some(&payload));
    let claimed = store.claim_one("t", NOW).await;
    assert!(claimed.payload == payload, "payload {number} as claimed");
}

pub async fn s2_29_every_inline_size_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let largest = PAYLOAD_INLINE_BYTES_MAX.min(store.capabilities().payload_inline_bytes_max);
    let sizes = [0, 1, 2, 255, 256, 4095, 4096, 65_535, 65_536, 65_537, largest - 1, largest];
    for (size, number) in sizes.into_iter().zip(1..) {
        comes_back(&store, number, noise(size)).await;
    }
}

pub async fn s0_44_every_byte_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let texts: [&'static [u8]; 8] = [
        b"\0",
        b"\n",
        b"a\0b\0\0",
        b"line\nline\r\n",
        b"\xff\xfe\x80",
        b"'\"\\%|;--",
        "ü\u{1F600}".as_bytes(),
        b" \t ",
    ];
    for (text, number) in texts.into_iter().zip(1..) {
        comes_back(&store, number, Bytes::from_static(text)).await;
    }
    comes_back(&store, 99, (0..=u8::MAX).collect()).await;
}

pub async fn a_payload_stays_through_the_attempts(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    for attempt in 1..=3 {
        let claimed = store.claim_one("t", after(attempt)).await;
        assert_eq!(claimed.payload, job(1).payload);
        store.settle(settlement(&claimed, again(NOW))).await;
    }
    store.cancel(1, after(9)).await;
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), Some(job(1).payload));
    store.rerun(1, after(9)).await;
    assert_eq!(store.claim_one("t", after(9)).await.payload, job(1).payload);
}

pub async fn s2_29_a_large_payload_comes_back_in_pieces(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let whole = noise(3 * 1024 * 1024 + 17);
    let pieces: Vec<Bytes> =
        whole.chunks(PAYLOAD_PIECE_BYTES).map(Bytes::copy_from_slice).collect();
    for (piece, index) in pieces.iter().zip(0..) {
        store.payload_put(vec![Piece { id: id(1), index, bytes: piece.clone() }]).await.unwrap();
    }
    let payload = Payload::Pieces { bytes: whole.len() as u64 };
    store.add([NewJob { payload: payload.clone(), ..job(1) }]).await;

    assert_eq!(store.get(1).await.payload_bytes, whole.len() as u64);
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), Some(payload.clone()));
    assert_eq!(store.claim_one("t", NOW).await.payload, payload, "the pieces do not come along");
    for (piece, index) in pieces.iter().zip(0..) {
        let seen = store.payload_piece(id(1), index).await.unwrap();
        assert!(seen.as_ref() == Some(piece), "piece {index}");
    }
    let behind_last = pieces.len() as u32;
    assert_eq!(store.payload_piece(id(1), behind_last).await.unwrap(), None);
}

pub async fn a_piece_put_again_replaces_the_first(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (index, text) in [(0, "old"), (1, "other"), (0, "new")] {
        store
            .payload_put(vec![Piece { id: id(1), index, bytes: Bytes::from(text) }])
            .await
            .unwrap();
    }
    store.add([NewJob { payload: Payload::Pieces { bytes: 8 }, ..job(1) }]).await;
    let piece = async |index| store.payload_piece(id(1), index).await.unwrap();
    assert_eq!(piece(0).await, Some(Bytes::from_static(b"new")));
    assert_eq!(piece(1).await, Some(Bytes::from_static(b"other")));
    assert_eq!(piece(2).await, None);
}

pub async fn pieces_belong_to_one_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in [1, 2] {
        let text = format!("piece of {number}");
        store
            .payload_put(vec![Piece { id: id(number), index: 0, bytes: Bytes::from(text) }])
            .await
            .unwrap();
        store.add([NewJob { payload: Payload::Pieces { bytes: 10 }, ..job(number) }]).await;
    }
    store.delete(1).await;
    assert_eq!(store.payload_piece(id(1), 0).await.unwrap(), None);
    let kept = store.payload_piece(id(2), 0).await.unwrap();
    assert_eq!(kept, Some(Bytes::from_static(b"piece of 2")));
}

pub async fn an_unknown_job_has_no_payload(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.payload_piece(id(1), 0).await.unwrap(), None);
}
