//! Outages of the runtime as people want to read of them: states of the link in, the beginning and the end of each outage
//! out. Pure: never reads a clock, never logs.
//!
//! Unasked --answers--> There --away--> Suspected --1 s, or answers--> Away --answers--> Settling --still answers--> There
//!                                                                      ^------away again------'
//!
//! A runtime that comes and goes has one long outage, so it fills neither the journal nor the log.

use std::time::{Duration, Instant};

use super::link::{Link, LinkTrouble, TroubleCause};

/// 1 s after its beginning an outage is reported: by then the reason is known in words.
const CONFIRM: Duration = Duration::from_secs(1);

/// 1 s for which a runtime must answer until the first outage counts as ended. The time doubles with each outage that
/// begins within [`CALM`] of the last one, up to 64 s. So a runtime that comes and goes for ever is reported 14 times in ten
/// minutes at first, and then less than twice a minute.
const SETTLE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// 10 min without an outage, and the next one is the first again.
const CALM: Duration = Duration::from_secs(600);

/// What is known of the runtime, and of the outage that is in progress.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    phase: Phase,
    settle: Duration,
    /// When the last outage ended.
    ended: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    /// Left when it was asked for the first time.
    #[default]
    Unasked,
    /// It answers; left when it is away.
    There,
    /// It is away; left when that is reported.
    Suspected { began: Instant, trouble: LinkTrouble },
    /// It is away, which was reported; left when it answers.
    Away { began: Instant, times: u32 },
    /// It answers; left when it has done so for long enough, or is away again.
    Settling { began: Instant, back: Instant, times: u32 },
}

/// What is to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutageReport {
    /// It answered for the first time.
    Found,
    /// It is away.
    Began {
        /// Since when.
        at: Instant,
        /// Why.
        trouble: LinkTrouble,
    },
    /// It answers again.
    Ended {
        /// How long it was away, from the first time to the last.
        lasted: Duration,
        /// How many times it went away meanwhile.
        times: u32,
    },
}

impl Outages {
    /// Takes in the state of the link, whenever that has changed and at the [`deadline`](Self::deadline), and returns what
    /// is to be reported: call it again until that is nothing.
    pub(crate) fn on(&mut self, link: &Link, now: Instant) -> Option<OutageReport> {
        let (phase, report) = match std::mem::take(&mut self.phase) {
            Phase::Unasked if link.is_up => (Phase::There, Some(OutageReport::Found)),
            Phase::Unasked if link.trouble.cause == TroubleCause::NotAsked => (Phase::Unasked, None),
            Phase::Unasked | Phase::There if !link.is_up => {
                // A silence has lasted for long enough when it is noticed.
                self.phase = self.suspect(link);
                return self.on(link, now);
            }
            Phase::Unasked | Phase::There => (Phase::There, None),
            Phase::Suspected { began, trouble } => {
                let trouble = if link.is_up { trouble } else { link.trouble.clone() };
                if link.is_up || now.saturating_duration_since(began) >= CONFIRM {
                    (Phase::Away { began, times: 1 }, Some(OutageReport::Began { at: began, trouble }))
                } else {
                    (Phase::Suspected { began, trouble }, None)
                }
            }
            Phase::Away { began, times } if link.is_up => {
                (Phase::Settling { began, back: link.began, times }, None)
            }
            Phase::Away { began, times } => (Phase::Away { began, times }, None),
            Phase::Settling { began, times, .. } if !link.is_up => {
                (Phase::Away { began, times: times.saturating_add(1) }, None)
            }
            // It may have been away for too short a time to be seen: then it answers since later than was known.
            Phase::Settling { began, times, .. }
                if now.saturating_duration_since(link.began) >= self.settle =>
            {
                self.ended = Some(now);
                let lasted = link.began.saturating_duration_since(began);
                (Phase::There, Some(OutageReport::Ended { lasted, times }))
            }
            Phase::Settling { began, times, .. } => {
                (Phase::Settling { began, back: link.began, times }, None)
            }
        };
        self.phase = phase;
        report
    }

    /// When it is to be called again, if the link does not change before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Unasked | Phase::There | Phase::Away { .. } => None,
            Phase::Suspected { began, .. } => Some(began + CONFIRM),
            Phase::Settling { back, .. } => Some(back + self.settle),
        }
    }

    fn suspect(&mut self, link: &Link) -> Phase {
        let is_calm = |ended: Instant| link.began.saturating_duration_since(ended) >= CALM;
        self.settle = if self.ended.is_none_or(is_calm) { SETTLE.0 } else { (self.settle * 2).min(SETTLE.1) };
        Phase::Suspected { began: link.began, trouble: link.trouble.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        start: Instant,
        outages: Outages,
        link: Link,
    }

    impl Rig {
        fn new() -> Self {
            let link = Link::default();
            Self { start: link.began, outages: Outages::default(), link }
        }

        /// The link has been up, or down for this reason, since so many milliseconds.
        fn is(&mut self, trouble: Option<&str>, since: u64) {
            self.link.is_up = trouble.is_none();
            self.link.began = self.start + Duration::from_millis(since);
            self.link.trouble = trouble.unwrap_or_default().to_owned().into();
        }

        /// What is reported then.
        fn at(&mut self, millis: u64) -> Vec<String> {
            let now = self.start + Duration::from_millis(millis);
            let reports = std::iter::from_fn(|| self.outages.on(&self.link, now));
            let line = |report| match report {
                OutageReport::Found => "found".to_owned(),
                OutageReport::Began { at, trouble } => {
                    format!("away since {:?}: {}", at - self.start, trouble.text)
                }
                OutageReport::Ended { lasted, times } => format!("back after {lasted:?}, {times} times"),
            };
            reports.map(line).collect()
        }

        fn deadline(&self) -> Option<u128> {
            self.outages.deadline().map(|at| (at - self.start).as_millis())
        }
    }

    #[test]
    fn an_outage_is_reported_once_with_its_reason_and_once_when_it_is_over() {
        let mut rig = Rig::new();
        assert_eq!((rig.at(0), rig.deadline()), (vec![], None), "it was not asked yet");
        rig.is(None, 10);
        assert_eq!(rig.at(10), ["found"]);
        rig.is(Some("a connection to it was refused"), 5_000);
        assert_eq!((rig.at(5_000), rig.deadline()), (vec![], Some(6_000)));
        rig.is(Some("its socket does not exist"), 5_000);
        assert_eq!(rig.at(6_000), ["away since 5s: its socket does not exist"]);
        assert_eq!((rig.at(20_000), rig.deadline()), (vec![], None));
        rig.is(None, 33_000);
        assert_eq!((rig.at(33_000), rig.deadline()), (vec![], Some(34_000)));
        assert_eq!(rig.at(34_000), ["back after 28s, 1 times"]);
        assert_eq!((rig.at(90_000), rig.deadline()), (vec![], None));
    }

    #[test]
    fn a_short_restart_is_an_outage_a_silence_is_reported_at_once_and_so_is_what_is_missing_at_the_start() {
        let mut rig = Rig::new();
        rig.is(Some("x"), 0);
        assert_eq!((rig.at(20), rig.at(1_000)), (vec![], vec!["away since 0ns: x".to_owned()]));
        rig.is(None, 1_500);
        assert_eq!((rig.at(1_500), rig.at(2_500)), (vec![], vec!["back after 1.5s, 1 times".to_owned()]));
        rig.is(Some("y"), 700_000);
        rig.at(700_000);
        rig.is(None, 700_300);
        assert_eq!(rig.at(700_300), ["away since 700s: y"]);
        assert_eq!(rig.at(701_300), ["back after 300ms, 1 times"]);
        rig.is(Some("silent"), 1_400_000);
        assert_eq!(rig.at(1_403_000), ["away since 1400s: silent"]);
    }

    #[test]
    fn a_runtime_that_was_away_again_unseen_settles_anew() {
        let mut rig = Rig::new();
        rig.is(Some("x"), 0);
        rig.at(1_000);
        rig.is(None, 2_000);
        assert_eq!(rig.at(2_000).len(), 0);
        rig.is(None, 2_900);
        assert_eq!((rig.at(3_000), rig.deadline()), (vec![], Some(3_900)));
        assert_eq!(rig.at(3_900), ["back after 2.9s, 1 times"]);
    }

    #[test]
    fn a_runtime_that_comes_and_goes_is_reported_less_and_less() {
        let reports_in = |up: u64, down: u64| {
            let mut rig = Rig::new();
            let (mut reports, mut now) = (Vec::new(), 0);
            while now < 3_600_000 {
                rig.is(None, now);
                for step in 0..=up / 500 {
                    reports.extend(rig.at(now + step * 500));
                }
                now += up;
                rig.is(Some("gone"), now);
                for step in 0..=down / 500 {
                    reports.extend(rig.at(now + step * 500));
                }
                now += down;
            }
            reports
        };
        assert_eq!(reports_in(500, 500).len(), 2, "found, and one outage that does not end");
        // Twice a second for an hour would be 1,200 reports.
        let reports = reports_in(3_000, 3_000);
        assert!((2..=8).contains(&reports.len()), "{reports:?}");
        let reports = reports_in(70_000, 2_000);
        assert_eq!(reports.len(), 1 + 50 + 49, "whoever answers for a minute between has outages of its own");
    }
}
