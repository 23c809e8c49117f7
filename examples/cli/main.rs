//! Runs commands on a cluster and prints the replies as redis-cli does.
//!
//! cargo run --release --example cli -- [-u URL] [-n ADDR] [--raw | --no-raw] CMD ARG…
//! cargo run --release --example cli -- [-u URL] [-n ADDR] [--window N] < FILE
//!
//! Without a command it reads commands from standard input, one a line, quoted as for redis-cli;
//! blank lines and lines that begin with `#` are passed over. It does not wait for one reply
//! before it sends the next command: up to `--window` (1,000) of them are under way. So commands
//! for one slot run in order, those for different slots may overtake each other; a command for all
//! nodes, such as DBSIZE, and a transaction wait for all before them. Replies are printed in order.
//!
//! `MULTI`, commands and `EXEC`, one a line, run as one transaction, whose keys must be of one
//! slot. Only its replies are printed, as one list. If a line of it is wrong, nothing of it runs.
//!
//! `-n` sends everything to one node, named as the cluster names it.
//!
//! As with redis-cli, replies are quoted and numbered on a terminal and raw elsewhere; `--raw` and
//! `--no-raw` choose. The cluster is that at `URL` or `REDIS_URL`, else redis://127.0.0.1:6379.
//! Ends with 1 if a command failed or a line could not be read, and goes on until then.

mod errors;
mod format;
mod options;
mod piped;
mod words;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use format::Style;
use options::Options;
use reslot::{Client, Value};

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let done = Options::parse().and_then(|options| options.map_or(Ok(true), |o| run(&o)));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Whoever reads the output may have seen enough.
            let pipe = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if pipe != Some(io::ErrorKind::BrokenPipe) {
                eprintln!("error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether all commands succeeded.
fn run(options: &Options) -> Result<bool, Failure> {
    let client = Client::connect(&options.url)?;
    let mut output = Output {
        client: &client,
        style: options.style,
        all_well: true,
        out: io::stdout().lock(),
    };
    if options.command.is_empty() {
        piped::run(&client, options, &mut output)?;
    } else {
        let command = options.build(&options.command);
        output.print(command.and_then(|command| Ok(client.query(command)?)))?;
    }
    output.out.flush()?;
    Ok(output.all_well)
}

struct Output<'a> {
    /// For what errors tell about the cluster.
    client: &'a Client,
    style: Style,
    all_well: bool,
    out: io::StdoutLock<'static>,
}

impl Output<'_> {
    fn print(&mut self, reply: Result<Value, Failure>) -> Result<(), Failure> {
        let text = match reply {
            Ok(value) => {
                self.all_well &= !has_failed(&value);
                self.style.format(&value)
            }
            Err(error) => {
                self.all_well = false;
                self.style.error(&errors::message(self.client, &error))
            }
        };
        Ok(self.out.write_all(&text)?)
    }
}

/// Whether a command of a transaction has failed.
fn has_failed(reply: &Value) -> bool {
    match reply {
        Value::Array(items) => items.iter().any(|item| matches!(item, Value::Error(_))),
        _ => false,
    }
}
