//! What is refused says so in words that help, and what the words advise works.

use reslot::{Client, Error, Reason, Result, Route, Value, cmd};

use crate::calls::{addr, connect, run, seen, words};
use crate::fake::{FakeCluster, resp};

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T>, text: &str) {
    match result {
        Err(Error::Misuse(misuse)) => assert_eq!(misuse.to_string(), text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_name_the_subcommand_and_the_way_out() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    check(
        run(&client, "client id"),
        "CLIENT ID: tells about one of many connections: name the node by \
         `Cmd::route(Route::Node(addr))`",
    );
    check(
        run(&client, "SUBSCRIBE news"),
        "SUBSCRIBE: subscriptions are not supported yet",
    );
    check(
        client.query::<Value>(cmd("CLUSTER INFO")),
        "CLUSTER INFO: a command's name is one word; add the next one by `Cmd::arg`",
    );
    check(
        client.query::<Value>(cmd("").arg("GET")),
        "a command needs a name",
    );
    check(
        run(&client, "SELECT 0"),
        "SELECT: leave it out: a cluster has only database 0, which is selected already",
    );
    check(
        run(&client, "MGET foo bar"),
        "MGET: keys of slots 12182 and 5061 in one command or transaction; give all of them a \
         common hash tag, as in {user:1}name and {user:1}mail, or send single commands in a \
         pipeline",
    );
    assert_eq!(seen(&cluster, 0), [""; 0]);
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

#[test]
fn what_cannot_be_sent_ahead_is_for_query() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let send = |line| client.send::<Value>(words(line));
    check(
        send("BLPOP bar 1"),
        "BLPOP: blocks on a connection of its own: use `Client::query`",
    );
    check(
        send("DBSIZE"),
        "DBSIZE: goes to every primary: use `Client::query`",
    );
    let mut pipeline = client.pipeline();
    pipeline
        .add(words("BLPOP bar 1"))
        .add(words("SCRIPT FLUSH"));
    let mut results = pipeline.execute().unwrap();
    check(
        results.remove(0),
        "BLPOP: blocks and would hold up the rest of the pipeline: use `Client::query`",
    );
    check(
        results.remove(0),
        "SCRIPT FLUSH: goes to every primary, which a pipeline cannot do: use `Client::query`",
    );
}

#[test]
fn commands_for_one_node_run_where_they_are_sent() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let mut nodes: Vec<_> = (0..3).map(|node| addr(&cluster, node)).collect();
    nodes.sort();
    assert_eq!(client.primaries(), nodes);
    for line in ["SCAN 0", "CLIENT ID", "DEBUG JMAP", "ROLE"] {
        cluster.on(line).reply(resp::integer(7));
        let command = words(line).route(Route::Node(addr(&cluster, 1)));
        assert_eq!(client.query(command), Ok(7), "{line}");
        assert_eq!(cluster.log().on(1).commands(line).count(), 1, "{line}");
    }
    for node in [0, 2] {
        assert_eq!(seen(&cluster, node), [""; 0]);
    }
    let gone = reslot::NodeAddr::new("127.0.0.1", 1);
    let error = client.query::<Value>(cmd("ROLE").route(Route::Node(gone)));
    let error = error.unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::NodeGone);
}

#[test]
fn a_session_can_wait_for_its_writes() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.on("WAIT").reply(resp::integer(1));
    let copies: i64 = client
        .watch(&["bar"], |session| {
            session.query::<()>(cmd("SET").arg(("bar", 1)))?;
            session.query(cmd("WAIT").arg((1, 100)))
        })
        .unwrap();
    assert_eq!(copies, 1);
    let connections: Vec<_> = ["SET", "WAIT"]
        .map(|name| cluster.log().commands(name).list()[0].connection)
        .to_vec();
    assert_eq!(connections[0], connections[1]);
}

/// The keys of these arguments are at another node, which a stated route does not care for.
#[test]
fn a_stated_route_outranks_the_keys() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let same = |command: reslot::Cmd| command.route(Route::Key(b"bar".to_vec()));
    // Slot 0 is at the node of `bar`, too, and its keys are served there.
    let near = crate::fake::key_for_slot(0);
    assert_eq!(client.query(same(cmd("SET").arg((&near, 1)))), Ok(()));
    let error = client.query::<Value>(same(cmd("GET").arg("foo")));
    assert_eq!(error.unwrap_err().code(), Some("MOVED"));
    let error = client.query::<Value>(same(cmd("MGET").key("foo").key("bar")));
    assert_eq!(error.unwrap_err().code(), Some("CROSSSLOT"));
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

#[test]
fn an_error_inside_a_transaction_says_where() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    check_error_inside(&cluster, |client| {
        client.transaction::<(i64, i64)>(|t| {
            t.add(words("INCR foo")).add(words("INCR foo"));
        })
    });
    check_error_inside(&cluster, |client| {
        client.watch(&["foo"], |session| {
            session.transaction(|t| {
                t.add(words("INCR foo")).add(words("INCR foo"));
            })
        })
    });
    // Who asks for each reply gets each.
    cluster.on("EXEC").times(1).reply(EXEC);
    let replies: Vec<std::result::Result<i64, reslot::ServerError>> = client
        .transaction(|t| {
            t.add(words("INCR foo")).add(words("INCR foo"));
        })
        .unwrap();
    assert_eq!((replies[0].is_ok(), replies[1].is_err()), (true, true));
}

const EXEC: &str = "*2\r\n:1\r\n-ERR value is not an integer or out of range\r\n";

#[track_caller]
fn check_error_inside(cluster: &FakeCluster, call: impl FnOnce(&Client) -> Result<(i64, i64)>) {
    cluster.on("EXEC").times(1).reply(EXEC);
    let error = call(&connect(cluster)).unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.members().len(), 1);
    assert_eq!(failure.members()[0].0, 1);
    assert_eq!(failure.node(), Some(&addr(cluster, 1)));
    assert_eq!(failure.slot(), reslot::Slot::new(12182));
    let text = format!(
        "ERR value is not an integer or out of range; at index 1 of the transaction; node {}; \
         slot 12182",
        addr(cluster, 1)
    );
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_node_that_nobody_knows_is_told_with_where_to_look() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let addr = reslot::NodeAddr::new("10.9.9.9", 7000);
    let ping = cmd("PING").route(reslot::Route::Node(addr));
    let error = client.query::<Value>(ping).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node is not part of the cluster: take the address from Client::primaries(); not sent; \
         node 10.9.9.9:7000"
    );
}
