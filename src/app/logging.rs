//! The format and level of the log. Set up once per process; the level can change later. Logging never waits for
//! standard error to be read: a separate thread writes, see [`mod@queue`].

mod line;
mod queue;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Display,
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    panic::{self, PanicHookInfo},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

use self::{
    line::{Form, Lines},
    queue::Queue,
};
use crate::{
    config::{LogConfig, LogFormat, LogLevel},
    count::Count,
    redact::Redactor,
    report::printable::printable,
    stage::panics,
};

/// The lines of this process, as its subscriber and its standard error are the process's too.
static QUEUE: OnceLock<Queue> = OnceLock::new();

fn queue() -> &'static Queue {
    QUEUE.get_or_init(Queue::default)
}

/// Lines of the log that were dropped so far, as nothing read them; counts on.
pub(super) fn dropped() -> Count {
    queue().dropped()
}

/// From now on, lines of this format are written without what the redactor's patterns match.
pub(super) fn redact(redactor: Redactor, format: LogFormat) {
    queue().redact(redactor, format);
}

/// Ends the log with the reason why the process fails, if it does, and waits until all is written, but no longer than
/// `limit`.
pub(super) fn end(failure: Option<&dyn Display>, limit: Duration) {
    if let Some(failure) = failure {
        queue().push(format!("criprobe: {}\n", printable(&failure.to_string())).as_bytes());
    }
    queue().flush(limit);
}

/// Sets from which level on is logged.
#[derive(Clone)]
pub(super) struct Threshold(Arc<dyn Fn(LogLevel) + Send + Sync>);

impl Threshold {
    /// From now on.
    pub(super) fn set(&self, level: LogLevel) {
        (self.0)(level);
    }
}

/// Logs to standard error from now on, panics too.
///
/// # Errors
/// No thread can be started that writes.
pub(super) fn start(config: &LogConfig) -> io::Result<Threshold> {
    // A descriptor of our own: a thread that locks the standard library's would wait as long as the writer does.
    let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    queue().write_to(out, |lines| {
        tracing::error!(lines, "log lines were dropped: standard error was not read fast enough");
    })?;
    let is_coloured =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Only at trace do crates that we use speak beside us: there a line says whose it is.
    let layer = |level, form| {
        fmt::layer().with_writer(Lines::new(queue().clone(), form)).with_target(level == LogLevel::Trace)
    };
    let threshold = match config.format {
        LogFormat::Text => {
            let form = if is_coloured { Form::Coloured } else { Form::Plain };
            install(config.level, move |level| layer(level, form).with_ansi(is_coloured))
        }
        LogFormat::Json => {
            install(config.level, move |level| layer(level, Form::Json).json().flatten_event(true))
        }
    };
    panic::set_hook(Box::new(log_panic));
    Ok(threshold)
}

/// What the standard library would write to standard error, and wait for.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or_default();
    let place = panics::keep_place(panic);
    let reason = panics::describe(panic.payload());
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread, place, reason, backtrace, "panic");
}

/// Logs through the layer that is made for a level, beneath the filter of that level.
fn install<L>(level: LogLevel, layer: impl Fn(LogLevel) -> L + Send + Sync + 'static) -> Threshold
where
    L: Layer<Registry> + Send + Sync + 'static,
{
    let layer = move |level| layer(level).and_then(filter(level));
    let (layers, handle) = reload::Layer::new(layer(level));
    // A second daemon in one process, as in tests, logs where the first does.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Threshold(Arc::new(move |level| {
        // Where nothing logs through it, there is nothing to set.
        let _ = handle.reload(layer(level));
    }))
}

/// The level for our own crate. Libraries log errors only, and those that speak with pods' servers and clients log nothing:
/// the other end could make them write without bound. At trace all of them log.
fn filter(level: LogLevel) -> Targets {
    let own = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => return Targets::new().with_default(LevelFilter::TRACE),
    };
    let silent = ["h2", "hyper", "rustls"].map(|library| (library, LevelFilter::OFF));
    Targets::new().with_default(LevelFilter::ERROR).with_targets(silent).with_target("criprobe", own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_line_of_the_log_and_nothing_else() {
        let queue = Queue::default();
        let layer = fmt::layer().with_writer(Lines::new(queue.clone(), Form::Plain)).with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let former = panic::take_hook();
            panic::set_hook(Box::new(log_panic));
            let panicked = panic::catch_unwind(|| panic!("this panic belongs to the {}", "test"));
            panic::set_hook(former);
            assert!(panicked.is_err());
        });
        let line = queue.waiting();
        assert!(line.contains("ERROR") && line.contains("panic thread="), "{line}");
        assert!(line.contains("reason=\"this panic belongs to the test\""), "{line}");
        assert!(line.contains(&format!("place=\"{}:", file!())), "{line}");
    }

    #[test]
    fn libraries_are_quiet_unless_all_is_asked_for() {
        for (level, expected) in [
            (LogLevel::Error, "error,h2=off,hyper=off,rustls=off,criprobe=error"),
            (LogLevel::Warn, "error,h2=off,hyper=off,rustls=off,criprobe=warn"),
            (LogLevel::Info, "error,h2=off,hyper=off,rustls=off,criprobe=info"),
            (LogLevel::Debug, "error,h2=off,hyper=off,rustls=off,criprobe=debug"),
            (LogLevel::Trace, "trace"),
        ] {
            assert_eq!(filter(level), expected.parse().unwrap());
        }
    }
}
