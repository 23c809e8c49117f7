//! Clients of scripted clusters, and short ways to run commands by them.

use reslot::{Builder, Client, Cmd, Pipeline, Result, Value, cmd};

use crate::fake::FakeCluster;

/// A builder with all nodes as seeds.
pub(crate) fn builder(cluster: &FakeCluster) -> Builder {
    Builder::from_url(&cluster.url()).unwrap()
}

/// A client with the usual settings.
#[track_caller]
pub(crate) fn connect(cluster: &FakeCluster) -> Client {
    builder(cluster).connect().unwrap()
}

/// A command by its words: `SET key value`.
pub(crate) fn words(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let name = words.next().unwrap();
    words.fold(cmd(name), |command, word| command.arg(word))
}

/// Runs one command.
pub(crate) fn run(client: &Client, line: &str) -> Result<Value> {
    client.query(words(line))
}

/// A pipeline of these commands, not yet sent.
pub(crate) fn batch<'a, L: AsRef<str>>(client: &'a Client, lines: &[L]) -> Pipeline<'a> {
    let mut pipeline = client.pipeline();
    for line in lines {
        pipeline.add(words(line.as_ref()));
    }
    pipeline
}

/// Runs commands as one pipeline.
pub(crate) fn pipeline<L: AsRef<str>>(client: &Client, lines: &[L]) -> Vec<Result<Value>> {
    batch(client, lines).execute().unwrap()
}

/// Hands a command over.
#[track_caller]
pub(crate) fn send(client: &Client, line: &str) -> reslot::Pending<Value> {
    client.send(words(line)).unwrap()
}

/// A value as text: `nil` for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "nil".into(),
        Value::Ok => "OK".into(),
        Value::Integer(number) => number.to_string(),
        Value::Simple(bytes) | Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Results as text; an error is its certainty.
pub(crate) fn texts(results: &[Result<Value>]) -> Vec<String> {
    let each = |result: &Result<Value>| match result {
        Ok(value) => text(value),
        Err(error) => format!("{:?}", error.certainty()),
    };
    results.iter().map(each).collect()
}
