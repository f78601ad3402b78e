//! The figures that criprobe has to reach, each with what was found: results in, verdicts out.

use std::fmt;

use crate::{
    call::Call,
    footprint::Footprint,
    measure::{Driver, Load, Sample},
    middle::Via,
    results::Results,
    tap_cost::TapCost,
};

/// A figure to reach.
pub(crate) struct Figure {
    /// What is compared, and the bound.
    rule: String,
    /// What was found, if it could be.
    found: Option<f64>,
    unit: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    /// Shown for what it is.
    Open,
}

impl Figure {
    /// Whether it was found outside its bound. What could not be measured was not.
    pub(crate) fn is_missed(&self) -> bool {
        self.found.is_some_and(|found| !self.bound.holds(found))
    }

    /// The rule, what was found, the verdict.
    pub(crate) fn cells(&self) -> [String; 3] {
        let verdict = match self.found {
            None => "not measured",
            Some(_) if matches!(self.bound, Bound::Open) => "",
            Some(_) if self.is_missed() => "MISSED",
            Some(_) => "ok",
        };
        let found = self.found.map_or_else(|| "-".into(), |found| format!("{found:.2}{}", self.unit));
        let unit = if matches!(self.bound, Bound::Open) { "" } else { self.unit };
        [format!("{}{}{unit}", self.rule, self.bound), found, verdict.into()]
    }
}

impl Bound {
    fn holds(self, found: f64) -> bool {
        match self {
            Self::AtMost(bound) => found <= bound,
            Self::Below(bound) => found < bound,
            Self::AtLeast(bound) => found >= bound,
            Self::Above(bound) => found > bound,
            Self::Open => true,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, ", at most {bound}"),
            Self::Below(bound) => write!(f, ", below {bound}"),
            Self::AtLeast(bound) => write!(f, ", at least {bound}"),
            Self::Above(bound) => write!(f, ", above {bound}"),
            Self::Open => Ok(()),
        }
    }
}

/// The bounds for each call and load, criprobe's figure over the other's. A call that was not measured has none.
pub(crate) fn relative(driver: Driver, results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for call in Call::MEASURED.into_iter().filter(|call| results.has(*call)) {
        let mut add = |load, what: &str, other: Via, of: fn(&Sample) -> f64, bound| {
            let rule = format!("{}, {call:?}, {load}: {what} over {}'s", driver.name(), other.name());
            let found = results.ratio(call, load, Via::Criprobe, other, of);
            figures.push(Figure { rule, found, unit: "", bound });
        };
        let p50: fn(&Sample) -> f64 = |sample| sample.p50;
        let rate: fn(&Sample) -> f64 = |sample| sample.rate;
        if driver == Driver::Tonic {
            add(Load::ONE, "p50", Via::Socat, p50, Bound::AtMost(1.0));
            add(Load::ONE, "p50", Via::Haproxy, p50, Bound::AtMost(1.0));
            for load in Load::ALL {
                add(load, "calls/s", Via::Socat, rate, Bound::AtLeast(1.0));
                add(load, "calls/s", Via::Haproxy, rate, Bound::AtLeast(1.0));
            }
            continue;
        }
        add(Load::ONE, "p50", Via::Socat, p50, Bound::AtMost(1.10));
        add(Load::ONE, "p50", Via::Nginx, p50, Bound::Below(1.0));
        add(Load::ONE, "p50", Via::Haproxy, p50, Bound::Below(1.0));
        let over_haproxy = if call == Call::ListContainers { Bound::AtLeast(1.7) } else { Bound::Above(1.0) };
        add(Load::DEEP, "calls/s", Via::Socat, rate, Bound::AtLeast(0.85));
        add(Load::DEEP, "calls/s", Via::Nginx, rate, Bound::Above(1.0));
        add(Load::DEEP, "calls/s", Via::Haproxy, rate, over_haproxy);
        add(Load::WIDE, "calls/s", Via::Socat, rate, Bound::Above(1.0));
        add(Load::WIDE, "calls/s", Via::Nginx, rate, Bound::Above(1.0));
        add(Load::WIDE, "calls/s", Via::Haproxy, rate, over_haproxy);
    }
    figures
}

/// The bounds of memory, size, start and the tap.
pub(crate) fn absolute(footprint: Option<&Footprint>, tap: Option<&TapCost>) -> Vec<Figure> {
    let mib = |octets: u64| octets as f64 / f64::from(1 << 20);
    let figure = |rule: &str, found, unit, bound| Figure { rule: rule.into(), found, unit, bound };
    let of = |find: &dyn Fn(&Footprint) -> f64| footprint.map(find);
    vec![
        figure("memory, idle", of(&|f| mib(f.idle)), " MiB", Bound::Below(12.0)),
        figure(
            "memory, 200 idle connections",
            of(&|f| mib(f.with_idle_connections)),
            " MiB",
            Bound::Below(24.0),
        ),
        figure(
            "memory for 16 MiB to a slow reader",
            of(&|f| f.slow_reader as f64 / 1024.0),
            " KiB",
            Bound::AtMost(256.0),
        ),
        figure("binary", of(&|f| mib(f.binary)), " MiB", Bound::Below(12.0)),
        figure(
            "cold start to accepting",
            of(&|f| f.start_to_accept.as_secs_f64() * 1e3),
            " ms",
            Bound::Below(50.0),
        ),
        figure(
            "cold start to an answer",
            of(&|f| f.start_to_answer.as_secs_f64() * 1e3),
            " ms",
            Bound::Below(50.0),
        ),
        figure("the tap alone, Version", tap.map(|tap| tap.version), " us a call", Bound::AtMost(2.0)),
        figure(
            "the tap alone, ListContainers",
            tap.map(|tap| tap.list_containers),
            " us a call",
            Bound::AtMost(2.0),
        ),
        figure("the tap alone, ExecSync", tap.map(|tap| tap.exec_sync), " us a call", Bound::Open),
    ]
}
