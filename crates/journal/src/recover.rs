//! What is found at the start. The end of the newest segment may be torn and is cut to the last
//! whole frame; everything else must be as it was synced, or the journal refuses to open and
//! leaves the disk as it is.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use windlass_core::{JobId, Sysid};

use crate::chunk::{CHUNK_BYTES, Chunk, Content, Context};
use crate::decode::{Decoder, frame_behind, frame_end};
use crate::disk::Disk;
use crate::error::Error;
use crate::segment::{self, HEAD_BYTES_MAX, Head, Previous, Salt, Segment};
use crate::unread::Unread;

/// A journal as its files show it.
pub(crate) struct Recovered {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) unread: Unread,
    /// Files of spooled payloads, each with the newest id that names it.
    pub(crate) spools: HashMap<String, JobId>,
    /// Newest id of any record, and of any segment's name.
    pub(crate) newest: Option<JobId>,
    /// What the head of the next segment will say about the newest one.
    pub(crate) previous: Option<Previous>,
}

/// Reads and checks all segments in `dir`; only when all is well, cuts and removes what is torn.
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
    let mut scan = Scan {
        disk,
        ingested,
        newest: None,
        unread: Unread::default(),
        spools: HashMap::new(),
        segments: VecDeque::new(),
    };
    for link in &links {
        scan.segment(link, &mut repairs)?;
    }
    repairs.carry_out(disk, dir)?;
    let newest = scan.newest.max(newest_name);
    let previous = scan.segments.back().map(|segment| Previous {
        first: segment.first,
        bytes: segment.bytes,
        last: scan.newest,
    });
    let Scan { segments, unread, spools, .. } = scan;
    Ok(Recovered { segments, unread, spools, newest, previous })
}

struct Found {
    path: PathBuf,
    first: JobId,
    bytes: u64,
}

/// A segment with a whole head.
struct Headed {
    file: Found,
    head: Head,
    head_bytes: usize,
}

/// A segment in its place of the chain.
struct Link {
    headed: Headed,
    /// The length that counts, where a later segment says it.
    bytes: Option<u64>,
    /// The segment behind it is gone, so its records must have been ingested.
    ingested_only: bool,
}

/// Changes that are made once everything has been found to be in order.
#[derive(Default)]
struct Repairs {
    cuts: Vec<(PathBuf, u64)>,
    removals: Vec<PathBuf>,
    /// Segments whose length no later one states: their writer may have been killed before it
    /// synced the last frame, and everything from here on counts on it.
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
        if self.removals.is_empty() && self.syncs.is_empty() {
            return Ok(());
        }
        disk.sync_dir(dir).map_err(|error| Error::storage("sync", dir, &error))
    }
}

/// All segments, oldest first.
fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Found>, Error> {
    let names = disk.list(dir).map_err(|error| Error::storage("list", dir, &error))?;
    let mut files: Vec<Found> = names
        .into_iter()
        .filter_map(|(name, bytes)| {
            let first = segment::first_of_name(&name)?;
            Some(Found { path: dir.join(name), first, bytes })
        })
        .collect();
    files.sort_by_key(|file| file.first);
    Ok(files)
}

/// The segments with a whole head, and those whose head was never finished.
fn read_heads(
    disk: &dyn Disk,
    files: Vec<Found>,
    sysid: Sysid,
) -> Result<(Vec<Headed>, Vec<Found>), Error> {
    let mut headed = Vec::with_capacity(files.len());
    let mut unfinished = Vec::new();
    for file in files {
        let start = read(disk, &file.path, file.bytes.min(HEAD_BYTES_MAX as u64))?;
        let head_bytes = memchr::memchr(b'\n', &start).map_or(start.len(), |at| at + 1);
        match Head::parse(&start[..head_bytes]) {
            Ok(head) if head.sysid == sysid => headed.push(Headed { file, head, head_bytes }),
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

/// Follows the heads from the newest segment to the oldest. Segments beside the chain are ones
/// whose creation failed in the end: they have nothing but a head, whole or not.
fn chain(
    mut headed: Vec<Headed>,
    unfinished: &[Found],
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
                let what = "no later segment knows of this one";
                return Err(Error::corrupt(&next.file.path, 0, what));
            }
        };
        if let Some(file) = previous.as_ref().and_then(known) {
            let what = "a later segment knows of this one, and its head is gone";
            return Err(Error::corrupt(&file.path, 0, what));
        }
        wanted = previous;
        links.push(Link { headed: next, bytes, ingested_only });
    }
    links.reverse();
    Ok(links)
}

struct Scan<'a> {
    disk: &'a dyn Disk,
    ingested: Option<JobId>,
    newest: Option<JobId>,
    unread: Unread,
    spools: HashMap<String, JobId>,
    segments: VecDeque<Segment>,
}

impl Scan<'_> {
    fn segment(&mut self, link: &Link, repairs: &mut Repairs) -> Result<(), Error> {
        let Headed { file, head, head_bytes } = &link.headed;
        let counted = link.bytes.unwrap_or(file.bytes);
        if counted > file.bytes {
            let what = format!("the segment had {counted} bytes and has {} now", file.bytes);
            return Err(Error::corrupt(&file.path, file.bytes, what));
        }
        self.newest = self.newest.max(head.previous.and_then(|previous| previous.last));
        let bytes = read(self.disk, &file.path, counted)?;
        let mut last = None;
        let mut at = *head_bytes;
        while let Some(end) = frame_end(&bytes, at, &head.salt) {
            last = self.frame(file, &bytes, at..end)?.or(last);
            at = end;
        }
        if at < bytes.len() {
            self.check_torn(link, &bytes, at, &head.salt)?;
        }
        if link.ingested_only && last > self.ingested {
            return Err(Error::corrupt(&file.path, at as u64, "the segment behind it is missing"));
        }
        if link.bytes.is_none() {
            repairs.syncs.push(file.path.clone());
        }
        if (at as u64) < file.bytes {
            repairs.cuts.push((file.path.clone(), at as u64));
        }
        self.segments.push_back(Segment { first: file.first, last, bytes: at as u64 });
        Ok(())
    }

    /// Only the newest segment may end in something that is not a frame, and nothing whole may
    /// follow that.
    fn check_torn(&self, link: &Link, bytes: &[u8], at: usize, salt: &Salt) -> Result<(), Error> {
        let path = &link.headed.file.path;
        if link.bytes.is_some() {
            let what = "a frame is damaged, and a later segment shows that it was whole";
            return Err(Error::corrupt(path, at as u64, what));
        }
        match frame_behind(bytes, at + 1, salt) {
            None => Ok(()),
            Some(behind) => {
                let what = format!("a frame is damaged, and a whole one follows at byte {behind}");
                Err(Error::corrupt(path, at as u64, what))
            }
        }
    }

    /// Notes ids, spooled payloads and unread records of a valid frame; its newest id.
    fn frame(
        &mut self,
        file: &Found,
        bytes: &[u8],
        range: std::ops::Range<usize>,
    ) -> Result<Option<JobId>, Error> {
        let corrupt = |at: usize, what: &str| {
            Error::corrupt(&file.path, (range.start + at) as u64, what.to_owned())
        };
        let frame = &bytes[range.clone()];
        let mut decoder = Decoder::new(frame, Context::default());
        let mut open = Open { start: 0, context: Context::default(), ids: None, records: 0 };
        let mut last = None;
        while let Some(line) = decoder.next().map_err(|what| corrupt(decoder.at(), &what))? {
            if self.newest >= Some(line.id) {
                return Err(corrupt(line.end, "an id is not larger than the one before it"));
            }
            self.newest = Some(line.id);
            last = Some(line.id);
            if let Some(file) = line.file {
                self.spools.insert(file.name.to_owned(), line.id);
            }
            if self.ingested >= Some(line.id) {
                open = Open::at(line.end, decoder.context());
                continue;
            }
            open.add(line.id);
            if line.end - open.start >= CHUNK_BYTES {
                self.close(file.first, range.start, frame, &open, line.end);
                open = Open::at(line.end, decoder.context());
            }
        }
        self.close(file.first, range.start, frame, &open, frame.len());
        Ok(last)
    }

    /// Turns a run of unread records into a chunk.
    fn close(&mut self, segment: JobId, base: usize, frame: &[u8], open: &Open, end: usize) {
        let Some((first, last)) = open.ids else { return };
        let bytes = &frame[open.start..end];
        let chunk = Chunk {
            segment,
            offset: (base + open.start) as u64,
            bytes: bytes.len(),
            records: open.records,
            first,
            last,
            context: open.context.clone(),
            content: Content::of_file(bytes),
        };
        self.unread.push(chunk, bytes);
    }
}

/// A run of unread records that is being gathered.
struct Open {
    start: usize,
    context: Context,
    ids: Option<(JobId, JobId)>,
    records: u32,
}

impl Open {
    fn at(start: usize, context: Context) -> Open {
        Open { start, context, ids: None, records: 0 }
    }

    fn add(&mut self, id: JobId) {
        self.ids = Some((self.ids.map_or(id, |(first, _)| first), id));
        self.records += 1;
    }
}

fn read(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<Vec<u8>, Error> {
    let bytes =
        usize::try_from(bytes).map_err(|_| Error::Storage("a segment is too long".into()))?;
    disk.read(path, 0, bytes).map_err(|error| Error::storage("read", path, &error))
}
