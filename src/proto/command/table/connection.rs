//! The connection: identity and settings, publish/subscribe, transactions.
//!
//! One connection serves all callers, so nothing may change its state behind the client's back.

use super::super::aggregate::Aggregate::{Concat, Sum};
use super::super::spec::Scope::{All, Any, Named, Refused};
use super::super::spec::Spec;

const ONE_CONNECTION: &str = on_one_node!("tells about one of many connections");
const OTHERS: &str = on_one_node!("acts on the connections of one server");
const SHARED: &str = shared!(", and there is no setting for it");
const SUBSCRIPTION: &str = "subscriptions are not supported yet";
const TRANSACTION: &str = "spans several commands of one connection: use `Client::transaction`";
const WATCH: &str = "needs a connection of its own: use `Client::watch`";

pub(super) const COMMANDS: &[Spec] = &[
    Spec::inspect("PING", Any),
    Spec::inspect("ECHO", Any),
    Spec::change("AUTH", Refused(AUTH)),
    Spec::change("HELLO", Refused(HELLO)),
    Spec::change("QUIT", Refused(QUIT)),
    Spec::change("RESET", Refused(RESET)),
    Spec::change("SELECT", Refused(SELECT)),
    Spec::container("CLIENT"),
    Spec::change("CLIENT", Refused(TRACKING)).sub("CACHING"),
    Spec::change("CLIENT", Refused(SHARED)).sub("CAPA"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("GETNAME"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("GETREDIR"),
    Spec::inspect("CLIENT", Any).sub("HELP"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("ID"),
    Spec::change("CLIENT", Refused(SHARED)).sub("IMPORT-SOURCE"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("INFO"),
    Spec::change("CLIENT", Named(OTHERS)).sub("KILL"),
    Spec::inspect("CLIENT", Named(OTHERS)).sub("LIST"),
    Spec::change("CLIENT", Refused(SHARED)).sub("NO-EVICT"),
    Spec::change("CLIENT", Refused(SHARED)).sub("NO-TOUCH"),
    Spec::change("CLIENT", Named(OTHERS)).sub("PAUSE"),
    Spec::change("CLIENT", Refused(REPLY)).sub("REPLY"),
    Spec::change("CLIENT", Refused(SHARED)).sub("SETINFO"),
    Spec::change("CLIENT", Refused(SETNAME)).sub("SETNAME"),
    Spec::change("CLIENT", Refused(TRACKING)).sub("TRACKING"),
    Spec::inspect("CLIENT", Named(ONE_CONNECTION)).sub("TRACKINGINFO"),
    Spec::change("CLIENT", Named(OTHERS)).sub("UNBLOCK"),
    Spec::change("CLIENT", Named(OTHERS)).sub("UNPAUSE"),
    // Publish and subscribe. Messages reach all nodes of a cluster, those of sharded channels all
    // nodes of the shard that serves the channel's slot.
    Spec::change("PUBLISH", Any),
    Spec::write("SPUBLISH"),
    Spec::change("SUBSCRIBE", Refused(SUBSCRIPTION)),
    Spec::change("UNSUBSCRIBE", Refused(SUBSCRIPTION)),
    Spec::change("PSUBSCRIBE", Refused(SUBSCRIPTION)),
    Spec::change("PUNSUBSCRIBE", Refused(SUBSCRIPTION)),
    Spec::write("SSUBSCRIBE")
        .range(1, -1, 1)
        .scope(Refused(SUBSCRIPTION)),
    Spec::write("SUNSUBSCRIBE")
        .range(1, -1, 1)
        .scope(Refused(SUBSCRIPTION)),
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
    Spec::change("UNWATCH", Refused(UNWATCH)),
];

const AUTH: &str = shared!(": use `Builder::password` or `Builder::credentials`");
const HELLO: &str = shared!(": use `Builder::protocol`");
const SETNAME: &str = shared!(": use `Builder::client_name`");
const SELECT: &str = "leave it out: a cluster has only database 0, which is selected already";
const QUIT: &str = "closes a connection that all callers share: use `Client::close`";
const RESET: &str = "undoes the login of a connection that all callers share: make a new client";
const REPLY: &str = "stops the replies by which the client tells commands apart: use \
    `Client::send` and drop what it returns";
const TRACKING: &str = "needs invalidation messages, which this client does not take";
const NUMSUB: &str = on_one_node!("counts the subscribers of one node");
const UNWATCH: &str = "a session of `Client::watch` lets its keys go when its closure returns";
