//! The connection: identity and settings, publish/subscribe, transactions.
//!
//! One connection serves all callers, so nothing may change its state behind the client's back.

use super::super::aggregate::Aggregate::{Concat, Sum};
use super::super::spec::Scope::{All, Any, Named, Refused};
use super::super::spec::Spec;

const ONE_CONNECTION: &str = "tells about one of many connections: name the node";
const OTHERS: &str = "acts on the connections of one server: name the node";
const SETTING: &str =
    "changes a connection that all callers share: choose it when building the client";
const SUBSCRIBER: &str = "turns the connection into a subscription: use a subscriber";
const TRANSACTION: &str = "spans several commands of one connection: use `Client::transaction`";
const WATCH: &str = "needs a connection of its own: use a transaction that watches keys";

pub(super) const COMMANDS: &[Spec] = &[
    Spec::inspect("PING", Any),
    Spec::inspect("ECHO", Any),
    Spec::change("AUTH", Refused(SETTING)),
    Spec::change("HELLO", Refused(SETTING)),
    Spec::change("QUIT", Refused(QUIT)),
    Spec::change("RESET", Refused(RESET)),
    Spec::change("SELECT", Refused(SELECT)),
    Spec::container("CLIENT"),
    Spec::change("CLIENT", Refused(TRACKING)).sub("CACHING"),
    Spec::change("CLIENT", Refused(SETTING)).sub("CAPA"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("GETNAME"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("GETREDIR"),
    Spec::inspect("CLIENT", Any).sub("HELP"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("ID"),
    Spec::change("CLIENT", Refused(IMPORT_SOURCE)).sub("IMPORT-SOURCE"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("INFO"),
    Spec::change("CLIENT", Named(OTHERS)).sub("KILL"),
    Spec::inspect("CLIENT", Named(OTHERS)).sub("LIST"),
    Spec::change("CLIENT", Refused(SETTING)).sub("NO-EVICT"),
    Spec::change("CLIENT", Refused(SETTING)).sub("NO-TOUCH"),
    Spec::change("CLIENT", Named(OTHERS)).sub("PAUSE"),
    Spec::change("CLIENT", Refused(REPLY)).sub("REPLY"),
    Spec::change("CLIENT", Refused(SETTING)).sub("SETINFO"),
    Spec::change("CLIENT", Refused(SETTING)).sub("SETNAME"),
    Spec::change("CLIENT", Refused(TRACKING)).sub("TRACKING"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("TRACKINGINFO"),
    Spec::change("CLIENT", Named(OTHERS)).sub("UNBLOCK"),
    Spec::change("CLIENT", Named(OTHERS)).sub("UNPAUSE"),
    // Publish and subscribe. Messages reach all nodes of a cluster, those of sharded channels all
    // nodes of the shard that serves the channel's slot.
    Spec::change("PUBLISH", Any),
    Spec::write("SPUBLISH"),
    Spec::change("SUBSCRIBE", Refused(SUBSCRIBER)),
    Spec::change("UNSUBSCRIBE", Refused(SUBSCRIBER)),
    Spec::change("PSUBSCRIBE", Refused(SUBSCRIBER)),
    Spec::change("PUNSUBSCRIBE", Refused(SUBSCRIBER)),
    Spec::write("SSUBSCRIBE")
        .range(1, -1, 1)
        .scope(Refused(SUBSCRIBER)),
    Spec::write("SUNSUBSCRIBE")
        .range(1, -1, 1)
        .scope(Refused(SUBSCRIBER)),
    Spec::container("PUBSUB"),
    // A channel with subscribers on several nodes is listed once for each.
    Spec::inspect("PUBSUB", All(Concat)).sub("CHANNELS"),
    Spec::inspect("PUBSUB", Any).sub("HELP"),
    Spec::inspect("PUBSUB", All(Sum)).sub("NUMPAT"),
    Spec::inspect("PUBSUB", Named(NUMSUB)).sub("NUMSUB"),
    Spec::inspect("PUBSUB", All(Concat)).sub("SHARDCHANNELS"),
    Spec::inspect("PUBSUB", Named(NUMSUB)).sub("SHARDNUMSUB"),
    // Transactions.
    Spec::change("MULTI", Refused(TRANSACTION)),
    Spec::change("EXEC", Refused(TRANSACTION)),
    Spec::change("DISCARD", Refused(TRANSACTION)),
    Spec::write("WATCH").range(1, -1, 1).scope(Refused(WATCH)),
    Spec::change("UNWATCH", Refused(WATCH)),
];

const QUIT: &str = "closes a connection that all callers share: use `Client::close`";
const RESET: &str = "undoes the login of a connection that all callers share: open a new client";
const SELECT: &str = "changes a connection that all callers share: open a client for each database";
const REPLY: &str = "stops the replies by which the client tells commands apart";
const TRACKING: &str = "needs invalidation messages, which this client does not take";
const IMPORT_SOURCE: &str = "changes a connection that all callers share: use one of your own";
const NUMSUB: &str = "counts the subscribers of one node: name the node";
