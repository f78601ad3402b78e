//! What the figures were taken on: processor, cores, kernel, date.

use std::{fs, thread};

use criprobe::clock;

/// One line about this machine and moment.
pub(crate) fn describe() -> String {
    let model = read("/proc/cpuinfo", |text| {
        text.lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, model)| model.trim()))
    });
    let kernel = read("/proc/sys/kernel/osrelease", |text| Some(text.trim()));
    let cores = thread::available_parallelism().map_or(0, Into::into);
    let now = clock::rfc3339(clock::wall());
    let date = now.split_once('T').map_or("", |(date, _)| date);
    format!("{model}, {cores} cores, Linux {kernel}, {date}")
}

fn read(path: &str, find: impl Fn(&str) -> Option<&str>) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    find(&text).unwrap_or("unknown").to_owned()
}
