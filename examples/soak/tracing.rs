//! The client's log on standard error, for those who ask for it.

use std::sync::OnceLock;
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

/// When printing began.
static START: OnceLock<Instant> = OnceLock::new();

/// Prints lines with the time since the beginning.
#[derive(Debug)]
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let start = START.get_or_init(Instant::now);
        let at = start.elapsed().as_secs_f64();
        eprintln!("{at:.3} s: {} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Prints the log from now on, from this level up.
pub(crate) fn start(level: LevelFilter) {
    START.get_or_init(Instant::now);
    // Fails only if there is a logger already.
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
