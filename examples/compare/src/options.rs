//! The command line.

use std::time::Duration;

use crate::contender::Contender;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Compares clients on one local cluster, in alternating rounds.

cargo run --release --manifest-path examples/compare/Cargo.toml -- [OPTIONS]

  --rounds N      rounds, of which the medians count [5]
  --millis N      length of one measurement; three times that while slots move [1000]
  --only A,B      only these clients: bare, redis-sync, redis-async, fred, reslot
  --part A,B      only these parts [all but growth]
  --idle SECONDS  how long the clients are idle [200]
  --svg PATH      writes a plot of the table of speeds, too
  --server PATH   server program [RESLOT_TEST_SERVER, or redis-server, installed if missing]
  --help          this text

parts; those from speed to multi share a table of speeds and one of CPU time per command:
  speed           single commands from several threads, and pipelines
  values          values of 10 KiB and 1 MiB
  send            1000 commands handed over one by one, then waited for
  multi           transactions
  bulk            big pipelines of writes, beside redis-benchmark
  moving          latencies and failures while slots move, at 500 keys/s and at full speed
  hundred         100 nodes that are not real, 100 threads
  memory          bytes per command of 100,000 that wait for a stopped server
  idle            CPU time without work
  growth          reslot alone: more threads, larger batches and values, more nodes; only if named";

const PARTS: [&str; 10] = [
    "speed", "values", "send", "multi", "bulk", "moving", "hundred", "memory", "idle", GROWTH,
];

/// The part that does not compare anything, and is run only if it is named.
const GROWTH: &str = "growth";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// How many rounds.
    pub(crate) rounds: usize,
    /// How long one measurement takes.
    pub(crate) length: Duration,
    /// The clients.
    pub(crate) only: Vec<Contender>,
    /// The parts.
    parts: Vec<String>,
    /// How many seconds the clients are idle.
    pub(crate) idle: u64,
    /// Where the plot goes.
    pub(crate) svg: Option<String>,
    /// The server program, if not the default one.
    pub(crate) server: Option<String>,
}

impl Options {
    /// Reads the arguments; `None` if help is wanted.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            rounds: 5,
            length: Duration::from_secs(1),
            only: Contender::ALL.to_vec(),
            parts: default_parts(),
            idle: 200,
            svg: None,
            server: None,
        };
        while let Some(name) = args.next() {
            if matches!(name.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            let value = args
                .next()
                .ok_or_else(|| format!("{name} needs a value; see --help"))?;
            match name.as_str() {
                "--rounds" => options.rounds = number(&name, &value)?,
                "--millis" => options.length = Duration::from_millis(number(&name, &value)? as u64),
                "--only" => options.only = contenders(&value)?,
                "--part" => options.parts = parts(&value)?,
                "--idle" => options.idle = number(&name, &value)? as u64,
                "--svg" => options.svg = Some(value),
                "--server" => options.server = Some(value),
                _ => return Err(format!("no such option: {name}; see --help")),
            }
        }
        Ok(Some(options))
    }

    /// Whether a part is wanted.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.iter().any(|wanted| wanted == part)
    }
}

fn number(name: &str, value: &str) -> Result<usize, String> {
    let parsed = value.parse().ok().filter(|&number| number > 0);
    parsed.ok_or_else(|| format!("{name}: {value:?} is not a number from 1 on"))
}

fn default_parts() -> Vec<String> {
    let default = PARTS.into_iter().filter(|&part| part != GROWTH);
    default.map(str::to_owned).collect()
}

fn parts(names: &str) -> Result<Vec<String>, String> {
    let find = |name: &str| match PARTS.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("--part: there is no {name:?}; see --help")),
    };
    names.split(',').map(find).collect()
}

fn contenders(names: &str) -> Result<Vec<Contender>, String> {
    let find = |name: &str| {
        Contender::named(name).ok_or_else(|| format!("--only: there is no {name:?}; see --help"))
    };
    let mut found = names.split(',').map(find).collect::<Result<Vec<_>, _>>()?;
    found.sort();
    Ok(found)
}
