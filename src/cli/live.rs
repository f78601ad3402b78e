//! A list that is watched: asks the daemon every second, and shows the list on a terminal until it is left, or prints a line
//! per change elsewhere. What a terminal shows is decided by `view`.

pub(crate) mod changes;
pub(super) mod content;
pub(super) mod item;
mod keys;
mod terminal;
mod view;

use std::{io, pin::Pin, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep},
};

use self::{
    changes::{Change, Known},
    content::Content,
    item::{Item, Sort},
    keys::{Key, Keys},
    terminal::Terminal,
    view::{Data, Input, Lost, Next, View},
};
use super::{
    Context, Error, Exit, banner,
    format::{self, Format},
    presence::Presence,
    screen::{Screen, fit, print, reader_gone},
};
use crate::{clock, report::view::Time};

/// 1 s between an answer and the next question.
const INTERVAL: Duration = Duration::from_secs(1);

/// Flags of every list that can be watched.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LiveArgs {
    /// Keep running: a live list on a terminal, left with q, and elsewhere one line per change
    #[arg(short, long)]
    pub(super) watch: bool,
    /// Show only what fails
    #[arg(long)]
    pub(super) failed: bool,
    /// Order [default: name; with -w on a terminal: state, failing first]
    #[arg(long, value_enum, value_name = "KEY")]
    pub(super) sort: Option<Sort>,
}

impl LiveArgs {
    /// What is chosen of a list that is not watched, in the order that is chosen.
    pub(super) fn choose<T: Item>(&self, items: &mut Vec<T>) {
        items.retain(|item| !self.failed || item.is_failed());
        if let Some(by) = self.sort {
            item::sort(items, by);
        }
    }

    /// Watches until it is left.
    ///
    /// # Errors
    /// The daemon does not answer the first question, or refuses one for good.
    pub(super) async fn watch<T: Item>(&self, context: &Context, path: &str) -> Result<Exit, Error> {
        match context.format {
            Format::Table | Format::Wide if context.screen.height.is_some() => {
                let list = async || context.client.get::<Vec<T>>(path).await;
                show(context, list, self.sort, self.failed).await
            }
            _ => {
                tokio::select! {
                    ended = self.lines::<T>(context, path) => ended,
                    _ = tokio::signal::ctrl_c() => Ok(Exit::Fine),
                    () = reader_gone() => Ok(Exit::Fine),
                }
            }
        }
    }

    async fn lines<T: Item>(&self, context: &Context, path: &str) -> Result<Exit, Error> {
        let mut looks = interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = Known::default();
        let mut presence: Option<Presence<'_>> = None;
        let limit = if context.format == Format::Wide { usize::MAX } else { context.screen.width };
        loop {
            looks.tick().await;
            let items: Vec<T> = match context.client.get(path).await {
                Ok(items) => items,
                Err(error) => match &mut presence {
                    Some(presence) => {
                        presence.outlast(error).await?;
                        continue;
                    }
                    // A daemon that is not there at the start is an error.
                    None => return Err(error),
                },
            };
            let presence = match &mut presence {
                Some(presence) => presence,
                None => presence.insert(Presence::begin(context, "changes").await),
            };
            presence.heard();
            if known.is_any_gone(&items) && !presence.is_settled().await {
                continue;
            }
            let now = Time(clock::wall());
            let describe = |change: &Change<'_, T>| match context.format {
                _ if self.failed && !change.is_of_failure() => String::new(),
                Format::Table | Format::Wide => context.screen.legible(fit(&change.line(now), limit)) + "\n",
                Format::Json => change.item.map(format::json_line).unwrap_or_default(),
                Format::Yaml => change.item.map(format::yaml_document).unwrap_or_default(),
            };
            let changes = known.changes(&items, describe);
            if !changes.is_empty() {
                print(&changes)?;
            }
        }
    }
}

/// Shows what a question is answered with until it is left: in this order, or in its usual one.
///
/// # Errors
/// The daemon does not answer the first question, or the terminal cannot be drawn on.
pub(super) async fn show<C: Content>(
    context: &Context,
    question: impl AsyncFn() -> Result<C, Error>,
    sort: Option<C::Sort>,
    only_failed: bool,
) -> Result<Exit, Error> {
    // A daemon that is not there is an error; one that leaves later is waited for.
    let first = ask(context, &question).await?;
    let is_wide = context.format == Format::Wide;
    let mut view = View::<C>::new(Screen::of_stdout(), is_wide, sort, only_failed);
    view.on(Input::Data(first), clock::wall());
    let mut signals = Signals::listen()?;
    let mut terminal = Terminal::enter()?;
    let mut keys = Keys::of_stdin();
    let mut seconds = interval(INTERVAL);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answer = ask_again(context, &question);
    loop {
        terminal.draw(&view.frame(clock::wall()))?;
        let inputs = tokio::select! {
            data = &mut answer => {
                answer = ask_again(context, &question);
                vec![data.map_or_else(|error| Input::Lost(Lost::from(&error)), Input::Data)]
            }
            _ = seconds.tick() => vec![Input::Tick],
            pressed = keys.pressed() => pressed.into_iter().map(Input::Key).collect(),
            signal = signals.next() => match signal {
                Sent::Quit => vec![Input::Key(Key::Quit)],
                Sent::Resize => vec![Input::Resize(Screen::of_stdout())],
                Sent::Suspend => {
                    terminal.suspend()?;
                    vec![Input::Resize(Screen::of_stdout())]
                }
            },
        };
        for input in inputs {
            if view.on(input, clock::wall()) == Next::Quit {
                return Ok(Exit::Fine);
            }
        }
    }
}

async fn ask<C>(context: &Context, question: &impl AsyncFn() -> Result<C, Error>) -> Result<Data<C>, Error> {
    let content = question().await?;
    Ok(Data { content, banner: banner::lines(context).await })
}

type Answer<'a, C> = Pin<Box<dyn Future<Output = Result<Data<C>, Error>> + 'a>>;

fn ask_again<'a, C>(context: &'a Context, question: &'a impl AsyncFn() -> Result<C, Error>) -> Answer<'a, C> {
    Box::pin(async move {
        sleep(INTERVAL).await;
        ask(context, question).await
    })
}

/// The signals that end or change a live list.
struct Signals {
    ends: [Signal; 4],
    resized: Signal,
    suspended: Signal,
}

enum Sent {
    Quit,
    Resize,
    Suspend,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let [a, b, c, d] = kinds.map(signal);
        let suspended = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
        Ok(Self {
            ends: [a?, b?, c?, d?],
            resized: signal(SignalKind::window_change())?,
            suspended: signal(suspended)?,
        })
    }

    async fn next(&mut self) -> Sent {
        let [a, b, c, d] = &mut self.ends;
        tokio::select! {
            _ = a.recv() => Sent::Quit,
            _ = b.recv() => Sent::Quit,
            _ = c.recv() => Sent::Quit,
            _ = d.recv() => Sent::Quit,
            _ = self.resized.recv() => Sent::Resize,
            _ = self.suspended.recv() => Sent::Suspend,
        }
    }
}

impl From<&Error> for Lost {
    fn from(error: &Error) -> Self {
        match error {
            Error::Unreachable { reason, .. } => {
                Self { what: "daemon not reachable", reason: reason.clone() }
            }
            other => Self { what: "no data", reason: other.to_string() },
        }
    }
}
