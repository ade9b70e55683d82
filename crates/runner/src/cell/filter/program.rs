//! Rules as a program for the kernel's filter.

use libc::{c_long, sock_filter};

/// Allowed whatever the arguments.
pub(super) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
pub(super) const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Calls of a second kind, with 32-bit pointers, have numbers from here on.
const FOREIGN_CALLS: u32 = 0x4000_0000;

/// Offsets in what the kernel shows to a filter.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

/// One rule: this call, if the test holds, gets this answer.
pub(super) struct Rule(pub(super) c_long, pub(super) Test, pub(super) u32);

#[derive(Clone, Copy)]
pub(super) enum Test {
    Always,
    /// The low half of an argument is this.
    Is(u32, u32),
    /// It is not.
    IsNot(u32, u32),
    /// The bits of its low half that a mask leaves are these.
    Masked(u32, u32, u32),
    /// It has one of these bits.
    Has(u32, u32),
    /// It has both of these bits.
    HasBoth(u32, u32, u32),
    /// An argument is not zero, both halves.
    NonZero(u32),
    /// The low half of an argument is in this range.
    Between(u32, u32, u32),
    /// The low halves of two arguments are these.
    Both([(u32, u32); 2]),
}

pub(super) const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// The program of these rules.
pub(super) fn assemble(rules: &[Rule]) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        // A program for another kind of machine makes other calls by the same numbers.
        branch(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(refuse(libc::ENOSYS)),
        load(NUMBER),
        branch(libc::BPF_JGE, FOREIGN_CALLS, 0, 1),
        answer(refuse(libc::ENOSYS)),
    ];
    for Rule(call, test, reply) in rules {
        // Each test skips the answer if it does not hold.
        let mut body = match *test {
            Test::Always => Vec::new(),
            Test::Is(argument, value) => {
                vec![load(low(argument)), branch(libc::BPF_JEQ, value, 0, 1)]
            }
            Test::IsNot(argument, value) => {
                vec![load(low(argument)), branch(libc::BPF_JEQ, value, 1, 0)]
            }
            Test::Masked(argument, mask, value) => {
                vec![load(low(argument)), keep(mask), branch(libc::BPF_JEQ, value, 0, 1)]
            }
            Test::Has(argument, bits) => {
                vec![load(low(argument)), branch(libc::BPF_JSET, bits, 0, 1)]
            }
            Test::HasBoth(argument, one, other) => vec![
                load(low(argument)),
                branch(libc::BPF_JSET, one, 0, 2),
                branch(libc::BPF_JSET, other, 0, 1),
            ],
            Test::NonZero(argument) => vec![
                load(low(argument)),
                branch(libc::BPF_JEQ, 0, 0, 2),
                load(low(argument) + 4),
                branch(libc::BPF_JEQ, 0, 1, 0),
            ],
            Test::Between(argument, least, most) => vec![
                load(low(argument)),
                branch(libc::BPF_JGE, least, 0, 2),
                branch(libc::BPF_JGT, most, 1, 0),
            ],
            Test::Both([(first, value), (second, other)]) => vec![
                load(low(first)),
                branch(libc::BPF_JEQ, value, 0, 3),
                load(low(second)),
                branch(libc::BPF_JEQ, other, 0, 1),
            ],
        };
        body.push(answer(*reply));
        // The next rule needs the number again.
        body.push(load(NUMBER));
        program.push(branch(libc::BPF_JEQ, *call as u32, 0, body.len() as u8));
        program.extend(body);
    }
    program.push(answer(ALLOW));
    program
}

/// The place of the low half of an argument; all machines that are supported store it first.
const fn low(argument: u32) -> u32 {
    ARGUMENTS + 8 * argument
}

const fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

/// Clears the other bits of what was loaded.
const fn keep(mask: u32) -> sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask, 0, 0)
}

const fn answer(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

/// Compares what was loaded; skips `then` instructions if it holds, else `otherwise`.
const fn branch(comparison: u32, value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, value, then, otherwise)
}

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}
