//! A standalone server of its own, and a plain connection to it.

use reslot::{ServerError, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running server in a folder of its own. Dropping it stops it and removes the folder.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// Starts the binary that `RESLOT_TEST_SERVER` names, by default `redis-server`.
    pub(super) fn start() -> Self {
        // Someone else may take the free port before the server does.
        (0..5)
            .find_map(|_| Self::try_start())
            .expect("a server that starts within five attempts")
    }

    fn try_start() -> Option<Self> {
        let binary = std::env::var("RESLOT_TEST_SERVER").unwrap_or("redis-server".into());
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("reslot-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        drop(free);
        let process = Command::new(&binary)
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args(["--appendonly", "no", "--dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                let _ = std::fs::remove_dir_all(&folder);
                panic!(
                    "cannot start {binary}: {error}. Install it (apt-get install redis-server) or \
                     name a Redis or Valkey server in RESLOT_TEST_SERVER"
                )
            });
        let mut server = Self {
            process,
            folder,
            port,
        };
        let log = server.process.stdout.as_mut().expect("a piped log");
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        lines
            .any(|line| line.contains("Ready to accept connections"))
            .then_some(server)
    }

    pub(super) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        Connection {
            stream: BufReader::new(stream),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Failing to stop what has stopped already, or to tidy up, must not hide a test's failure.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A blocking connection that knows both protocols and nothing about the library under test.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn query(&mut self, command: &[&[u8]]) -> Value {
        self.query_all(&[command.to_vec()]).remove(0)
    }

    /// Sends all commands at once, and reads their replies.
    pub(super) fn query_all(&mut self, commands: &[Vec<&[u8]>]) -> Vec<Value> {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(format!("*{}\r\n", command.len()).bytes());
            for word in command {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend([word, &b"\r\n"[..]].concat());
            }
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
        commands.iter().map(|_| self.read()).collect()
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        match kind {
            "+" => Value::Simple(rest.into()),
            "-" => Value::Error(ServerError::new(rest)),
            ":" => Value::Integer(number()),
            "_" => Value::Null,
            "$" | "*" if number() < 0 => Value::Null,
            "$" => Value::Bulk(self.bulk(number())),
            "*" => Value::Array(self.items(number())),
            "~" => Value::Set(self.items(number())),
            "%" => Value::Map((0..number()).map(|_| (self.read(), self.read())).collect()),
            _ => panic!("a reply that this test does not know: {line}"),
        }
    }

    fn bulk(&mut self, length: i64) -> Vec<u8> {
        let mut text = vec![0; length as usize + 2];
        self.stream.read_exact(&mut text).unwrap();
        text.truncate(length as usize);
        text
    }

    fn items(&mut self, length: i64) -> Vec<Value> {
        (0..length).map(|_| self.read()).collect()
    }
}
