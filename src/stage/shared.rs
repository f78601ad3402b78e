//! One answer for all who ask a stage the same question within a short time: askers and the time in, answers out. However
//! many ask, and however often, answering takes a twentieth of the stage's time at most. Never reads a clock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

/// 19 times as long as an answer took to make, it is given to all who ask, and no other one is made: a flood of questions
/// costs the stage a twentieth of its time.
const REST: u32 = 19;

/// 250 ms: the longest such rest, so an answer is a quarter of a second old at most. Answers that take longer than 13 ms to
/// make may cost more than a twentieth.
const LONGEST_REST: Duration = Duration::from_millis(250);

/// 16 askers may wait for the next answer. While they do, the stage takes no further question, and askers wait within
/// their own deadline.
const WAITING: usize = 16;

/// What answers one kind of question.
#[derive(Debug)]
pub(crate) struct SharedAnswer<T> {
    /// The last answer, while it is given.
    kept: Option<Arc<T>>,
    /// Until when the stage makes no other one.
    rests_until: Option<Instant>,
    waiting: Vec<oneshot::Sender<Arc<T>>>,
}

impl<T> Default for SharedAnswer<T> {
    fn default() -> Self {
        Self { kept: None, rests_until: None, waiting: Vec::new() }
    }
}

impl<T> SharedAnswer<T> {
    /// Takes a question; [`Self::answer`] answers it.
    pub(crate) fn ask(&mut self, asker: oneshot::Sender<Arc<T>>) {
        self.waiting.push(asker);
    }

    /// Whether another question may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING
    }

    /// The last answer is no longer true: all who have not been answered yet get another one.
    pub(crate) fn outdate(&mut self) {
        self.kept = None;
    }

    /// When [`Self::answer`] is to be called next, at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.rests_until.filter(|_| self.kept.is_some() || !self.waiting.is_empty())
    }

    /// Answers those who wait, unless another answer may only be made later. `now` reads the time, before and after.
    pub(crate) fn answer(&mut self, make: impl FnOnce() -> T, now: impl Fn() -> Instant) {
        if self.kept.is_none() && self.waiting.is_empty() {
            return;
        }
        let began = now();
        let rests = self.rests_until.is_some_and(|until| began < until);
        if !rests {
            self.kept = None;
        }
        self.waiting.retain(|asker| !asker.is_closed());
        if self.waiting.is_empty() || (self.kept.is_none() && rests) {
            return;
        }
        let answer = self.kept.take().unwrap_or_else(|| {
            let made = Arc::new(make());
            let ended = now();
            let rest = ended.saturating_duration_since(began).saturating_mul(REST);
            self.rests_until = Some(ended + rest.min(LONGEST_REST));
            made
        });
        for asker in self.waiting.drain(..) {
            // One that has just left needs no answer.
            let _ = asker.send(answer.clone());
        }
        self.kept = Some(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::clock;

    /// A stage whose answers count how many were made, each of which takes as long.
    struct Stage {
        answers: SharedAnswer<u32>,
        now: Cell<Instant>,
        takes: Duration,
        made: Cell<u32>,
    }

    impl Stage {
        fn new(takes: u64) -> Self {
            let (answers, now) = (SharedAnswer::default(), Cell::new(clock::now()));
            Self { answers, now, takes: Duration::from_millis(takes), made: Cell::new(0) }
        }

        fn turn(&mut self) {
            let (now, made, takes) = (&self.now, &self.made, self.takes);
            let make = || {
                now.set(now.get() + takes);
                made.set(made.get() + 1);
                made.get()
            };
            self.answers.answer(make, || now.get());
        }

        /// The answer to a question that is asked now, if it is answered at once.
        fn ask(&mut self) -> Result<Arc<u32>, oneshot::Receiver<Arc<u32>>> {
            let (asker, mut answer) = oneshot::channel();
            self.answers.ask(asker);
            self.turn();
            answer.try_recv().map_err(|_| answer)
        }

        fn pass(&self, milliseconds: u64) {
            self.now.set(self.now.get() + Duration::from_millis(milliseconds));
        }
    }

    #[test]
    fn all_who_ask_while_it_rests_share_an_answer_and_then_it_is_made_again() {
        for (takes, rest) in [(1, 19), (10, 190), (100, 250)] {
            let mut stage = Stage::new(takes);
            let first = stage.ask().unwrap();
            stage.pass(rest - 1);
            assert!(Arc::ptr_eq(&first, &stage.ask().unwrap()));
            stage.pass(1);
            assert_eq!(*stage.ask().unwrap(), 2);
        }
    }

    #[test]
    fn an_answer_is_dropped_when_it_is_too_old() {
        let mut stage = Stage::new(1);
        let first = stage.ask().unwrap();
        assert_eq!(Arc::strong_count(&first), 2);
        assert_eq!(stage.answers.deadline(), Some(stage.now.get() + Duration::from_millis(19)));
        stage.pass(19);
        stage.turn();
        assert_eq!((Arc::strong_count(&first), stage.answers.deadline()), (1, None));
    }

    #[test]
    fn what_is_outdated_is_given_to_none_and_the_next_one_is_made_after_the_rest() {
        let mut stage = Stage::new(2);
        assert_eq!(*stage.ask().unwrap(), 1);
        stage.answers.outdate();
        let mut waits = stage.ask().unwrap_err();
        let gone = stage.ask().unwrap_err();
        drop(gone);
        stage.pass(37);
        stage.turn();
        assert!(waits.try_recv().is_err());
        let deadline = stage.answers.deadline().unwrap();
        assert_eq!(deadline, stage.now.get() + Duration::from_millis(1));
        stage.now.set(deadline);
        stage.turn();
        assert_eq!(*waits.try_recv().unwrap(), 2);
        assert_eq!(*stage.ask().unwrap(), 2);
    }

    #[test]
    fn so_many_wait_and_none_is_made_for_those_who_left() {
        let mut stage = Stage::new(1);
        stage.ask().unwrap();
        stage.answers.outdate();
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                assert!(stage.answers.has_room());
                stage.ask().unwrap_err()
            })
            .collect();
        assert!(!stage.answers.has_room());
        drop(waiting);
        stage.pass(19);
        stage.turn();
        assert!(stage.answers.has_room());
        assert_eq!((stage.made.get(), stage.answers.deadline()), (1, None));
    }
}
