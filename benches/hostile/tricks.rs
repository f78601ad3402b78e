//! The hostile pod: one trick a probe, 32 probes, as many as a pod may have (`prober.maxPerPod`). Ports in, what its
//! author would ask a runtime for out. Pure.

use std::{collections::HashMap, net::Ipv4Addr};

use criprobe::proto::cri;

use crate::node::KINDS;

/// A pattern of the namespaces of hostile pods. Each has one of its own, so that several do not share what one namespace
/// may have.
pub(crate) const NAMESPACES: &str = "hostile-*";

/// 1.5 MiB of labels and as much of annotations on the sandbox; less on each of more than four. Four such pods at once still
/// fit into a list of 16 MiB, the most that a kubelet takes: with more the node would be lost without criprobe, too.
const SANDBOX_TEXT: usize = 3 << 19;

/// How many of them fit.
const FITTING_PODS: usize = 4;

/// 64 KiB of labels and as much of annotations on each of its containers, for the same reason.
const CONTAINER_TEXT: usize = 64 << 10;

/// The length of a text of which several pods at once share what four may have.
fn shared(text: usize, pods: usize) -> usize {
    text * FITTING_PODS / pods.max(FITTING_PODS)
}

/// 120 KB: the longest value of a variable that Linux passes to a process is 128 KiB, its name included.
const LONG_VALUE: usize = 120_000;

/// 500 words of `$(a)`: with the two others nearly as many as a command may have.
const LETTERS: usize = 500;

/// 10 words of 300 times `$(N)` make as much. Each expands to the letter that its definition has 300 times: a pod that
/// puts the definition in place of the letter, word after word, has 300 times as much with each word.
const MULTIPLIED: (usize, usize) = (10, 300);

/// 17 words of [`LONG_VALUE`] make 2 MB, just what Linux takes as a command.
const LONG_WORDS: usize = 17;

/// 2 of them make 240 KB, just what a pod's command may expand to.
const FITTING_WORDS: usize = 2;

/// 60 s, the longest timeout that a pod may ask for (`prober.maxTimeout`).
const LONGEST: i32 = 60;

/// 2^31 - 1, the longest timeout that Kubernetes' API takes.
const FORBIDDEN: i32 = i32::MAX;

/// What a trick is made with; one can be tried alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// Commands of many variables, and errors of the runtime that echo them
    Echo,
    /// Commands that expand to 2 MB
    Words,
    /// Commands that print 16 MiB and more
    Flood,
    /// Commands that never end
    Hang,
    /// Servers of httpGet that mean no good
    Http,
    /// Ports of tcpSocket that do not answer
    Tcp,
    /// Servers of grpc that mean no good
    Grpc,
}

/// What a command does; its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Ends in an error of the runtime that names the command.
    Echo,
    /// Prints 16 MiB on standard output, and succeeds.
    Print,
    /// Prints 16 MiB on standard error, and fails.
    Complain,
    /// Prints more than an answer may hold.
    Overflow,
    /// Never ends.
    Hang,
}

impl Deed {
    const ALL: [(&str, Self); 5] = [
        ("echo", Self::Echo),
        ("print", Self::Print),
        ("complain", Self::Complain),
        ("overflow", Self::Overflow),
        ("hang", Self::Hang),
    ];

    /// That of a command.
    pub(crate) fn of(command: &[String]) -> Option<Self> {
        let first = command.first()?;
        Self::ALL.into_iter().find_map(|(word, deed)| (word == first).then_some(deed))
    }

    fn word(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(word, deed)| (deed == self).then_some(word)).unwrap_or_default()
    }
}

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// Accepts and says nothing.
    Silence,
    /// A head of HTTP, and a body without end.
    EndlessBody,
    /// A head of HTTP that comes byte by byte.
    SlowHead,
    /// A body that comes byte by byte.
    SlowBody,
    /// A head without end.
    EndlessHead,
    /// `100 Continue` without end.
    EndlessContinue,
    /// A redirect to itself.
    Loop,
    /// A redirect to the pod's silent port.
    OtherPort,
    /// A redirect to a port of another address of the node.
    OtherHost,
    /// Chunks whose lengths are none.
    BadChunks,
    /// Frames of HTTP/2 that mean nothing, without end.
    EndlessFrames,
    /// Octets that are no HTTP/2.
    Noise,
    /// A listener whose queue is full: the connection is never made.
    FullBacklog,
    /// No listener.
    Closed,
}

/// One probe.
#[derive(Clone, Copy, Debug)]
enum Trick {
    /// Runs a command: its deed, its words besides.
    Run(Family, Deed, Words),
    /// Dials a server.
    Get(Server),
    /// Connects to one.
    Connect(Server),
    /// Checks the health of one.
    Check(Server),
}

/// The words of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    None,
    /// `$(a)`: one letter each, which is the variable's name.
    Letters,
    /// `$(M)$(N)$(N)...`: the letter N.
    Multiplied,
    /// `$(N)`: nothing.
    Empty,
    /// Letters, nothing and one long word.
    Mixed,
    /// `$(X)`: 120 KB each, more than an operator lets a pod have.
    Long,
    /// As many as it may have.
    Fitting,
}

/// How long an attempt may take, as its author wants it.
#[derive(Clone, Copy, Debug)]
enum Timeout {
    /// As long as the operator lets it.
    Longest,
    /// Longer: listed as invalid, or as good as endless.
    Forbidden,
    /// Kept by criprobe.
    Fraction,
    Second,
}

use Server::*;
use Timeout::{Forbidden, Fraction, Longest, Second};
use Trick::{Check, Connect, Get, Run};

/// All of them, two a container.
const TRICKS: [(Trick, Timeout); 32] = [
    (Run(Family::Echo, Deed::Echo, Words::Multiplied), Second),
    (Run(Family::Echo, Deed::Echo, Words::Letters), Fraction),
    (Run(Family::Echo, Deed::Echo, Words::Empty), Second),
    (Run(Family::Echo, Deed::Echo, Words::Mixed), Longest),
    (Run(Family::Words, Deed::Echo, Words::Long), Second),
    (Run(Family::Words, Deed::Hang, Words::Fitting), Longest),
    (Run(Family::Words, Deed::Print, Words::Fitting), Second),
    (Run(Family::Flood, Deed::Print, Words::None), Longest),
    (Run(Family::Flood, Deed::Complain, Words::None), Fraction),
    (Run(Family::Flood, Deed::Overflow, Words::None), Second),
    (Run(Family::Hang, Deed::Hang, Words::None), Longest),
    (Run(Family::Hang, Deed::Hang, Words::Letters), Forbidden),
    (Run(Family::Hang, Deed::Hang, Words::None), Fraction),
    (Get(Silence), Longest),
    (Get(Silence), Forbidden),
    (Get(EndlessBody), Longest),
    (Get(EndlessBody), Fraction),
    (Get(SlowHead), Longest),
    (Get(SlowBody), Longest),
    (Get(EndlessHead), Longest),
    (Get(EndlessContinue), Longest),
    (Get(Loop), Second),
    (Get(OtherPort), Longest),
    (Get(OtherHost), Second),
    (Get(BadChunks), Second),
    (Connect(FullBacklog), Second),
    (Connect(FullBacklog), Fraction),
    (Connect(Closed), Second),
    (Check(Silence), Longest),
    (Check(EndlessFrames), Longest),
    (Check(Noise), Second),
    (Check(EndlessBody), Second),
];

/// How many tricks there are.
pub(crate) const COUNT: usize = TRICKS.len();

impl Trick {
    fn family(self) -> Family {
        match self {
            Self::Run(family, ..) => family,
            Self::Get(_) => Family::Http,
            Self::Connect(_) => Family::Tcp,
            Self::Check(_) => Family::Grpc,
        }
    }
}

/// The tricks of some families, by their numbers.
pub(crate) fn of(families: &[Family]) -> Vec<usize> {
    (0..COUNT).filter(|trick| families.contains(&TRICKS[*trick].0.family())).collect()
}

/// The server that a trick needs.
pub(crate) fn server(trick: usize) -> Option<Server> {
    match TRICKS[trick].0 {
        Run(..) => None,
        Get(server) | Connect(server) | Check(server) => Some(server),
    }
}

/// The trick that a command belongs to; its last word says so.
pub(crate) fn of_command(command: &[String]) -> Option<usize> {
    command.last()?.strip_prefix('t')?.parse().ok().filter(|trick| *trick < COUNT)
}

/// The name of a trick's container, and the type of its probe.
pub(crate) fn place(trick: usize) -> (String, &'static str) {
    (format!("c{}", trick / KINDS.len()), KINDS[trick % KINDS.len()])
}

/// The address of a pod; its number is never used again.
pub(crate) fn address(pod: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 2, (pod / 250 % 250) as u8, (pod % 250 + 1) as u8)
}

/// The number of the pod with that uid.
pub(crate) fn number(uid: &str) -> Option<usize> {
    uid.strip_prefix("hostile-")?.parse().ok()
}

/// The sandbox that the author of pod `number` asks for, one of so many pods at once.
pub(crate) fn sandbox(number: usize, pods: usize) -> cri::PodSandboxConfig {
    let text = |key: &str| HashMap::from([(key.to_owned(), "l".repeat(shared(SANDBOX_TEXT, pods)))]);
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: format!("hostile-{number}"),
            uid: format!("hostile-{number}"),
            namespace: format!("hostile-{number}"),
            attempt: 0,
        }),
        labels: text("example.com/long"),
        annotations: text("example.com/long"),
        ..Default::default()
    }
}

/// Its containers: those of `tricks`, whose servers listen on `ports`.
pub(crate) fn containers(tricks: &[usize], ports: &[u16; COUNT], pods: usize) -> Vec<cri::ContainerConfig> {
    let text = shared(CONTAINER_TEXT, pods);
    let container = |number: usize| {
        let mut annotations = HashMap::from([("example.com/long".to_owned(), "a".repeat(text))]);
        let own = tricks.iter().filter(|trick| **trick / KINDS.len() == number);
        for trick in own {
            let (name, kind) = place(*trick);
            annotations.insert(format!("{kind}.criprobe.dev/{name}"), definition(*trick, ports[*trick]));
        }
        let has_probes = annotations.len() > 1;
        has_probes.then(|| cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: format!("c{number}"), attempt: 0 }),
            image: Some(cri::ImageSpec { image: "example.com/hostile:1".to_owned(), ..Default::default() }),
            envs: variables(),
            labels: HashMap::from([("example.com/long".to_owned(), "l".repeat(text))]),
            annotations,
            ..Default::default()
        })
    };
    (0..COUNT / KINDS.len()).filter_map(container).collect()
}

/// The environment of each of its containers.
fn variables() -> Vec<cri::KeyValue> {
    let letters = ('a'..='e').map(|name| (name, name.to_string()));
    letters
        .chain([('M', "N".to_owned()), ('N', String::new()), ('X', "x".repeat(LONG_VALUE))])
        .map(|(key, value)| cri::KeyValue { key: key.to_string(), value: value.into_bytes() })
        .collect()
}

fn definition(trick: usize, port: u16) -> String {
    let (what, timeout) = TRICKS[trick];
    let handler = match what {
        Run(_, deed, words) => {
            let multiplied = format!("$(M){}", "$(N)".repeat(MULTIPLIED.1));
            let letter = |at: usize| ["$(a)", "$(b)", "$(c)", "$(d)", "$(e)"][at % 5];
            let mixed = |at: usize| if at == 0 { "$(X)" } else { ["$(e)", "$(N)"][at % 2] };
            let words = match words {
                Words::None => Vec::new(),
                Words::Letters => (0..LETTERS).map(letter).collect(),
                Words::Multiplied => vec![multiplied.as_str(); MULTIPLIED.0],
                Words::Empty => vec!["$(N)"; LETTERS],
                Words::Mixed => (0..LETTERS).map(mixed).collect(),
                Words::Long => vec!["$(X)"; LONG_WORDS],
                Words::Fitting => vec!["$(X)"; FITTING_WORDS],
            };
            let own = format!("t{trick}");
            let command: Vec<&str> = [deed.word()].into_iter().chain(words).chain([own.as_str()]).collect();
            format!(r#""exec":{{"command":["{}"]}}"#, command.join(r#"",""#))
        }
        Get(_) => format!(r#""httpGet":{{"port":{port},"path":"/"}}"#),
        Connect(_) => format!(r#""tcpSocket":{{"port":{port}}}"#),
        Check(_) => format!(r#""grpc":{{"port":{port}}}"#),
    };
    let timeout = match timeout {
        Longest => format!(r#""timeoutSeconds":{LONGEST}"#),
        Forbidden => format!(r#""timeoutSeconds":{FORBIDDEN}"#),
        Fraction => r#""timeout":"900ms""#.to_owned(),
        Second => r#""timeoutSeconds":1"#.to_owned(),
    };
    // Never held: a verdict that comes after 2^31 failures ends nothing.
    format!(r#"{{{handler},{timeout},"period":"100ms","failureThreshold":{}}}"#, i32::MAX)
}
