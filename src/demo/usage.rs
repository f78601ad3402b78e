//! The resource usage of a container's processes: a process group in, CPU time and memory out, read from `/proc`.

use std::{fs, str::FromStr};

use super::{filters, node::Node, state::Container, view, wall_nanos};
use crate::proto::cri;

/// 10 ms: the unit of times in `/proc/PID/stat` (proc(5), USER_HZ is 100 on all architectures that matter here).
const TICK_NANOS: u64 = 10_000_000;

impl Node {
    /// The usage of the running containers that a filter lets pass.
    pub(super) fn list_container_stats(&self, filter: cri::ContainerStatsFilter) -> Vec<cri::ContainerStats> {
        let cri::ContainerStatsFilter { id, pod_sandbox_id, label_selector } = filter;
        let filter = cri::ContainerFilter { id, pod_sandbox_id, label_selector, state: None };
        let found: Vec<Container> = {
            let state = self.state();
            filters::containers(&state, &filter)
                .into_iter()
                .filter(|one| one.run().is_some())
                .cloned()
                .collect()
        };
        let processes = if found.is_empty() { Vec::new() } else { processes() };
        found.iter().map(|container| stats(container, &processes)).collect()
    }

    /// The usage of one container; nothing but its name where it does not run.
    ///
    /// # Errors
    /// NotFound.
    pub(super) fn container_stats(&self, text: &str) -> Result<cri::ContainerStats, tonic::Status> {
        let container = self.state().container(text)?.clone();
        Ok(stats(&container, &processes()))
    }
}

/// One process's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    group: i32,
    cpu_nanos: u64,
    memory_bytes: u64,
}

fn stats(container: &Container, processes: &[Share]) -> cri::ContainerStats {
    let attributes = Some(view::container_attributes(container));
    let Some(run) = container.run() else {
        return cri::ContainerStats { attributes, ..Default::default() };
    };
    let own = processes.iter().filter(|share| share.group == run.group.pid());
    let (cpu, memory) =
        own.fold((0, 0), |(cpu, memory), share| (cpu + share.cpu_nanos, memory + share.memory_bytes));
    let timestamp = wall_nanos();
    let value = |value| Some(cri::UInt64Value { value });
    cri::ContainerStats {
        attributes,
        cpu: Some(cri::CpuUsage { timestamp, usage_core_nano_seconds: value(cpu) }),
        memory: Some(cri::MemoryUsage { timestamp, working_set_bytes: value(memory) }),
    }
}

fn processes() -> Vec<Share> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            path.file_name()?.to_str()?.parse::<u32>().ok()?;
            // A process that ended meanwhile is left out.
            share(
                &fs::read_to_string(path.join("stat")).ok()?,
                &fs::read_to_string(path.join("status")).ok()?,
            )
        })
        .collect()
}

/// Reads `/proc/PID/stat` and `/proc/PID/status` as proc(5) describes them. CPU time includes that of children which
/// ended and were waited for.
fn share(stat: &str, status: &str) -> Option<Share> {
    // The command is in parentheses and may hold anything, more parentheses included.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().try_fold(0, |sum, field| Some(sum + number::<u64>(field)?))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.and_then(|rest| number::<u64>(rest.trim().trim_end_matches(" kB")));
    Some(Share {
        group: number(fields.get(2)?)?,
        cpu_nanos: ticks * TICK_NANOS,
        memory_bytes: kilobytes.unwrap_or_default() * 1024,
    })
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processs_share_is_read_whatever_its_name() {
        let stat = "42 (a ) b) S 1 40 40 0 -1 4194560 9 0 0 0 3 4 1 2 20 0 1 0 100 2500 90";
        let expected = Share { group: 40, cpu_nanos: 100_000_000, memory_bytes: 8192 };
        assert_eq!(share(stat, "Name:\tx\nVmRSS:\t       8 kB\n"), Some(expected));
        let zombie = Share { memory_bytes: 0, ..expected };
        assert_eq!(share(stat, "Name:\tx\n"), Some(zombie));
        for broken in ["", "42 (a", "42 (a) S 1", "42 (a) S 1 x 40 0 -1 4194560 9 0 0 0 3 4 1 2 20"] {
            assert_eq!(share(broken, ""), None, "{broken:?}");
        }
    }
}
