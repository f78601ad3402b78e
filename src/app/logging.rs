//! What is written to the log, and how. Once a process; from which level on may change later.

use std::{io::IsTerminal, sync::Arc};

use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Sets from which level on is logged.
#[derive(Clone)]
pub(super) struct Threshold(Arc<dyn Fn(LogLevel) + Send + Sync>);

impl Threshold {
    /// From now on.
    pub(super) fn set(&self, level: LogLevel) {
        (self.0)(level);
    }
}

/// Logs to standard error from now on.
pub(super) fn start(config: &LogConfig) -> Threshold {
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Only at trace do crates that we use speak beside us: there a line says whose it is.
    let plain = |level| fmt::layer().with_writer(std::io::stderr).with_target(level == LogLevel::Trace);
    match config.format {
        LogFormat::Text => install(config.level, move |level| plain(level).with_ansi(is_coloured)),
        LogFormat::Json => install(config.level, move |level| plain(level).json().flatten_event(true)),
    }
}

/// Logs through the layer that is made for a level, beneath the filter of that level.
fn install<L>(level: LogLevel, layer: impl Fn(LogLevel) -> L + Send + Sync + 'static) -> Threshold
where
    L: Layer<Registry> + Send + Sync + 'static,
{
    let layer = move |level| layer(level).and_then(EnvFilter::new(filter(level)));
    let (layers, handle) = reload::Layer::new(layer(level));
    // A second daemon in one process, as in tests, logs where the first does.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Threshold(Arc::new(move |level| {
        // Where nothing logs through it, there is nothing to set.
        let _ = handle.reload(layer(level));
    }))
}

/// The level for our own crate; those that we use say what they have to say from `warn` on, unless all is asked for.
fn filter(level: LogLevel) -> String {
    match level {
        LogLevel::Error => "error".to_owned(),
        LogLevel::Warn | LogLevel::Info | LogLevel::Debug => format!("warn,criprobe={}", level.as_str()),
        LogLevel::Trace => "trace".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quiet_unless_all_is_asked_for() {
        for (level, expected) in [
            (LogLevel::Error, "error"),
            (LogLevel::Warn, "warn,criprobe=warn"),
            (LogLevel::Info, "warn,criprobe=info"),
            (LogLevel::Debug, "warn,criprobe=debug"),
            (LogLevel::Trace, "trace"),
        ] {
            assert_eq!(filter(level), expected);
        }
    }
}
