//! The configuration in effect, and the errors in files that were changed since: readings in; what to apply and what to
//! report out. Pure: never reads, applies or logs. A reading with any error changes nothing.

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use crate::config::{
    ConfigErrors, Loaded, Origin, Setting,
    change::{Changes, needing_restart},
    health::ConfigHealth,
    key::Key,
};

/// What is in effect since the start, and what came of the files since.
#[derive(Debug)]
pub(super) struct Current {
    /// What the daemon was started with: what needs a restart stands as it did then.
    started: Arc<Loaded>,
    health: ConfigHealth,
}

/// Why the files were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The daemon has just started, and they may have changed since it read them.
    Start,
    /// Something changed.
    Change,
    /// An operator asked for it: to be answered, also where nothing is new.
    Request,
}

/// What follows from a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// To be put in effect, as it differs from what is.
    pub(super) apply: Option<Arc<Loaded>>,
    /// To be reported: none if it was reported already.
    pub(super) news: Option<News>,
    /// Whether it was a reload, and a good one.
    pub(super) counts_as: Option<bool>,
}

/// What came of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is in effect.
    Loaded {
        /// What differs from what was in effect before.
        changes: Changes,
        /// What is not, because it needs a restart, and what was passed over; only what was not reported before.
        warnings: Vec<String>,
    },
    /// The former one stays in effect.
    Refused {
        /// Everything that is wrong.
        errors: Vec<String>,
    },
}

impl Current {
    /// Started with a good configuration.
    pub(super) fn new(loaded: Loaded, at: SystemTime) -> Self {
        let loaded = Arc::new(loaded);
        let (errors, needs_restart) = (Vec::new(), Vec::new());
        Self {
            started: loaded.clone(),
            health: ConfigHealth { loaded, loaded_at: at, errors, needs_restart },
        }
    }

    /// As it is to be shown.
    pub(super) fn health(&self) -> &ConfigHealth {
        &self.health
    }

    /// Takes in what reading the files gave.
    pub(super) fn on_read(
        &mut self,
        read: Result<Loaded, ConfigErrors>,
        cause: Cause,
        at: SystemTime,
    ) -> Step {
        let (apply, news) = match read {
            Ok(loaded) => self.on_good(loaded, at),
            Err(errors) => (None, self.on_bad(&errors)),
        };
        let is_good = self.health.errors.is_empty();
        let news = news.or_else(|| (cause == Cause::Request).then(|| self.stand()));
        let counts_as = (cause != Cause::Start || news.is_some()).then_some(is_good);
        Step { apply, news, counts_as }
    }

    fn on_good(&mut self, mut loaded: Loaded, at: SystemTime) -> (Option<Arc<Loaded>>, Option<News>) {
        let keys = needing_restart(&self.started.config, &loaded.config);
        let needs_restart = keys.iter().map(|key| line(*key, &loaded.settings)).collect();
        for setting in loaded.settings.iter_mut().filter(|setting| keys.contains(&setting.key)) {
            let started = self.started.settings.iter().find(|started| started.key == setting.key);
            started.iter().for_each(|started| setting.clone_from(started));
        }
        let is_healed = !self.health.errors.is_empty();
        let is_changed = self.health.loaded.config != loaded.config;
        let changes = Changes::between(&self.health.loaded, &loaded);
        let former: HashSet<_> = self.health.warnings().cloned().collect();
        let loaded = Arc::new(loaded);
        self.health =
            ConfigHealth { loaded: loaded.clone(), loaded_at: at, errors: Vec::new(), needs_restart };
        let warnings: Vec<_> =
            self.health.warnings().filter(|line| !former.contains(*line)).cloned().collect();
        let is_news = is_healed || is_changed || !warnings.is_empty();
        (is_changed.then_some(loaded), is_news.then_some(News::Loaded { changes, warnings }))
    }

    fn on_bad(&mut self, errors: &ConfigErrors) -> Option<News> {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let is_news = self.health.errors != lines;
        self.health.errors = lines;
        is_news.then(|| self.stand())
    }

    /// All of it, as if it were new.
    fn stand(&self) -> News {
        if self.health.errors.is_empty() {
            let warnings = self.health.warnings().cloned().collect();
            News::Loaded { changes: Changes::default(), warnings }
        } else {
            News::Refused { errors: self.health.errors.clone() }
        }
    }
}

/// That a setting needs a restart, and who says so.
fn line(key: Key, settings: &[Setting]) -> String {
    let origin = settings.iter().find(|setting| setting.key == key).map(|setting| &setting.origin);
    match origin {
        None | Some(Origin::Default | Origin::Limited(..)) => {
            format!("{}: changed to its default, needs a restart", key.path())
        }
        Some(origin) => format!("{}: changed in {origin}, needs a restart", key.path()),
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;
    use crate::config::{Overrides, raw::Raw, resolve::resolve};

    fn read(text: &str) -> Result<Loaded, ConfigErrors> {
        let notes = if text.contains("noted") { vec!["x.yml is not read".to_owned()] } else { Vec::new() };
        let loaded = resolve(&[Raw::read(text, Path::new("c.yaml"))], &Overrides::default(), &|_| Ok(None))?;
        Ok(Loaded { notes, ..loaded })
    }

    /// What a reading leads to, in a line.
    fn reported(step: &Step) -> String {
        let applied =
            step.apply.as_ref().map(|loaded| format!("apply workers {}; ", loaded.config.prober.workers));
        let news = match &step.news {
            None => "nothing".to_owned(),
            Some(News::Loaded { changes, warnings }) if warnings.is_empty() => format!("loaded: {changes}"),
            Some(News::Loaded { changes, warnings }) => {
                format!("loaded: {changes}, but {}", warnings.join("; "))
            }
            Some(News::Refused { errors }) => format!("refused: {}", errors.join("; ")),
        };
        let counts = step.counts_as.map_or("not counted", |good| if good { "good" } else { "bad" });
        format!("{}{news}; {counts}", applied.unwrap_or_default())
    }

    #[test]
    fn what_is_good_is_applied_what_is_bad_changes_nothing_and_each_is_told_once() {
        use Cause::{Change, Request, Start};
        let start = SystemTime::UNIX_EPOCH;
        let mut current = Current::new(read("prober: {workers: 9}").unwrap(), start);
        let restart = "listen: changed in c.yaml:1:9, needs a restart";
        for (seconds, (cause, text, expected)) in (1..).zip([
            (Start, "prober: {workers: 9}", "nothing; not counted".to_owned()),
            (Change, "prober: {workers: 9} # touched", "nothing; good".to_owned()),
            (Request, "prober: {workers: 9}", "loaded: nothing in effect changed; good".to_owned()),
            (
                Change,
                "prober: {workers: 8}",
                "apply workers 8; loaded: changed prober.workers, prober.execWorkers; good".to_owned(),
            ),
            (
                Change,
                "prober: {workers: 0}",
                "refused: c.yaml:1:19: prober.workers: must be at least 1, not 0; bad".to_owned(),
            ),
            (Change, "prober: {workers: 0} # touched", "nothing; bad".to_owned()),
            (
                Request,
                "prober: {workers: 0}",
                "refused: c.yaml:1:19: prober.workers: must be at least 1, not 0; bad".to_owned(),
            ),
            (
                Change,
                "prober: {workers: -1}",
                "refused: c.yaml:1:19: prober.workers: must be at least 1, not -1; bad".to_owned(),
            ),
            (Change, "prober: {workers: 8}", "loaded: nothing in effect changed; good".to_owned()),
            (
                Change,
                "listen: /tmp/x\nprober: {workers: 8}",
                format!("apply workers 8; loaded: nothing in effect changed, but {restart}; good"),
            ),
            (
                Change,
                "listen: /tmp/x\nprober: {workers: 7}",
                "apply workers 7; loaded: changed prober.workers, prober.execWorkers; good".to_owned(),
            ),
            (
                Request,
                "listen: /tmp/x\nprober: {workers: 7}",
                format!("loaded: nothing in effect changed, but {restart}; good"),
            ),
            (
                Change,
                "listen: /tmp/x # noted\nprober: {workers: 7}",
                "loaded: nothing in effect changed, but x.yml is not read; good".to_owned(),
            ),
            (Change, "listen: /tmp/x\nprober: {workers: 7} ", "nothing; good".to_owned()),
            (
                Change,
                "prober: {workers: 7}",
                "apply workers 7; loaded: nothing in effect changed; good".to_owned(),
            ),
        ]) {
            let at = start + Duration::from_secs(seconds);
            let step = current.on_read(read(text), cause, at);
            assert_eq!(reported(&step), expected, "{seconds}: {cause:?} {text:?}");
            let is_good = current.health().errors.is_empty();
            assert_eq!(current.health().loaded_at == at, is_good, "{text:?}");
            assert_eq!(
                current.health().needs_restart.len(),
                usize::from(text.contains("listen")),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_setting_that_is_taken_out_again_needs_a_restart_too() {
        let mut current = Current::new(read("log: {format: json}").unwrap(), SystemTime::UNIX_EPOCH);
        let step = current.on_read(read(""), Cause::Change, SystemTime::UNIX_EPOCH);
        let shown = &current.health().loaded.settings;
        let format = shown.iter().find(|setting| setting.key == Key::LogFormat).unwrap();
        assert_eq!(format.texts, ["json"], "what is in effect is shown");
        let reported = reported(&step);
        assert!(reported.contains("but log.format: changed to its default, needs a restart"), "{reported}");
    }
}
