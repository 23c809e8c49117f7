//! Whole commands through the table: keys, access, blocking, targets.

use super::spec::CrossSlot;
use super::*;
use crate::proto::slot::Slot;
use proptest::prelude::*;

/// A command line split at spaces; `''` is an empty argument.
fn split(line: &str) -> impl Iterator<Item = &[u8]> + Clone {
    let unquoted = |word| if word == "''" { "" } else { word };
    line.split(' ').map(move |word| unquoted(word).as_bytes())
}

fn keys(line: &str) -> String {
    let mut keys = Vec::new();
    let spec = find(split(line)).unwrap();
    spec.keys(split(line), |key| keys.push(String::from_utf8_lossy(key)));
    keys.join(" ")
}

#[track_caller]
fn check_keys(table: &[(&str, &str)]) {
    for (line, expected) in table {
        assert_eq!(keys(line), *expected, "{line}");
    }
}

fn route(line: &str) -> Result<Target, CrossSlot> {
    find(split(line)).unwrap().route(split(line))
}

fn access(line: &str) -> Access {
    find(split(line)).unwrap().access(split(line))
}

fn slot_of(key: &str) -> Slot {
    Slot::of_key(key.as_bytes())
}

#[test]
fn ranges() {
    check_keys(&[
        ("GET k", "k"),
        ("get", ""),
        ("MGET a b c", "a b c"),
        ("MGET", ""),
        ("MSET a 1 b 2", "a b"),
        ("MSET a 1 b", "a b"),
        ("RENAME a b", "a b"),
        ("RENAME a", "a"),
        ("BLPOP a b 0", "a b"),
        ("BLPOP a", ""),
        ("BLPOP", ""),
        ("BITOP AND d a b", "d a b"),
        ("PFMERGE d", "d"),
        ("LCS a b LEN", "a b"),
        ("OBJECT ENCODING k", "k"),
        ("OBJECT HELP", ""),
        ("MEMORY USAGE k SAMPLES 5", "k"),
        ("MEMORY DOCTOR", ""),
        ("XGROUP CREATE s g $ MKSTREAM", "s"),
        ("XINFO STREAM s FULL", "s"),
        ("XINFO HELP", ""),
        ("PFDEBUG GETREG k", "k"),
        ("SPUBLISH channel text", "channel"),
        ("CLUSTERSCAN 0-{06S}-0", "0-{06S}-0"),
    ]);
}

#[test]
fn counts() {
    check_keys(&[
        ("EVAL script 2 a b c", "a b"),
        ("EVALSHA sha 1 k v", "k"),
        ("FCALL_RO f 1 k", "k"),
        ("EVAL script 0 notakey", ""),
        ("EVAL script -1 k", ""),
        ("EVAL script 3 k", ""),
        ("EVAL script x k", ""),
        ("EVAL script 99999999999999999999 k", ""),
        ("EVAL script '' k", ""),
        ("EVAL script 1x k", "k"),
        ("EVAL script +1 k", "k"),
        ("EVAL script", ""),
        ("EVAL", ""),
        ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
        ("ZUNIONSTORE d 99999999999 a", ""),
        ("ZUNIONSTORE d 0", ""),
        ("ZINTER 2 a b", "a b"),
        ("SINTERCARD 1 a LIMIT 2", "a"),
        ("LMPOP 2 a b LEFT", "a b"),
        ("LMPOP 0 LEFT", ""),
        ("BLMPOP 0.5 1 a LEFT", "a"),
        ("BZMPOP 1 2 a b MIN", "a b"),
        ("MSETEX 2 a 1 b 2 EX 5", "a b"),
        ("MSETEX 2 a 1 b", "a b"),
        ("MSETEX 3 a 1 b 2", ""),
    ]);
}

#[test]
fn streams() {
    check_keys(&[
        ("XREAD COUNT 2 BLOCK 10 STREAMS s1 s2 0 0", "s1 s2"),
        ("xread streams s 0", "s"),
        ("XREAD STREAMS STREAMS 0", "STREAMS"),
        ("XREAD STREAMS a STREAMS 0 0", "a STREAMS"),
        ("XREAD STREAMS a b 0", "a"),
        ("XREAD COUNT 1", ""),
        ("XREAD STREAMS", ""),
        ("XREAD", ""),
        ("XREADGROUP GROUP g c COUNT 1 NOACK STREAMS s >", "s"),
        ("XREADGROUP GROUP STREAMS STREAMS STREAMS a >", "a"),
    ]);
}

#[test]
fn destinations() {
    check_keys(&[
        ("SORT k", "k"),
        ("SORT k BY w_* GET o_* STORE d", "k d"),
        ("SORT k BY STORE STORE d", "k d"),
        ("SORT k LIMIT STORE 1 store d", "k d"),
        ("SORT k STORE d STORE e", "k e"),
        ("SORT k STORE", "k"),
        ("SORT_RO k GET o_*", "k"),
        ("GEORADIUS k 1 2 3 m STORE d", "k d"),
        ("GEORADIUS k 1 2 3 m COUNT 1 storedist d", "k d"),
        ("GEORADIUS k 1 2 3 m STORE d STOREDIST e", "k d e"),
        ("GEORADIUS k 1 2 3 m STORE", "k"),
        ("GEORADIUSBYMEMBER k STORE 3 m STORE d", "k d"),
        ("GEORADIUS_RO k 1 2 3 m", "k"),
        ("GEOSEARCHSTORE d k FROMLONLAT 0 0 BYRADIUS 1 m", "d k"),
        ("ZRANGESTORE d k 0 -1", "d k"),
        ("COPY a b REPLACE", "a b"),
        ("LMOVE a b LEFT LEFT", "a b"),
        ("SUNIONSTORE d a b", "d a b"),
    ]);
}

#[test]
fn migrations() {
    check_keys(&[
        ("MIGRATE h 1 k 0 10", "k"),
        ("MIGRATE h 1 '' 0 10 KEYS a b", "a b"),
        ("MIGRATE h 1 '' 0 10 COPY REPLACE keys a KEYS", "a KEYS"),
        ("MIGRATE h 1 '' 0 10 AUTH KEYS KEYS a", "a"),
        ("MIGRATE h 1 '' 0 10 AUTH2 KEYS KEYS KEYS a", "a"),
        ("MIGRATE h 1 x 0 10 KEYS a b", ""),
        ("MIGRATE h 1 k 0 10 KEYS", "k"),
        ("MIGRATE h p", ""),
        ("MIGRATE", ""),
    ]);
}

#[test]
fn keys_decide_the_slot_and_must_agree() {
    assert_eq!(route("GET bar"), Ok(Target::Slot(slot_of("bar"))));
    assert_eq!(route("MGET {t}a {t}b"), Ok(Target::Slot(slot_of("t"))));
    let crossing = [
        "BITOP AND foo bar",
        "ZUNIONSTORE foo 2 foo bar WEIGHTS 1 2",
        "ZRANGESTORE foo bar 0 -1",
        "GEOSEARCHSTORE foo bar FROMLONLAT 0 0 BYRADIUS 1 m",
        "SORT foo STORE bar",
        "GEORADIUS foo 1 2 3 m STORE bar",
        "SUNIONSTORE foo bar",
        "COPY foo bar",
        "RENAME foo bar",
        "LMOVE foo bar LEFT LEFT",
        "PFMERGE foo foo bar",
        "MSET foo 1 bar 2",
    ];
    for line in crossing {
        let crossed = CrossSlot(slot_of("foo"), slot_of("bar"));
        assert_eq!(route(line), Err(crossed), "{line}");
    }
}

#[test]
fn keyless_commands_go_where_they_make_sense() {
    let all = |aggregate| Ok(Target::AllPrimaries(aggregate));
    assert_eq!(route("EVAL script 0"), Ok(Target::Any));
    assert_eq!(route("EVAL script 5 k"), Ok(Target::Any));
    assert_eq!(route("PING"), Ok(Target::Any));
    assert_eq!(route("DBSIZE"), all(Aggregate::Sum));
    assert_eq!(route("KEYS *"), all(Aggregate::Concat));
    assert_eq!(route("flushall ASYNC"), all(Aggregate::AllSucceed));
    assert_eq!(route("SCRIPT load x"), all(Aggregate::AllSucceed));
    assert_eq!(route("SCRIPT EXISTS x"), all(Aggregate::AndPerIndex));
    assert_eq!(route("SCRIPT KILL"), all(Aggregate::AnySucceeds));
    assert_eq!(route("RANDOMKEY"), all(Aggregate::FirstNonNull));
    for line in [
        "SHUTDOWN",
        "DEBUG SLEEP 1",
        "SCAN 0",
        "CLIENT LIST",
        "CLUSTER FAILOVER",
        "WAIT 1 0",
    ] {
        assert!(matches!(route(line), Ok(Target::NamedNode(_))), "{line}");
    }
}

#[test]
fn what_changes_the_connection_is_refused() {
    let lines = "SUBSCRIBE c|PSUBSCRIBE c|SSUBSCRIBE a b|UNSUBSCRIBE|SUNSUBSCRIBE|MONITOR|SELECT 1|\
        AUTH p|HELLO 2|RESET|QUIT|CLIENT REPLY OFF|CLIENT TRACKING ON|CLIENT CACHING YES|\
        CLIENT SETNAME x|ASKING|READONLY|READWRITE|MULTI|EXEC|DISCARD|WATCH a b|UNWATCH|SYNC|\
        PSYNC ? -1|REPLCONF ACK 0|SCRIPT DEBUG YES|CLUSTER SYNCSLOTS ESTABLISH";
    for line in lines.split('|') {
        assert!(matches!(route(line), Ok(Target::Refused(_))), "{line}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let cases = [
        ("SUBSCRIBE c", "subscriptions are not supported yet"),
        ("SSUBSCRIBE a b", "subscriptions are not supported yet"),
        ("WATCH a", "`Client::watch`"),
        ("UNWATCH", "`Client::watch`"),
        ("MULTI", "`Client::transaction`"),
        ("EXEC", "`Client::transaction`"),
        ("DISCARD", "`Client::transaction`"),
        ("SELECT 1", "only database 0"),
        ("AUTH p", "`Builder::password`"),
        ("HELLO 3", "`Builder::protocol`"),
        ("CLIENT SETNAME x", "`Builder::client_name`"),
        ("CLIENT NO-EVICT on", "there is no setting"),
        ("READONLY", "`Builder::read_from`"),
        ("QUIT", "`Client::close`"),
        ("SCAN 0", "`Client::primaries()`"),
        ("WAIT 1 0", "`Client::watch`"),
        ("WAITAOF 1 0 0", "`Client::watch`"),
    ];
    for (line, wanted) in cases {
        let (Ok(Target::Refused(why)) | Ok(Target::NamedNode(why))) = route(line) else {
            panic!("{line}: {:?}", route(line));
        };
        assert!(why.contains(wanted), "{line}: {why}");
    }
}

#[test]
fn who_has_to_name_a_node_is_told_how() {
    for spec in &index::COMMANDS {
        let args = [spec.name.as_bytes(), spec.sub.as_bytes()];
        if let Ok(Target::NamedNode(why)) = spec.route(args.into_iter()) {
            let told = why.contains("Cmd::route(Route::Node(addr))") || spec.may_block();
            assert!(told, "{}: {why}", spec.full_name());
        }
    }
}

#[test]
fn slots_given_by_number() {
    let slot = Slot::new(7).unwrap();
    assert_eq!(route("CLUSTER COUNTKEYSINSLOT 7"), Ok(Target::Slot(slot)));
    assert_eq!(route("CLUSTER GETKEYSINSLOT 16384 1"), Ok(Target::Any));
    assert_eq!(route("CLUSTER GETKEYSINSLOT x 1"), Ok(Target::Any));
    assert_eq!(route("CLUSTER COUNTKEYSINSLOT"), Ok(Target::Any));
}

#[test]
fn disguised_writes() {
    assert_eq!(access("SORT k BY w_*"), Access::PrimaryRead);
    assert_eq!(access("SORT k store d"), Access::Write);
    assert_eq!(access("SORT_RO k"), Access::ReadOnly);
    assert_eq!(access("GEORADIUS k 1 2 3 m"), Access::PrimaryRead);
    assert_eq!(access("GEORADIUS k 1 2 3 m STOREDIST d"), Access::Write);
    assert_eq!(access("GEORADIUSBYMEMBER k STORE 3 m"), Access::PrimaryRead);
    assert_eq!(access("GEORADIUSBYMEMBER k m 3 m STORE d"), Access::Write);
    for line in [
        "EVAL s 0",
        "FCALL f 0",
        "GETEX k",
        "GETDEL k",
        "BITFIELD k GET u8 0",
        "PUBLISH c m",
    ] {
        assert_eq!(access(line), Access::Write, "{line}");
    }
    for line in [
        "EVAL_RO s 0",
        "FCALL_RO f 0",
        "BITFIELD_RO k",
        "XREAD STREAMS a 0",
        "DBSIZE",
    ] {
        assert_eq!(access(line), Access::ReadOnly, "{line}");
    }
}

/// Words that mean something to one finder or another.
const WORDS: [&[u8]; 12] = [
    b"",
    b"k",
    b"0",
    b"1",
    b"2",
    b"-1",
    b"18446744073709551617",
    b"STREAMS",
    b"STORE",
    b"KEYS",
    b"BLOCK",
    b"\xff\0",
];

/// Asks everything, and checks that the keys are arguments, each shown once, none of them the name.
fn ask_everything(spec: &Spec, args: &[&[u8]]) {
    let walk = args.iter().copied();
    let mut shown = 0;
    spec.keys(walk.clone(), |key| {
        let place = args.iter().skip(1).position(|arg| std::ptr::eq(*arg, key));
        assert!(place.is_some() || key.is_empty());
        shown += 1;
    });
    assert!(shown < args.len().max(1), "{} {args:?}", spec.full_name());
    let _ = spec.access(walk.clone());
    let _ = spec.blocking(walk.clone());
    let _ = spec.route(walk);
}

/// All lists of up to three arguments from `WORDS`, for every command.
#[test]
fn small_argument_lists_exhaustively() {
    for spec in &index::COMMANDS {
        let name = spec.name.as_bytes();
        ask_everything(spec, &[]);
        for length in 0..=3 {
            for mut code in 0..WORDS.len().pow(length) {
                let mut args = vec![name];
                if !spec.sub.is_empty() {
                    args.push(spec.sub.as_bytes());
                }
                for _ in 0..length {
                    args.push(WORDS[code % WORDS.len()]);
                    code /= WORDS.len();
                }
                ask_everything(spec, &args);
            }
        }
    }
}

proptest! {
    #[test]
    fn long_argument_lists_never_panic(
        which in 0..index::COMMANDS.len(),
        words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..14),
    ) {
        let spec = &index::COMMANDS[which];
        let mut args = vec![spec.name.as_bytes()];
        args.extend(words);
        ask_everything(spec, &args);
    }
}

#[test]
fn the_short_way_to_the_only_key_leads_where_the_long_one_does() {
    let long = |line: &str| (route(line), access(line));
    for line in ["GET {a}b", "set a b", "HSET {x} y z", "OBJECT FREQ a"] {
        let (key, access) = find(split(line)).unwrap().only_key().unwrap();
        let slot = Slot::of_key(split(line).nth(key).unwrap());
        assert_eq!(long(line), (Ok(Target::Slot(slot)), access), "{line}");
    }
    for line in [
        "MGET a b",
        "BLPOP a 0",
        "SORT a",
        "EVAL x 1 a",
        "PING",
        "XREAD STREAMS a 0",
    ] {
        let spec = find(split(line)).unwrap();
        assert!(spec.only_key().is_none(), "{line}");
    }
}
