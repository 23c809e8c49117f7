//! Good and bad URLs, and the promise that no error shows a password.

use super::*;
use crate::config::{Config, Credentials};
use crate::error::Error;
use crate::proto::addr::NodeAddr;
use proptest::prelude::*;

#[track_caller]
fn config(url: &str) -> Config {
    parse(url).and_then(Builder::build).expect(url)
}

#[track_caller]
fn seeds(url: &str, expected: &[&str]) {
    let seeds = config(url).seeds;
    let texts: Vec<String> = seeds.iter().map(NodeAddr::to_string).collect();
    assert_eq!(texts, expected, "{url}");
}

#[test]
fn seeds_of_all_kinds() {
    seeds("redis://h1", &["h1:6379"]);
    seeds("REDIS://h1:7000/", &["h1:7000"]);
    seeds("valkey://h1:7000", &["h1:7000"]);
    seeds("redis://h1:7000/0", &["h1:7000"]);
    seeds(
        "redis://h1:7000,h2,10.0.0.1:7002",
        &["h1:7000", "h2:6379", "10.0.0.1:7002"],
    );
    seeds(
        "redis://[::1]:7000,[fe80::2]/0?lazy=true",
        &["[::1]:7000", "[fe80::2]:6379"],
    );
    seeds("redis://u:p@h1:1,h2:2?", &["h1:1", "h2:2"]);
    seeds("redis://h1?lazy=true&", &["h1:6379"]);
}

#[test]
fn logins() {
    let cases = [
        ("redis://h", None),
        ("redis://@h", None),
        ("redis://:@h", None),
        ("redis://:p@h", Some(Credentials::password("p"))),
        ("redis://u:p@h", Some(Credentials::user("u", "p"))),
        ("redis://u:@h", Some(Credentials::user("u", ""))),
        ("redis://u:a:b,c@h", Some(Credentials::user("u", "a:b,c"))),
        (
            "redis://u%3A:%40%2f%3F%23%25+%C3%A9@h",
            Some(Credentials::user("u:", "@/?#%+é")),
        ),
    ];
    for (url, expected) in cases {
        let login = config(url).login;
        assert_eq!(login.credentials(&NodeAddr::new("h", 1)), expected, "{url}");
    }
}

#[test]
fn options_set_what_they_name() {
    let url = "redis://h?response_timeout=500ms&connect_timeout=2s&connect_deadline=1m\
        &drain_limit=0s&keepalive=none&client_name=my%2Fapp&protocol=resp2&lazy=true\
        &max_redirects=0&follow_redirects=false&read_from=prefer_replica&retry_reads=false\
        &strict_order=true&queue_commands=10&queue_bytes=2048&when_full=refuse\
        &max_reply_bytes=4096&refresh_min_interval=200ms&refresh_max_interval=1s\
        &periodic_refresh=30s&maintenance=auto&relaxed_timeout=20s";
    let expected = Builder::default()
        .seed("h")
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(2))
        .connect_deadline(Duration::from_secs(60))
        .drain_limit(Duration::ZERO)
        .keepalive(None)
        .client_name("my/app")
        .protocol(Protocol::Resp2)
        .lazy(true)
        .max_redirects(0)
        .follow_redirects(false)
        .read_from(ReadFrom::PreferReplica)
        .retry_reads(false)
        .strict_order(true)
        .queue_commands(10)
        .queue_bytes(2048)
        .when_full(WhenFull::Refuse)
        .max_reply_bytes(4096)
        .refresh_min_interval(Duration::from_millis(200))
        .refresh_max_interval(Duration::from_secs(1))
        .periodic_refresh(Duration::from_secs(30))
        .maintenance(Maintenance::Auto)
        .relaxed_timeout(Duration::from_secs(20));
    let expected = expected.build().unwrap();
    assert_eq!(format!("{:?}", config(url)), format!("{expected:?}"));
}

#[track_caller]
fn check_refused(cases: &[(&str, &str)]) {
    for (url, why) in cases {
        let error = parse(url).expect_err(url);
        let Error::Misuse(Misuse::Invalid(text)) = error else {
            panic!("{url}: {error:?}");
        };
        assert!(text.contains(why), "{url}: {text}");
    }
}

#[test]
fn bad_urls_say_why() {
    let cases = [
        ("", "must begin with redis://"),
        ("h1:7000", "must begin with redis://"),
        ("rediss://h1", "TLS is not supported yet"),
        ("valkeys://h1", "TLS is not supported yet"),
        ("http://h1", "the scheme must be redis or valkey"),
        (
            "redis://h1:7000,redis://h2:7000",
            "only the first host has a scheme",
        ),
        ("redis://", "seed 1: the host is missing"),
        ("redis://h1,", "seed 2: the host is missing"),
        ("redis://h1,:7000", "seed 2: the host is missing"),
        ("redis://h1:x", "seed 1: the port"),
        ("redis://h1:0", "seed 1: the port"),
        (
            "redis://::1:7000",
            "seed 1: an IPv6 address must stand in brackets",
        ),
        ("redis://h1/1", "only database 0"),
        ("redis://h1/0/", "only database 0"),
        ("redis://h1#x", "after #"),
        ("redis://u@h1", "a user name needs a password"),
        (
            "redis://:a%zz@h1",
            "the password is not valid percent-encoding",
        ),
        (
            "redis://:a%4@h1",
            "the password is not valid percent-encoding",
        ),
        (
            "redis://:a%@h1",
            "the password is not valid percent-encoding",
        ),
        (
            "redis://:%ff@h1",
            "the password is not valid percent-encoding",
        ),
        (
            "redis://%+1:p@h1",
            "the user name is not valid percent-encoding",
        ),
        ("redis://:p@h1,:p@h2", "only one login"),
        ("redis://:a/b@h1", "must be percent-encoded"),
    ];
    check_refused(&cases);
}

#[test]
fn bad_options_say_why() {
    let cases = [
        ("redis://h1?lazy", "an option must be name=value"),
        (
            "redis://h1?timeout=1s",
            "option timeout: there is no such option: it is response_timeout",
        ),
        (
            "redis://h1?tls=1",
            "option tls: there is no such option; there are client_name,",
        ),
        (
            "redis://h1?queue_bytes=256MiB",
            "option queue_bytes: must be a plain number of bytes, at most 1844",
        ),
        (
            "redis://h1?password=p",
            "option password: stands before the first host",
        ),
        (
            "redis://h1?address_map=x",
            "option address_map: is a closure",
        ),
        ("redis://h1?lazy=yes", "option lazy: must be true or false"),
        (
            "redis://h1?lazy=true&lazy=true",
            "option lazy is given twice",
        ),
        (
            "redis://h1?connect_timeout=500",
            "option connect_timeout: must be a time",
        ),
        (
            "redis://h1?connect_timeout=none",
            "option connect_timeout: must be a time",
        ),
        (
            "redis://h1?connect_timeout=1h",
            "option connect_timeout: must be a time",
        ),
        (
            "redis://h1?connect_timeout=-1s",
            "option connect_timeout: must be a time",
        ),
        (
            "redis://h1?connect_timeout=ms",
            "option connect_timeout: must be a time",
        ),
        ("redis://h1?keepalive=", "option keepalive: must be a time"),
        (
            "redis://h1?max_redirects=-1",
            "option max_redirects: must be a plain number of redirects, at most 4294967295",
        ),
        (
            "redis://h1?max_redirects=4294967296",
            "option max_redirects: must be a plain number of redirects, at most 4294967295",
        ),
        (
            "redis://h1?read_from=replica",
            "option read_from: must be primary or prefer_replica",
        ),
        (
            "redis://h1?maintenance=maybe",
            "option maintenance: must be off or auto or on",
        ),
        (
            "redis://h1?client_name=%f",
            "option client_name is not valid",
        ),
        (
            "redis://h1?drain_limit=18446744073709551615m",
            "option drain_limit: must be a time",
        ),
    ];
    check_refused(&cases);
    let zero = parse("redis://h1?connect_timeout=0s").unwrap().build();
    assert!(
        zero.is_err(),
        "what the builder refuses is refused from a URL too"
    );
}

proptest! {
    #[test]
    fn any_password_survives_encoding(password in "\\PC{1,20}") {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let login = config(&format!("redis://:{encoded}@h")).login;
        let given = login.credentials(&NodeAddr::new("h", 1));
        prop_assert_eq!(given, Some(Credentials::password(password)));
    }

    #[test]
    fn no_error_shows_a_raw_password(prefix in "[ -~]{0,6}", suffix in "[ -~]{0,6}") {
        let url = format!("redis://user:{prefix}hunter2{suffix}@h:7000?lazy=true");
        if let Err(error) = parse(&url).and_then(Builder::build) {
            prop_assert!(!error.to_string().contains("hunter2"), "{}", error);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}", tail in "[a-z:@/?#%&=,\\[\\]0-9]{0,40}") {
        let _ = parse(&text);
        let _ = parse(&format!("redis://{tail}"));
    }
}

#[test]
fn every_option_that_is_named_exists() {
    for name in OPTIONS.split(", ") {
        let error = apply(Builder::default(), name, "~").map(drop);
        let unknown = |why: Cow<'static, str>| why.contains("no such option");
        assert!(!error.is_err_and(unknown), "{name}");
    }
}
