//! The command line.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::LevelFilter;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Runs all kinds of calls on a cluster of its own while slots move, primaries are killed, frozen and
replaced, and checks every reply.

cargo run --release --example soak -- [OPTIONS]

  --seconds N     how long the cluster is harassed [60]
  --seed N        what everything random derives from [the time]
  --threads N     threads that make calls [16]
  --server PATH   server program [RESLOT_TEST_SERVER, or redis-server, installed if missing]
  --log LEVEL     print the client's log: error, warn, info, debug or trace [off]
  --help          this text

Ends with 0 if nothing was wrong. Any violation is printed with the seed, and ends with 1.";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// How long the cluster is harassed.
    pub(crate) length: Duration,
    /// What everything random derives from.
    pub(crate) seed: u64,
    /// Threads that make calls.
    pub(crate) threads: usize,
    /// The server program, if not the default one.
    pub(crate) server: Option<String>,
    /// What of the client's log is printed.
    pub(crate) log: LevelFilter,
}

impl Options {
    /// Reads the arguments; `None` if help is wanted.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut options = Self {
            length: Duration::from_secs(60),
            seed: now.map_or(1, |now| now.as_micros() as u64 % 1_000_000),
            threads: 16,
            server: None,
            log: LevelFilter::Off,
        };
        while let Some(name) = args.next() {
            if matches!(name.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (name, args.next()),
            };
            let value = value.ok_or_else(|| format!("{name} needs a value; see --help"))?;
            match name.as_str() {
                "--seconds" => options.length = Duration::from_secs(parse(&name, &value)?),
                "--seed" => options.seed = parse(&name, &value)?,
                "--threads" => options.threads = parse(&name, &value)?,
                "--server" => options.server = Some(value),
                "--log" => options.log = parse(&name, &value)?,
                _ => return Err(format!("no such option: {name}; see --help")),
            }
        }
        if options.threads == 0 {
            return Err("--threads: at least one is needed".into());
        }
        Ok(Some(options))
    }
}

fn parse<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    let parsed = value.parse().ok();
    parsed.ok_or_else(|| format!("{name}: {value:?} cannot be used"))
}
