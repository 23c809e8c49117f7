//! Settings in one line: `redis://user:password@host:port,host:port?option=value&…`; `valkey://`
//! is the same.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::config::{Builder, Maintenance, Protocol, ReadFrom, WhenFull, parse_host};
use crate::error::{self, Misuse};

/// Reads a URL into a builder.
///
/// No error quotes the URL, apart from names of options: a password may be where it does not
/// belong.
pub(crate) fn parse(url: &str) -> error::Result<Builder> {
    read(url).map_err(|why| Misuse::Invalid(format!("URL: {why}")).into())
}

fn read(url: &str) -> Result<Builder, String> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or("must begin with redis://, as in redis://127.0.0.1:7000")?;
    match scheme.to_ascii_lowercase().as_str() {
        "redis" | "valkey" => {}
        "rediss" | "valkeys" => return Err("TLS is not supported yet: use redis://".into()),
        _ => return Err("the scheme must be redis or valkey".into()),
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if tail.contains('@') || authority.matches('@').count() > 1 {
        return Err(
            "in the user name, the password and options the characters / ? # @ must be \
             percent-encoded, and only one login may stand, before the first host"
                .into(),
        );
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    if tail.contains('#') {
        return Err("a part after # has no meaning".into());
    }
    if path.starts_with("//") {
        return Err("only the first host has a scheme, as in redis://h1:7000,h2:7000".into());
    }
    if !matches!(path, "" | "/" | "/0") {
        return Err("a cluster has only database 0: the path must be / or /0".into());
    }
    let mut builder = Builder::default();
    let mut hosts = authority;
    if let Some((login, after)) = authority.split_once('@') {
        builder = read_login(builder, login)?;
        hosts = after;
    }
    for (index, host) in hosts.split(',').enumerate() {
        parse_host(host).map_err(|why| format!("seed {}: {why}", index + 1))?;
        builder = builder.seed(host);
    }
    read_options(builder, query)
}

fn read_login(builder: Builder, login: &str) -> Result<Builder, String> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let user = decode(user).ok_or("the user name is not valid percent-encoding of UTF-8")?;
    let password = password
        .map(|text| decode(text).ok_or("the password is not valid percent-encoding of UTF-8"))
        .transpose()?;
    Ok(match (user.is_empty(), password) {
        (true, None) => builder,
        (true, Some(password)) if password.is_empty() => builder,
        (true, Some(password)) => builder.password(password),
        (false, Some(password)) => builder.username(user).password(password),
        (false, None) => return Err("a user name needs a password, as in user:password@".into()),
    })
}

fn read_options(mut builder: Builder, query: &str) -> Result<Builder, String> {
    let mut seen = HashSet::new();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option
            .split_once('=')
            .ok_or_else(|| "an option must be name=value".to_string())?;
        if !seen.insert(name) {
            return Err(format!("option {} is given twice", printable(name)));
        }
        let value = decode(value)
            .ok_or_else(|| format!("option {} is not valid percent-encoding", printable(name)))?;
        builder = apply(builder, name, &value)
            .map_err(|why| format!("option {}: {why}", printable(name)))?;
    }
    Ok(builder)
}

const OPTIONS: &str = "client_name, protocol, lazy, response_timeout, connect_timeout, \
    connect_deadline, drain_limit, keepalive, max_redirects, follow_redirects, read_from, \
    retry_reads, strict_order, queue_commands, queue_bytes, when_full, max_reply_bytes, \
    refresh_min_interval, refresh_max_interval, periodic_refresh, maintenance, relaxed_timeout";

/// One option. Each has the name of the builder's method.
fn apply(b: Builder, name: &str, value: &str) -> Result<Builder, Cow<'static, str>> {
    Ok(match name {
        "client_name" => b.client_name(value),
        "protocol" => b.protocol(choice(
            value,
            [("resp3", Protocol::Resp3), ("resp2", Protocol::Resp2)],
        )?),
        "lazy" => b.lazy(boolean(value)?),
        "response_timeout" => b.response_timeout(optional_time(value)?),
        "connect_timeout" => b.connect_timeout(time(value)?),
        "connect_deadline" => b.connect_deadline(time(value)?),
        "drain_limit" => b.drain_limit(time(value)?),
        "keepalive" => b.keepalive(optional_time(value)?),
        "max_redirects" => b.max_redirects(number(value, "redirects", u32::MAX)?),
        "follow_redirects" => b.follow_redirects(boolean(value)?),
        "read_from" => b.read_from(choice(
            value,
            [
                ("primary", ReadFrom::Primary),
                ("prefer_replica", ReadFrom::PreferReplica),
            ],
        )?),
        "retry_reads" => b.retry_reads(boolean(value)?),
        "strict_order" => b.strict_order(boolean(value)?),
        "queue_commands" => b.queue_commands(number(value, "commands", usize::MAX)?),
        "queue_bytes" => b.queue_bytes(number(value, "bytes", usize::MAX)?),
        "when_full" => b.when_full(choice(
            value,
            [("wait", WhenFull::Wait), ("refuse", WhenFull::Refuse)],
        )?),
        "max_reply_bytes" => b.max_reply_bytes(number(value, "bytes", usize::MAX)?),
        "refresh_min_interval" => b.refresh_min_interval(time(value)?),
        "refresh_max_interval" => b.refresh_max_interval(time(value)?),
        "periodic_refresh" => b.periodic_refresh(optional_time(value)?),
        "maintenance" => b.maintenance(choice(
            value,
            [
                ("off", Maintenance::Off),
                ("auto", Maintenance::Auto),
                ("on", Maintenance::On),
            ],
        )?),
        "relaxed_timeout" => b.relaxed_timeout(time(value)?),
        "username" | "password" => {
            return Err("stands before the first host, as in redis://user:password@h1".into());
        }
        "credentials" | "address_map" => {
            return Err("is a closure, which only a builder can take".into());
        }
        "timeout" => {
            let why = "there is no such option: it is response_timeout, or connect_timeout";
            return Err(why.into());
        }
        _ => return Err(format!("there is no such option; there are {OPTIONS}").into()),
    })
}

fn boolean(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "must be true or false")
}

/// A whole number; the builder refuses zero where that is of no use.
fn number<N: FromStr + Display>(text: &str, unit: &str, most: N) -> Result<N, String> {
    let wrong = |_| format!("must be a plain number of {unit}, at most {most}");
    text.parse().map_err(wrong)
}

fn choice<T, const N: usize>(text: &str, known: [(&str, T); N]) -> Result<T, String> {
    let names = known.each_ref().map(|(name, _)| *name).join(" or ");
    let found = known.into_iter().find(|(name, _)| *name == text);
    let value = found.map(|(_, value)| value);
    value.ok_or_else(|| format!("must be {names}"))
}

fn time(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "must be a time such as 500ms, 2s or 1m";
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or(WRONG)?;
    let (digits, unit) = text.split_at(unit);
    let count: u64 = digits.parse().map_err(|_| WRONG)?;
    match unit {
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        "m" => count.checked_mul(60).map(Duration::from_secs).ok_or(WRONG),
        _ => Err(WRONG),
    }
}

fn optional_time(text: &str) -> Result<Option<Duration>, &'static str> {
    match text {
        "none" => Ok(None),
        _ => time(text)
            .map(Some)
            .map_err(|_| "must be a time such as 500ms, 2s or 1m, or none"),
    }
}

/// Undoes percent-encoding; `None` if it is malformed or not UTF-8. A plus sign is a plus sign.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// An option's name for an error message.
fn printable(name: &str) -> String {
    name.escape_debug().take(40).collect()
}

#[cfg(test)]
mod tests;
