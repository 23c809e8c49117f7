//! The fake cluster answers as a real one: the same dialogues with both give the same replies.

use crate::fake::{Dialect, FakeCluster, key_for_slot};
use crate::local_cluster::{LocalCluster, Reply, ServerKind, Wire};

/// Nodes by the letter that dialogues use: owners of the lower and upper slots, and the replica
/// of the first.
const NODES: &str = "ABR";

#[test]
fn dialogues_go_the_same_way() {
    let real = LocalCluster::builder().primaries(2).replicas(1).start();
    let dialect = match real.server_kind() {
        ServerKind::Redis => Dialect::Redis,
        ServerKind::Valkey => Dialect::Valkey,
    };
    let fake = FakeCluster::builder(3).owners(2).dialect(dialect).start();
    fake.replicate(2, 0);
    let mut differences = Vec::new();
    for (number, (name, dialogue)) in DIALOGUES.iter().enumerate() {
        // Each has a slot of its own, so that none sees what another one left.
        let slot = 100 + u16::try_from(number).unwrap();
        let by_real = play(&real, slot, dialogue);
        let by_fake = play(&fake, slot, dialogue);
        for (fake, real) in by_fake.into_iter().zip(by_real) {
            if fake != real {
                differences.push(format!("{name}: fake {fake}, real {real}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Steps: `A: GET k` sends a command to node A on its only connection, `A2:` on another one.
/// `begin`, `migrate k` and `finish` move the slot from A to B; `sync` waits for the replica.
/// Keys are single letters of one slot of A (`k`, `m`, …); `x` is a key of another slot of A.
const DIALOGUES: &[(&str, &[&str])] = &[
    (
        "the source of a move",
        &[
            "A: SET k 1",
            "begin",
            "A: GET k",
            "A: GET m",
            "A: SET m 1",
            "A: BLPOP m 1",
            "A: MGET k m",
            "A: MGET m n",
            "A: MSET k 1 m 2",
            "A: DEL k m",
            "A: EXISTS m",
            "A: GET k",
        ],
    ),
    (
        "a transaction on the source of a move",
        &[
            "A: SET k 1",
            "begin",
            "A: MULTI",
            "A: GET m",
            "A: EXEC",
            "A: MULTI",
            "A: SET k 2",
            "A: GET m",
            "A: EXEC",
            "A: GET k",
            "A: EXEC",
            "A: DISCARD",
        ],
    ),
    (
        "a key leaves between QUEUED and EXEC",
        &[
            "A: SET k 1",
            "begin",
            "A: MULTI",
            "A: SET k 2",
            "migrate k",
            "A: EXEC",
            "A: GET k",
            "A: EXEC",
        ],
    ),
    (
        "one of two keys leaves between QUEUED and EXEC",
        &[
            "A: MSET e 1 f 1",
            "begin",
            "A: MULTI",
            "A: INCR e",
            "A: INCR f",
            "migrate f",
            "A: EXEC",
            "A: GET e",
            "finish",
            "B: MGET e f",
            "A: GET e",
        ],
    ),
    (
        "the target of a move",
        &[
            "begin",
            "B: GET m",
            "B: ASKING",
            "B: GET m",
            "B: GET m",
            "B: ASKING",
            "B: PING",
            "B: GET m",
            "B: ASKING",
            "B: ASKING",
            "B: GET m",
            "B: ASKING",
            "B: SET m 1",
            "B: ASKING",
            "B: GET m",
            "B: ASKING",
            "B: MGET m n",
            "B: ASKING",
            "B: MGET n n",
            "B: ASKING",
            "B: NOSUCH",
            "B: GET m",
        ],
    ),
    (
        "a transaction on the target of a move",
        &[
            "begin",
            "B: ASKING",
            "B: MULTI",
            "B: SET m 1",
            "B: GET m",
            "B: EXEC",
            "B: GET m",
            "B: MULTI",
            "B: ASKING",
            "B: GET m",
            "B: EXEC",
            "B: ASKING",
            "B: MULTI",
            "B: GET n",
            "B: GET m",
            "B: EXEC",
            "B: GET m",
            "B: ASKING",
            "B: MULTI",
            "B: DISCARD",
            "B: GET m",
        ],
    ),
    (
        "several keys in transactions on both sides of a move",
        &[
            "A: MSET k 1 l 1",
            "begin",
            "migrate k",
            "A: MULTI",
            "A: MGET k l",
            "A: EXEC",
            "B: ASKING",
            "B: MULTI",
            "B: MGET k l",
            "B: EXEC",
            "B: ASKING",
            "B: MULTI",
            "B: MGET m n",
            "B: EXEC",
            "B: MULTI",
            "B: MGET k l",
            "B: EXEC",
        ],
    ),
    (
        "commands that transactions refuse",
        &[
            "A: MULTI",
            "A: WATCH k",
            "A: EXEC",
            "A: MULTI",
            "A: MULTI",
            "A: EXEC",
        ],
    ),
    (
        "WATCH on the target of a move",
        &[
            "begin",
            "B: WATCH m",
            "B: ASKING",
            "B: WATCH m",
            "B: ASKING",
            "B: MULTI",
            "B: SET m 1",
            "B: EXEC",
        ],
    ),
    (
        "not the owner",
        &[
            "B: GET k",
            "B: MULTI",
            "B: SET k 1",
            "B: GET k",
            "B: EXEC",
            "B: PING",
            "B: ASKING",
            "B: GET k",
        ],
    ),
    (
        "the slot leaves between QUEUED and EXEC",
        &[
            "A: WATCH k",
            "A: MULTI",
            "A: SET k 1",
            "begin",
            "finish",
            "A: EXEC",
            "A: MULTI",
            "A: EXEC",
            "B: GET k",
        ],
    ),
    (
        "two slots",
        &[
            "A: MGET k x",
            "A: MULTI",
            "A: SET k 1",
            "A: SET x 1",
            "A: EXEC",
            "A: MGET k k",
            "A: GET x",
            "A: MULTI",
            "A: MSET k 1 x 1",
            "A: EXEC",
        ],
    ),
    (
        "WATCH",
        &[
            "A: SET k 1",
            "A: WATCH k",
            "A2: SET k 2",
            "A: MULTI",
            "A: GET k",
            "A: EXEC",
            "A: WATCH k",
            "A: MULTI",
            "A: GET k",
            "A: EXEC",
            "A: WATCH k",
            "A2: DEL k",
            "A: UNWATCH",
            "A: MULTI",
            "A: WATCH k",
            "A: MULTI",
            "A: EXEC",
            "A: DISCARD",
        ],
    ),
    (
        "errors in transactions",
        &[
            "A: MULTI",
            "A: GET",
            "A: SET k 1",
            "A: EXEC",
            "A: MULTI",
            "A: NOSUCH",
            "A: EXEC",
            "A: SET k text",
            "A: MULTI",
            "A: INCR k",
            "A: GET k",
            "A: PING",
            "A: EXEC",
            "A: MULTI",
            "A: SET k 2",
            "A: DISCARD",
            "A: GET k",
        ],
    ),
    (
        "values",
        &[
            "A: INCR n",
            "A: INCRBY n 41",
            "A: INCRBY n x",
            "A: APPEND t ab",
            "A: APPEND t c",
            "A: STRLEN t",
            "A: STRLEN none",
            "A: RPUSH l 1 2 3",
            "A: LRANGE l 0 -1",
            "A: LRANGE l 1 1",
            "A: LRANGE l -2 9",
            "A: LRANGE none 0 -1",
            "A: GET l",
            "A: RPUSH t 1",
            "A: BLPOP none l 1",
            "A: BLPOP l 0",
            "A: BLPOP l 0",
            "A: EXISTS l",
            "A: BLPOP l 0.05",
            "A: MGET n t l",
            "A: DEL n t l",
            "A: MSET n 1 t",
            "A: ECHO hello",
            "A: PING hello",
            "A: SELECT 0",
            "A: SELECT 1",
            "A: CLUSTER KEYS",
        ],
    ),
    (
        "a replica",
        &[
            "A: SET k 1",
            "sync",
            "R: GET k",
            "R: READONLY",
            "R: GET k",
            "R: SET k 2",
            "R: MULTI",
            "R: GET k",
            "R: EXEC",
            "R: MULTI",
            "R: SET k 2",
            "R: EXEC",
            "R: READWRITE",
            "R: GET k",
            "R: MULTI",
            "R: GET k",
            "R: EXEC",
        ],
    ),
    (
        "protocol versions",
        &[
            "A: HELLO 4",
            "A: HELLO 3",
            "A: GET k",
            "A: HELLO 2",
            "A: GET k",
            "A: AUTH secret",
        ],
    ),
];

/// What dialogues need of a cluster.
trait Cluster {
    fn connect(&self, node: usize) -> Wire;
    fn address(&self, node: usize) -> String;
    fn begin(&self, slot: u16);
    fn migrate(&self, slot: u16, key: &str);
    fn finish(&self, slot: u16);
    fn sync(&self);
}

impl Cluster for FakeCluster {
    fn connect(&self, node: usize) -> Wire {
        Wire::connect(self.node(node).addr()).unwrap()
    }

    fn address(&self, node: usize) -> String {
        self.node(node).addr().to_string()
    }

    fn begin(&self, slot: u16) {
        self.begin_move(slot, 1);
    }

    fn migrate(&self, _slot: u16, key: &str) {
        self.migrate_key(key);
    }

    fn finish(&self, slot: u16) {
        self.finish_move(slot);
    }

    fn sync(&self) {}
}

impl Cluster for LocalCluster {
    fn connect(&self, node: usize) -> Wire {
        self.connect(node).unwrap()
    }

    fn address(&self, node: usize) -> String {
        self.addr(node).to_string()
    }

    fn begin(&self, slot: u16) {
        let _ = self.begin_move(slot, 0, 1);
    }

    fn migrate(&self, slot: u16, key: &str) {
        self.begin_move(slot, 0, 1).migrate_keys(&[key]);
    }

    fn finish(&self, slot: u16) {
        let moving = self.begin_move(slot, 0, 1);
        moving.migrate_all();
        moving.finish();
    }

    fn sync(&self) {
        // The replica confirms everything that was written before, by any connection.
        let mut wire = self.connect(0).unwrap();
        wire.call(&["PUBLISH", "any", "thing"]).unwrap();
        assert_eq!(wire.call(&["WAIT", "1", "5000"]).unwrap(), Reply::Int(1));
    }
}

fn play(cluster: &dyn Cluster, slot: u16, dialogue: &[&str]) -> Vec<String> {
    let mut wires: Vec<(&str, Wire)> = Vec::new();
    let mut replies = Vec::new();
    for step in dialogue {
        let Some((to, command)) = step.split_once(": ") else {
            match step.split_once(' ') {
                Some((_, key)) => cluster.migrate(slot, &full_key(slot, key)),
                None if *step == "begin" => cluster.begin(slot),
                None if *step == "finish" => cluster.finish(slot),
                None => cluster.sync(),
            }
            continue;
        };
        if !wires.iter().any(|(name, _)| *name == to) {
            let node = NODES.find(&to[..1]).unwrap();
            wires.push((to, cluster.connect(node)));
        }
        let wire = wires.iter_mut().find(|(name, _)| *name == to);
        let wire = &mut wire.expect("just added").1;
        let words: Vec<String> = command.split(' ').map(|word| expand(slot, word)).collect();
        let reply = wire.call(&words).unwrap();
        replies.push(format!("{step} -> {}", show(cluster, &words[0], &reply)));
    }
    replies
}

/// Words of lower-case letters are keys, unless they are values by their place in the dialogues.
fn expand(slot: u16, word: &str) -> String {
    match word {
        "x" => key_for_slot(slot + 4000),
        "ab" | "c" | "hello" | "text" | "secret" => word.to_owned(),
        key if key.bytes().all(|byte| byte.is_ascii_lowercase()) => full_key(slot, key),
        other => other.to_owned(),
    }
}

fn full_key(slot: u16, key: &str) -> String {
    format!("{{{}}}{key}", key_for_slot(slot))
}

/// A reply with letters for addresses. Versions of servers word general errors in different ways,
/// and fill `HELLO` with different facts.
fn show(cluster: &dyn Cluster, name: &str, reply: &Reply) -> String {
    if name == "HELLO" && reply.error().is_none() {
        return "facts".into();
    }
    if reply.error().is_some_and(|text| text.starts_with("ERR ")) {
        return "-ERR".into();
    }
    let text = format!("{reply:?}");
    NODES
        .chars()
        .enumerate()
        .fold(text, |text, (node, letter)| {
            text.replace(&cluster.address(node), &letter.to_string())
        })
}
