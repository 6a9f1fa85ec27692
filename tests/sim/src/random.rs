//! Repeatable randomness: the same seed gives the same world on every machine and in every version.

/// SplitMix64.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }

    /// A number between these two, both included.
    pub(crate) fn between(&mut self, from: i64, to: i64) -> i64 {
        from.saturating_add_unsigned(self.below(to.abs_diff(from).saturating_add(1)))
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A place in a list of this length.
    pub(crate) fn index(&mut self, len: usize) -> Option<usize> {
        usize::try_from(self.below(u64::try_from(len).unwrap_or(u64::MAX))).ok().filter(|at| *at < len)
    }

    /// One of several things, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> Option<T> {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return Some(*choice),
            }
        }
        None
    }
}
