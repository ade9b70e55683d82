//! One history from the files of all witnesses: ordered by time, then by file, then by line. The
//! order depends on nothing else, so the same files always give the same history.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::BufRead;

use super::read::{ReadError, Record, Source};

/// Merges sources. Memory is bounded by their number: each holds one window of lines.
pub struct Merge<'a> {
    sources: Vec<Source<Box<dyn BufRead + 'a>>>,
    /// The next record of each source, by time and source.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    records: Vec<Option<Record>>,
}

impl<'a> Merge<'a> {
    /// The files of a history, each with its name.
    pub fn new(
        files: impl IntoIterator<Item = (String, Box<dyn BufRead + 'a>)>,
    ) -> Result<Merge<'a>, ReadError> {
        let numbered = (0..).zip(files);
        let sources = numbered.map(|(index, (name, input))| Source::new(name, index, input));
        let sources: Vec<_> = sources.collect();
        let records = sources.iter().map(|_| None).collect();
        let mut merge = Merge { sources, heads: BinaryHeap::new(), records };
        for index in 0..merge.sources.len() {
            merge.refill(index)?;
        }
        Ok(merge)
    }

    /// The next record; `None` at the end of the history.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        let Some(Reverse((_, index))) = self.heads.pop() else { return Ok(None) };
        let record = self.records[index].take();
        self.refill(index)?;
        Ok(record)
    }

    /// The names of the sources, in the order of their indexes.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|source| source.name().to_owned()).collect()
    }

    /// How many files have a torn last line; final at the end of the history.
    pub fn torn(&self) -> usize {
        self.sources.iter().filter(|source| source.torn()).count()
    }

    fn refill(&mut self, index: usize) -> Result<(), ReadError> {
        self.records[index] = self.sources[index].next_record()?;
        if let Some(record) = &self.records[index] {
            self.heads.push(Reverse((record.at, index)));
        }
        Ok(())
    }
}
