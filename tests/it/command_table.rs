//! The command table against a real server's own description of its commands.
//!
//! `COMMAND` lists what the server knows and how it flags it; `COMMAND GETKEYS` finds the keys of
//! many sample commands, most of them made up from words that mean something to one finder or
//! another. Run it with `RESLOT_TEST_SERVER` naming each supported server in turn.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server;

use reslot::Value;
use reslot::internals::{CommandFacts, command_facts, described_keys};
use server::{Connection, Server};

/// What the table says differently from some server, on purpose.
const DIFFERENCES: &[(&str, Aspect, &str)] = &[
    (
        "SORT",
        Aspect::Write,
        "flagged for its STORE option; without it nothing is written",
    ),
    (
        "GEORADIUS",
        Aspect::Write,
        "flagged for its STORE option; without it nothing is written",
    ),
    (
        "GEORADIUSBYMEMBER",
        Aspect::Write,
        "flagged for its STORE option, as GEORADIUS",
    ),
    (
        "WAIT",
        Aspect::Blocking,
        "blocks on all servers, but Redis 7.0 does not flag it",
    ),
    (
        "SPUBLISH",
        Aspect::Keys,
        "a sharded channel is not a key but is routed like one",
    ),
    ("SSUBSCRIBE", Aspect::Keys, "sharded channels, as SPUBLISH"),
    (
        "SUNSUBSCRIBE",
        Aspect::Keys,
        "sharded channels, as SPUBLISH",
    ),
    (
        "CLUSTERSCAN",
        Aspect::Keys,
        "the cursor is not a key but is routed like one",
    ),
    (
        "PFMERGE",
        Aspect::Keys,
        "without sources the servers' finder forgets the destination",
    ),
    (
        "GEORADIUS",
        Aspect::Keys,
        "servers differ on which of several destinations counts",
    ),
    (
        "GEORADIUSBYMEMBER",
        Aspect::Keys,
        "several destinations, as GEORADIUS",
    ),
    (
        "MIGRATE",
        Aspect::Keys,
        "the word KEYS as host or port sends the servers' finder astray",
    ),
    (
        "SORT",
        Aspect::Described,
        "its description leaves the destination out",
    ),
    (
        "GEORADIUS",
        Aspect::Described,
        "several destinations; Valkey's finder starts early",
    ),
    (
        "GEORADIUSBYMEMBER",
        Aspect::Described,
        "several destinations, as GEORADIUS",
    ),
    (
        "MIGRATE",
        Aspect::Described,
        "its description says that it is incomplete",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aspect {
    ReadOnly,
    Write,
    Blocking,
    /// Keys that `COMMAND GETKEYS` lacks. Those that it finds are shown in any case.
    Keys,
    /// Keys by the server's own description of the command, against its own finder.
    Described,
}

/// One command or subcommand that the server lists.
#[derive(Debug)]
struct Listed {
    /// Name, and subcommand if it is one, in lower case.
    name: Vec<String>,
    arity: i64,
    flags: Vec<String>,
    /// A container of subcommands, listed for itself.
    is_container: bool,
}

#[test]
fn every_command_is_in_the_table() {
    let server = Server::start();
    let commands = listed_commands(&mut server.connect());
    assert!(
        commands.len() > 300,
        "{} commands are too few",
        commands.len()
    );
    let missing = commands.iter().filter(|command| {
        let facts = command.facts();
        facts.is_none_or(|facts| facts.name != command.full_name())
    });
    let missing: Vec<_> = missing.map(Listed::full_name).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

#[test]
fn flags_agree() {
    let server = Server::start();
    let mut problems = Vec::new();
    for command in listed_commands(&mut server.connect()) {
        let facts = command.facts().expect("every command is in the table");
        let flag = |name: &str| command.flags.iter().any(|flag| flag == name);
        // What carries neither flag may still change something, such as PUBLISH.
        let changes = facts.write && (flag("write") || flag("readonly"));
        let checks = [
            (Aspect::ReadOnly, flag("readonly"), facts.read_only),
            (Aspect::Write, flag("write"), changes),
            (Aspect::Blocking, flag("blocking"), facts.may_block),
        ];
        for (aspect, flagged, stated) in checks {
            if flagged != stated && !is_known(&facts.name, aspect) {
                problems.push(format!("{}: {aspect:?} is {flagged} by flags", facts.name));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn keys_agree() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut problems = Vec::new();
    for command in listed_commands(&mut connection) {
        let samples = samples_of(&command);
        let samples: Vec<_> = samples.iter().map(|sample| slices(sample)).collect();
        let before = problems.len();
        for (sample, expected) in samples.iter().zip(server_keys(&mut connection, &samples)) {
            let facts = command_facts(sample).expect("every command is in the table");
            let expected = expected.unwrap_or_default();
            let more = expected.iter().all(|key| facts.keys.contains(key));
            let allowed = more && is_known(&facts.name, Aspect::Keys);
            if facts.keys != expected && !allowed && problems.len() < before + 3 {
                problems.push(problem(sample, &facts.keys, &expected));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn descriptions_agree() {
    for protocol in ["2", "3"] {
        let server = Server::start();
        let mut connection = server.connect();
        connection.query(&[b"HELLO", protocol.as_bytes()]);
        let mut problems = Vec::new();
        for command in listed_commands(&mut connection) {
            let info = [b"COMMAND", &b"INFO"[..], command.name[0].as_bytes()];
            let info = connection.query(&info);
            let samples = samples_of(&command);
            let samples: Vec<_> = samples.iter().map(|sample| slices(sample)).collect();
            let before = problems.len();
            for (sample, expected) in samples.iter().zip(server_keys(&mut connection, &samples)) {
                let Some(expected) = expected else { continue };
                let keys = described_keys(&info, sample).expect("a description of the command");
                let allowed = is_known(&command.full_name(), Aspect::Described);
                if keys != expected && !allowed && problems.len() < before + 3 {
                    problems.push(problem(sample, &keys, &expected));
                }
            }
        }
        assert!(problems.is_empty(), "RESP{protocol}: {problems:#?}");
    }
}

/// Words that mean something to a finder; the others are told apart by their position.
const WORDS: [&str; 10] = [
    "1",
    "2",
    "-1",
    "streams",
    "STORE",
    "STOREDIST",
    "KEYS",
    "AUTH",
    "AUTH2",
    "",
];

/// Commands with many options, of which random words would miss the point.
const LINES: &[&str] = &[
    "eval script 2 a b c",
    "zunionstore d 2 a b WEIGHTS 1 2",
    "zunionstore d 99999999999 a",
    "xread COUNT 2 BLOCK 10 STREAMS s1 s2 0 0",
    "xread STREAMS a STREAMS 0 0",
    "xreadgroup GROUP g c COUNT 1 NOACK STREAMS s >",
    "xreadgroup GROUP STREAMS STREAMS STREAMS a >",
    "sort k BY w_* LIMIT 0 1 GET # GET o_* DESC STORE d",
    "sort k BY STORE STORE d",
    "sort k LIMIT STORE 1 STORE d",
    "sort k STORE d STORE e",
    "sort_ro k BY w_* GET #",
    "georadius k 1 2 3 m WITHCOORD COUNT 1 ASC STORE d",
    "georadiusbymember k STORE 3 m STOREDIST d",
    "migrate h 1 k 0 10 COPY REPLACE",
    "migrate h 1 '' 0 10 COPY REPLACE AUTH2 KEYS KEYS KEYS a KEYS b",
    "migrate h 1 '' 0 10 AUTH KEYS KEYS a b",
    "migrate h 1 x 0 10 KEYS a b",
    "blmpop 0 2 a b LEFT COUNT 1",
    "bzmpop 0 2 a b MIN COUNT 1",
    "msetex 2 a 1 b 2 EX 5",
    "set k v EX 5 GET",
    "vsim k VALUES 2 1 1 COUNT 5",
];

impl Listed {
    fn full_name(&self) -> String {
        self.name.join(" ").to_uppercase()
    }

    /// The name followed by as many words as it needs at least, and some more.
    fn sample(&self, more: usize) -> Vec<String> {
        if self.is_container {
            return self.name.clone();
        }
        let length = self.arity.unsigned_abs() as usize + more;
        let words = (self.name.len()..length).map(|position| format!("w{position}"));
        self.name.iter().cloned().chain(words).collect()
    }

    fn facts(&self) -> Option<CommandFacts> {
        command_facts(&slices(&self.sample(0)))
    }
}

/// Every length up to four words more than needed, with each word of `WORDS` at each position and
/// at each pair of positions; and the lines for this command.
fn samples_of(command: &Listed) -> Vec<Vec<String>> {
    let lines = LINES.iter().map(|line| {
        let words = line.split(' ').map(|word| word.replace("''", ""));
        words.collect::<Vec<_>>()
    });
    let mut samples: Vec<_> = lines.filter(|line| line[0] == command.name[0]).collect();
    for more in 0..=if command.arity < 0 { 4 } else { 0 } {
        let plain = command.sample(more);
        let places = command.name.len()..plain.len();
        for (word, place) in WORDS
            .iter()
            .flat_map(|word| places.clone().map(move |at| (word, at)))
        {
            for second in place..plain.len() {
                let mut sample = plain.clone();
                sample[place] = (*word).to_owned();
                sample[second] = (*word).to_owned();
                samples.push(sample);
            }
        }
        samples.push(plain);
    }
    samples.retain(|sample| !is_hopeless(sample));
    samples
}

/// Errors on every server, whose finders show keys that only another command would have: XREADGROUP
/// without GROUP in front, and GEORADIUS with STORE as its unit.
fn is_hopeless(sample: &[String]) -> bool {
    let is_store = |word: &String| word.starts_with("STORE");
    match sample[0].as_str() {
        "xreadgroup" => sample[1] == "streams",
        "georadius" => is_store(&sample[5]),
        _ => false,
    }
}

/// What `COMMAND GETKEYS` finds; `None` where it finds fault with the sample.
fn server_keys(connection: &mut Connection, samples: &[Vec<&[u8]>]) -> Vec<Option<Vec<Vec<u8>>>> {
    let asked = samples
        .iter()
        .map(|sample| [&[b"COMMAND", &b"GETKEYS"[..]], &sample[..]].concat());
    let replies = connection.query_all(&asked.collect::<Vec<_>>());
    let keys = replies.into_iter().map(|reply| match reply {
        Value::Array(keys) => Some(keys.iter().map(text).collect()),
        Value::Error(_) => None,
        other => panic!("an odd reply to COMMAND GETKEYS: {other:?}"),
    });
    keys.collect()
}

fn listed_commands(connection: &mut Connection) -> Vec<Listed> {
    let mut commands = Vec::new();
    for entry in array(&connection.query(&[b"COMMAND"])) {
        list(entry, &mut commands);
    }
    commands
}

/// The command of this entry, and its subcommands.
fn list(entry: &Value, commands: &mut Vec<Listed>) {
    let fields = array(entry);
    let Value::Integer(arity) = fields[1] else {
        panic!("an arity that is no number")
    };
    let subcommands = array(&fields[9]);
    let string = |value: &Value| String::from_utf8(text(value)).unwrap();
    commands.push(Listed {
        name: string(&fields[0])
            .split('|')
            .map(str::to_lowercase)
            .collect(),
        arity,
        flags: array(&fields[2]).iter().map(string).collect(),
        is_container: !subcommands.is_empty(),
    });
    for sub in subcommands {
        list(sub, commands);
    }
}

fn array(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("not an array: {other:?}"),
    }
}

fn text(value: &Value) -> Vec<u8> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => text.clone(),
        other => panic!("not a string: {other:?}"),
    }
}

fn slices(words: &[String]) -> Vec<&[u8]> {
    words.iter().map(String::as_bytes).collect()
}

fn is_known(name: &str, aspect: Aspect) -> bool {
    DIFFERENCES
        .iter()
        .any(|known| known.0 == name && known.1 == aspect)
}

fn problem(sample: &[&[u8]], found: &[Vec<u8>], expected: &[Vec<u8>]) -> String {
    let join = |words: Vec<&[u8]>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    let [found, expected] = [found, expected].map(|keys| keys.iter().map(Vec::as_slice).collect());
    format!(
        "{}: found [{}], not [{}]",
        join(sample.to_vec()),
        join(found),
        join(expected)
    )
}
