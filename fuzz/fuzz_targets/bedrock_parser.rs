//! Bytes that a client of the Bedrock door may send. None may break the parser, and it must not
//! matter how the network splits them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_door_bedrock::fuzz_parser;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, bool)| {
    let (bytes, cuts, small) = input;
    fuzz_parser(&bytes, &cuts, small);
});
