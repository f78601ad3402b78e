//! Commands to compare: a table of those that have gone wrong somewhere, and random ones.

use std::fmt;

use proptest::{
    prelude::*,
    sample::select,
    strategy::{BoxedStrategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// A command that is run by a session and by ExecSync.
#[derive(Clone, PartialEq)]
pub(super) struct Case {
    /// The command.
    pub(super) words: Vec<String>,
    /// How long it may take.
    pub(super) timeout: &'static str,
    /// Whether it does something else once this file is there: no session runs what ExecSync has not run well before.
    pub(super) flag: Option<String>,
}

impl Case {
    fn new(words: &[&str]) -> Self {
        Self { words: words.iter().map(ToString::to_string).collect(), timeout: "10s", flag: None }
    }

    /// A line of shell.
    pub(super) fn shell(line: impl Into<String>) -> Self {
        Self { words: vec!["sh".into(), "-c".into(), line.into()], ..Self::new(&[]) }
    }

    /// A line of shell that runs only once the file is there.
    pub(super) fn once(file: &str, line: &str, timeout: &'static str) -> Self {
        let whole = format!("if [ -e {file} ]; then {line}\nfi; echo seeded; exit 3");
        Self { timeout, flag: Some(file.to_owned()), ..Self::shell(whole) }
    }
}

/// Cut, as words may be long.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> =
            self.words.iter().map(|word| word.chars().take(300).collect::<String>()).collect();
        write!(f, "{words:?} within {}", self.timeout)
    }
}

/// Programs that shells have themselves, with arguments on which they disagree; what shows where a command runs; exits.
const ROWS: [&[&str]; 68] = [
    &["true", "ignored"],
    &["false"],
    &["echo", "-n", "a"],
    &["echo", "-e", "a\\nb\\c"],
    &["echo", "-E", "a\\nb\\0101\\c d"],
    &["echo", "a\\tb\\\\c"],
    &["echo"],
    &["printf", "%b|%s|%d\n", "a\\nb", "c\\nd", "010"],
    &["printf", "%d\n", "x"],
    &["printf"],
    &["test"],
    &["test", "-z", ""],
    &["test", "1", "-eq", "x"],
    &["[", "a", "=", "a", "]"],
    &["[", "a"],
    &["kill", "-0", "1"],
    &["kill", "-l"],
    &["kill"],
    &["kill", "-9", "99999999"],
    &["pwd"],
    &["pwd", "-P"],
    &["env"],
    &["printenv"],
    &["env", "-i", "env"],
    &["env", "A=1", "printenv", "A"],
    &["cat"],
    &["cat", "-"],
    &["wc", "-c"],
    &["tty"],
    &["id"],
    &["nice"],
    &["cat", "/proc/self/cmdline", "/proc/self/comm"],
    &["/bin/cat", "/proc/self/cmdline"],
    &["bin/pwd"],
    &["./bin/cat", "/proc/self/cmdline"],
    &["sleep", "x"],
    &["sleep", "0.1"],
    &["timeout", "0.1", "sleep", "5"],
    &["timeout", "5", "echo", "in time"],
    &["nohup", "echo", "a"],
    &["xargs"],
    &["awk", "BEGIN { printf \"%s|\", ARGV[1]; exit 9 }", "a b"],
    &["sed", "-n", "s/.*\\(root\\).*/\\1&/p", "/etc/passwd"],
    &["no-such-program"],
    &["/etc/passwd"],
    &["/tmp"],
    &["*"],
    &["A=1", "env"],
    &["-n"],
    &[""],
    &["sh"],
    &["sh", "-c", ""],
    &["sh", "-c", "echo $0:$#:$*:$-", "name", "a", "b c", ""],
    &["sh", "-c", "echo $SHLVL:$PWD:$OLDPWD:$IFS:$PS4:$OPTIND"],
    &["sh", "-c", "read x; echo $?:$x"],
    &["sh", "-c", "ulimit -a; umask; trap; jobs; set -o"],
    &["sh", "-c", "yes | head -n 1"],
    &["sh", "-c", "exec 1>&-; echo lost; echo kept >&2"],
    &["sh", "-c", "exec 2>&-; echo kept; echo lost >&2"],
    &["sh", "-c", "exec 0<&- 1>&- 2>&-; exit 5"],
    &["sh", "-c", "exec 3>&1 1>&2 2>&3; echo swapped; echo too >&2"],
    &["sh", "-c", "echo a >/dev/stdout; echo b >/dev/stderr; echo c >/proc/self/fd/1; echo d >>/dev/fd/2"],
    &["sh", "-c", "echo lost >&3; echo lost >&4; echo lost >&10; ls /proc/self/fd"],
    &["sh", "-c", "trap '' TERM; kill -TERM 0; echo alive; exit 5"],
    &["sh", "-c", "trap 'echo caught; exit 6' TERM; kill -TERM $$; echo no"],
    &["printf", "%s\n", "0123456789abcdef0123456789abcdef 0", "0123456789abcdef0123456789abcdef"],
    // Descriptors that are not as the next command expects them: it must not get them.
    &["dd", "oflag=nonblock", "if=/bin/busybox", "bs=100", "count=1", "status=none"],
    &["head", "-c", "900000", "/bin/busybox"],
];

/// What commands do that end in no time or never, once they may.
const ONCE: [(&str, &str); 10] = [
    ("sleep 30", "300ms"),
    // ExecSync of containerd 1.6 waits for children at a timeout of whole seconds: that is listed as different.
    ("exec sleep 30", "1s"),
    ("kill -STOP $$", "300ms"),
    ("trap '' TERM INT HUP; sleep 30; sleep 30", "300ms"),
    ("sleep 30 & wait", "300ms"),
    ("setsid sleep 30; sleep 30", "300ms"),
    ("while :; do echo y; echo n >&2; sleep 0.01; done", "300ms"),
    ("exec 1>&- 2>&-; sleep 30", "300ms"),
    ("sleep 0.2; exit 4", "5s"),
    ("head -c 1000000 /bin/busybox; exec sleep 30", "1s"),
];

/// The table, and so many random commands of the seed, in the same order each time.
pub(super) fn cases(seed: u64, random: usize) -> Vec<Case> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = case();
    let mut all: Vec<Case> = ROWS.map(Case::new).into();
    for (at, (line, timeout)) in ONCE.into_iter().enumerate() {
        all.push(Case::once(&format!("/tmp/once-{at}"), line, timeout));
    }
    // Of which the session has not seen any.
    while all.len() < ROWS.len() + ONCE.len() + random {
        let tree = strategy.new_tree(&mut runner).expect("nothing is filtered");
        let mut case = tree.current();
        if let Some(flag) = &mut case.flag {
            let own = format!("{flag}-{}", all.len());
            case.words.iter_mut().for_each(|word| *word = word.replace(&*flag, &own));
            *flag = own;
        }
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

fn case() -> BoxedStrategy<Case> {
    prop_oneof![
        30 => printed(),
        10 => named(),
        15 => exits(),
        10 => signals(),
        20 => outputs(),
        10 => scripts(),
        4 => children(),
        1 => (select(&ONCE[..])).prop_map(|(line, timeout)| Case::once("/tmp/random", line, timeout)),
    ]
    .boxed()
}

/// A word that is hard to quote. No word has a NUL.
fn word() -> BoxedStrategy<String> {
    const HARD: [&str; 32] = [
        "", " ", "'", "''", "\"", "\\", "\\\\", "'\\''", "\n", "\n\n", "$", "$$", "$HOME", "${PATH}",
        "$(id)", "`id`", "*", "?", "[a-z]*", "~", "~root", "-", "--", "-n", "-e", "!", "!!", "#", ";", "&&",
        "{a,b}", "\u{fffd}",
    ];
    const PARTS: [&str; 24] = [
        "'", "\"", "\\", "\n", "\t", "\r", " ", "$", "`", "*", "a", "B0", "=", ";", "|", "&", "(", ")", "<",
        ">", "ä", "😀", "%", "\\n",
    ];
    prop_oneof![
        4 => select(&HARD[..]).prop_map(str::to_owned),
        6 => prop::collection::vec(select(&PARTS[..]), 0..14).prop_map(|parts| parts.concat()),
        2 => "[ -~]{0,40}",
        2 => prop::collection::vec(any::<char>().prop_map(|one| if one == '\0' { ' ' } else { one }), 0..16)
            .prop_map(|all| all.into_iter().collect()),
        1 => (select(&["'", "\n", "x", "\\", "€"][..]), 1..1500usize).prop_map(|(one, times)| one.repeat(times)),
        1 => (1..128u8).prop_map(|control| format!("a{}b", char::from(control))),
    ]
    .boxed()
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..6).prop_map(|mut all| {
        // A request has at most 16 KiB.
        let mut room = 4000_usize;
        for word in &mut all {
            let kept = word.floor_char_boundary(room.min(word.len()));
            word.truncate(kept);
            room -= kept;
        }
        all
    })
}

/// A program shows its arguments.
fn printed() -> impl Strategy<Value = Case> {
    const PRINTERS: [&[&str]; 4] = [
        &["printf", "<%s>"],
        &["echo"],
        &["sh", "-c", "printf '<%s>' \"$0\" \"$@\" >&2; exit $#", "name"],
        &["env", "--", "printf", "<%s>"],
    ];
    (select(&PRINTERS[..]), words()).prop_map(|(printer, words)| {
        let mut case = Case::new(printer);
        case.words.extend(words);
        case
    })
}

/// A program shows its arguments that is named like something that shells have.
fn named() -> impl Strategy<Value = Case> {
    const NAMES: [&str; 36] = [
        "if", "for", "while", "case", "{", "}", "!", "function", "coproc", ".", ":", "break", "cd",
        "command", "eval", "exec", "exit", "export", "hash", "jobs", "local", "read", "readonly", "return",
        "set", "shift", "source", "trap", "type", "ulimit", "unset", "wait", "alias", "_g", "_z", "_r",
    ];
    (select(&NAMES[..]), words()).prop_map(|(name, words)| {
        let mut case = Case::new(&[name]);
        case.words.extend(words);
        case
    })
}

fn exits() -> impl Strategy<Value = Case> {
    (0..=255u8, select(&["", "echo out; ", "echo err >&2; ", "printf out; printf err >&2; "][..]))
        .prop_map(|(code, said)| Case::shell(format!("{said}exit {code}")))
}

/// Without a core file.
fn signals() -> impl Strategy<Value = Case> {
    const SIGNALS: [&str; 14] = [
        "HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
        "CONT",
    ];
    const LINES: [&str; 5] = [
        "kill -SIG $$; echo alive; exit 7",
        "sh -c 'kill -SIG $$'; exit $?",
        "echo out; kill -SIG $$ >/dev/null; sleep 0",
        "trap 'echo caught' SIG; kill -SIG $$; echo alive; exit 8",
        "trap '' SIG; kill -SIG $$; echo alive; exit 8",
    ];
    (select(&SIGNALS[..]), select(&LINES[..]))
        .prop_map(|(signal, line)| Case::shell(format!("ulimit -c 0; {}", line.replace("SIG", signal))))
}

/// Binary and text, on both outputs, around what is kept and what pipes hold.
fn outputs() -> impl Strategy<Value = Case> {
    let size = || {
        prop_oneof![
            3 => select(&[0_u32, 1, 4096, 10_239, 10_240, 10_241, 16_384, 65_535, 65_536, 65_537][..]),
            4 => 0..20_000_u32,
            1 => 0..1_048_576_u32,
        ]
    };
    let source = || select(&["/bin/busybox", "/tmp/text", "/dev/zero"][..]);
    let order = select(&["A; B", "B; A", "A & B; wait", "B; A; B"][..]);
    (size(), source(), size(), source(), order, 0..=255u8).prop_map(|(out, from, err, of, order, code)| {
        let line = order
            .replace('A', &format!("head -c {out} {from}"))
            .replace('B', &format!("head -c {err} {of} >&2"));
        Case::shell(format!("{line}; exit {code}"))
    })
}

/// A script with words of its own as its arguments.
fn scripts() -> impl Strategy<Value = Case> {
    const LINES: [&str; 8] = [
        "for word; do printf '%s\\n' \"$word\"; done; exit $#",
        "echo \"$@\"; echo $* | wc -c; cd /tmp; pwd",
        "set -- *; echo $#; cat; echo $?",
        "printf %s \"$1\" | od -c | head -n 20",
        "export V=\"$1\"; env | grep -c .; printf '%s' \"$V\"",
        "eval 'echo a'; (exit 4); echo $?; ! true; echo $?",
        "x=\"$(printf '%s\\n' \"$@\")\"; printf '%s' \"$x\" >&2",
        "exec \"$@\"",
    ];
    (select(&LINES[..]), words()).prop_map(|(line, words)| {
        let mut case = Case::shell(line);
        case.words.push("name".into());
        case.words.extend(words);
        case
    })
}

/// Children that are left behind, and leave the outputs alone. Those that hold them are different, see docs/exec-sessions.md.
fn children() -> impl Strategy<Value = Case> {
    const LINES: [&str; 5] = [
        "sleep 1 >/dev/null 2>&1 & echo gone; exit 4",
        "(sleep 0.1; exit 9) & wait $!; exit $?",
        "(sleep 0.05; echo late) & echo early; wait",
        "setsid sleep 1 >/dev/null 2>&1 & exit 2",
        "sleep 1 >/dev/null 2>&1 & kill -9 $$",
    ];
    select(&LINES[..]).prop_map(Case::shell)
}
