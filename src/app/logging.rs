//! What is written to the log, and how. Once a process.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Logs to standard error from now on. Crates that we use say what they have to say from `warn` on, unless the level
/// asks for more.
pub(super) fn start(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let others = if config.level < LogLevel::Trace { "warn".min(level) } else { "debug" };
    let others = if config.level == LogLevel::Error { "error" } else { others };
    let filter = EnvFilter::new(format!("{others},criprobe={level}"));
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
    // A second daemon in one process, as in tests, logs where the first does.
    let _ = match config.format {
        LogFormat::Text => registry.with(layer.with_ansi(is_coloured)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}
