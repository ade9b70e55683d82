//! Very many broken requests, the same ones in every run: none of them may break the parser.

use super::split_check::{check, small_limits};
use super::{Limits, Response, Step};

const INPUTS: usize = 200_000;
const SEED: u64 = 0x5eed;
const CHANGES_MAX: usize = 6;
const PIECES_MAX: usize = 5;

const SAMPLES: [&str; 9] = [
    "Ping\r\n\r\n",
    "Status\n\n",
    "CreateJob\r\nname: foo\r\ndata: {\"value\":1}\r\nrepeat: finished, +1 minute\r\n\r\n",
    "GetJob\nname: foo*\nConnection: wait\ntimeout: 60000\n\nPing\n\n",
    "CreateJobs\r\njobs: [{\"name\":\"a\"},{\"name\":\"b\\\\u00e9\"}]\r\nContent-Length: 0\r\n\r\n",
    "Query: SELECT *\n  FROM jobs;\nFormat: json\n\n",
    "FinishJob / HTTP/1.1\r\njobID: 7\r\nContent-Length: 4\r\n\r\nbodyPing\r\n\r\n",
    "Ping\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\na: b\r\n\r\nPing\r\n\r\n",
    "UpdateJob\rdata: \\ud83d\\ude00 \\n\\q\\\\\n more\n\rjobID: 1\r\n\r\n",
];

const WORDS: [&[u8]; 20] = [
    b"\r\n\r\n",
    b"\n\n",
    b"\r",
    b"\n",
    b"\n\r",
    b":",
    b" ",
    b"\t",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\n",
    b"99999999999999999999",
    b"0\r\n\r\n",
    b"fffffff\n",
    b";",
];

fn sample(random: &mut fastrand::Rng) -> Vec<u8> {
    SAMPLES[random.usize(..SAMPLES.len())].as_bytes().to_vec()
}

fn change(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let at = random.usize(..=bytes.len());
    let end = random.usize(at..=bytes.len());
    match random.u8(..7) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.truncate(at),
        2 => drop(bytes.splice(at..at, WORDS[random.usize(..WORDS.len())].iter().copied())),
        3 => drop(bytes.splice(at..end, WORDS[random.usize(..WORDS.len())].iter().copied())),
        4 => drop(bytes.splice(at..at, sample(random))),
        5 => {
            let again = bytes[at..end].to_vec();
            drop(bytes.splice(end..end, again));
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.u8(..);
            }
        }
    }
}

#[test]
fn no_bytes_break_the_parser_and_their_pieces_do_not_matter() {
    let mut random = fastrand::Rng::with_seed(SEED);
    let (mut requests, mut refusals) = (0, 0);
    for input in 0..INPUTS {
        let mut bytes = sample(&mut random);
        for _ in 0..random.usize(..=CHANGES_MAX) {
            change(&mut bytes, &mut random);
        }
        let cuts: Vec<u8> = (0..random.usize(1..=PIECES_MAX)).map(|_| random.u8(1..20)).collect();
        let limits = if input % 2 == 0 { Limits::default() } else { small_limits() };
        for step in check(&bytes, &cuts, &limits) {
            match step {
                Step::Request(_) => requests += 1,
                Step::Bad(_) => refusals += 1,
                Step::Incomplete => unreachable!("is no step of a stream"),
            }
        }
    }
    // Inputs that are all garbage would test little.
    assert!(requests > INPUTS / 4 && refusals > INPUTS / 10, "{requests}, {refusals}");
}

#[test]
fn bytes_without_any_sense_do_not_either() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for _ in 0..INPUTS / 10 {
        let bytes: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
        check(&bytes, &[random.u8(1..9)], &small_limits());
        check(&bytes, &[random.u8(1..9)], &Limits::default());
    }
}

/// A composed reply has the form of a request, and its escapes are the same.
#[test]
fn every_value_that_is_composed_is_read_back() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for _ in 0..INPUTS / 10 {
        let value: String = (0..random.usize(..30)).map(|_| random.char(..)).collect();
        let value = value.trim_matches(' ').to_owned();
        let bytes = Response::ok().with_header("value", value.clone()).compose();
        let steps = check(&bytes, &[random.u8(1..9)], &Limits::default());
        let [Step::Request(request)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!(request.header("value"), Some(value.as_str()));
        assert_eq!(request.method_line(), "200 OK");
    }
}
