//! Where a node is: host and port as the cluster names them.

use std::fmt;

/// Host and port of a node, as the cluster itself names it.
///
/// The host is a name or an IP address without brackets; it is resolved anew for every connection.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeAddr {
    host: Box<str>,
    port: u16,
}

impl NodeAddr {
    /// An address from its parts. Brackets around an IPv6 host are taken off.
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        Self {
            host: bare.unwrap_or(host).into(),
            port,
        }
    }

    /// Splits `host:port` at the last colon, so that `::1:7000` and `[::1]:7000` name the same
    /// node.
    ///
    /// `None` if there is no colon or the port is not in 1..=65535. The host may be empty: Redis
    /// sends that for "the host you are talking to".
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = if digits {
            port.parse::<u16>().ok()?
        } else {
            return None;
        };
        (port != 0).then(|| Self::new(host, port))
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 1 to 65535.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_ipv6_name_one_node() {
        assert_eq!(NodeAddr::parse("::1:7000"), NodeAddr::parse("[::1]:7000"));
        assert_eq!(
            NodeAddr::parse("::1:7000").unwrap().to_string(),
            "[::1]:7000"
        );
    }

    #[test]
    fn an_empty_host_is_kept_and_a_bad_port_refused() {
        assert_eq!(NodeAddr::parse(":7000").unwrap().host(), "");
        for bad in ["h", "h:", "h:0", "h:65536", "h:+1", "h:7x", ""] {
            assert_eq!(NodeAddr::parse(bad), None, "{bad}");
        }
    }
}
