//! Request numbers on one connection.

/// Exclusive upper bound.
const LIMIT: u32 = 999_999;

/// Counts from a random start. Zero means "no request" and is never given.
#[derive(Debug)]
pub(crate) struct RequestNumbers {
    last: u32,
}

impl RequestNumbers {
    pub(crate) fn new() -> RequestNumbers {
        RequestNumbers::after(fastrand::u32(0..=LIMIT))
    }

    fn after(last: u32) -> RequestNumbers {
        RequestNumbers { last }
    }

    pub(crate) fn take(&mut self) -> u32 {
        self.last += 1;
        if self.last >= LIMIT {
            self.last = 1;
        }
        self.last
    }
}

impl Default for RequestNumbers {
    fn default() -> RequestNumbers {
        RequestNumbers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_and_begin_again_at_one() {
        for (last, next) in [(0, [1, 2]), (999_996, [999_997, 999_998]), (999_997, [999_998, 1])] {
            let mut numbers = RequestNumbers::after(last);
            assert_eq!([numbers.take(), numbers.take()], next, "{last}");
        }
        assert_eq!(RequestNumbers::after(999_999).take(), 1);
        assert!((1..999_999).contains(&RequestNumbers::new().take()));
    }
}
