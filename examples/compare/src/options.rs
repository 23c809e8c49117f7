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
  --part NAME     only this part: speed, bulk, moving [all]
  --server PATH   server program [RESLOT_TEST_SERVER, or redis-server, installed if missing]
  --help          this text";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// How many rounds.
    pub(crate) rounds: usize,
    /// How long one measurement takes.
    pub(crate) length: Duration,
    /// The clients.
    pub(crate) only: Vec<Contender>,
    /// The part, if not all.
    pub(crate) part: Option<String>,
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
            part: None,
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
                "--part" => options.part = Some(part(value)?),
                "--server" => options.server = Some(value),
                _ => return Err(format!("no such option: {name}; see --help")),
            }
        }
        Ok(Some(options))
    }

    /// Whether a part is wanted.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.part.as_deref().is_none_or(|wanted| wanted == part)
    }
}

fn number(name: &str, value: &str) -> Result<usize, String> {
    let parsed = value.parse().ok().filter(|&number| number > 0);
    parsed.ok_or_else(|| format!("{name}: {value:?} is not a number from 1 on"))
}

fn part(name: String) -> Result<String, String> {
    if ["speed", "bulk", "moving"].contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(format!("--part: there is no {name:?}; see --help"))
    }
}

fn contenders(names: &str) -> Result<Vec<Contender>, String> {
    let find = |name: &str| {
        let mut all = Contender::ALL.into_iter();
        all.find(|contender| contender.name() == name)
            .ok_or_else(|| format!("--only: there is no {name:?}; see --help"))
    };
    let mut found = names.split(',').map(find).collect::<Result<Vec<_>, _>>()?;
    found.sort();
    Ok(found)
}
