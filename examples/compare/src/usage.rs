//! What this process uses, as `/proc` tells it.

use std::fs;
use std::time::Duration;

/// `/proc/self/stat` counts in hundredths of a second, on all machines that matter.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of all threads so far, also of those that have ended; in steps of 10 ms.
pub(crate) fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is in brackets and may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u32 = times.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// CPU time of the threads that live now, in nanoseconds: for times when threads hardly run, and
/// none ends.
pub(crate) fn cpu_of_threads() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanos = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Bytes of memory in use.
pub(crate) fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// How many files and sockets may be open.
pub(crate) fn open_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    // "unlimited" is not a number.
    soft.and_then(|soft| soft.parse().ok())
        .unwrap_or(usize::MAX)
}
