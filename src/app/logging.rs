//! What is written to the log, and how. Once a process.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Logs to standard error from now on.
pub(super) fn start(config: &LogConfig) {
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let registry = tracing_subscriber::registry().with(EnvFilter::new(filter(config.level)));
    // Only at trace do crates that we use speak beside us: there a line says whose it is.
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(config.level == LogLevel::Trace);
    // A second daemon in one process, as in tests, logs where the first does.
    let _ = match config.format {
        LogFormat::Text => registry.with(layer.with_ansi(is_coloured)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
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
