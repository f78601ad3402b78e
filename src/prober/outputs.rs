//! How much is remembered of attempts, and of what they said: sizes in, what one probe may keep out. Pure.

/// 6 MiB: what the remembered outputs of all probes take together. 5,000 probes and the rest of the daemon stay within
/// 64 MiB with it, whatever containers and servers say. When it is reached each probe keeps no more than an equal share
/// of it: the beginning of its last output, and of the outputs in its history the newest.
const MOST: usize = 6 << 20;

/// 512 bytes: the least share, as the beginning of one output is never forgotten. Of more than 12,288 probes, which an
/// operator may allow, all together take more than [`MOST`].
const LEAST: usize = 512;

/// 200,000 attempts: for how many there is room in the histories of all probes together. They take 8 MB, and 5,000 probes
/// with the default of 32 take less. When it is reached each probe keeps the newest of an equal share.
const MOST_ATTEMPTS: usize = 200_000;

/// 4 attempts: the least share. Of more than 50,000 probes, which an operator may allow, all together take more.
const LEAST_ATTEMPTS: usize = 4;

/// Counts what all probes remember, of one thing.
#[derive(Debug)]
pub(super) struct Outputs {
    total: usize,
    most: usize,
    least: usize,
}

impl Outputs {
    /// Bytes of what attempts said.
    pub(super) fn of_texts() -> Self {
        Self::new(MOST, LEAST)
    }

    /// Attempts.
    pub(super) fn of_attempts() -> Self {
        Self::new(MOST_ATTEMPTS, LEAST_ATTEMPTS)
    }

    /// So many of all, and so many of each at least.
    pub(super) fn new(most: usize, least: usize) -> Self {
        Self { total: 0, most, least }
    }

    /// Notes that what one probe remembers took `before` bytes, and takes `after` now.
    pub(super) fn changed(&mut self, before: usize, after: usize) {
        self.total = (self.total + after).saturating_sub(before);
    }

    /// What each of so many probes may keep; none while there is room for all.
    pub(super) fn share(&self, probes: usize) -> Option<usize> {
        let most = self.most.max(probes.saturating_mul(self.least));
        (self.total > most).then(|| most / probes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_limit_before_all_together_reach_it_and_then_an_equal_share() {
        let mut outputs = Outputs::of_texts();
        outputs.changed(0, MOST);
        assert_eq!(outputs.share(5_000), None);
        outputs.changed(10, 11);
        assert_eq!((outputs.share(5_000), outputs.share(0)), (Some(1_258), Some(MOST)));
        assert_eq!(outputs.share(20_000), None, "each may keep a little");
        outputs.changed(1, 0);
        assert_eq!(outputs.share(5_000), None);
    }
}
