//! However much goes into or comes out of a handler, the daemon holds little of it. These tests run
//! in their own process and measure its memory.

#![allow(clippy::unwrap_used)]

#[path = "it/harness.rs"]
#[allow(dead_code)]
mod harness;

use std::sync::Arc;

use harness::{MadePieces, check_ended, fixture, in_pieces, spec};
use windlass_core::Lang;

/// Far below what passes through, and far above what is needed.
const GROWTH_MAX: u64 = 48 * 1024 * 1024;

/// The peak memory of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_flood_of_output_is_read_to_its_end_in_little_memory() {
    let fixture = fixture();
    let before = peak_bytes();
    let line = "x".repeat(99);
    let script = format!("yes {line} | head -c 200000000; echo; echo the end");
    let report = fixture.sh(&script).await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().ends_with("the end\n[windlass] exit code 0\n"));
    assert!(report.log.len() <= harness::LOG_BYTES_MAX);
    let endless = fixture.sh("head -c 100000000 /dev/zero >&2").await;
    check_ended(&endless, 200, None);
    assert!(peak_bytes() - before < GROWTH_MAX);
}

#[tokio::test]
async fn s2_29_a_large_payload_arrives_whole_in_little_memory() {
    const BYTES: u64 = 100 * 1024 * 1024;
    let fixture = fixture();
    let before = peak_bytes();
    let pieces = MadePieces { bytes: BYTES, piece_bytes: 256 * 1024, broken_from: u32::MAX };
    let mut run =
        fixture.begin_with(spec(Lang::Sh, "cksum"), vec![in_pieces(BYTES)], Arc::new(pieces));
    let (_, report) = run.ended().await;
    check_ended(&report, 200, None);
    let expected = format!("{} {BYTES}\n", cksum((0..BYTES).map(MadePieces::byte), BYTES));
    assert!(report.log.to_string().starts_with(&expected), "{} {expected}", report.log);
    assert!(peak_bytes() - before < GROWTH_MAX);
}

/// The checksum of the POSIX tool of that name.
fn cksum(bytes: impl Iterator<Item = u8>, count: u64) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|byte| {
            let shift = |crc: u32| (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            (0..8).fold(byte << 24, |crc, _| shift(crc))
        })
        .collect();
    let length = count.to_le_bytes();
    let used = length.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let crc = bytes
        .chain(length[..used].iter().copied())
        .fold(0u32, |crc, byte| (crc << 8) ^ table[((crc >> 24) as u8 ^ byte) as usize]);
    !crc
}
