//! What a node answers when no rule says otherwise.

use super::command::{Facts, Keys};
use super::log::Entry;
use super::resp;
use super::route::{self, Query};
use super::server::Dialect;
use super::session::{Session, Transaction};
use super::shared::State;
use super::topology::{Identity, slots_reply};

/// Runs a command as a server would and returns its reply; `None` if it has to wait for a change
/// of the cluster (`BLPOP`).
pub(super) fn answer(state: &mut State, session: &mut Session, entry: &Entry) -> Option<Vec<u8>> {
    let name = entry.name();
    let reply = match admit(state, session, entry, &name) {
        Err(refusal) => resp::error(&refusal),
        Ok(facts) if facts.keys != Keys::None && name != "WATCH" => {
            execute(state, session, entry, &name)?
        }
        Ok(_) if session.transaction.is_some() => in_transaction(state, session, entry, &name),
        Ok(_) => outside(state, session, entry, &name),
    };
    session.end_command(&name);
    Some(reply)
}

/// The checks before a command runs or is queued. A refusal spoils the transaction.
fn admit(state: &State, session: &mut Session, entry: &Entry, name: &str) -> Result<Facts, String> {
    let result = check(state, session, entry, name);
    if result.is_err() {
        if name == "EXEC" {
            session.transaction = None;
            session.watched.clear();
        } else if let Some(transaction) = &mut session.transaction {
            transaction.refused = true;
        }
    }
    result
}

fn check(state: &State, session: &Session, entry: &Entry, name: &str) -> Result<Facts, String> {
    let facts = Facts::of(name).filter(|_| !(state.resp2_only && name == "HELLO"));
    let facts = facts.ok_or_else(|| format!("ERR unknown command '{}'", entry.text(0)))?;
    if !facts.accepts(entry.argv.len()) {
        let name = name.to_lowercase();
        return Err(format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }
    let open = state.password.is_none() || session.authenticated;
    if !open && !matches!(name, "AUTH" | "HELLO") {
        return Err("NOAUTH Authentication required.".into());
    }
    let queue = session.transaction.as_ref().map(|t| &t.queue);
    let members = queue.filter(|_| name == "EXEC").into_iter().flatten();
    let with_facts = |entry: &'_ Entry| Facts::of(&entry.name());
    let mut commands: Vec<(Facts, &[Vec<u8>])> = members
        .filter_map(|member| Some((with_facts(member)?, member.argv.as_slice())))
        .collect();
    commands.push((facts, &entry.argv));
    let query = Query {
        node: session.node,
        asking: session.asking,
        readonly: session.readonly,
        queued: session.transaction.is_some() && name != "EXEC",
        commands: &commands,
    };
    route::check(state, &query).map(|()| facts)
}

/// A command on keys: queued in a transaction, else run.
fn execute(state: &mut State, session: &mut Session, entry: &Entry, name: &str) -> Option<Vec<u8>> {
    if let Some(transaction) = &mut session.transaction {
        transaction.queue.push(entry.clone());
        return Some(resp::simple("QUEUED"));
    }
    run(state, session, entry, name)
}

/// Runs a command on keys, takes note of it, and lets replicas follow.
fn run(state: &mut State, session: &Session, entry: &Entry, name: &str) -> Option<Vec<u8>> {
    let store = &mut state.nodes[session.node].store;
    let reply = store.run(session.protocol, name, &entry.argv)?;
    state.executed.push(entry.clone());
    let facts = Facts::of(name).filter(|facts| facts.writes);
    for key in facts.iter().flat_map(|facts| facts.keys(&entry.argv)) {
        let data = state.nodes[session.node].store.data(key).cloned();
        for replica in state.topology.replicas(session.node) {
            state.nodes[replica].store.put(key, data.clone());
        }
    }
    Some(reply)
}

/// A command without keys, or `WATCH`, while a transaction is being queued.
fn in_transaction(state: &mut State, session: &mut Session, entry: &Entry, name: &str) -> Vec<u8> {
    match name {
        "EXEC" => exec(state, session),
        "DISCARD" => {
            session.transaction = None;
            session.watched.clear();
            resp::simple("OK")
        }
        "MULTI" | "WATCH" => {
            if let Some(transaction) = &mut session.transaction {
                transaction.refused |= state.dialect == Dialect::Valkey;
            }
            resp::error(&format!("ERR {name} inside MULTI is not allowed"))
        }
        _ => {
            if let Some(transaction) = &mut session.transaction {
                transaction.queue.push(entry.clone());
            }
            resp::simple("QUEUED")
        }
    }
}

fn exec(state: &mut State, session: &mut Session) -> Vec<u8> {
    let Transaction { queue, refused } = session.transaction.take().unwrap_or_default();
    let watched = std::mem::take(&mut session.watched);
    if refused {
        return resp::error("EXECABORT Transaction discarded because of previous errors.");
    }
    let store = &state.nodes[session.node].store;
    let untouched = |(key, version): &(Vec<u8>, u64)| store.version(key) == *version;
    if !watched.iter().all(untouched) {
        return resp::null_array(session.protocol);
    }
    let replies = queue.iter().map(|member| {
        let name = member.name();
        match Facts::of(&name) {
            Some(facts) if facts.keys != Keys::None => run(state, session, member, &name)
                .unwrap_or_else(|| resp::null_array(session.protocol)),
            _ => outside(state, session, member, &name),
        }
    });
    resp::array(&replies.collect::<Vec<_>>())
}

/// A command without keys, or `WATCH`, outside a transaction.
fn outside(state: &mut State, session: &mut Session, entry: &Entry, name: &str) -> Vec<u8> {
    match name {
        "HELLO" => return hello(state, session, entry),
        "AUTH" => return log_in(state, session, &entry.argv[1..]),
        "CLUSTER" => return cluster(state, session, entry),
        "CLIENT" if entry.is("CLIENT ID") => {
            return resp::integer(i64::try_from(session.connection).unwrap_or(0));
        }
        "COMMAND" => return resp::array(&[b""; 0]),
        "ECHO" => return resp::bulk(&entry.argv[1]),
        "PING" => {
            let echo = entry.argv.get(1);
            return echo.map_or_else(|| resp::simple("PONG"), resp::bulk);
        }
        "EXEC" => return resp::error("ERR EXEC without MULTI"),
        "DISCARD" => return resp::error("ERR DISCARD without MULTI"),
        "SELECT" if entry.text(1) != "0" => {
            return resp::error("ERR SELECT is not allowed in cluster mode");
        }
        "ASKING" => session.asking = true,
        "READONLY" => session.readonly = true,
        "READWRITE" => session.readonly = false,
        "MULTI" => session.transaction = Some(Transaction::default()),
        "UNWATCH" => session.watched.clear(),
        "WATCH" => {
            let store = &state.nodes[session.node].store;
            let keys = entry.argv[1..].iter();
            let seen = keys.map(|key| (key.clone(), store.version(key)));
            session.watched.extend(seen);
        }
        _ => {}
    }
    resp::simple("OK")
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
fn hello(state: &State, session: &mut Session, entry: &Entry) -> Vec<u8> {
    let version = match entry.text(1).as_str() {
        "" => session.protocol,
        "2" => 2,
        "3" => 3,
        _ => return resp::error("NOPROTO unsupported protocol version"),
    };
    if entry.text(2).eq_ignore_ascii_case("AUTH") {
        let reply = log_in(state, session, entry.argv.get(3..5).unwrap_or_default());
        if reply.starts_with(b"-") {
            return reply;
        }
    } else if state.password.is_some() && !session.authenticated {
        let hint = "with the client already authenticated, otherwise the HELLO <proto> AUTH";
        return resp::error(&format!(
            "NOAUTH HELLO must be called {hint} <user> <pass> option can be used"
        ));
    }
    session.protocol = version;
    let primary = state.view(session.node).primary_of(session.node).is_none();
    let fields = [
        resp::bulk("server"),
        resp::bulk("redis"),
        resp::bulk("version"),
        resp::bulk("7.0.15"),
        resp::bulk("proto"),
        resp::integer(version.into()),
        resp::bulk("mode"),
        resp::bulk("cluster"),
        resp::bulk("role"),
        resp::bulk(if primary { "master" } else { "replica" }),
        resp::bulk("modules"),
        resp::array(&[b""; 0]),
    ];
    resp::map(version, &fields)
}

/// The last argument is the password; a user name may stand before it.
fn log_in(state: &State, session: &mut Session, args: &[Vec<u8>]) -> Vec<u8> {
    let given = args.last().map(Vec::as_slice);
    match &state.password {
        None if args.len() == 1 => resp::error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ),
        Some(password) if given != Some(password.as_bytes()) => {
            resp::error("WRONGPASS invalid username-password pair or user is disabled.")
        }
        _ => {
            session.authenticated = true;
            resp::simple("OK")
        }
    }
}

fn cluster(state: &mut State, session: &Session, entry: &Entry) -> Vec<u8> {
    let subcommand = entry.text(1).to_uppercase();
    match subcommand.as_str() {
        "SLOTS" => {
            let node = &mut state.nodes[session.node];
            node.maps_told += 1;
            let round = node.maps_told;
            let state = &*state;
            let node = &state.nodes[session.node];
            let identity = |index: usize| Identity {
                port: state.nodes[index].port,
                id: &state.nodes[index].id,
            };
            let view = state.view(session.node);
            slots_reply(view, &node.format, session.protocol, round, identity)
        }
        "MYID" => resp::bulk(&state.nodes[session.node].id),
        _ => resp::error(&format!(
            "ERR unknown subcommand '{subcommand}'. Try CLUSTER HELP."
        )),
    }
}
