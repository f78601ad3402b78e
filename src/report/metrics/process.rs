//! What this process takes of the machine, as the kernel counts it. Reads `/proc/self`; what cannot be read is left out.

use std::{fs, time::Duration};

use rustix::process::{Resource, getrlimit};

use crate::clock;

/// The process as it is now.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub cpu: Duration,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub threads: Option<u64>,
    pub open_descriptors: Option<usize>,
    /// None if there is no limit.
    pub max_descriptors: Option<u64>,
}

/// Reads it: some 50 us, and 200 ns for each open descriptor.
pub(crate) fn read() -> Process {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Process {
        cpu: clock::process_cpu(),
        resident_bytes: field(&status, "VmRSS:").map(|kilobytes| kilobytes << 10),
        virtual_bytes: field(&status, "VmSize:").map(|kilobytes| kilobytes << 10),
        threads: field(&status, "Threads:"),
        // The folder itself is open while it is read.
        open_descriptors: fs::read_dir("/proc/self/fd").map(|open| open.count().saturating_sub(1)).ok(),
        max_descriptors: getrlimit(Resource::Nofile).current,
    }
}

/// The number of a line such as `VmRSS:      9812 kB`.
fn field(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let process = read();
        let resident = process.resident_bytes.unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        assert!(process.virtual_bytes.unwrap() >= resident);
        assert!(process.threads.unwrap() >= 1 && process.cpu > Duration::ZERO);
        let before = process.open_descriptors.unwrap();
        let files: Vec<_> = (0..100).map(|_| fs::File::open("/proc/self/status").unwrap()).collect();
        assert!(read().open_descriptors.unwrap() > before + 50, "other tests may close some");
        drop(files);
        assert!(process.max_descriptors.is_none_or(|most| most > before as u64));
    }

    #[test]
    fn what_is_missing_or_no_number_is_left_out() {
        for (status, value) in
            [("", None), ("VmRSS:\n", None), ("VmRSS:\t x kB\n", None), ("a\nVmRSS:\t 7 kB\n", Some(7))]
        {
            assert_eq!(field(status, "VmRSS:"), value, "{status:?}");
        }
    }
}
