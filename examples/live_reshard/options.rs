//! The command line.

use std::str::FromStr;
use std::time::Duration;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Runs load on a cluster of its own while slots move and a primary is killed.

cargo run --release --example live_reshard -- [OPTIONS]

  --threads N     threads that run commands; half of them singly, half in pipelines [16]
  --seconds N     length of a phase [5]
  --keys N        keys [100000]
  --pipeline N    commands in a pipeline [50]
  --server PATH   server program [RESLOT_TEST_SERVER, or redis-server, installed if missing]
  --help          this text

Ends with 0 if every command ended as it should and every acknowledged write is there.";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Threads that run commands.
    pub(crate) threads: usize,
    /// Length of a phase.
    pub(crate) phase: Duration,
    /// Number of keys.
    pub(crate) keys: usize,
    /// Commands in a pipeline.
    pub(crate) pipeline: usize,
    /// The server program, if not the default one.
    pub(crate) server: Option<String>,
}

impl Options {
    /// Reads the arguments; `None` if help is wanted.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            threads: 16,
            phase: Duration::from_secs(5),
            keys: 100_000,
            pipeline: 50,
            server: None,
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
                "--threads" => options.threads = number(&name, &value)?,
                "--seconds" => options.phase = Duration::from_secs(number(&name, &value)?),
                "--keys" => options.keys = number(&name, &value)?,
                "--pipeline" => options.pipeline = number(&name, &value)?,
                "--server" => options.server = Some(value),
                _ => return Err(format!("no such option: {name}; see --help")),
            }
        }
        if options.keys < 50 * options.threads {
            return Err("--keys: each thread needs at least 50 keys of its own".into());
        }
        Ok(Some(options))
    }
}

fn number<T: FromStr + PartialOrd + From<u8>>(name: &str, value: &str) -> Result<T, String> {
    let parsed = value.parse().ok().filter(|number| *number >= T::from(1));
    parsed.ok_or_else(|| format!("{name}: {value:?} is not a number from 1 on"))
}
