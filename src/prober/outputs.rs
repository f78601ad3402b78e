//! How much of what attempts said is remembered: sizes in, what one probe may keep out. Pure.

/// 6 MiB: what the remembered outputs of all probes take together. 5,000 probes and the rest of the daemon stay within
/// 64 MiB with it, whatever containers and servers say. When it is reached each probe keeps no more than an equal share
/// of it: the beginning of its last output, and of the outputs in its history the newest.
const MOST: usize = 6 << 20;

/// 512 bytes: the least share, as the beginning of one output is never forgotten. Of more than 12,288 probes, which an
/// operator may allow, all together take more than [`MOST`].
const LEAST: usize = 512;

/// Counts what all probes remember.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    total: usize,
}

impl Outputs {
    /// Notes that what one probe remembers took `before` bytes, and takes `after` now.
    pub(super) fn changed(&mut self, before: usize, after: usize) {
        self.total = (self.total + after).saturating_sub(before);
    }

    /// What each of so many probes may keep, in bytes; none while there is room for all.
    pub(super) fn share(&self, probes: usize) -> Option<usize> {
        let most = MOST.max(probes.saturating_mul(LEAST));
        (self.total > most).then(|| most / probes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_limit_before_all_together_reach_it_and_then_an_equal_share() {
        let mut outputs = Outputs::default();
        outputs.changed(0, MOST);
        assert_eq!(outputs.share(5_000), None);
        outputs.changed(10, 11);
        assert_eq!((outputs.share(5_000), outputs.share(0)), (Some(1_258), Some(MOST)));
        assert_eq!(outputs.share(20_000), None, "each may keep a little");
        outputs.changed(1, 0);
        assert_eq!(outputs.share(5_000), None);
    }
}
