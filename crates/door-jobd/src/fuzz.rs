//! The rules for whatever is in a message or a configuration file, for the fuzzer and the tests.

use windlass_core::fuzz::however_it_arrives;

use crate::config::{CtlConfig, MasterConfig, WorkerConfig};
use crate::ini;
use crate::wire::{self, Json, Message, Splitter};

/// A bound that short inputs reach.
const MESSAGE_BYTES_MAX: usize = 200;

/// Bytes that a peer sends. How they arrive does not matter, and what is read is written so that
/// it is read back. Accepts them if there is a message of the protocol.
pub fn message(bytes: &[u8]) -> bool {
    let add = |splitter: &mut Splitter, piece: &[u8]| splitter.buffer().extend_from_slice(piece);
    let next = |splitter: &mut Splitter| splitter.next(MESSAGE_BYTES_MAX);
    let (messages, _) = however_it_arrives(bytes, add, next);
    let mut accepted = false;
    for bytes in messages {
        assert!(bytes.len() <= MESSAGE_BYTES_MAX && !bytes.contains(&wire::END));
        match wire::parse(&bytes) {
            Message::Request(request) => {
                let (kind, password) = (request.kind.as_str(), request.password.as_ref());
                let data = Some(&request.data);
                let written = wire::request(1, kind, data, password);
                let again = wire::Request { no: 1, ..request.clone() };
                assert_eq!(reread(&written), Message::Request(again));
                accepted = true;
            }
            Message::Response(response) => {
                let written = wire::response(response.no, &response.result);
                assert_eq!(reread(&written), Message::Response(response));
                accepted = true;
            }
            Message::Ping | Message::Pong => accepted = true,
            Message::Malformed(text) => assert!(!text.is_empty()),
            Message::Broken => {}
        }
    }
    accepted
}

/// A configuration file. Line ends and comments do not matter. Accepts it if it has a value.
pub fn ini(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let read = ini::parse(&text);
    let in_windows = text.replace('\r', "\n").replace('\n', "\r\n");
    assert_eq!(ini::parse(&in_windows), read, "other line ends");
    let commented = in_windows.replace('\n', "\n; a=b\n\n#[c]\n");
    assert_eq!(ini::parse(&commented), read, "comments between the lines");
    assert!(read.get("__proto__").is_none());
    let as_json = Json::from(read.clone());
    // Sections may be nested deeper than JSON is read.
    if let Ok(again) = serde_json::from_str::<Json>(&as_json.to_string()) {
        assert_eq!(again, as_json);
    }
    // Whatever is in a file, it is used or refused with words.
    let refusals = [
        WorkerConfig::parse(&text).err(),
        MasterConfig::parse(&text).err(),
        CtlConfig::parse(&text).err(),
    ];
    assert!(refusals.iter().flatten().all(|refusal| !refusal.to_string().is_empty()));
    read.len() > 0
}

fn reread(written: &[u8]) -> Message {
    let (end, message) = written.split_last().expect("a message has an end");
    assert_eq!(*end, wire::END);
    assert!(!message.contains(&wire::END));
    wire::parse(message)
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn messages() {
        corpus::check("jobd_message", 10_000, super::message);
    }

    #[test]
    fn files() {
        corpus::check("jobd_ini", 5000, super::ini);
    }
}
