//! Commands from standard input: many under way at once, replies in order.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};

use reslot::{Client, Cmd, Pending, Value};

use crate::errors::is_refused;
use crate::options::Options;
use crate::{Failure, Output, words};

/// Runs all of it.
pub(crate) fn run(
    client: &Client,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin());
    let mut piped = Piped {
        client,
        options,
        output,
        waiting: VecDeque::new(),
        chain: None,
    };
    let mut line = Vec::new();
    for number in 1.. {
        // Nothing more is there yet, so that whoever writes it may be waiting for replies.
        if input.buffer().is_empty() {
            piped.print_all()?;
            piped.output.out.flush()?;
        }
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match words::split(&line) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => piped.take(number, &words)?,
            Err(why) => piped.fail(format!("line {number}: {why}")),
        }
    }
    if let Some(chain) = piped.chain.take() {
        piped.fail(format!(
            "line {}: MULTI without EXEC: nothing of it ran",
            chain.line
        ));
    }
    piped.print_all()
}

struct Piped<'a, 'o> {
    client: &'a Client,
    options: &'a Options,
    output: &'a mut Output<'o>,
    /// Commands whose replies are not printed yet.
    waiting: VecDeque<Waiting>,
    /// What stands between MULTI and EXEC so far.
    chain: Option<Chain>,
}

enum Waiting {
    Reply(Pending<Value>),
    Failed(Failure),
}

struct Chain {
    /// Where it began.
    line: u64,
    commands: Vec<Cmd>,
    /// Why it is not run.
    flaw: Option<String>,
}

impl Piped<'_, '_> {
    fn take(&mut self, number: u64, words: &[Vec<u8>]) -> Result<(), Failure> {
        let name = words[0].to_ascii_uppercase();
        match (&name[..], self.chain.take()) {
            (b"MULTI", None) => {
                let here = "it runs where its keys are: leave out -n";
                self.chain = Some(Chain {
                    line: number,
                    commands: Vec::new(),
                    flaw: self.options.node.as_ref().map(|_| here.to_owned()),
                });
                Ok(())
            }
            (b"EXEC", Some(chain)) => self.execute(chain),
            (b"DISCARD", Some(_)) => Ok(()),
            (_, Some(mut chain)) => {
                match self.options.build(words) {
                    Ok(_) if name == b"MULTI" => {
                        let flaw = format!("line {number} has another MULTI");
                        chain.flaw.get_or_insert(flaw);
                    }
                    Ok(command) => chain.commands.push(command),
                    Err(why) => {
                        chain.flaw.get_or_insert(format!("line {number}: {why}"));
                    }
                }
                self.chain = Some(chain);
                Ok(())
            }
            (_, None) => self.send(words),
        }
    }

    fn execute(&mut self, chain: Chain) -> Result<(), Failure> {
        self.print_all()?;
        let reply = match chain.flaw {
            Some(flaw) => Err(format!("line {}: MULTI is not run: {flaw}", chain.line).into()),
            None => {
                let reply = self.client.transaction(|t| {
                    for command in chain.commands {
                        t.add(command);
                    }
                });
                reply.map_err(Failure::from)
            }
        };
        self.output.print(reply)
    }

    fn send(&mut self, words: &[Vec<u8>]) -> Result<(), Failure> {
        if self.waiting.len() >= self.options.window {
            self.print_first()?;
        }
        let command = match self.options.build(words) {
            Ok(command) => command,
            Err(error) => {
                self.waiting.push_back(Waiting::Failed(error));
                return Ok(());
            }
        };
        match self.client.send(command.clone()).map_err(Failure::from) {
            Ok(pending) => self.waiting.push_back(Waiting::Reply(pending)),
            Err(error) if is_refused(&error) => {
                self.print_all()?;
                let reply = self.client.query(command);
                self.output.print(reply.map_err(Failure::from))?;
            }
            Err(error) => self.waiting.push_back(Waiting::Failed(error)),
        }
        Ok(())
    }

    /// A line that cannot be read. No transaction runs without one of its lines.
    fn fail(&mut self, why: String) {
        match &mut self.chain {
            Some(chain) => {
                chain.flaw.get_or_insert(why);
            }
            None => self.waiting.push_back(Waiting::Failed(why.into())),
        }
    }

    fn print_first(&mut self) -> Result<(), Failure> {
        match self.waiting.pop_front() {
            Some(Waiting::Reply(pending)) => {
                self.output.print(pending.wait().map_err(Failure::from))
            }
            Some(Waiting::Failed(error)) => self.output.print(Err(error)),
            None => Ok(()),
        }
    }

    fn print_all(&mut self) -> Result<(), Failure> {
        while !self.waiting.is_empty() {
            self.print_first()?;
        }
        Ok(())
    }
}
