//! Readings of a process from /proc: memory, processor time, context switches; and a description of the machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The unit of processor times in /proc. The kernel shows 100 to user space on every platform the project is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resident memory of a process.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident_bytes: u64,
    pub(crate) peak_bytes: u64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let status = read(&format!("/proc/{pid}/status"))?;
    Ok(Memory {
        resident_bytes: status_number(&status, "VmRSS:")? * 1024,
        peak_bytes: status_number(&status, "VmHWM:")? * 1024,
    })
}

/// User and system time of all threads, those that have ended included.
pub(crate) fn cpu_ticks(pid: u32) -> Result<u64> {
    Ok(stat(pid)?.own_ticks)
}

/// Time of a process and its children, those that have ended included: PostgreSQL has a process for each connection.
pub(crate) fn family_cpu_ticks(pid: u32) -> Result<u64> {
    let parent = stat(pid)?;
    let mut ticks = parent.own_ticks + parent.ended_children_ticks;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(other) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the listing and the reading; then its time is its parent's.
        if let Ok(child) = stat(other)
            && child.parent == pid
        {
            ticks += child.own_ticks;
        }
    }
    Ok(ticks)
}

pub(crate) fn cores(ticks: u64, seconds: f64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND / seconds
}

/// How often each thread of a process has gone to sleep: every wake-up, however short, ends in that.
#[derive(PartialEq, Eq)]
pub(crate) struct Sleeps(BTreeMap<OsString, u64>);

pub(crate) fn sleeps(pid: u32) -> Result<Sleeps> {
    let mut threads = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        // A thread may end between the listing and the reading.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        let count = status_number(&status, "voluntary_ctxt_switches:")?;
        threads.insert(thread.file_name(), count);
    }
    Ok(Sleeps(threads))
}

impl Sleeps {
    /// Wake-ups since an earlier reading; a thread that began or ended in between is one too.
    pub(crate) fn since(&self, earlier: &Self) -> u64 {
        let mut wake_ups = 0;
        for (thread, count) in &self.0 {
            wake_ups += match earlier.0.get(thread) {
                Some(before) => count.saturating_sub(*before),
                None => count + 1,
            };
        }
        for thread in earlier.0.keys() {
            wake_ups += u64::from(!self.0.contains_key(thread));
        }
        wake_ups
    }
}

pub(crate) fn cpu_model() -> String {
    fs::read_to_string("/proc/cpuinfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned())
}

/// The type of the file system that holds `path`, by the longest mount point above it.
pub(crate) fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut longest = 0;
    let mut kind = "unknown";
    for mount in mounts.lines() {
        let mut fields = mount.split(' ').skip(1);
        let (Some(point), Some(mount_kind)) = (fields.next(), fields.next()) else {
            continue;
        };
        // Later mounts hide earlier ones on the same point.
        if path.starts_with(point) && point.len() >= longest {
            longest = point.len();
            kind = mount_kind;
        }
    }
    kind.to_owned()
}

/// Lets this process open as many files as it may; a viewer each takes more than most begin with.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where that is not allowed the run says itself what it could not open.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).ok();
}

/// What the kernel holds in the buffers of all TCP sockets of this machine, both ends of loopback connections included.
pub(crate) fn tcp_buffer_bytes() -> Result<u64> {
    const PAGE_BYTES: u64 = 4096;
    let text = read("/proc/net/sockstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: ")).context("no TCP in /proc/net/sockstat")?;
    let pages = line.split_once("mem ").and_then(|(_, pages)| pages.trim().parse::<u64>().ok());
    Ok(pages.context("no mem in /proc/net/sockstat")? * PAGE_BYTES)
}

struct Stat {
    parent: u32,
    own_ticks: u64,
    ended_children_ticks: u64,
}

fn stat(pid: u32) -> Result<Stat> {
    let text = read(&format!("/proc/{pid}/stat"))?;
    parse_stat(&text).with_context(|| format!("/proc/{pid}/stat is not understood"))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// The command name may hold spaces, so the fields are counted from its closing parenthesis.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(1);
    let parent = fields.next()?.parse().ok()?;
    let mut times = fields.skip(9).map_while(|field| field.parse::<u64>().ok());
    Some(Stat { parent, own_ticks: times.next()? + times.next()?, ended_children_ticks: times.next()? + times.next()? })
}

fn status_number(status: &str, name: &str) -> Result<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("the process status has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_a_name_with_spaces() {
        let stat = parse_stat("7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 5 2 20 0 3 0 500 1 2").unwrap();

        assert_eq!((stat.parent, stat.own_ticks, stat.ended_children_ticks), (1, 42, 7));
    }

    #[test]
    fn the_time_of_a_family_holds_that_of_its_children() {
        let pid = std::process::id();
        let parent = stat(pid).unwrap().parent;

        let (parent_before, child_before) = (cpu_ticks(parent).unwrap(), cpu_ticks(pid).unwrap());

        assert!(family_cpu_ticks(parent).unwrap() >= parent_before + child_before);
    }

    #[test]
    fn this_process_has_memory_and_switches() {
        let pid = std::process::id();

        let memory = memory(pid).unwrap();

        assert!(memory.resident_bytes > 0 && memory.peak_bytes >= memory.resident_bytes);
        assert!(!sleeps(pid).unwrap().0.is_empty());
    }

    #[test]
    fn threads_that_begin_or_end_count_as_wake_ups() {
        let reading = |threads: &[(&str, u64)]| {
            Sleeps(threads.iter().map(|(thread, count)| (OsString::from(thread), *count)).collect())
        };
        let before = reading(&[("1", 10), ("2", 20)]);

        assert_eq!(reading(&[("1", 10), ("2", 20)]).since(&before), 0);
        assert_eq!(reading(&[("1", 13), ("2", 20)]).since(&before), 3);
        assert_eq!(reading(&[("1", 10)]).since(&before), 1);
        assert_eq!(reading(&[("1", 10), ("2", 20), ("3", 0)]).since(&before), 1);
    }

    #[test]
    fn a_status_line_is_not_confused_with_a_longer_name() {
        let status = "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t4\n";

        assert_eq!(status_number(status, "voluntary_ctxt_switches:").unwrap(), 4);
    }
}
