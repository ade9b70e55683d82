//! Recovery at start. The end of the newest segment may be torn, and is cut to the last complete
//! frame. Everything else must be as it was synced; otherwise the journal refuses to open and
//! leaves the disk unchanged.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use windlass_core::{JobId, Sysid};

use crate::decode::frame_behind;
use crate::disk::Disk;
use crate::error::Error;
use crate::scan::{Frames, Scan, Text};
use crate::segment::{self, HEAD_BYTES_MAX, Head, Previous, Salt, Segment};
use crate::unread::Unread;

/// A journal as its files show it.
pub(crate) struct Recovered {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) unread: Unread,
    /// Files of spooled payloads, each with the newest id that refers to it.
    pub(crate) spools: BTreeMap<String, JobId>,
    /// Newest id of any record, and of any segment's name.
    pub(crate) newest: Option<JobId>,
    /// What the head of the next segment will say about the newest one.
    pub(crate) previous: Option<Previous>,
    /// The newest record that is no longer in the journal.
    pub(crate) dropped: Option<JobId>,
}

/// Reads and checks all segments in `dir`. Cuts and removes what is torn only if everything else is
/// in order.
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    sysid: Sysid,
    ingested: Option<JobId>,
) -> Result<Recovered, Error> {
    let files = list(disk, dir)?;
    let newest_name = files.last().map(|file| file.first);
    let mut repairs = Repairs::default();
    let (headed, unfinished) = read_heads(disk, files, sysid)?;
    let links = chain(headed, &unfinished, &mut repairs)?;
    repairs.removals.extend(unfinished.into_iter().map(|file| file.path));
    let scan = Scan::new(ingested);
    let mut segments = Segments { disk, ingested, scan, found: VecDeque::new() };
    for link in &links {
        segments.add(link, &mut repairs)?;
    }
    repairs.carry_out(disk, dir)?;
    let Segments { scan: Scan { newest, unread, spools, .. }, found, .. } = segments;
    let previous = found.back().map(|segment| Previous {
        first: segment.first,
        bytes: segment.bytes,
        last: newest,
    });
    let newest = newest.max(newest_name);
    let dropped = dropped_until(&links);
    Ok(Recovered { segments: found, unread, spools, newest, previous, dropped })
}

struct SegmentFile {
    path: PathBuf,
    first: JobId,
    bytes: u64,
}

/// A segment with a complete head.
struct HeadedSegment {
    file: SegmentFile,
    head: Head,
    head_bytes: usize,
}

/// A segment at its position in the chain.
struct Link {
    headed: HeadedSegment,
    /// The length that counts, if a later segment states it.
    bytes: Option<u64>,
    /// The next segment is gone, so its records must have been ingested.
    ingested_only: bool,
}

/// Changes to make once everything has been found in order.
#[derive(Default)]
struct Repairs {
    cuts: Vec<(PathBuf, u64)>,
    removals: Vec<PathBuf>,
    /// Segments whose length no later one states: their writer may have been killed before it
    /// synced the last frame, and everything from here on relies on it.
    syncs: Vec<PathBuf>,
}

impl Repairs {
    fn carry_out(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        for (path, length) in &self.cuts {
            tracing::warn!(file = %path.display(), length, "cut the torn end of a segment");
            disk.open(path)
                .and_then(|file| file.truncate(*length).and_then(|()| file.sync()))
                .map_err(|error| Error::storage("cut", path, &error))?;
        }
        for path in &self.removals {
            disk.remove(path).map_err(|error| Error::storage("remove", path, &error))?;
        }
        for path in &self.syncs {
            disk.open(path)
                .and_then(|file| file.sync())
                .map_err(|error| Error::storage("sync", path, &error))?;
        }
        // Also the names: the last segment may have been created right before a kill.
        disk.sync_dir(dir).map_err(|error| Error::storage("sync", dir, &error))
    }
}

/// All segments, oldest first.
fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<SegmentFile>, Error> {
    let names = disk.list(dir).map_err(|error| Error::storage("list", dir, &error))?;
    let mut files: Vec<SegmentFile> = names
        .into_iter()
        .filter_map(|(name, bytes)| {
            let first = segment::first_of_name(&name)?;
            Some(SegmentFile { path: dir.join(name), first, bytes })
        })
        .collect();
    files.sort_by_key(|file| file.first);
    Ok(files)
}

/// The segments with a complete head, and those whose head was never finished.
fn read_heads(
    disk: &dyn Disk,
    files: Vec<SegmentFile>,
    sysid: Sysid,
) -> Result<(Vec<HeadedSegment>, Vec<SegmentFile>), Error> {
    let mut headed = Vec::with_capacity(files.len());
    let mut unfinished = Vec::new();
    for file in files {
        let start = read(disk, &file.path, file.bytes.min(HEAD_BYTES_MAX as u64))?;
        let head_bytes = memchr::memchr(b'\n', &start).map_or(start.len(), |at| at + 1);
        match Head::parse(&start[..head_bytes]) {
            Ok(head) if head.sysid == sysid => {
                headed.push(HeadedSegment { file, head, head_bytes })
            }
            Ok(head) => {
                let what = format!("the segment belongs to daemon {}", head.sysid);
                return Err(Error::corrupt(&file.path, 0, what));
            }
            Err(what) => {
                let is_unfinished = start.len() as u64 == file.bytes
                    && start[head_bytes..].iter().all(|&byte| byte == 0);
                if !is_unfinished {
                    return Err(Error::corrupt(&file.path, 0, what));
                }
                unfinished.push(file);
            }
        }
    }
    Ok((headed, unfinished))
}

/// Follows the heads from the newest segment to the oldest. Segments outside the chain are those
/// whose creation failed: they have nothing but a head, complete or not.
fn chain(
    mut headed: Vec<HeadedSegment>,
    unfinished: &[SegmentFile],
    repairs: &mut Repairs,
) -> Result<Vec<Link>, Error> {
    let known = |previous: &Previous| unfinished.iter().find(|file| file.first == previous.first);
    let mut links = Vec::with_capacity(headed.len());
    let mut wanted: Option<Previous> = None;
    while let Some(next) = headed.pop() {
        let previous = next.head.previous;
        let (bytes, ingested_only) = match wanted {
            _ if links.is_empty() => (None, false),
            Some(wanted) if wanted.first == next.file.first => (Some(wanted.bytes), false),
            Some(wanted) if next.file.first < wanted.first => (None, true),
            _ if next.file.bytes == next.head_bytes as u64 => {
                repairs.removals.push(next.file.path);
                continue;
            }
            _ => {
                let what = "no later segment refers to this one";
                return Err(Error::corrupt(&next.file.path, 0, what));
            }
        };
        if let Some(file) = previous.as_ref().and_then(known) {
            let what = "a later segment refers to this one, but its head is missing";
            return Err(Error::corrupt(&file.path, 0, what));
        }
        wanted = previous;
        links.push(Link { headed: next, bytes, ingested_only });
    }
    links.reverse();
    Ok(links)
}

/// The segments of a chain and their contents.
struct Segments<'a> {
    disk: &'a dyn Disk,
    ingested: Option<JobId>,
    scan: Scan,
    found: VecDeque<Segment>,
}

impl Segments<'_> {
    fn add(&mut self, link: &Link, repairs: &mut Repairs) -> Result<(), Error> {
        let HeadedSegment { file, head, head_bytes } = &link.headed;
        let counted = link.bytes.unwrap_or(file.bytes);
        if counted > file.bytes {
            let what = format!("the segment had {counted} bytes and has {} now", file.bytes);
            return Err(Error::corrupt(&file.path, file.bytes, what));
        }
        self.scan.newest = self.scan.newest.max(head.previous.and_then(|previous| previous.last));
        let bytes = read(self.disk, &file.path, counted)?;
        let text = Text { path: &file.path, segment: file.first, bytes: &bytes };
        let Frames { last, end } = self.scan.frames(text, *head_bytes, &head.salt)?;
        if end < bytes.len() {
            check_torn(link, &bytes, end, &head.salt)?;
        }
        let end = end as u64;
        if link.ingested_only && last > self.ingested {
            return Err(Error::corrupt(&file.path, end, "the next segment is missing"));
        }
        if link.bytes.is_none() {
            repairs.syncs.push(file.path.clone());
        }
        if end < file.bytes {
            repairs.cuts.push((file.path.clone(), end));
        }
        self.found.push_back(Segment { first: file.first, last, bytes: end, confirmed_at: None });
        Ok(())
    }
}

/// Only the newest segment may end in something that is not a frame, and nothing complete may
/// follow that.
fn check_torn(link: &Link, bytes: &[u8], at: usize, salt: &Salt) -> Result<(), Error> {
    let path = &link.headed.file.path;
    if link.bytes.is_some() {
        let what = "a frame is damaged, and a later segment shows that it was complete";
        return Err(Error::corrupt(path, at as u64, what));
    }
    match frame_behind(bytes, at + 1, salt) {
        None => Ok(()),
        Some(behind) => {
            let what = format!("a frame is damaged, and a complete one follows at byte {behind}");
            Err(Error::corrupt(path, at as u64, what))
        }
    }
}

/// The newest record of a segment that is gone.
fn dropped_until(links: &[Link]) -> Option<JobId> {
    let mut is_behind_gap = true;
    let mut dropped = None;
    for link in links {
        if is_behind_gap {
            dropped = dropped.max(link.headed.head.previous.and_then(|previous| previous.last));
        }
        is_behind_gap = link.ingested_only;
    }
    dropped
}

fn read(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<Vec<u8>, Error> {
    let bytes =
        usize::try_from(bytes).map_err(|_| Error::Storage("a segment is too long".into()))?;
    disk.read(path, 0, bytes).map_err(|error| Error::storage("read", path, &error))
}
