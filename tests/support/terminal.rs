//! A terminal of our own: a program on a pseudo-terminal, the keys typed into it, and its screen as a person sees it.
#![allow(clippy::unwrap_used)]

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use criprobe::clock;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// How long a screen may take to be as wanted; long, as tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// criprobe on a terminal. Dropped, it is killed.
pub(crate) struct Terminal {
    ours: File,
    /// Open here, too, so that the terminal outlives the program.
    its: File,
    before: LocalModes,
    child: Child,
    screen: Screen,
}

/// Where the keys of a program come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The terminal, which also sends it signals: Ctrl-C, and that it was resized.
    Terminal,
    /// Nowhere.
    None,
}

impl Terminal {
    /// Starts criprobe with these arguments, separated by blanks, and nothing but these variables.
    pub(crate) fn start(arguments: &str, variables: &[(&str, &str)], size: (u16, u16), keys: Keys) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let noctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let its = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(name).unwrap();
        tcsetwinsize(&its, winsize(size)).unwrap();
        let before = tcgetattr(&its).unwrap().local_modes;
        let its_end = || Stdio::from(its.try_clone().unwrap());
        // The terminal sends signals to the session that it controls.
        let mut command = Command::new("setsid");
        let (control, stdin) = match keys {
            Keys::Terminal => (&["--ctty"][..], its_end()),
            Keys::None => (&[][..], Stdio::null()),
        };
        command.args(control).arg(env!("CARGO_BIN_EXE_criprobe"));
        command.args(arguments.split(' ').filter(|word| !word.is_empty()));
        command.env_clear().env("TERM", "xterm-256color").env("LANG", "C.UTF-8").env("PATH", "/usr/bin:/bin");
        command.envs(variables.iter().copied()).stdin(stdin).stdout(its_end()).stderr(its_end());
        let child = command.spawn().unwrap();
        Self { ours: ours.into(), its, before, child, screen: Screen::new(size) }
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn resize(&mut self, size: (u16, u16)) {
        self.screen.resize(size);
        tcsetwinsize(&self.its, winsize(size)).unwrap();
    }

    /// Reads until the screen is as wanted, and returns its lines.
    pub(crate) fn until(&mut self, what: &str, is_wanted: impl Fn(&Screen) -> bool) -> Vec<String> {
        let start = clock::now();
        while self.screen.is_drawing || !is_wanted(&self.screen) {
            assert!(clock::now() - start < PATIENCE, "not shown: {what}\n{:#?}", self.screen.lines());
            self.read();
        }
        self.screen.lines()
    }

    /// Reads until a line contains this text.
    pub(crate) fn shows(&mut self, text: &str) -> Vec<String> {
        self.until(text, |screen| screen.lines().iter().any(|line| line.contains(text)))
    }

    /// Reads until the program is suspended.
    pub(crate) fn stops(&mut self) {
        let start = clock::now();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        while !state().contains(" T ") {
            assert!(clock::now() - start < PATIENCE, "it still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
        while self.read() {}
    }

    /// Reads until the program has ended.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let start = clock::now();
        loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                while self.read() {}
                return status;
            }
            assert!(clock::now() - start < PATIENCE, "it still runs\n{:#?}", self.screen.lines());
        }
    }

    /// What it shows now.
    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Whether it is as it was before the program.
    pub(crate) fn is_restored(&self) -> bool {
        let Screen { is_alternate, is_cursor_hidden, wraps, .. } = self.screen;
        !is_alternate
            && !is_cursor_hidden
            && wraps
            && tcgetattr(&self.its).unwrap().local_modes == self.before
    }

    /// Reads what there is, or comes within 10 ms.
    fn read(&mut self) -> bool {
        let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let mut polled = [PollFd::new(&self.ours, PollFlags::IN)];
        let is_there =
            matches!(poll(&mut polled, Some(&wait)), Ok(1)) && polled[0].revents().contains(PollFlags::IN);
        if is_there {
            let mut bytes = [0; 4_096];
            let count = self.ours.read(&mut bytes).unwrap();
            self.screen.write(&bytes[..count]);
        }
        is_there
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize((columns, lines): (u16, u16)) -> Winsize {
    Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 }
}

/// As much of a terminal as criprobe uses.
pub(crate) struct Screen {
    columns: usize,
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// What has left the screen at the top.
    scrolled: Vec<String>,
    wraps: bool,
    is_alternate: bool,
    is_cursor_hidden: bool,
    /// Whether a frame is not complete yet.
    is_drawing: bool,
    /// What was written, and is not complete yet.
    rest: Vec<u8>,
}

impl Screen {
    fn new((columns, lines): (u16, u16)) -> Self {
        Self {
            columns: columns.into(),
            rows: vec![Vec::new(); lines.into()],
            row: 0,
            column: 0,
            scrolled: Vec::new(),
            wraps: true,
            is_alternate: false,
            is_cursor_hidden: false,
            is_drawing: false,
            rest: Vec::new(),
        }
    }

    /// The lines, without blanks at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    /// What has left the screen at the top, and the lines on it.
    pub(crate) fn history(&self) -> Vec<String> {
        self.scrolled.iter().cloned().chain(self.lines()).collect()
    }

    /// Lines keep their text, as those of xterm do.
    fn resize(&mut self, (columns, lines): (u16, u16)) {
        let lines = usize::from(lines);
        while !self.is_alternate && self.rows.len() > lines && self.row + 1 == self.rows.len() {
            self.scroll();
            self.rows.pop();
            self.row -= 1;
        }
        self.rows.resize(lines, Vec::new());
        self.columns = columns.into();
        self.row = self.row.min(lines - 1);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let valid = rest.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let mut text = valid;
        while let Some(character) = text.chars().next() {
            let after = &text[character.len_utf8()..];
            text = match character {
                '\u{1b}' => match sequence(after) {
                    Some((parameters, command, after)) => {
                        self.obey(parameters, command);
                        after
                    }
                    None => break,
                },
                '\r' => {
                    self.column = 0;
                    after
                }
                '\n' => {
                    self.down();
                    after
                }
                _ => {
                    self.put(character);
                    after
                }
            };
        }
        self.rest = rest[valid.len() - text.len()..].to_vec();
    }

    fn obey(&mut self, parameters: &str, command: char) {
        match (parameters, command) {
            ("", 'H') => (self.row, self.column) = (0, 0),
            ("", 'K') => self.rows[self.row].truncate(self.column),
            ("", 'J') => {
                self.rows[self.row].truncate(self.column);
                self.rows[self.row + 1..].iter_mut().for_each(Vec::clear);
            }
            ("?7", _) => self.wraps = command == 'h',
            ("?2026", _) => self.is_drawing = command == 'h',
            ("?25", _) => self.is_cursor_hidden = command == 'l',
            ("?1049", _) => {
                self.is_alternate = command == 'h';
                self.rows.iter_mut().for_each(Vec::clear);
            }
            (_, 'm') => {}
            (count, 'A') => self.row = self.row.saturating_sub(count.parse().unwrap()),
            other => panic!("not known: {other:?}"),
        }
    }

    fn put(&mut self, character: char) {
        if self.column == self.columns {
            if self.wraps {
                self.column = 0;
                self.down();
            } else {
                self.column -= 1;
            }
        }
        let row = &mut self.rows[self.row];
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = character;
        self.column += 1;
    }

    fn down(&mut self) {
        if self.row + 1 < self.rows.len() {
            self.row += 1;
        } else {
            self.scroll();
            self.rows.last_mut().unwrap().clear();
        }
    }

    /// Moves all lines up.
    fn scroll(&mut self) {
        if !self.is_alternate {
            self.scrolled.push(self.lines().swap_remove(0));
        }
        self.rows[0].clear();
        self.rows.rotate_left(1);
    }
}

/// The parameters and the command of an escape sequence, and what follows it; `None` if it is not complete.
fn sequence(after: &str) -> Option<(&str, char, &str)> {
    let body = after.strip_prefix('[')?;
    let end = body.find(|character: char| character.is_ascii_alphabetic())?;
    Some((&body[..end], body[end..].chars().next()?, &body[end + 1..]))
}
