//! What runs in the container, and what is sent to it: a command in, one line of shell out. Pure.
//!
//! ```text
//! sh (waits) ─┬─ sh (reads the stream: passes commands on, answers pings, kills, ends all when the stream closes)
//!             └─ sh (runs one command at a time, in the foreground) ── the command
//! ```
//!
//! Commands run in the foreground, because POSIX has shells start all others with SIGINT and SIGQUIT ignored. So another shell
//! has to read what comes meanwhile.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use crate::spec::expand::{Expansion, Piece};

/// 16 KiB: a longer command goes by ExecSync. Shells read lines byte by byte.
const LONGEST: usize = 16 << 10;

/// POSIX shell, and nothing else: dash, the ash of busybox, bash.
///
/// - Names begin with an underscore: an environment that has one of them is another one for commands, which `opening` notices.
/// - Each line begins with a key, which is the first line: what a signal has cut off the beginning of a line is never run.
/// - Signals that a command sends to its process group (`kill 0`) do not end the shells. A read that one of them interrupts is
///   repeated. The traps are not inherited.
/// - `exec` keeps a command that is named like a builtin, a keyword or a function from being one.
/// - The runner's own descriptors are closed in the command, whose standard input is empty, as with ExecSync. Its outputs are
///   opened again, so that what it sets on them, such as O_NONBLOCK, ends with it. If one cannot be opened, the code is 127, which
///   ExecSync decides.
/// - What is said about a command that a signal ended goes to the runner's standard error, which is `/dev/null`.
/// - A marker that cannot be written ends the session, and so does the end of the first shell: ExecSync decides then.
/// - `_w` ends the session where the working directory has another one in its place, unless its path cannot be searched, or the program is an empty file, which shells
///   run as a script that succeeds.
/// - `_g` kills what is in a session and is not one of the three, and looks again until nothing is left.
/// - `_o` kills the sessions of shells with the same first line, which names whose they are. The stream may have ended
///   without them, because they are stopped or frozen, or because the runtime was killed, whose shim keeps their input open.
const SCRIPT: &str = r#"_t="trap _s=1 HUP INT QUIT TERM USR1 USR2 ALRM"
$_t
exec 3>&2 2>/dev/null 4>&1
_g(){ _e=$1 _i=0
while _f=; [ $_i -lt 9 ]; do _i=$((_i+1))
for _d in /proc/[0-9]*; do _x=
while IFS= read -r _y; do _x="$_x $_y"; done <$_d/stat
set -- ${_x##*) }
[ "$4" = $_e ] && [ "$2" != $$ ] && [ "$1" != Z ] && [ ${_d#/proc/} != $$ ] && kill -9 ${_d#/proc/} && _f=1
done
[ "$_f" ] || break
done; }
_p=$(pwd -P); [ . -ef "$_p" ] || _p=.
_w(){ [ . -ef "$_p" ] && case $1 in */*) [ ! -f "$1" ] || [ -s "$1" ];; esac || { _z 300; exit; }; }
_o(){ set +f
IFS= read -r _h </proc/$$/cmdline
case $_h in *'# exec session of criprobe at '*) ;; *) exit;; esac
for _c in /proc/[0-9]*; do
IFS= read -r _x <$_c/cmdline && [ "$_x" = "$_h" ] || continue
_x=
while IFS= read -r _y; do _x="$_x $_y"; done <$_c/stat
set -- ${_x##*) }
[ "$4" = ${_c#/proc/} ] && [ "$4" != $$ ] && [ "$4" -gt 1 ] && _g $4
done
set -f; }
_z(){ kill -0 $$ && echo "$_m $1" && echo "$_m" >&3 || exit; }
_r(){ _m=$1; shift; _w "$@"; ({ exec "$@"; } </dev/null >/proc/self/fd/1 2>/proc/self/fd/3 3>&-; exit 127); _z $?; }
{ $_t
IFS= read -r _k && printf '%s\n' "$_k"
while _s= _l=; IFS= read -r _l || { [ "$_s" ] && _l=; }; do case $_l in
"$_k k") _g $$;;
"$_k p "*) set -- $_l; kill -0 $$ && { _x=; IFS= read -r _x </proc/$3/task/$3/children; [ "$_x" ]; } && echo "$4" >&4;;
"$_k "*) printf '%s\n' "$_l";;
"");;
*) break;;
esac; done; _g $$; } | { $_t
exec >&4 4>&-; set -f
_n='
'
IFS= read -r _k
while _s= _l=; IFS= read -r _l || { [ "$_s" ] && _l=; }; do case $_l in
"$_k "*) eval "${_l#"$_k "}";;
"");;
*) break;;
esac; done; }"#;

/// Writes the number of the shell that runs commands, after it has killed what earlier sessions have left behind.
const HELLO: &str = r#"_o;read _x _y </proc/self/stat;echo "$_x";_z 0"#;

/// Tries a program that is in no folder. A shell that runs it all the same has it built in, and never runs the image's.
const BUILT_IN: &str = "(PATH=/dev/null;exec cat /dev/null) </dev/null 2>&3 3>&-;_z $?";

/// What `sh -c` runs for the criprobe that listens at `owner`, which is shown to those who look at the container's processes.
pub(super) fn script(owner: &str) -> String {
    let owner: String = owner.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    format!("# exec session of criprobe at {owner}\n{SCRIPT}")
}

/// Has a shell with programs of its own, a busybox that is built so, run the image's all the same, as ExecSync does. What it has
/// built in runs only by a path, which says the same of itself if that leads to the shell's own file. Otherwise, ExecSync
/// decides.
pub(super) const RUN_BY_PATH: &str = r#"_r(){ _m=$1; shift; _w "$@"; case $1 in */*);; *) if (PATH=/dev/null command -v "$1") >/dev/null; then IFS=:; for _d in $PATH; do [ -f "$_d/$1" ] && [ -x "$_d/$1" ] && break; _d=; done; unset IFS; [ "$_d/$1" -ef /proc/$$/exe ] || { _z 127; return; }; _d=$_d/$1; shift; set -- "$_d" "$@"; fi;; esac; ({ exec "$@"; } </dev/null >/proc/self/fd/1 2>/proc/self/fd/3 3>&-; exit 127); _z $?; }"#;

/// Writes the environment that the shells were started with.
const ENVIRONMENT: &str = "(exec cat /proc/$$/environ) </dev/null 2>&3 3>&-;_z $?";

/// The exit code of what the session does not run: it ends.
pub(super) const GIVEN_UP: u32 = 300;

/// 64 bits as 16 hexadecimal digits that no command knows before it runs. They are short because shells read byte by byte: twice
/// as many would be a twentieth of what an attempt costs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    /// How many bytes it has.
    pub(super) const LENGTH: usize = 16;

    /// A new one.
    pub(super) fn fresh() -> Self {
        Self(format!("{:016x}", RandomState::new().hash_one(())))
    }

    /// Its digits.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Never its digits: who knows them could forge an end.
impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

/// What is asked of the shells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask<'a> {
    /// Who they are.
    Hello,
    /// Whether they have a program built in.
    BuiltIn,
    /// What environment they were started with.
    Environment,
    /// To run this: words of shell, which [`command`] has made.
    Run(&'a str),
    /// To change what commands get as environment.
    Adjust(&'a str),
}

impl Ask<'_> {
    /// The line that asks for it, after the session's key; its end is marked with `nonce`.
    pub(super) fn line(self, key: &Nonce, nonce: &Nonce) -> String {
        match self {
            Self::Hello => format!("{key} _m={nonce};{HELLO}\n"),
            Self::BuiltIn => format!("{key} _m={nonce};{BUILT_IN}\n"),
            Self::Environment => format!("{key} _m={nonce};{ENVIRONMENT}\n"),
            Self::Run(words) => format!("{key} _r {nonce}{words}\n"),
            Self::Adjust(text) => format!("{key} _m={nonce};{text};_z 0\n"),
        }
    }
}

/// The line that has the reader answer with `nonce`, if the runner runs a command. A shell that cannot start one, as there are as
/// many processes as there may be, is waiting for that, and runs none.
pub(super) fn ping(key: &Nonce, runner: u32, nonce: &Nonce) -> String {
    format!("{key} p {runner} {nonce}\n")
}

/// The line that has the reader kill what runs.
pub(super) fn kill(key: &Nonce) -> String {
    format!("{key} k\n")
}

/// A command as words of shell, each after a blank; none if it cannot be said to every shell: it is too long, its program's
/// name is empty or looks like an option, or it has control characters that shells use themselves. Nor can `setsid` be, which
/// waits for its program unless it leads a process group, as it does with ExecSync.
pub(super) fn command(command: Expansion<'_>) -> Option<String> {
    let mut text = String::new();
    for (at, word) in command.words().enumerate() {
        text.push_str(" '");
        let begins = text.len();
        for piece in word.pieces().map(Piece::text) {
            if text.len() + piece.len() > LONGEST {
                return None;
            }
            quote(piece, &mut text)?;
        }
        let word = &text[begins..];
        if at == 0 && (word.is_empty() || word.starts_with('-')) || word.contains("setsid") {
            return None;
        }
        text.push('\'');
    }
    (!text.is_empty() && text.len() <= LONGEST).then_some(text)
}

/// One assignment that is passed on to commands, as a statement.
pub(super) fn exported(name: &str, value: &str) -> Option<String> {
    let mut text = format!("export {name}='");
    quote(value, &mut text)?;
    text.push('\'');
    Some(text)
}

/// Adds a text to a word in single quotes. A newline would end the line.
fn quote(text: &str, into: &mut String) -> Option<()> {
    for letter in text.chars() {
        match letter {
            '\'' => into.push_str(r"'\''"),
            '\n' => into.push_str("'\"$_n\"'"),
            '\t' | '\r' | '\x1b' => into.push(letter),
            _ if letter.is_ascii_control() => return None,
            _ => into.push(letter),
        }
    }
    Some(())
}
