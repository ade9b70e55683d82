//! Segments: files named by the first id that may be in them, each with a head line that states its
//! owner and how the previous segment ended.
//!
//! The chain of heads is what makes a refused write harmless: once a later segment exists, bytes
//! beyond the length that its head gives for the previous one do not count, whatever they look
//! like.

use std::path::{Path, PathBuf};

use windlass_core::{JobId, Sysid, Timestamp};

/// The version of the format that this code writes and reads.
const VERSION: &str = "1";
const HEAD_START: &str = "#:Windlass-Journal version=";
const EXTENSION: &str = ".log";
/// Digits of an id in a name, so that names sort like ids.
const NAME_DIGITS: usize = 19;
/// Longest head line, including its newline.
pub(crate) const HEAD_BYTES_MAX: usize = 256;

/// A random number in every checksum of a segment, so that no payload can imitate a frame.
pub(crate) type Salt = [u8; 16];

/// A segment as the running journal knows it.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) first: JobId,
    /// Newest id in it; `None` while it has no record.
    pub(crate) last: Option<JobId>,
    /// Length up to which it is synced and counts.
    pub(crate) bytes: u64,
    /// Since when the store is known to have all of it.
    pub(crate) confirmed_at: Option<Timestamp>,
}

/// The first line of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sysid: Sysid,
    pub(crate) salt: Salt,
    pub(crate) previous: Option<Previous>,
}

/// How the previous segment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) first: JobId,
    pub(crate) bytes: u64,
    /// Newest id in it or in an earlier one.
    pub(crate) last: Option<JobId>,
}

impl Head {
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{HEAD_START}{VERSION},sysid={}", self.sysid);
        text.push_str(",salt=");
        text.extend(self.salt.iter().map(|&digit| char::from(digit)));
        if let Some(previous) = self.previous {
            text += &format!(
                ",previous={},previous_bytes={},previous_last={}",
                previous.first,
                previous.bytes,
                previous.last.map_or(0, JobId::get)
            );
        }
        text += &format!(",crc32c={:08x}\n", crc32c::crc32c(text.as_bytes()));
        text
    }

    /// Reads a head line, including its newline.
    pub(crate) fn parse(line: &[u8]) -> Result<Head, String> {
        let line = str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
        let (text, sum) =
            line.and_then(|line| line.rsplit_once(",crc32c=")).ok_or("no head line")?;
        if format!("{:08x}", crc32c::crc32c(text.as_bytes())) != sum {
            return Err("the head line has a wrong checksum".into());
        }
        let text = text.strip_prefix(HEAD_START).ok_or("not a journal of Windlass")?;
        let (version, attributes) = text.split_once(',').ok_or("no attributes in the head line")?;
        if version != VERSION {
            return Err(format!("version {version} of the journal's format is not known"));
        }
        Head::from_attributes(attributes).ok_or_else(|| "the head line is not complete".into())
    }

    fn from_attributes(attributes: &str) -> Option<Head> {
        let sysid = Sysid::new(attribute(attributes, "sysid")?.parse().ok()?)?;
        let salt: Salt = attribute(attributes, "salt")?.as_bytes().try_into().ok()?;
        let previous = match attribute(attributes, "previous") {
            None => None,
            Some(first) => Some(Previous {
                first: first.parse().ok()?,
                bytes: attribute(attributes, "previous_bytes")?.parse().ok()?,
                last: JobId::new(attribute(attributes, "previous_last")?.parse().ok()?),
            }),
        };
        Some(Head { sysid, salt, previous })
    }
}

/// The value of one attribute in `name=value,name=value`.
pub(crate) fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    attributes.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The salt of the segment that begins with this id; it differs between segments of one seed.
pub(crate) fn salt(seed: u64, first: JobId) -> Salt {
    let number = fastrand::Rng::with_seed(seed ^ first.get() as u64).u64(..);
    let mut salt = Salt::default();
    salt.copy_from_slice(format!("{number:016x}").as_bytes());
    salt
}

pub(crate) fn path(dir: &Path, first: JobId) -> PathBuf {
    dir.join(format!("{:0NAME_DIGITS$}{EXTENSION}", first.get()))
}

/// The first id, if this is the name of a segment.
pub(crate) fn first_of_name(name: &str) -> Option<JobId> {
    name.strip_suffix(EXTENSION).filter(|digits| digits.len() == NAME_DIGITS)?.parse().ok()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn heads_read_back_as_written_and_any_other_byte_is_reported() {
        let id = |number| JobId::new(number).unwrap();
        let sysid = Sysid::new(4095).unwrap();
        let previous = Previous { first: id(i64::MAX), bytes: u64::MAX, last: Some(id(i64::MAX)) };
        let none = Previous { first: id(1), bytes: 0, last: None };
        for previous in [None, Some(none), Some(previous)] {
            let head = Head { sysid, salt: salt(1, id(1)), previous };
            let text = head.to_text();
            assert!(text.len() <= HEAD_BYTES_MAX);
            assert_eq!(Head::parse(text.as_bytes()), Ok(head));
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 0x20;
                assert!(Head::parse(&bytes).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn salts_follow_from_the_seed_and_the_first_id() {
        let salt = |seed, first| salt(seed, JobId::new(first).unwrap());
        assert_eq!(salt(1, 10), salt(1, 10));
        assert_ne!(salt(1, 10), salt(2, 10), "another start");
        assert_ne!(salt(1, 10), salt(1, 11), "the next segment");
    }

    #[test]
    fn names_sort_like_ids() {
        let name = |number| path(Path::new(""), JobId::new(number).unwrap());
        assert!(name(9) < name(10) && name(10) < name(i64::MAX));
        assert_eq!(first_of_name("0000000000000000010.log"), JobId::new(10));
        for other in ["lock", "10.log", "0000000000000000010.tmp", "000000000000000000x.log"] {
            assert_eq!(first_of_name(other), None);
        }
    }
}
