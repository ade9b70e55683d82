//! The rules that every file keeps, for the fuzzer and the tests: only frames with a valid checksum
//! count, a file that was cut has a prefix of the records, recovery is the same when it is
//! repeated and changes nothing when it refuses, and records are read back as they are written.
//!
//! | module | owns |
//! |---|---|
//! | `disk` | a disk with one file |

mod disk;

use std::path::Path;

use bytes::Bytes;
use windlass_core::add::Expiry;
use windlass_core::{AddOptions, JobId, Payload, Sysid};

use self::disk::OneFile;
use crate::chunk::FrameState;
use crate::decode::{frame_end, records};
use crate::encode::Frame;
use crate::entry::{AddPayload, Entry, Record};
use crate::recover::recover;
use crate::segment::{self, Head, Salt};

const SALT: Salt = *b"0123456789abcdef";
const SYSID: u16 = 7;
/// Separates frames in an input that is not a file.
const NEXT_FRAME: &[u8] = b"\n---\n";
/// How many places a file is cut at.
const CUTS_MAX: usize = 40;

/// A file of a journal, or the bodies of frames, which get heads with valid checksums. Accepts
/// whatever recovery accepts.
pub fn segment(bytes: &[u8]) -> bool {
    let is_file = bytes.starts_with(b"#:Windlass-Journal");
    let file = if is_file { bytes.to_vec() } else { file_of(bytes) };
    let whole = Contents::read(&file);
    let step = (file.len() / CUTS_MAX).max(1);
    for cut in (0..file.len()).step_by(step) {
        let of_cut = Contents::read(&file[..cut]).records;
        assert!(whole.records.starts_with(&of_cut), "cut at {cut}: {of_cut:?}");
    }
    whole.records.iter().for_each(check_written_back);
    check_recovery(&file, &whole)
}

fn file_of(bodies: &[u8]) -> Vec<u8> {
    let sysid = Sysid::new(SYSID).expect("a valid sysid");
    let mut file = Head { sysid, salt: SALT, previous: None }.to_text().into_bytes();
    let mut rest = Some(bodies);
    while let Some(bytes) = rest {
        let end = bytes.windows(NEXT_FRAME.len()).position(|window| window == NEXT_FRAME);
        // The line feed before the separator belongs to the body.
        let (body, next) = end
            .map_or((bytes, None), |end| (&bytes[..=end], Some(&bytes[end + NEXT_FRAME.len()..])));
        let head = format!("#:Batch date=2027-01-15T08:00:00.123Z,records=1,bytes={}", body.len());
        let sum = slow_checksum(&[&SALT, head.as_bytes(), body]);
        file.extend_from_slice(format!("{head},crc32c={sum:08x}\n").as_bytes());
        file.extend_from_slice(body);
        file.extend_from_slice(b"#:EndBatch\n");
        rest = next;
    }
    file
}

/// What the valid frames at the beginning of a file contain.
struct Contents {
    records: Vec<Record>,
    /// Whether a frame is valid, but its records are not. Nothing of ours is written so.
    is_odd: bool,
}

impl Contents {
    fn read(file: &[u8]) -> Contents {
        let mut contents = Contents { records: Vec::new(), is_odd: false };
        let Some(end) = memchr::memchr(b'\n', file) else { return contents };
        let Ok(head) = Head::parse(&file[..=end]) else { return contents };
        let mut at = end + 1;
        while let Some(end) = frame_end(file, at, &head.salt) {
            check_frame(&file[at..end], &head.salt);
            let frame = Bytes::copy_from_slice(&file[at..end]);
            let (state, mut found) = (FrameState::default(), Vec::new());
            contents.is_odd = records(&frame, state, None, Path::new(""), &mut found).is_err();
            if contents.is_odd {
                break;
            }
            contents.records.append(&mut found);
            at = end;
        }
        contents
    }
}

/// A frame says its own length and checksum.
fn check_frame(frame: &[u8], salt: &Salt) {
    let end = memchr::memchr(b'\n', frame).expect("a frame has a head line");
    let head = str::from_utf8(&frame[..end]).expect("a head line is text");
    let (head, sum) = head.rsplit_once(",crc32c=").expect("a head line has a checksum");
    let body = &frame[end + 1..frame.len() - b"#:EndBatch\n".len()];
    assert!(head.ends_with(&format!(",bytes={}", body.len())), "{head}");
    assert_eq!(sum, format!("{:08x}", slow_checksum(&[salt, head.as_bytes(), body])));
}

/// CRC-32C, bit by bit.
fn slow_checksum(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = parts.iter().flat_map(|part| part.iter());
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 }
        })
    })
}

/// Writes the record into a frame of its own. Only those that are not in separate files.
fn check_written_back(record: &Record) {
    let job = &record.job;
    let Payload::Inline(payload) = &job.payload else { return };
    let options = AddOptions {
        run_at: Some(job.run_at),
        priority: job.priority,
        timeout: job.timeout,
        expires: job.expires_at.map(Expiry::At),
        unique: None,
        then: job.then.clone(),
        parent: None,
        extra: job.extra.clone(),
        durable: None,
    };
    let payload = AddPayload::Inline(payload.clone());
    let entry = Entry { key: job.key.clone(), payload, options };
    let mut frame = Frame::new();
    frame.begin(job.created_at);
    frame.push(&[entry], &[job.id], None);
    // The last second of the calendar can be read, but is not written.
    let Ok(bytes) = frame.finish(&SALT).map(<[u8]>::to_vec) else { return };
    assert_eq!(frame_end(&bytes, 0, &SALT), Some(bytes.len()), "{bytes:?}");
    let mut again = Vec::new();
    let result = records(&bytes.into(), FrameState::default(), None, Path::new(""), &mut again);
    assert_eq!(result, Ok(()), "{record:?}");
    assert_eq!(again.iter().map(|record| &record.job).collect::<Vec<_>>(), [job]);
}

fn check_recovery(file: &[u8], contents: &Contents) -> bool {
    let (dir, first) = (Path::new("journal"), JobId::new(1).expect("a valid id"));
    let sysid = Sysid::new(SYSID).expect("a valid sysid");
    let disk = OneFile::new(segment::path(Path::new(""), first), file);
    let Ok(recovered) = recover(&disk, dir, sysid, None) else {
        assert_eq!(disk.content().as_deref(), Some(file), "a refusal changes nothing");
        return false;
    };
    let Some(kept) = disk.content() else {
        assert!(contents.records.is_empty(), "a file is removed if it has not even a head");
        return true;
    };
    assert!(file.starts_with(&kept), "the end is cut, and nothing else");
    if contents.is_odd {
        return false;
    }
    let records = &contents.records;
    assert_eq!(&Contents::read(&kept).records, records, "no record is cut");
    assert_eq!(recovered.unread.records(), records.len() as u64);
    let ids: Vec<JobId> = records.iter().map(|record| record.job.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let again = recover(&disk, dir, sysid, None).expect("what was recovered is in order");
    assert_eq!(disk.content(), Some(kept), "there is nothing left to cut");
    assert_eq!(again.unread.records(), records.len() as u64);
    assert_eq!((again.newest, again.previous), (recovered.newest, recovered.previous));
    let behind = recover(&disk, dir, sysid, ids.last().copied()).expect("as before");
    assert!(behind.unread.records() == 0, "the store has all of it");
    true
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn segments() {
        corpus::check("journal_segment", 5000, super::segment);
    }
}
