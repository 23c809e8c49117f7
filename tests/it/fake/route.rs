//! May a node run these commands now? The rules of servers (`getNodeByQuery` of Redis 7).

use super::command::Facts;
use super::keys::slot_of;
use super::server::Dialect;
use super::shared::State;

/// The commands to run together: one, or the members of a transaction.
pub(super) struct Query<'a> {
    pub(super) node: usize,
    /// The connection has just said `ASKING`.
    pub(super) asking: bool,
    /// The connection has said `READONLY`.
    pub(super) readonly: bool,
    /// It is only put into a transaction for now.
    pub(super) queued: bool,
    pub(super) commands: &'a [(Facts, &'a [Vec<u8>])],
}

/// `Err` is the text of the error to answer with.
pub(super) fn check(state: &State, query: &Query<'_>) -> Result<(), String> {
    let commands = query.commands.iter();
    let keys: Vec<&[u8]> = commands
        .flat_map(|(facts, argv)| facts.keys(argv))
        .collect();
    let Some(&first) = keys.first() else {
        return Ok(());
    };
    let slot = slot_of(first);
    let view = state.view(query.node);
    let Some(owner) = view.owner(slot) else {
        return Err("CLUSTERDOWN Hash slot not served".into());
    };
    if keys.iter().any(|key| slot_of(key) != slot) {
        return Err("CROSSSLOT Keys in request don't hash to the same slot".into());
    }
    let node = &state.nodes[query.node];
    let missing = if query.queued && state.dialect == Dialect::Valkey {
        0
    } else {
        keys.iter().filter(|key| !node.store.contains(key)).count()
    };
    let try_again = || Err("TRYAGAIN Multiple keys request during rehashing of slot".into());
    let redirect = |word: &str, to| Err(format!("{word} {slot} {}", state.address(query.node, to)));
    if owner == query.node {
        return match node.migrating.get(&slot) {
            Some(_) if missing == 0 => Ok(()),
            Some(_) if missing < keys.len() => try_again(),
            Some(&target) => redirect("ASK", target),
            None => Ok(()),
        };
    }
    if query.asking && node.importing.contains_key(&slot) {
        let several = keys.iter().any(|&key| key != first);
        return if several && missing > 0 {
            try_again()
        } else {
            Ok(())
        };
    }
    let reads = query.commands.iter().all(|(facts, _)| !facts.writes);
    if query.readonly && reads && view.primary_of(query.node) == Some(owner) {
        return Ok(());
    }
    redirect("MOVED", owner)
}
