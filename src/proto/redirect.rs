//! Error replies that say "not here" or "not now", and what they prove.
//!
//! Only the code token of a top-level error counts; error text inside arrays and error text made
//! by scripts is data: see [`Author`].

use super::addr::NodeAddr;
use super::outcome::Certainty;
use super::slot::Slot;
use super::value::ServerError;

/// What a routing error asks for (Redis Cluster specification, "Redirection and resharding").
/// Each of them proves that the command did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// `MOVED`: the slot belongs to another node, for good.
    Moved(Slot, Endpoint),
    /// `ASK`: this one command belongs to another node, after `ASKING`.
    Ask(Slot, Endpoint),
    /// `TRYAGAIN`: the keys of a multi-key command are on two nodes at the moment.
    TryAgain,
    /// `CLUSTERDOWN`: nobody serves the slot at the moment.
    ClusterDown,
    /// `LOADING`: the node is reading its data.
    Loading,
    /// `MASTERDOWN`: a replica without a link to its primary.
    MasterDown,
    /// `READONLY`: a primary that was demoted and is not aware of the new map.
    ReadOnly,
    /// `UNBLOCKED`: a blocking command on a node that was demoted.
    Unblocked,
}

/// The node that a redirect names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Host and port.
    Node(NodeAddr),
    /// No host: the one of the connection that gave the reply, with this port.
    SameHost(u16),
    /// Host `?`: the cluster does not know a name for it. It must not be guessed.
    Unknown,
}

/// Longest host name that is taken from a redirect (DNS allows 253 characters).
const HOST_BYTES: usize = 255;

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let addr = NodeAddr::parse(text)?;
        match addr.host() {
            "" => Some(Endpoint::SameHost(addr.port())),
            "?" => Some(Endpoint::Unknown),
            host if host.len() > HOST_BYTES => None,
            _ => Some(Endpoint::Node(addr)),
        }
    }

    /// The address, given the node that the reply came from.
    pub(crate) fn resolve(&self, from: &NodeAddr) -> Option<NodeAddr> {
        match self {
            Endpoint::Node(addr) => Some(addr.clone()),
            Endpoint::SameHost(port) => Some(NodeAddr::new(from.host(), *port)),
            Endpoint::Unknown => None,
        }
    }
}

impl Redirect {
    /// Reads an error reply. `None` for every other error, and for malformed redirects: those are
    /// surfaced unchanged.
    pub(crate) fn parse(error: &ServerError) -> Option<Self> {
        // Cheap for the errors of everyday life: the code decides before anything is parsed.
        match error.code() {
            "MOVED" => slot_and_endpoint(error).map(|(slot, to)| Redirect::Moved(slot, to)),
            "ASK" => slot_and_endpoint(error).map(|(slot, to)| Redirect::Ask(slot, to)),
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CLUSTERDOWN" => Some(Redirect::ClusterDown),
            "LOADING" => Some(Redirect::Loading),
            "MASTERDOWN" => Some(Redirect::MasterDown),
            "READONLY" => Some(Redirect::ReadOnly),
            "UNBLOCKED" => Some(Redirect::Unblocked),
            _ => None,
        }
    }

    /// The slot that it names.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Redirect::Moved(slot, _) | Redirect::Ask(slot, _) => Some(*slot),
            _ => None,
        }
    }
}

/// Who may have written an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The server.
    Server,
    /// The server, or a script that it ran. A script may begin its errors with any code, after
    /// having written (Redis documentation, "Scripting with Lua", `redis.error_reply`).
    Script,
}

/// How servers begin their own errors about a script that they did not run. Other texts with these
/// codes are taken for the script's.
const BEFORE_A_SCRIPT: &[&str] = &[
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN Hash slot not served",
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down",
    // Also what a script gets for a write: no other of its writes was done then.
    "READONLY You can't write against a read only replica.",
    "READONLY Can not run script with write flag on readonly replica",
    "NOSCRIPT No matching script",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "NOAUTH Authentication required",
    // "User x has no permissions" since Redis 7.2.
    "NOPERM this user has no permissions to run the",
    "NOPERM this user has no permissions to access one of the keys used as arguments",
    "NOPERM User ",
];

impl Author {
    /// What an error reply asks for, if the server has written it.
    pub(crate) fn redirect_in(self, error: &ServerError) -> Option<Redirect> {
        Redirect::parse(error).filter(|_| self.is_server_in(error))
    }

    /// What an error reply proves about its command.
    pub(crate) fn certainty_by(self, error: &ServerError) -> Certainty {
        match self.is_server_in(error) {
            true => certainty_of(error),
            false => Certainty::Unknown,
        }
    }

    /// Whether the server has certainly written it.
    fn is_server_in(self, error: &ServerError) -> bool {
        let line = error.line();
        let is_loading = || {
            // "Redis is loading", "Valkey is loading", …
            line.starts_with("LOADING ") && line.ends_with(" is loading the dataset in memory")
        };
        self == Author::Server
            || matches!(error.code(), "MOVED" | "ASK")
            || BEFORE_A_SCRIPT.iter().any(|text| line.starts_with(text))
            || is_loading()
    }
}

fn slot_and_endpoint(error: &ServerError) -> Option<(Slot, Endpoint)> {
    let mut words = error.line().split(' ');
    let (_code, slot, endpoint) = (words.next()?, words.next()?, words.next()?);
    if slot.is_empty() || !slot.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let slot = Slot::new(slot.parse().ok()?)?;
    Some((slot, Endpoint::parse(endpoint)?))
}

/// What an error reply proves about its command: whether it certainly did not run.
pub(crate) fn certainty_of(error: &ServerError) -> Certainty {
    const NOT_RUN: &[&str] = &[
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "UNBLOCKED",
        "NOSCRIPT",
        "CROSSSLOT",
        "NOAUTH",
        "NOPERM",
        "EXECABORT",
    ];
    let refused = NOT_RUN.contains(&error.code());
    if refused {
        Certainty::Refused
    } else {
        Certainty::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Redirect> {
        Redirect::parse(&ServerError::new(line))
    }

    #[test]
    fn all_forms_that_servers_send() {
        let slot = Slot::new(3999).unwrap();
        let node = |host, port| Endpoint::Node(NodeAddr::new(host, port));
        for (line, wanted) in [
            (
                "MOVED 3999 127.0.0.1:6381",
                Redirect::Moved(slot, node("127.0.0.1", 6381)),
            ),
            (
                "ASK 3999 name.example:1",
                Redirect::Ask(slot, node("name.example", 1)),
            ),
            (
                "MOVED 3999 ::1:6381",
                Redirect::Moved(slot, node("::1", 6381)),
            ),
            (
                "MOVED 3999 [::1]:6381",
                Redirect::Moved(slot, node("::1", 6381)),
            ),
            (
                "MOVED 3999 :6381",
                Redirect::Moved(slot, Endpoint::SameHost(6381)),
            ),
            ("ASK 3999 ?:6381", Redirect::Ask(slot, Endpoint::Unknown)),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                Redirect::TryAgain,
            ),
            ("CLUSTERDOWN Hash slot not served", Redirect::ClusterDown),
            (
                "LOADING Redis is loading the dataset in memory",
                Redirect::Loading,
            ),
            ("MASTERDOWN Link with MASTER is down", Redirect::MasterDown),
            (
                "READONLY You can't write against a read only replica.",
                Redirect::ReadOnly,
            ),
            (
                "UNBLOCKED force unblock from blocking operation",
                Redirect::Unblocked,
            ),
        ] {
            assert_eq!(parse(line), Some(wanted), "{line}");
        }
    }

    /// Whatever a script calls its errors, it ran.
    #[test]
    fn errors_of_scripts_prove_nothing() {
        for line in [
            "TRYAGAIN lock is held",
            "CLUSTERDOWN not now",
            "LOADING later",
            "MASTERDOWN",
            "READONLY mode",
            "UNBLOCKED client unblocked via CLIENT UNBLOCK",
            "NOSCRIPT for you",
            "CROSSSLOT",
            "NOAUTH x",
            "NOPERM to do that",
            "EXECABORT Transaction discarded because of previous errors.",
            "ERR x",
        ] {
            let error = ServerError::new(line);
            assert_eq!(Author::Script.redirect_in(&error), None, "{line}");
            assert_eq!(
                Author::Script.certainty_by(&error),
                Certainty::Unknown,
                "{line}"
            );
            let server = Author::Server;
            assert_eq!(server.redirect_in(&error), Redirect::parse(&error));
            assert_eq!(server.certainty_by(&error), certainty_of(&error));
        }
    }

    #[test]
    fn a_script_that_a_server_did_not_run_is_known_by_the_text() {
        for (line, is_redirect) in [
            ("MOVED 3999 127.0.0.1:6381", true),
            ("ASK 3999 127.0.0.1:6381", true),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                true,
            ),
            ("CLUSTERDOWN Hash slot not served", true),
            ("CLUSTERDOWN The cluster is down", true),
            ("LOADING Redis is loading the dataset in memory", true),
            ("LOADING Valkey is loading the dataset in memory", true),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                true,
            ),
            (
                "READONLY You can't write against a read only replica. script: 5, on @user:1.",
                true,
            ),
            ("NOSCRIPT No matching script. Please use EVAL.", false),
            ("NOSCRIPT No matching script.", false),
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                false,
            ),
            (
                "NOPERM User nm has no permissions to run the 'eval' command",
                false,
            ),
        ] {
            let error = ServerError::new(line);
            let redirect = Author::Script.redirect_in(&error);
            assert_eq!(redirect.is_some(), is_redirect, "{line}");
            assert_eq!(
                Author::Script.certainty_by(&error),
                Certainty::Refused,
                "{line}"
            );
        }
    }

    #[test]
    fn malformed_redirects_are_not_redirects() {
        let long = format!("MOVED 1 {}:1", "h".repeat(1 << 20));
        for line in [
            "MOVED __proto__ h:1",
            "MOVED -1 h:1",
            "MOVED +1 h:1",
            "MOVED 16384 h:1",
            "MOVED 99999 h:1",
            "MOVED 12",
            "MOVED",
            "MOVED 12 h:",
            "MOVED 12 h:99999",
            "MOVED 12 h:0",
            "MOVED  12 h:1",
            "MOVEDX 1 h:1",
            "ERR MOVED 1 h:1",
            "moved 1 h:1",
            "ASK",
            "ASK 1",
            "",
            " ",
            long.as_str(),
        ] {
            assert_eq!(parse(line), None, "{}", &line[..line.len().min(40)]);
        }
    }
}
