//! What can be shown live: an answer of the daemon that can be sorted and laid out for a screen.

use std::time::SystemTime;

use super::item::{self, Item, Sort};
use crate::cli::screen::{Paint, Screen};

/// How something is to be laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) screen: Screen,
    /// Whether to show everything, in lines of any width.
    pub(crate) is_wide: bool,
    /// Whether to show only what fails.
    pub(crate) only_failed: bool,
    /// When it came.
    pub(crate) at: SystemTime,
}

impl Layout {
    /// How wide a line may be.
    pub(crate) fn limit(&self) -> Option<usize> {
        (!self.is_wide).then_some(self.screen.width)
    }
}

/// An answer of the daemon.
pub(crate) trait Content {
    /// What may come first.
    type Sort: Copy;
    /// What does at first.
    const SORT: Self::Sort;

    /// The next order, in a circle.
    fn next(sort: Self::Sort) -> Self::Sort;
    /// In a word.
    fn name(sort: Self::Sort) -> &'static str;
    fn arrange(&mut self, by: Self::Sort);
    /// All of it in one line.
    fn summary(&self) -> (String, Paint);
    /// A heading that stays, if there is one, and the lines below it.
    fn lay_out(&self, layout: Layout) -> (Option<String>, Vec<String>);
}

/// A list of entries.
impl<T: Item> Content for Vec<T> {
    type Sort = Sort;
    const SORT: Sort = Sort::State;

    fn next(sort: Sort) -> Sort {
        item::next::<T>(sort)
    }

    fn name(sort: Sort) -> &'static str {
        sort.as_str()
    }

    fn arrange(&mut self, by: Sort) {
        item::sort(self, by);
    }

    fn summary(&self) -> (String, Paint) {
        T::summary(self)
    }

    fn lay_out(&self, layout: Layout) -> (Option<String>, Vec<String>) {
        let chosen: Vec<_> = self.iter().filter(|item| !layout.only_failed || item.is_failed()).collect();
        match &chosen[..] {
            [] if layout.only_failed => (None, vec![format!("no failing {}", T::NOUN)]),
            [] => (None, vec![format!("no {}", T::NOUN)]),
            some => T::table(some, layout.at, layout.is_wide).parts(layout.screen, layout.limit()),
        }
    }
}
