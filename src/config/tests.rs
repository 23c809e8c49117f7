//! Defaults, and what the builder refuses.

use super::*;
use crate::error::{Error, Misuse};

fn seeded() -> Builder {
    Builder::default().seed("h1:7000")
}

#[track_caller]
fn refused(builder: Builder) -> String {
    match builder.build() {
        Err(Error::Misuse(Misuse::Invalid(text))) => text,
        other => panic!("{other:?}"),
    }
}

fn addr(text: &str) -> NodeAddr {
    NodeAddr::parse(text).unwrap()
}

#[test]
fn defaults_are_valid_and_as_documented() {
    let config = seeded().build().unwrap();
    let text = format!("{config:?}");
    let expected = "Config { seeds: [h1:7000], login: None, client_name: None, protocol: Resp3, \
        lazy: false, response_timeout: Some(5s), connect_timeout: 1s, connect_deadline: 10s, \
        drain_limit: 2.5s, keepalive: Some(60s), max_redirects: 16, follow_redirects: true, \
        read_from: Primary, retry_reads: true, strict_order: false, queue_commands: 100000, \
        queue_bytes: 268435456, when_full: Wait, max_reply_bytes: 1073741824, \
        refresh_min_interval: 100ms, refresh_max_interval: 5s, periodic_refresh: Some(60s), \
        address_map: none, maintenance: Off, relaxed_timeout: 10s }";
    assert_eq!(text, expected);
}

#[test]
fn seeds_as_people_write_them() {
    let good = [
        ("h1", "h1:6379"),
        ("h1:7000", "h1:7000"),
        ("127.0.0.1", "127.0.0.1:6379"),
        ("[::1]", "[::1]:6379"),
        ("[fe80::1%eth0]:7000", "[fe80::1%eth0]:7000"),
    ];
    for (text, expected) in good {
        assert_eq!(parse_host(text), Ok(addr(expected)), "{text}");
    }
    let bad = [
        "",
        ":7000",
        "h:",
        "h:0",
        "h:65536",
        "h:+1",
        "h:x",
        "::1",
        "::1:7000",
        "[::1",
        "[::1]7000",
        "[]:7000",
        "a b:1",
        "redis://h:7000",
        "u:p@h:7000",
        "h/0",
        "h1,h2",
        "[a[b]",
        "h\n",
    ];
    for text in bad {
        let why = parse_host(text).expect_err(text);
        assert!(
            refused(Builder::default().seed(text)).ends_with(why),
            "{text}"
        );
    }
    let config = Builder::default().seeds(["a", "b:1", "a:6379"]).build();
    assert_eq!(config.unwrap().seeds, [addr("a:6379"), addr("b:1")]);
    let text = refused(Builder::default().seed("ok").seed("user:hunter2@h:1"));
    assert!(
        text.starts_with("seed 2: ") && !text.contains("hunter2"),
        "{text}"
    );
    let text = refused(Builder::default().seed("redis://h:1"));
    assert_eq!(
        text,
        "seed 1: a URL is for `Builder::from_url`; a seed is host:port"
    );
}

#[test]
fn unusable_settings_are_named() {
    let zero = Duration::ZERO;
    let year = Duration::from_secs(400 * 24 * 60 * 60);
    let cases = [
        ("seeds", Builder::default()),
        ("username", seeded().username("u")),
        ("response_timeout", seeded().response_timeout(zero)),
        ("response_timeout", seeded().response_timeout(Duration::MAX)),
        ("connect_timeout", seeded().connect_timeout(zero)),
        ("connect_timeout", seeded().connect_timeout(year)),
        ("connect_deadline", seeded().connect_deadline(zero)),
        ("drain_limit", seeded().drain_limit(year)),
        ("keepalive", seeded().keepalive(zero)),
        ("keepalive", seeded().keepalive(Duration::from_millis(5))),
        ("queue_commands", seeded().queue_commands(0)),
        ("queue_bytes", seeded().queue_bytes(0)),
        ("max_reply_bytes", seeded().max_reply_bytes(0)),
        ("refresh_min_interval", seeded().refresh_min_interval(zero)),
        ("refresh_max_interval", seeded().refresh_max_interval(zero)),
        (
            "refresh_max_interval",
            seeded().refresh_min_interval(Duration::from_secs(6)),
        ),
        ("periodic_refresh", seeded().periodic_refresh(zero)),
        (
            "periodic_refresh",
            seeded().periodic_refresh(Duration::from_millis(1)),
        ),
        ("client_name", seeded().client_name("")),
        ("client_name", seeded().client_name("a b")),
        ("client_name", seeded().client_name("a\r\nQUIT")),
        (
            "maintenance",
            seeded()
                .maintenance(Maintenance::On)
                .protocol(Protocol::Resp2),
        ),
    ];
    for (name, builder) in cases {
        let text = refused(builder);
        assert!(text.starts_with(&format!("{name}: ")), "{name}: {text}");
    }
}

#[test]
fn what_may_be_zero_or_off() {
    let config = seeded()
        .max_redirects(0)
        .drain_limit(Duration::ZERO)
        .response_timeout(None)
        .keepalive(None)
        .periodic_refresh(None)
        .build()
        .unwrap();
    assert_eq!(config.max_redirects, 0);
    assert_eq!(config.response_timeout, None);
}

#[test]
fn logins() {
    let node = addr("h:1");
    let login = |builder: Builder| builder.build().unwrap().login.credentials(&node);
    assert_eq!(login(seeded()), None);
    assert_eq!(
        login(seeded().password("p")),
        Some(Credentials::password("p"))
    );
    assert_eq!(
        login(seeded().password("p").username("u")),
        Some(Credentials::user("u", "p"))
    );
    let per_node = seeded().credentials(|addr| Credentials::user("u", addr.to_string()));
    let given = login(per_node.clone()).unwrap();
    assert_eq!((given.username(), given.secret()), (Some("u"), "h:1"));
    assert!(refused(per_node.password("p")).starts_with("credentials: "));
}

#[test]
fn a_rotated_password_is_asked_for_anew() {
    let secret = Arc::new(std::sync::Mutex::new("old"));
    let shared = secret.clone();
    let builder = seeded().credentials(move |_| Credentials::password(*shared.lock().unwrap()));
    let login = builder.build().unwrap().login;
    let node = addr("h:1");
    assert_eq!(login.credentials(&node), Some(Credentials::password("old")));
    *secret.lock().unwrap() = "new";
    assert_eq!(login.credentials(&node), Some(Credentials::password("new")));
}

#[test]
fn debug_shows_no_password() {
    let builder = seeded().username("u").password("hunter2");
    assert!(!format!("{builder:?}").contains("hunter2"));
    let config = builder.build().unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    let provided = seeded().credentials(|_| Credentials::password("hunter2"));
    let config = provided.build().unwrap();
    assert!(format!("{config:?}").contains("login: Provider"));
}

#[test]
fn addresses_are_translated() {
    let plain = seeded().build().unwrap().address_map;
    assert_eq!(plain.apply(&addr("10.0.0.1:7000")), addr("10.0.0.1:7000"));
    let mapped = seeded().address_map(|addr| NodeAddr::new("nat", addr.port() + 1));
    let map = mapped.build().unwrap().address_map;
    assert_eq!(map.apply(&addr("10.0.0.1:7000")), addr("nat:7001"));
}
