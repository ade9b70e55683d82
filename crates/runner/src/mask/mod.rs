//! Replaces the values of secrets in what a handler says by `***`.
//!
//! A value is found as it is, also across the borders of what is read at once. Every byte that is
//! part of any value is hidden, and each run of such bytes becomes one `***`: of two values that
//! overlap nothing is left. Values below `SECRET_MASKED_BYTES_MIN` would hide ordinary words, so
//! they are not looked for.

mod json;

use std::borrow::Cow;
use std::sync::Arc;

use windlass_core::limit::SECRET_MASKED_BYTES_MIN;
use windlass_core::secret::OpenSecrets;
use zeroize::Zeroizing;

const MASK: &[u8] = b"***";

/// The values that are looked for.
#[derive(Default)]
pub(crate) struct Mask {
    patterns: Vec<Pattern>,
}

impl Mask {
    pub(crate) fn of(secrets: &OpenSecrets) -> Arc<Mask> {
        let values = secrets.iter().map(|secret| secret.value.reveal().as_bytes());
        let values = values.filter(|value| value.len() >= SECRET_MASKED_BYTES_MIN);
        Arc::new(Mask { patterns: values.map(Pattern::new).collect() })
    }

    /// A whole text, with the values in it replaced.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.patterns.is_empty() {
            return text.into();
        }
        self.replaced(text, &mut Search::new(self)).map_or(text.into(), Cow::Owned)
    }

    /// The text with the values in it replaced; `None` if there are none. The search holds nothing
    /// before and after it.
    fn replaced(&self, text: &str, search: &mut Search) -> Option<String> {
        search.push(self, text.as_bytes());
        if search.found.is_empty() {
            search.clear();
            return None;
        }
        let mut masked = Vec::with_capacity(text.len());
        search.take_all(|bytes| masked.extend_from_slice(bytes));
        // A value is text, so what is left of a text is text, too.
        Some(String::from_utf8_lossy(&masked).into_owned())
    }
}

/// A value, and for each length of its beginnings the longest shorter one that ends like it: what
/// still fits when the next byte does not (Knuth, Morris and Pratt).
struct Pattern {
    bytes: Zeroizing<Vec<u8>>,
    shorter: Vec<u32>,
}

impl Pattern {
    fn new(value: &[u8]) -> Pattern {
        let bytes = Zeroizing::new(value.to_vec());
        let mut pattern = Pattern { shorter: vec![0; bytes.len() + 1], bytes };
        let mut fits = 0;
        for (at, byte) in value.iter().enumerate().skip(1) {
            fits = pattern.next(fits, *byte);
            pattern.shorter[at + 1] = fits;
        }
        pattern
    }

    /// How many of its first bytes fit after one more byte.
    fn next(&self, mut fits: u32, byte: u8) -> u32 {
        loop {
            if self.bytes.get(fits as usize) == Some(&byte) {
                return fits + 1;
            }
            if fits == 0 {
                return 0;
            }
            fits = self.shorter[fits as usize];
        }
    }
}

/// The values of a mask in one stream of bytes.
pub(crate) struct Masker {
    mask: Arc<Mask>,
    search: Search,
}

impl Masker {
    pub(crate) fn new(mask: Arc<Mask>) -> Masker {
        Masker { search: Search::new(&mask), mask }
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Passes everything on that can no longer be part of a value. The rest is held.
    pub(crate) fn push(&mut self, bytes: &[u8], mut on: impl FnMut(&[u8])) {
        if self.mask.patterns.is_empty() {
            return on(bytes);
        }
        self.search.push(&self.mask, bytes);
        let decided = self.search.held.len() - self.search.longest_fit();
        self.search.take(decided, on);
    }

    /// Nothing follows: passes on what is held.
    pub(crate) fn end(&mut self, on: impl FnMut(&[u8])) {
        self.search.take_all(on);
    }
}

struct Search {
    /// How many of the first bytes of each value fit to the end of what is held.
    fits: Vec<u32>,
    held: Vec<u8>,
    /// The parts of `held` that belong to values, in order; no two touch.
    found: Vec<(usize, usize)>,
}

impl Search {
    fn new(mask: &Mask) -> Search {
        Search { fits: vec![0; mask.patterns.len()], held: Vec::new(), found: Vec::new() }
    }

    fn push(&mut self, mask: &Mask, bytes: &[u8]) {
        for byte in bytes {
            self.held.push(*byte);
            for (fits, pattern) in self.fits.iter_mut().zip(&mask.patterns) {
                *fits = pattern.next(*fits, *byte);
                if *fits as usize == pattern.bytes.len() {
                    let end = self.held.len();
                    let mut start = end - pattern.bytes.len();
                    // One that ends later takes in all that it overlaps.
                    while let Some((before, _)) = self.found.pop_if(|(_, end)| *end >= start) {
                        start = start.min(before);
                    }
                    self.found.push((start, end));
                    *fits = pattern.shorter[pattern.bytes.len()];
                }
            }
        }
    }

    /// How many bytes at the end may become part of a value.
    fn longest_fit(&self) -> usize {
        self.fits.iter().max().map_or(0, |fits| *fits as usize)
    }

    /// Passes on the first `bytes` that are held; fewer if they end within a value.
    fn take(&mut self, bytes: usize, mut on: impl FnMut(&[u8])) {
        let within = self.found.iter().find(|(start, end)| *start < bytes && bytes < *end);
        let bytes = within.map_or(bytes, |(start, _)| *start);
        let mut at = 0;
        let passed = self.found.iter().take_while(|(_, end)| *end <= bytes).count();
        for (start, end) in self.found.drain(..passed) {
            if at < start {
                on(&self.held[at..start]);
            }
            on(MASK);
            at = end;
        }
        if at < bytes {
            on(&self.held[at..bytes]);
        }
        self.held.drain(..bytes);
        for (start, end) in &mut self.found {
            (*start, *end) = (*start - bytes, *end - bytes);
        }
    }

    fn take_all(&mut self, on: impl FnMut(&[u8])) {
        self.take(self.held.len(), on);
        self.clear();
    }

    fn clear(&mut self) {
        self.held.clear();
        self.fits.fill(0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use windlass_core::JobId;
    use windlass_core::secret::{OpenSecret, SecretName, SecretValue};

    pub(crate) fn mask(values: &[&str]) -> Arc<Mask> {
        let secret = |(number, value): (usize, &&str)| OpenSecret {
            name: SecretName::new(&format!("S{number}")).unwrap(),
            version: JobId::new(1).unwrap(),
            value: SecretValue::new(value.as_bytes().to_vec()).unwrap(),
        };
        Mask::of(&OpenSecrets::new(values.iter().enumerate().map(secret).collect()))
    }

    /// Read in pieces of every size, it comes out the same.
    fn check(values: &[&str], written: &str, shown: &str) {
        let mask = mask(values);
        for piece_bytes in 1..=written.len().max(1) {
            let mut masker = Masker::new(mask.clone());
            let mut got = Vec::new();
            for piece in written.as_bytes().chunks(piece_bytes) {
                masker.push(piece, |bytes| got.extend_from_slice(bytes));
            }
            masker.end(|bytes| got.extend_from_slice(bytes));
            assert_eq!(str::from_utf8(&got).unwrap(), shown, "{piece_bytes}");
        }
        assert_eq!(mask.text(written), shown);
    }

    #[test]
    fn a_value_is_replaced_wherever_it_is_and_however_it_is_read() {
        check(&["hunter2!"], "hunter2!", "***");
        check(&["hunter2!"], "is hunter2! it\nhunter2!\n", "is *** it\n***\n");
        check(&["hunter2!"], "hunter2hunter2!hunter", "hunter2***hunter");
        check(&["two\nlines\n"], "a two\nlines\n b", "a *** b");
        check(&["schlüssel"], "schlüssel und schlüsse", "*** und schlüsse");
        check(&[], "hunter2!", "hunter2!");
    }

    #[test]
    fn of_values_that_overlap_nothing_is_left() {
        check(&["abcd", "xxabcdyy"], "1 xxabcdyy 2 abcd 3 xxabcd", "1 *** 2 *** 3 xx***");
        check(&["abcd", "cdef"], "abcdef abcd cdef", "*** *** ***");
        check(&["abab"], "ababab-abababab", "***-***");
        check(&["aaaa"], "aaa aaaa aaaaaaa", "aaa *** ***");
        check(&["abcd", "abcdabce"], "abcdabcd abcdabce", "*** ***");
        check(&["aXbXaXbXaXc", "bXaX"], "aXbXaXbXaXbXaXc", "aX***");
    }

    #[test]
    fn short_values_are_not_looked_for() {
        check(&["abc"], "abc", "abc");
        check(&["abcd"], "abcd", "***");
    }

    #[test]
    fn at_most_one_value_is_held_back() {
        let mut masker = Masker::new(mask(&["aaaaaaaaab"]));
        let mut passed = 0;
        for _ in 0..1000 {
            masker.push(b"a", |bytes| passed += bytes.len());
            assert!(masker.search.held.len() < 10);
        }
        masker.push(b"b", |bytes| passed += bytes.len());
        assert_eq!(passed, 1000 - 9 + MASK.len());
    }
}
