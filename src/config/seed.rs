//! Seeds: addresses as people write them, which is stricter than what servers send.

use crate::proto::addr::NodeAddr;

/// The port of a seed that names none.
const DEFAULT_PORT: u16 = 6379;

/// Reads `host`, `host:port`, `[ipv6]` or `[ipv6]:port`.
///
/// The error says what is wrong without quoting the text: a misplaced password may be in it.
pub(crate) fn parse_host(text: &str) -> Result<NodeAddr, &'static str> {
    if text.contains("://") {
        return Err("a URL is for `Builder::from_url`; a seed is host:port");
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err("after the bracket only a port may follow"),
        };
        (host, port)
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address must stand in brackets, as in [::1]:6379");
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    if host
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || "/?#@,[]\\".contains(c))
    {
        return Err("a character does not belong in a host name");
    }
    let port = port.map_or(Some(DEFAULT_PORT), parse_port);
    Ok(NodeAddr::new(
        host,
        port.ok_or("the port is not a number from 1 to 65535")?,
    ))
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| *port != 0);
    port.filter(|_| digits)
}
