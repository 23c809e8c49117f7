//! Runs commands on a cluster and prints the replies as redis-cli does.
//!
//! cargo run --release --example cli -- [-u URL] [--raw | --no-raw] CMD ARG…
//! cargo run --release --example cli -- [-u URL] [--window N] < FILE
//!
//! Without a command it reads commands from standard input, one a line, quoted as for redis-cli;
//! blank lines and lines that begin with `#` are passed over. It does not wait for one reply
//! before it sends the next command: up to `--window` (1,000) of them are under way. So commands
//! for one slot run in order, those for different slots may overtake each other; a command for all
//! nodes, such as DBSIZE, waits for all before it. Replies are printed in order.
//!
//! As with redis-cli, replies are quoted and numbered on a terminal and raw elsewhere; `--raw` and
//! `--no-raw` choose. The cluster is that at `URL` or `REDIS_URL`, else redis://127.0.0.1:6379.
//! Ends with 1 if a command failed or a line could not be read, and goes on until then.

mod format;
mod words;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::process::ExitCode;

use format::Style;
use reslot::{Client, Cmd, Misuse, Pending, Value, cmd};

type Failure = Box<dyn Error>;

struct Options {
    url: String,
    style: Style,
    window: usize,
    command: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    match Options::parse().and_then(|options| run(&options)) {
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
        style: options.style,
        all_well: true,
        out: io::stdout().lock(),
    };
    if options.command.is_empty() {
        read_commands(&client, options.window, &mut output)?;
    } else {
        let reply = build(&options.command).and_then(|command| Ok(client.query(command)?));
        output.print(reply)?;
    }
    output.out.flush()?;
    Ok(output.all_well)
}

fn build(words: &[Vec<u8>]) -> Result<Cmd, Failure> {
    let [name, args @ ..] = words else {
        return Err("no command".into());
    };
    let name = std::str::from_utf8(name).map_err(|_| "the name of a command must be text")?;
    Ok(args.iter().fold(cmd(name), |command, arg| command.arg(arg)))
}

/// A command whose reply is not printed yet.
enum Waiting {
    Reply(Pending<Value>),
    Failed(Failure),
}

fn read_commands(client: &Client, window: usize, output: &mut Output) -> Result<(), Failure> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin());
    let mut waiting = VecDeque::new();
    let mut line = Vec::new();
    for number in 1.. {
        // Nothing more is there yet, so that whoever writes it may be waiting for replies.
        if input.buffer().is_empty() {
            output.print_all(&mut waiting)?;
            output.out.flush()?;
        }
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let words = match words::split(&line) {
            Ok(words) if words.is_empty() => continue,
            Ok(words) => words,
            Err(why) => {
                let error = format!("line {number}: {why}");
                waiting.push_back(Waiting::Failed(error.into()));
                continue;
            }
        };
        if waiting.len() >= window {
            output.print_first(&mut waiting)?;
        }
        match build(&words).and_then(|command| Ok(client.send(command)?)) {
            Ok(pending) => waiting.push_back(Waiting::Reply(pending)),
            Err(error) if is_refused(&error) => {
                output.print_all(&mut waiting)?;
                output.print(build(&words).and_then(|command| Ok(client.query(command)?)))?;
            }
            Err(error) => waiting.push_back(Waiting::Failed(error)),
        }
    }
    output.print_all(&mut waiting)
}

/// Whether it takes more than one connection, or cannot be run at all.
fn is_refused(error: &Failure) -> bool {
    let refused =
        |error: &reslot::Error| matches!(error, reslot::Error::Misuse(Misuse::Refused { .. }));
    error.downcast_ref().is_some_and(refused)
}

struct Output {
    style: Style,
    all_well: bool,
    out: io::StdoutLock<'static>,
}

impl Output {
    fn print_first(&mut self, waiting: &mut VecDeque<Waiting>) -> Result<(), Failure> {
        match waiting.pop_front() {
            Some(Waiting::Reply(pending)) => self.print(pending.wait().map_err(Failure::from)),
            Some(Waiting::Failed(error)) => self.print(Err(error)),
            None => Ok(()),
        }
    }

    fn print_all(&mut self, waiting: &mut VecDeque<Waiting>) -> Result<(), Failure> {
        while !waiting.is_empty() {
            self.print_first(waiting)?;
        }
        Ok(())
    }

    fn print(&mut self, reply: Result<Value, Failure>) -> Result<(), Failure> {
        let text = match reply {
            Ok(value) => self.style.format(&value),
            Err(error) => {
                self.all_well = false;
                self.style.error(&message(&error))
            }
        };
        Ok(self.out.write_all(&text)?)
    }
}

/// An error of the server as the server put it, others in full.
fn message(error: &Failure) -> String {
    match error.downcast_ref::<reslot::Error>() {
        Some(error @ reslot::Error::Server(_)) => match error.server_error() {
            Some(answer) => answer.line().to_owned(),
            None => error.to_string(),
        },
        _ => error.to_string(),
    }
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self {
            url: std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into()),
            style: match io::stdout().is_terminal() {
                true => Style::Quoted,
                false => Style::Raw,
            },
            window: 1_000,
            command: Vec::new(),
        };
        let mut args = std::env::args_os().skip(1).peekable();
        while let Some(arg) = args.next_if(|arg| arg.as_encoded_bytes().starts_with(b"-")) {
            let arg = arg.to_string_lossy().into_owned();
            let mut value = || {
                let value = args.next().and_then(|value| value.into_string().ok());
                value.ok_or_else(|| format!("{arg} needs a value"))
            };
            match arg.as_str() {
                "-u" => options.url = value()?,
                "--window" => options.window = value()?.parse::<usize>()?.max(1),
                "--raw" => options.style = Style::Raw,
                "--no-raw" => options.style = Style::Quoted,
                _ => return Err(format!("no such option: {arg}").into()),
            }
        }
        options.command = args.map(|arg| arg.into_encoded_bytes()).collect();
        Ok(options)
    }
}
