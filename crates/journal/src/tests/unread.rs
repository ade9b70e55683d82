//! The unread records by themselves: tickets that end, and searches at the edges of chunks.

use super::*;
use crate::chunk::{Chunk, Content, Size};
use crate::unread::{Ticket, Unread};

const ALL: Size = Size { records: u64::MAX, bytes: u64::MAX };

fn id(number: i64) -> JobId {
    JobId::new(number).unwrap()
}

/// With a record for every id from `first` to `last`, in a segment of its own.
fn chunk(first: i64, last: i64) -> Chunk {
    Chunk {
        segment: id(first),
        offset: 100,
        bytes: 10,
        records: (last - first + 1) as u32,
        spooled_bytes: 0,
        first: id(first),
        last: id(last),
        state: Default::default(),
        content: Content::of_file(&[0; 10]),
    }
}

fn unread(chunks: &[(i64, i64)]) -> Unread {
    let mut unread = Unread::default();
    for &(first, last) in chunks {
        unread.push(chunk(first, last), &[0; 10]);
    }
    unread
}

/// Reserves the oldest chunk, which has this many records.
fn reserve(unread: &mut Unread, records: u64, expires_at: Option<Timestamp>) -> Ticket {
    let ticket = unread.reserve(Size { records, ..ALL }, expires_at, |_| None).unwrap();
    assert_eq!(ticket.records(), records);
    ticket
}

/// The first ids of what waits, in order.
fn waiting(unread: &mut Unread) -> Vec<i64> {
    let ticket = unread.reserve(ALL, None, |_| None);
    let chunks = ticket.and_then(|ticket| unread.chunks(&ticket)).unwrap_or_default();
    chunks.iter().map(|chunk| chunk.first.get()).collect()
}

#[test]
fn the_oldest_record_waits_or_is_reserved() {
    let mut unread = unread(&[(1, 2), (5, 5), (7, 9)]);
    assert_eq!(unread.oldest(), Some(id(1)));
    let first = reserve(&mut unread, 2, None);
    let second = reserve(&mut unread, 1, None);
    assert_eq!(unread.oldest(), Some(id(1)), "reserved");
    assert!(unread.commit(&first));
    assert_eq!(unread.oldest(), Some(id(5)), "reserved");
    assert!(unread.commit(&second));
    assert_eq!(unread.oldest(), Some(id(7)), "it waits");
    unread.commit_until(id(9), |_| None);
    assert_eq!(unread.oldest(), None);
    assert_eq!((unread.records(), unread.bytes()), (0, 0));
}

#[test]
fn a_ticket_expires_at_its_time_and_those_of_others_stay() {
    let mut unread = unread(&[(1, 1), (2, 2), (3, 3)]);
    let [late, early, endless] = [Some(Timestamp(20)), Some(Timestamp(10)), None]
        .map(|expires_at| reserve(&mut unread, 1, expires_at));
    assert_eq!(unread.expires_next_at(), Some(Timestamp(10)));
    unread.expire(Timestamp(9));
    assert!(!unread.is_waiting() && unread.chunks(&early).is_some());
    unread.expire(Timestamp(10));
    assert!(unread.chunks(&early).is_none() && unread.chunks(&late).is_some());
    assert_eq!(unread.expires_next_at(), Some(Timestamp(20)));
    unread.expire(Timestamp(i64::MAX));
    assert_eq!(unread.expires_next_at(), None);
    assert!(!unread.commit(&early) && !unread.give_back(&late));
    assert_eq!(waiting(&mut unread), [1, 2]);
    assert!(unread.commit(&endless));
}

#[test]
fn what_waits_again_is_in_the_order_of_its_ids() {
    let mut unread = unread(&[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    let [first, second] = [2, 2].map(|records| reserve(&mut unread, records, None));
    assert!(unread.give_back(&second) && !unread.give_back(&second));
    assert!(unread.give_back(&first));
    assert_eq!(waiting(&mut unread), [1, 2, 3, 4, 5]);
    unread.pause();
    unread.resume();
    assert_eq!(waiting(&mut unread), [1, 2, 3, 4, 5]);
}

#[test]
fn a_commit_up_to_a_position_takes_what_is_not_newer() {
    for position in 1..=7 {
        let mut unread = unread(&[(1, 2), (3, 3), (4, 6)]);
        let held = reserve(&mut unread, 2, None);
        unread.commit_until(id(position), |_| None);
        // A chunk that cannot be loaded stays until all of it is committed.
        let rest: Vec<i64> =
            [(3, 3), (4, 6)].iter().filter(|(_, last)| *last > position).map(|c| c.0).collect();
        assert_eq!(unread.chunks(&held).is_some(), position < 2, "{position}");
        assert_eq!(waiting(&mut unread), rest, "{position}");
        assert_eq!(unread.floor, Some(id(position)));
    }
    let mut unread = unread(&[(4, 6)]);
    unread.commit_until(id(3), |_| panic!("nothing of it is committed"));
    unread.commit_until(id(2), |_| None);
    assert_eq!(unread.floor, Some(id(3)), "it only rises");
}

#[test]
fn a_record_is_found_anywhere_in_its_chunk_and_nowhere_else() {
    let mut unread = unread(&[(2, 4), (6, 6), (8, 10)]);
    for is_held in [false, true] {
        if is_held {
            reserve(&mut unread, 4, None);
        }
        let found = |number| unread.find(id(number)).map(|chunk| chunk.first.get());
        let expected = [None, Some(2), Some(2), Some(2), None, Some(6), None, Some(8), Some(8)];
        assert_eq!((1..=9).map(found).collect::<Vec<_>>(), expected);
        assert_eq!([10, 11].map(found), [Some(8), None]);
    }
}

#[test]
fn the_newest_chunks_have_something_below_the_bound_and_come_newest_first() {
    let mut unread = unread(&[(1, 1), (2, 4), (6, 6), (8, 10)]);
    for is_held in [false, true] {
        if is_held {
            reserve(&mut unread, 4, None);
        }
        let newest = |before: Option<i64>, chunks_max| {
            let chunks = unread.newest(before.map(id), chunks_max);
            chunks.iter().map(|chunk| chunk.first.get()).collect::<Vec<_>>()
        };
        assert_eq!(newest(None, 9), [8, 6, 2, 1]);
        assert_eq!(newest(None, 3), [8, 6, 2]);
        assert_eq!(newest(Some(9), 1), [8]);
        assert_eq!(newest(Some(8), 9), [6, 2, 1], "it has nothing below its first record");
        assert_eq!(newest(Some(3), 9), [2, 1]);
        assert_eq!(newest(Some(1), 9), [0; 0]);
    }
}

#[test]
fn a_rewind_replaces_everything_up_to_the_newest_that_it_read() {
    for (newest, kept) in [(None, [2, 4].as_slice()), (Some(3), &[4]), (Some(4), &[])] {
        let mut unread = unread(&[(2, 3)]);
        unread.pause();
        unread.push(chunk(4, 4), &[0; 10]);
        unread.replace_until(newest.map(id), Unread::default());
        assert!(!unread.is_waiting() && unread.is_paused(), "not before it is over");
        assert!(unread.reserve(ALL, None, |_| None).is_none());
        unread.resume();
        assert_eq!(unread.is_waiting(), !kept.is_empty());
        assert_eq!(waiting(&mut unread), kept);
        assert_eq!(unread.bytes(), 10 * kept.len() as u64);
    }
}
