//! What a live list shows: keys, answers and sizes in, frames out. Never does IO, never reads a clock.
//!
//! From the top: a summary with a clock and the age of the data; a banner; since when the daemon is away, with the last
//! data below; the heading; as many lines of the list as fit; the order, what is shown, and the keys.

use std::time::SystemTime;

use unicode_width::UnicodeWidthChar;

use super::{
    content::{Content, Layout},
    keys::Key,
};
use crate::{
    cli::{
        screen::{Paint, Screen, fit, width_of},
        span::{age, moment},
        wrap::words,
    },
    clock,
};

/// The content, and how it is shown.
pub(super) struct View<C: Content> {
    screen: Screen,
    is_wide: bool,
    sort: C::Sort,
    only_failed: bool,
    /// In its order; none before it came.
    content: Option<C>,
    /// When it came.
    at: SystemTime,
    banner: Vec<String>,
    /// Since when and why there is nothing newer.
    lost: Option<(SystemTime, Lost)>,
    head: Option<String>,
    body: Vec<String>,
    /// The first line of the body that is shown.
    top: usize,
    /// The first column that is shown.
    left: usize,
}

/// What happens to a view.
pub(super) enum Input<C> {
    Data(Data<C>),
    Lost(Lost),
    Key(Key),
    Resize(Screen),
    /// A second has passed.
    Tick,
}

/// An answer of the daemon.
pub(super) struct Data<C> {
    pub(super) content: C,
    /// Lines above the list, in their colours: what is wrong with all of it.
    pub(super) banner: Vec<String>,
}

/// Why there is no answer.
pub(super) struct Lost {
    /// `daemon not reachable`.
    pub(super) what: &'static str,
    pub(super) reason: String,
}

/// What to do after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Draw,
    Quit,
}

/// 3 lines of a banner, and of the reason why there is no answer.
const BANNER: usize = 3;

/// 8 lines: a lower terminal has no room for the line with the keys.
const WITH_KEYS: usize = 8;

/// 8 columns are shifted at a time.
const SHIFT: usize = 8;

/// 24 lines of a terminal that does not say how many it has.
const HEIGHT: usize = 24;

impl<C: Content> View<C> {
    pub(super) fn new(screen: Screen, is_wide: bool, sort: Option<C::Sort>, only_failed: bool) -> Self {
        Self {
            screen,
            is_wide,
            sort: sort.unwrap_or(C::SORT),
            only_failed,
            content: None,
            at: SystemTime::UNIX_EPOCH,
            banner: Vec::new(),
            lost: None,
            head: None,
            body: Vec::new(),
            top: 0,
            left: 0,
        }
    }

    pub(super) fn on(&mut self, input: Input<C>, now: SystemTime) -> Next {
        match input {
            Input::Data(Data { mut content, banner }) => {
                content.arrange(self.sort);
                (self.content, self.banner, self.at, self.lost) = (Some(content), banner, now, None);
                self.lay_out();
            }
            Input::Lost(lost) => {
                let since = self.lost.as_ref().map_or(now, |(since, _)| *since);
                self.lost = Some((since, lost));
            }
            Input::Resize(screen) => {
                self.screen = screen;
                self.lay_out();
            }
            Input::Tick => {}
            Input::Key(Key::Quit) => return Next::Quit,
            Input::Key(Key::Failed) => {
                self.only_failed = !self.only_failed;
                self.top = 0;
                self.lay_out();
            }
            Input::Key(Key::Sort) => {
                self.sort = C::next(self.sort);
                self.content.iter_mut().for_each(|content| content.arrange(self.sort));
                self.top = 0;
                self.lay_out();
            }
            Input::Key(key) => self.scroll(key, now),
        }
        self.top = self.top.min(self.body.len().saturating_sub(self.room(now)));
        self.left = self.left.min(self.rightmost());
        Next::Draw
    }

    /// As many lines as the terminal has, each no wider than it.
    pub(super) fn frame(&self, now: SystemTime) -> Vec<String> {
        let height = self.height();
        let mut lines = self.above(now);
        lines.extend(self.head.as_ref().map(|head| self.shifted(head)));
        let room = self.room(now);
        lines.extend(self.body.iter().skip(self.top).take(room).map(|line| self.shifted(line)));
        if height >= WITH_KEYS {
            lines.resize(height - 1, String::new());
            lines.push(self.screen.legible(self.screen.paint(&self.below(room), Paint::Faint)));
        }
        lines.resize(height, String::new());
        lines
    }

    fn height(&self) -> usize {
        self.screen.height.unwrap_or(HEIGHT)
    }

    /// How many lines of the body fit.
    fn room(&self, now: SystemTime) -> usize {
        let keys = usize::from(self.height() >= WITH_KEYS);
        let taken = self.above(now).len() + usize::from(self.head.is_some()) + keys;
        self.height().saturating_sub(taken).max(1)
    }

    fn lay_out(&mut self) {
        let (screen, is_wide, only_failed) = (self.screen, self.is_wide, self.only_failed);
        // Ages are those of the data.
        let layout = Layout { screen, is_wide, only_failed, at: self.at };
        (self.head, self.body) =
            self.content.as_ref().map(|content| content.lay_out(layout)).unwrap_or_default();
    }

    fn scroll(&mut self, key: Key, now: SystemTime) {
        let page = self.room(now).saturating_sub(1).max(1);
        self.top = match key {
            Key::Up => self.top.saturating_sub(1),
            Key::Down => self.top + 1,
            Key::PageUp => self.top.saturating_sub(page),
            Key::PageDown => self.top + page,
            Key::First => 0,
            Key::Last => self.body.len(),
            Key::Left | Key::Right | Key::Quit | Key::Failed | Key::Sort => self.top,
        };
        self.left = match key {
            Key::Right if self.is_wide => self.left + SHIFT,
            Key::Left => self.left.saturating_sub(SHIFT),
            _ => self.left,
        };
    }

    fn rightmost(&self) -> usize {
        let lines = self.head.iter().chain(&self.body);
        let widest = lines.map(|line| columns_of(line)).max();
        widest.unwrap_or_default().saturating_sub(self.screen.width)
    }

    /// The lines above the list.
    fn above(&self, now: SystemTime) -> Vec<String> {
        let width = self.screen.width;
        let (summary, paint) = self.content.as_ref().map(C::summary).unwrap_or_default();
        let clock = format!("{}, data {} old", clock::short(now, now), age(self.at, now));
        let taken = width_of(&summary) + width_of(&clock) + 2;
        let mut lines: Vec<(String, Paint)> = if taken <= width {
            let gap = " ".repeat(width - taken + 2);
            let summary = self.screen.paint(&summary, paint);
            vec![(format!("{summary}{gap}{}", self.screen.paint(&clock, Paint::Faint)), Paint::Plain)]
        } else {
            let summary = words(&summary, width, BANNER).into_iter().map(|line| (line, paint));
            let clock = words(&clock, width, BANNER).into_iter().map(|line| (line, Paint::Faint));
            summary.chain(clock).collect()
        };
        // Asked for at an earlier width, perhaps.
        let banner = self.banner.iter().take(BANNER).map(|line| (shown(line, 0, width), Paint::Plain));
        lines.extend(banner);
        if let Some((since, Lost { what, reason })) = &self.lost {
            let since = format!("{what} since {} ({}): {reason}", moment(*since, now), age(*since, now));
            lines.extend(words(&since, width, BANNER).into_iter().map(|line| (line, Paint::Bad)));
        }
        // At least the heading and a line of the list are shown.
        lines.truncate(self.height().saturating_sub(2).max(1));
        lines.into_iter().map(|(line, paint)| self.screen.legible(self.screen.paint(&line, paint))).collect()
    }

    /// What is below it.
    fn below(&self, room: usize) -> String {
        let mut parts = vec!["q quit".to_owned(), format!("by {}", C::name(self.sort))];
        if self.only_failed {
            parts.push("only failing".to_owned());
        }
        if self.body.len() > room {
            let last = (self.top + room).min(self.body.len());
            parts.push(format!("lines {}-{last} of {}", self.top + 1, self.body.len()));
        }
        let failed = if self.only_failed { "f all" } else { "f failing" };
        parts.push(format!("{failed}, s sort, arrows scroll"));
        fit(&parts.join("; "), self.screen.width)
    }

    fn shifted(&self, line: &str) -> String {
        shown(line, if self.is_wide { self.left } else { 0 }, self.screen.width)
    }
}

/// The width of a line without its colours.
fn columns_of(line: &str) -> usize {
    // Ours are all of this form: ESC [ NUMBER m.
    let parts = line.split('\u{1b}').enumerate();
    let texts = parts
        .map(|(at, part)| if at == 0 { part } else { part.split_once('m').map_or("", |(_, text)| text) });
    texts.map(width_of).sum()
}

/// The columns of a line that are shown, with all of its colours.
fn shown(line: &str, from: usize, width: usize) -> String {
    let (mut text, mut at, mut is_colour) = (String::new(), 0, false);
    for character in line.chars() {
        is_colour |= character == '\u{1b}';
        if is_colour {
            text.push(character);
            is_colour = character != 'm';
            continue;
        }
        let end = at + character.width().unwrap_or(0);
        if at >= from && end - from <= width {
            text.push(character);
        }
        at = end;
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::view::{ProbeView, Verdict, sample};

    fn screen(width: usize, height: usize) -> Screen {
        Screen { height: Some(height), ..Screen::plain(width) }
    }

    /// Nine that succeed, before and behind them one that fails.
    fn probes() -> Vec<ProbeView> {
        let good =
            (1..10).map(|number| sample::named_probe("default", &format!("web-{number}"), "app", "liveness"));
        let named = |name| ProbeView {
            state: Verdict::Failure,
            ..sample::named_probe("default", name, "app", "liveness")
        };
        good.chain([named("a-first"), named("z-last")]).collect()
    }

    fn view(screen: Screen) -> View<Vec<ProbeView>> {
        let mut view = View::new(screen, false, None, false);
        view.on(Input::Data(Data { content: probes(), banner: Vec::new() }), now());
        view
    }

    fn now() -> SystemTime {
        sample::at(125_000).0
    }

    fn names(lines: &[String]) -> Vec<&str> {
        let names = lines.iter().filter_map(|line| line.strip_prefix("default/")?.split_once(' '));
        names.map(|(name, _)| name).collect()
    }

    #[test]
    fn frames_look_like_this() {
        for (width, height) in [(20, 24), (40, 24), (80, 16), (140, 16)] {
            let mut view = view(screen(width, height));
            let frame = view.frame(now() + Duration::from_secs(1));
            assert_eq!(frame.len(), height);
            insta::assert_snapshot!(format!("live_{width}"), frame.join("\n"));
            let reason = "the socket does not exist; is 'criprobe serve' running?".to_owned();
            let lost = || Lost { what: "daemon not reachable", reason: reason.clone() };
            view.banner = vec!["RUNTIME AWAY since 10:00:00Z (28s): verdicts are old".to_owned()];
            view.on(Input::Lost(lost()), now() + Duration::from_secs(2));
            view.on(Input::Lost(lost()), now() + Duration::from_secs(3));
            let frame = view.frame(now() + Duration::from_secs(5));
            insta::assert_snapshot!(format!("live_lost_{width}"), frame.join("\n"));
            view.on(Input::Data(Data { content: Vec::new(), banner: Vec::new() }), now());
            assert_eq!(view.frame(now()).iter().filter(|line| line.contains("no probes")).count(), 2);
        }
    }

    #[test]
    fn every_frame_fits_its_terminal() {
        for (width, height) in (10..100).map(|width| (width, 2 + width % 13)) {
            let mut view = view(screen(width, height));
            view.on(Input::Lost(Lost { what: "no data", reason: "x ".repeat(200) }), now());
            for key in [Key::Last, Key::Sort, Key::Failed, Key::PageUp] {
                view.on(Input::Key(key), now());
                let frame = view.frame(now());
                assert_eq!(frame.len(), height);
                assert!(frame.iter().all(|line| width_of(line) <= width), "{width}: {frame:#?}");
            }
        }
    }

    #[test]
    fn what_fails_comes_first_and_keys_change_what_is_shown() {
        let mut view = view(screen(100, 9));
        assert_eq!(names(&view.frame(now()))[..3], ["a-first", "z-last", "web-1"]);
        assert_eq!(
            view.frame(now())[8],
            "q quit; by state; lines 1-6 of 11; f failing, s sort, arrows scroll"
        );
        view.on(Input::Key(Key::Down), now());
        assert_eq!(names(&view.frame(now()))[0], "z-last");
        view.on(Input::Key(Key::Last), now());
        assert_eq!(names(&view.frame(now())).last(), Some(&"web-9"));
        view.on(Input::Key(Key::PageDown), now());
        assert_eq!(names(&view.frame(now())).last(), Some(&"web-9"), "there is nothing below");
        view.on(Input::Key(Key::PageUp), now());
        assert_eq!(names(&view.frame(now()))[0], "a-first");
        view.on(Input::Key(Key::Failed), now());
        assert_eq!(names(&view.frame(now())), ["a-first", "z-last"]);
        view.on(Input::Key(Key::Failed), now());
        view.on(Input::Key(Key::Sort), now());
        assert_eq!(names(&view.frame(now()))[..2], ["a-first", "web-1"]);
        assert_eq!(view.on(Input::Key(Key::Quit), now()), Next::Quit);
    }

    #[test]
    fn a_larger_terminal_shows_more_and_the_last_data_stay_while_the_daemon_is_away() {
        let mut view = view(screen(100, 9));
        view.on(Input::Key(Key::Last), now());
        view.on(Input::Resize(screen(100, 40)), now());
        let frame = view.frame(now());
        assert_eq!((frame.len(), names(&frame).len()), (40, 11));
        view.on(Input::Lost(Lost { what: "daemon not reachable", reason: "gone".to_owned() }), now());
        let later = now() + Duration::from_secs(90);
        let frame = view.frame(later);
        assert_eq!(names(&frame).len(), 11);
        assert_eq!(frame[1], "daemon not reachable since 10:02:05.000Z (1m30s): gone");
        assert!(frame[0].ends_with("10:03:35Z, data 1m30s old"), "{}", frame[0]);
        view.on(Input::Data(Data { content: probes(), banner: Vec::new() }), later);
        assert!(!view.frame(later).iter().any(|line| line.contains("not reachable")));
    }

    #[test]
    fn a_wide_list_is_shifted() {
        let mut view = View::new(screen(40, 9), true, None, false);
        view.on(Input::Data(Data { content: probes(), banner: Vec::new() }), now());
        view.on(Input::Key(Key::Right), now());
        assert!(view.frame(now())[3].starts_with("a-first"), "{:?}", view.frame(now()));
        for _ in 0..99 {
            view.on(Input::Key(Key::Right), now());
        }
        assert!(view.frame(now())[2].ends_with("OUTPUT"), "{:?}", view.frame(now()));
        view.on(Input::Key(Key::Left), now());
        assert!(!view.frame(now())[2].ends_with("OUTPUT"));
        view.on(Input::Resize(screen(500, 9)), now());
        assert!(view.frame(now())[1].starts_with("NAMESPACE/POD"), "{:?}", view.frame(now()));
        assert_eq!(shown("\u{1b}[31mred\u{1b}[0m漢x", 1, 4), "\u{1b}[31med\u{1b}[0m漢");
    }
}
