//! What a probe takes while it exists, and how much of it a pod and the node may take together: places, attempts per
//! second, bytes of memory. Pure.

use std::{
    fmt,
    mem::size_of,
    ops::{AddAssign, SubAssign},
    time::Duration,
};

use super::{Handler, HttpGet, PortRef, ProbeSpec};

/// 1 MiB of definitions per pod: 32 of the longest commands do not fit, 32 of any usual kind take some 20 KiB.
const POD_BYTES: u64 = 1 << 20;

/// 16 MiB of definitions on the node: 3 KiB for each of 5,000 probes.
const NODE_BYTES: u64 = 16 << 20;

/// 3 KiB: each probe that a setting permits beyond the default adds so much to the bytes.
const PLACE_BYTES: u64 = 3 << 10;

/// Three quarters, as [`Budget::share`] counts: so much of the node's budget enforced rules have before all others, so that
/// no annotation ends them. The rest is left to others while these ask for it, as authors choose the labels by which rules
/// apply to their pods.
const RESERVED: u64 = WHOLE / 4 * 3;

/// What [`Budget::share`] is of a budget that is used up.
const WHOLE: u64 = 1 << 20;

/// 32 bytes: what an allocation takes beside its content, rounding included.
const ALLOCATION: usize = 32;

/// How much a definition counts where there are more probes than there may be; a better class comes before a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The operator's, and no pod outranks it.
    Enforced,
    /// The operator's.
    Rule,
    /// That of a pod's or an image's author.
    Author,
}

/// What a probe takes, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// How many probes they are; one whose container has exited counts as none.
    pub places: u64,
    /// Attempts per 1,000 seconds.
    pub rate: u64,
    /// The memory of their definitions.
    pub bytes: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Probes.
    Places,
    /// Attempts per second.
    Rate,
    /// Memory of definitions.
    Bytes,
}

/// Who shares a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Pod,
    Node,
}

/// How much the probes of a pod or of the node may take together. Probes have it in their order, up to the first that does
/// not fit: so no more is wasted than that one asks for. One that would not fit alone is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    scope: Scope,
    most: Need,
}

/// Why a probe is one too many. Shown as the reason of an invalid probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub struct Excess {
    budget: Budget,
    resource: Resource,
    asked: Need,
}

impl Need {
    /// Of a probe. A rule's definition is shared by all its probes, so its bytes count for none.
    pub fn of(spec: &ProbeSpec, class: Class) -> Self {
        let intervals = [Some(spec.period), spec.start.map(|start| start.interval)];
        let bytes = if class == Class::Author { weight(spec) as u64 } else { 0 };
        Self { bytes, ..Self::at_intervals(intervals.into_iter().flatten()) }
    }

    /// Of a probe with attempts at such intervals: the shortest counts.
    pub fn at_intervals(intervals: impl Iterator<Item = Duration>) -> Self {
        Self { rate: intervals.min().map_or(0, per_1000_seconds), ..Self::place() }
    }

    /// Of a probe that is only listed.
    pub fn place() -> Self {
        Self { places: 1, ..Self::default() }
    }

    /// The attempts per second, for people: `320`, `0.5`.
    pub fn per_second(self) -> impl fmt::Display {
        Rate(self.rate)
    }

    /// The same once the container has exited: only the definition is kept.
    #[must_use]
    pub fn at_rest(self) -> Self {
        Self { places: 0, rate: 0, ..self }
    }
}

impl AddAssign for Need {
    fn add_assign(&mut self, other: Self) {
        self.places += other.places;
        self.rate += other.rate;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Need {
    fn sub_assign(&mut self, other: Self) {
        self.places -= other.places;
        self.rate -= other.rate;
        self.bytes -= other.bytes;
    }
}

impl Budget {
    /// Of one pod: so many probes, and attempts per second.
    pub fn of_pod(places: usize, rate: usize) -> Self {
        Self::new(Scope::Pod, places, rate, POD_BYTES)
    }

    /// Of all pods together.
    pub fn of_node(places: usize, rate: usize) -> Self {
        Self::new(Scope::Node, places, rate, NODE_BYTES)
    }

    fn new(scope: Scope, places: usize, rate: usize, least_bytes: u64) -> Self {
        let (places, rate) = (places as u64, (rate as u64).saturating_mul(1000));
        let bytes = least_bytes.max(places.saturating_mul(PLACE_BYTES));
        Self { scope, most: Need { places, rate, bytes } }
    }

    /// What there is not enough of, if the last of those who use it is of that class. In a pod, only the number of probes
    /// binds rules, and nothing binds enforced ones: an author could leave them no place by more containers.
    pub fn excess(&self, used: Need, class: Class) -> Option<Resource> {
        let is_bound = self.scope == Scope::Node || class == Class::Author;
        let counts_places = self.scope == Scope::Node || class != Class::Enforced;
        if counts_places && used.places > self.most.places {
            Some(Resource::Places)
        } else if is_bound && used.rate > self.most.rate {
            Some(Resource::Rate)
        } else if is_bound && used.bytes > self.most.bytes {
            Some(Resource::Bytes)
        } else {
            None
        }
    }

    /// What there is not enough of for one more.
    pub fn excess_with(&self, mut used: Need, more: Need, class: Class) -> Option<Resource> {
        used += more;
        self.excess(used, class)
    }

    /// Why one is too many, where all of them ask for so much.
    pub fn refuse(self, resource: Resource, asked: Need) -> Excess {
        Excess { budget: self, resource, asked }
    }

    /// How much of the budget is used, in millionths or so: of whatever most is used of.
    pub fn share(&self, used: Need) -> u64 {
        let share = |used: u64, most: u64| used.saturating_mul(WHOLE) / most.max(1);
        share(used.places, self.most.places)
            .max(share(used.rate, self.most.rate))
            .max(share(used.bytes, self.most.bytes))
    }

    /// Whether enforced rules that use so much have one more before all others.
    pub fn is_reserved(&self, used: Need) -> bool {
        self.share(used) < RESERVED
    }
}

impl Excess {
    fn reason(&self) -> String {
        let Self { budget: Budget { scope, most }, resource, asked } = self;
        let (whose, order) = match scope {
            Scope::Pod => ("pod", "enforced rules come first, then other rules, then older containers"),
            Scope::Node => (
                "node",
                "enforced rules come first, up to three quarters of that; then namespaces take turns, each with its rules first",
            ),
        };
        let setting = format!("Per{}{}", whose[..1].to_uppercase(), &whose[1..]);
        match resource {
            Resource::Places => {
                format!(
                    "the {whose} has more probes than prober.max{setting}, which is {}: {order}",
                    most.places
                )
            }
            Resource::Rate => format!(
                "the probes of the {whose} ask for {} attempts per second, more than prober.maxRate{setting}, which is \
                 {}: {order}",
                asked.per_second(),
                most.per_second()
            ),
            Resource::Bytes => format!(
                "the definitions of the probes of the {whose} take {} KiB of memory, more than the {} KiB that they may \
                 take: {order}",
                asked.bytes.div_ceil(1 << 10),
                most.bytes >> 10
            ),
        }
    }
}

/// Attempts per 1,000 seconds, shown per second: `320`, `0.5`.
struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.div_ceil(100);
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            rest => write!(f, "{}.{rest}", tenths / 10),
        }
    }
}

fn per_1000_seconds(period: Duration) -> u64 {
    let rate = Duration::from_secs(1000).as_nanos().div_ceil(period.as_nanos().max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The memory that a definition takes, in bytes: itself and all its texts.
fn weight(spec: &ProbeSpec) -> usize {
    let text = |text: &String| ALLOCATION + text.capacity();
    let port = |port: &PortRef| match port {
        PortRef::Number(_) => 0,
        PortRef::Name(name) => text(name),
    };
    let host = |host: &Option<String>| host.as_ref().map_or(0, text);
    let words = |command: &Vec<String>| {
        let texts: usize = command.iter().map(text).sum();
        ALLOCATION + command.capacity() * size_of::<String>() + texts
    };
    let inner = match &spec.handler {
        Handler::Exec { command } => words(command),
        Handler::HttpGet(HttpGet { scheme: _, host: to, port: at, path, headers }) => {
            let pairs: usize = headers.iter().map(|(name, value)| text(name) + text(value)).sum();
            let list = ALLOCATION + headers.capacity() * size_of::<(String, String)>();
            host(to) + port(at) + text(path) + list + pairs
        }
        Handler::TcpSocket { host: to, port: at } => host(to) + port(at),
        Handler::Grpc { port: _, service } => text(service),
    };
    let before = spec.on_failure_command.as_ref().map_or(0, |before| words(&before.command));
    ALLOCATION + size_of::<ProbeSpec>() + inner + before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        ids::ProbeKind,
        spec::{FailureCommand, annotation::MAX_ANNOTATION, definition},
    };

    fn read(text: &str) -> ProbeSpec {
        definition::read(ProbeKind::Liveness, text).unwrap()
    }

    #[test]
    fn row_04_a_probe_counts_as_often_as_it_may_be_attempted() {
        for (text, rate) in [
            ("{tcpSocket: {port: 80}}", 100),
            ("{tcpSocket: {port: 80}, period: 100ms}", 10_000),
            ("{tcpSocket: {port: 80}, periodSeconds: 1}", 1_000),
            ("{tcpSocket: {port: 80}, periodSeconds: 300}", 4),
            ("{tcpSocket: {port: 80}, periodSeconds: 2147483647}", 1),
        ] {
            assert_eq!(Need::of(&read(text), Class::Author).rate, rate, "{text}");
        }
        let start = |length, interval| Some(crate::spec::StartPeriod { length, interval });
        let second = Duration::from_secs(1);
        let starting = ProbeSpec { start: start(60 * second, second / 5), ..read("{tcpSocket: {port: 80}}") };
        assert_eq!(Need::of(&starting, Class::Author).rate, 5_000, "while it starts, too");
        assert_eq!(["5000", "0.5", "3.4"], [5_000_000, 500, 3_334].map(|rate| Rate(rate).to_string()));
    }

    #[test]
    fn row_03_the_longest_definition_is_a_small_part_of_what_a_pod_may_take() {
        let words = vec!["'a'"; 512].join(",");
        let long = "x".repeat(MAX_ANNOTATION - words.len() - 100);
        let spec =
            read(&format!("{{exec: {{command: [{words}]}}, periodSeconds: 1, initialDelaySeconds: 1}}"));
        assert!(weight(&spec) >= 512 * (size_of::<String>() + ALLOCATION + 1));
        let headers =
            |value: &str| (0..64).map(|_| format!("{{name: a, value: '{value}'}}")).collect::<Vec<_>>();
        for text in [
            format!("{{exec: {{command: ['{long}']}}}}"),
            format!("{{exec: {{command: [{}]}}}}", vec![format!("'{}'", "x".repeat(27)); 511].join(",")),
            format!("{{httpGet: {{port: 80, httpHeaders: [{}]}}}}", headers(&"v".repeat(220)).join(",")),
        ] {
            let weight = weight(&read(&text)) as u64;
            assert!((12 << 10..POD_BYTES / 16).contains(&weight), "{weight}");
        }
        let usual = weight(&read("{httpGet: {port: http, path: /healthz}, periodSeconds: 5}")) as u64;
        assert!(usual < PLACE_BYTES / 4, "{usual}");
    }

    proptest! {
        #[test]
        fn row_03_a_definition_weighs_no_less_than_it_holds(
            command in prop::collection::vec(".{1,40}", 1..20),
            headers in prop::collection::vec(("[a-z]{1,20}", ".{0,40}"), 0..9),
            (path, host, port) in (".{0,200}", prop::option::of("[a-z]{1,60}"), "[a-z]{1,15}"),
        ) {
            let base = read("{tcpSocket: {port: 80}}");
            let of = |handler: Handler| weight(&ProbeSpec { handler, ..base.clone() }) - size_of::<ProbeSpec>();
            let words: usize = command.iter().map(|word| word.len() + size_of::<String>()).sum();
            let exec = of(Handler::Exec { command: command.clone() });
            prop_assert!(exec > words, "{} for {}", exec, words);
            let on_failure_command = Some(FailureCommand { command, timeout: Duration::from_secs(1) });
            let dumping = weight(&ProbeSpec { on_failure_command, ..base.clone() });
            prop_assert!(dumping > weight(&base) + words, "{} for {}", dumping, words);
            let of_place = host.as_ref().map_or(0, String::len) + port.len();
            let of_pair = |(name, value): &(String, String)| name.len() + value.len() + 2 * size_of::<String>();
            let texts = of_place + path.len() + headers.iter().map(of_pair).sum::<usize>();
            let (scheme, port) = (crate::spec::Scheme::Http, PortRef::Name(port));
            let tcp = of(Handler::TcpSocket { host: host.clone(), port: port.clone() });
            prop_assert!(tcp > of_place, "{} for {}", tcp, of_place);
            let grpc = of(Handler::Grpc { port: 1, service: path.clone() });
            prop_assert!(grpc > path.len(), "{} for {}", grpc, path.len());
            let http = of(Handler::HttpGet(HttpGet { scheme, host, port, path, headers }));
            prop_assert!(http > texts, "{} for {}", http, texts);
        }
    }
}
