//! The command line.

use std::io::{self, IsTerminal};

use reslot::{Cmd, NodeAddr, Route, cmd};

use crate::Failure;
use crate::format::Style;

const HELP: &str = "\
Runs commands on a Redis Cluster, or a single server, and prints the replies.

cli [OPTIONS] CMD ARG...    runs one command
cli [OPTIONS] < FILE        runs commands, one a line; MULTI ... EXEC as a transaction

  -u URL         redis://user:password@host:port; default: REDIS_URL, or redis://127.0.0.1:6379
  -n ADDR        send everything to this node, host:port, as the cluster names it
  --window N     how many piped commands are under way at once; default: 1000
  --raw          replies as bytes, one element a line; the default where no terminal is
  --no-raw       replies quoted and numbered
  --help         this text
";

/// What the command line says.
pub(crate) struct Options {
    pub(crate) url: String,
    pub(crate) node: Option<NodeAddr>,
    pub(crate) style: Style,
    pub(crate) window: usize,
    pub(crate) command: Vec<Vec<u8>>,
}

impl Options {
    /// `None`: only help was wanted, and was printed.
    pub(crate) fn parse() -> Result<Option<Self>, Failure> {
        let mut options = Self {
            url: std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into()),
            node: None,
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
                "--help" => {
                    print!("{HELP}");
                    return Ok(None);
                }
                "-u" => options.url = value()?,
                "-n" => {
                    let addr = NodeAddr::parse(&value()?);
                    options.node = Some(addr.ok_or("-n needs an address, as in 127.0.0.1:7000")?);
                }
                "--window" => {
                    let window = value()?.parse::<usize>();
                    let window = window.map_err(|_| "--window needs a number")?;
                    options.window = window.max(1);
                }
                "--raw" => options.style = Style::Raw,
                "--no-raw" => options.style = Style::Quoted,
                _ => return Err(unknown(&arg).into()),
            }
        }
        options.command = args.map(|arg| arg.into_encoded_bytes()).collect();
        Ok(Some(options))
    }

    /// A command by its words.
    pub(crate) fn build(&self, words: &[Vec<u8>]) -> Result<Cmd, Failure> {
        let [name, args @ ..] = words else {
            return Err("no command".into());
        };
        let name = std::str::from_utf8(name).map_err(|_| "the name of a command must be text")?;
        let command = args.iter().fold(cmd(name), |command, arg| command.arg(arg));
        Ok(match &self.node {
            Some(node) => command.route(Route::Node(node.clone())),
            None => command,
        })
    }
}

fn unknown(arg: &str) -> String {
    let hint = match arg {
        "-h" | "-p" => "the server is named by -u URL, as in -u redis://127.0.0.1:7000",
        "-a" | "--user" | "--pass" => "a login stands in the URL: -u redis://user:password@host",
        "-c" => "redirects are followed always",
        _ => "see --help",
    };
    format!("no such option: {arg}; {hint}")
}
