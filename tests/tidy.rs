//! What reviewers should not have to say: bans with their replacement, layers, sizes, headings.
//!
//! Every rule is a function from a file to what is wrong with it. The test reports everything at
//! once as `file:line: what is wrong`.

#[path = "tidy/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use source::Source;

/// Lines of code of a file, without tests, comments and blank lines.
const FILE_LINES: usize = 400;
/// Lines of a function, from `fn` to the closing brace.
const FUNCTION_LINES: usize = 70;
/// Lines of a test, which may hold a table of cases.
const TEST_LINES: usize = 120;
/// Characters of a line.
const COLUMNS: usize = 100;

/// What shipped code may not say, where it may, and what to do instead.
const BANS: &[(&str, &str, &str)] = &[
    (
        "Instant::now",
        "src/runtime/clock",
        "take `now` as an argument, or use the clock",
    ),
    (
        ".elapsed()",
        "src/runtime/clock",
        "take `now` as an argument, or use the clock",
    ),
    (
        "SystemTime",
        "src/runtime/clock",
        "take `now` as an argument, or use the clock",
    ),
    (
        "thread::spawn",
        "src/runtime/thread",
        "use the spawn of `runtime::thread`",
    ),
    (
        "thread::Builder",
        "src/runtime/thread",
        "use the spawn of `runtime::thread`",
    ),
    (
        "thread::scope",
        "src/runtime/thread",
        "use the spawn of `runtime::thread`",
    ),
    (
        "thread::sleep",
        NOWHERE,
        "wait for the event with a timeout",
    ),
    ("TcpStream", "src/runtime/transport", "use the transport"),
    ("dbg!", NOWHERE, "use `log`"),
    ("todo!", NOWHERE, "finish it, or return an error"),
    ("unimplemented!", NOWHERE, "finish it, or return an error"),
    (
        ".unwrap()",
        NOWHERE,
        "use `expect` with the invariant, or `?`",
    ),
];

const NOWHERE: &str = "nowhere";

/// What `src/proto` may not reach: it has no sockets, threads, locks, channels.
const IMPURE: &[&str] = &[
    "std::net",
    "std::thread",
    "std::sync",
    "std::fs",
    "std::process",
    "std::env",
    "crossbeam_channel",
    "parking_lot",
    "socket2",
    "log",
];

/// The exception from `IMPURE`.
const PURE: &str = "std::sync::Arc";

/// The modules of the crate that `src/runtime` may use.
const BELOW_RUNTIME: &[&str] = &[
    "proto", "runtime", "reply", "sync", "stats", "config", "error",
];

/// Neighbours that must not know each other.
const STRANGERS: &[(&str, &str)] = &[("proto::session", "proto::cluster")];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "types", "misc",
];

/// Folders of the project; others start with a dot or hold what is built.
const FOLDERS: &[&str] = &["src", "tests", "examples", "target"];

/// Traces of the machine where the code was written. Split, or this file would have them.
const TRACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("../sha", "red"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

#[test]
fn tidy() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = read_all(top);
    let mut wrong = check(&files);
    wrong.extend(check_folders(top));
    assert!(
        wrong.is_empty(),
        "{} untidy places:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// All that is wrong with these files: path and text.
fn check(files: &[(String, String)]) -> Vec<String> {
    let mut wrong: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| check_traces(path, text))
        .collect();
    let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    let mut sources: Vec<Source> = rust.map(|(path, text)| Source::new(path, text)).collect();
    mark_test_files(&mut sources);
    for source in &sources {
        wrong.extend(check_name(source));
        wrong.extend(check_heading(source));
        wrong.extend(check_sizes(source));
        if source.path.starts_with("src/") {
            wrong.extend(check_bans(source));
            wrong.extend(check_layers(source));
        }
    }
    wrong.extend(check_cycles(&sources));
    wrong
}

/// Marks the files of modules that are declared for tests only, and all below them.
fn mark_test_files(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources {
        let inside = |module: &String| {
            let rest = source.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest.starts_with(['.', '/']))
        };
        if modules.iter().any(inside) {
            source.mark_as_test();
        }
    }
}

fn check_traces(path: &str, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines());
    let found = lines.flat_map(|(number, line)| {
        let traces = TRACES.iter().filter(move |trace| line.contains(**trace));
        traces.map(move |trace| format!("{path}:{number}: says {trace:?}, a path of one machine"))
    });
    found.collect()
}

fn check_name(source: &Source) -> Option<String> {
    let mut names = source.path.trim_end_matches(".rs").split('/');
    let name = names.find(|name| EMPTY_NAMES.contains(name))?;
    let path = &source.path;
    Some(format!(
        "{path}:1: {name:?} says nothing: name the file after its main type"
    ))
}

/// The first paragraph is a sentence about the file.
fn check_heading(source: &Source) -> Option<String> {
    let lines = source
        .text
        .lines()
        .map_while(|line| line.strip_prefix("//! "));
    let paragraph: Vec<&str> = lines.collect();
    let good = paragraph
        .last()
        .is_some_and(|line| line.ends_with(['.', ':', '!', '?']));
    let path = &source.path;
    (!good).then(|| format!("{path}:1: begin with a sentence in `//!` that says what this is"))
}

fn check_sizes(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut wrong = Vec::new();
    let code = source.shipped().filter(|(_, code)| !code.trim().is_empty());
    let code = code.count();
    if code > FILE_LINES {
        wrong.push(format!(
            "{path}:1: {code} lines of code, not {FILE_LINES}: split it"
        ));
    }
    for (name, lines) in source.functions() {
        let (start, length) = (*lines.start(), lines.count());
        let limit = match source.lines[start - 1].in_test {
            true => TEST_LINES,
            false => FUNCTION_LINES,
        };
        if length > limit {
            wrong.push(format!(
                "{path}:{start}: `{name}` has {length} lines, not {limit}"
            ));
        }
    }
    for (number, line) in (1..).zip(source.text.lines()) {
        let columns = line.chars().count();
        if columns > COLUMNS {
            wrong.push(format!("{path}:{number}: {columns} columns, not {COLUMNS}"));
        }
    }
    wrong
}

fn check_bans(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut wrong = Vec::new();
    for (number, code) in source.shipped() {
        for (word, home, instead) in BANS {
            if code.contains(word) && !path.starts_with(home) {
                wrong.push(format!("{path}:{number}: `{word}`: {instead}"));
            }
        }
    }
    wrong
}

fn check_layers(source: &Source) -> Vec<String> {
    let path = &source.path;
    let allowed: &[&str] = match source.module().first() {
        Some(&"proto") => &["proto"],
        Some(&"runtime") => BELOW_RUNTIME,
        _ => return Vec::new(),
    };
    let pure = allowed == ["proto"];
    let mut wrong = Vec::new();
    for (number, used) in source.paths() {
        let own = used.strip_prefix("crate::");
        let first = own.and_then(|own| own.split("::").next());
        if first.is_some_and(|module| !allowed.contains(&module)) {
            let below = allowed.join(", ");
            wrong.push(format!(
                "{path}:{number}: uses `{used}`, but only {below} are below it"
            ));
        }
        let outside = IMPURE.iter().find(|module| within(&used, module));
        if pure && outside.is_some() && !within(&used, PURE) {
            wrong.push(format!(
                "{path}:{number}: uses `{used}`, but `proto` is pure"
            ));
        }
    }
    wrong
}

/// Modules inside `proto` and inside `runtime` use each other in one direction only.
fn check_cycles(sources: &[Source]) -> Vec<String> {
    let mut uses: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("src/"))
    {
        let Some(own) = neighbour(&source.module()) else {
            continue;
        };
        for (number, used) in source.paths() {
            let Some(used) = used.strip_prefix("crate::") else {
                continue;
            };
            let used = neighbour(&used.split("::").collect::<Vec<_>>());
            if let Some(used) = used.filter(|used| *used != own) {
                let place = format!("{}:{number}", source.path);
                uses.entry(own.clone()).or_default().insert(used, place);
            }
        }
    }
    let mut wrong = Vec::new();
    for (own, targets) in &uses {
        for (target, place) in targets {
            let pair =
                |(a, b): &(&str, &str)| (own == a && target == b) || (own == b && target == a);
            if reaches(&uses, target, own) {
                wrong.push(format!("{place}: {own} uses {target}, which uses {own}"));
            } else if STRANGERS.iter().any(pair) {
                wrong.push(format!("{place}: {own} must not know {target}"));
            }
        }
    }
    wrong
}

/// `proto::queue` for anything in it; `None` outside `proto` and `runtime`.
fn neighbour(module: &[&str]) -> Option<String> {
    match module {
        [layer @ ("proto" | "runtime"), name, ..] => Some(format!("{layer}::{name}")),
        _ => None,
    }
}

fn reaches(uses: &BTreeMap<String, BTreeMap<String, String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            let next = uses.get(module).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.map(String::as_str));
        }
    }
    false
}

/// Whether a path is the module or inside it.
fn within(path: &str, module: &str) -> bool {
    path.strip_prefix(module)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn check_folders(top: &Path) -> Vec<String> {
    let folders = entries(top)
        .into_iter()
        .filter(|name| top.join(name).is_dir());
    let unknown = folders.filter(|name| !name.starts_with('.') && !FOLDERS.contains(&&**name));
    let message = |name| format!("{name}: the project has no other folders than {FOLDERS:?}");
    unknown.map(message).collect()
}

/// The text files of the project: path from the top, and text.
fn read_all(top: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut open: Vec<String> = entries(top);
    while let Some(path) = open.pop() {
        let full = top.join(&path);
        if path == ".git" || path.ends_with("target") {
            continue;
        }
        if full.is_dir() {
            open.extend(entries(&full).iter().map(|name| format!("{path}/{name}")));
        } else if let Ok(text) = fs::read_to_string(&full) {
            files.push((path, text));
        }
    }
    files.sort();
    files
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

/// What is wrong with one file that begins as it should.
fn check_one(path: &str, text: &str) -> Vec<String> {
    check(&[(path.to_owned(), format!("//! Good.\n{text}"))])
}

#[test]
fn finds_what_is_banned() {
    for (path, text, count) in [
        ("src/a.rs", "fn f() { Instant::now(); }", 1),
        ("src/runtime/clock.rs", "fn f() { Instant::now(); }", 0),
        (
            "src/runtime/transport/tcp.rs",
            "use std::net::TcpStream;",
            0,
        ),
        ("src/a.rs", "use std::net::TcpStream;", 1),
        ("src/a.rs", "fn f() { g().unwrap(); todo!() }", 2),
        (
            "src/a.rs",
            "#[cfg(test)]\nmod tests {\n fn f() { g().unwrap(); }\n}",
            0,
        ),
        (
            "src/a.rs",
            "#[cfg(test)]\nmod tests;\nfn f() { g().unwrap(); }",
            1,
        ),
        (
            "src/a.rs",
            "/// `dbg!`\nfn f() { h(\"dbg!\", '\"', r#\"\"dbg!\"#); /* dbg! */ }",
            0,
        ),
        ("src/a.rs", "fn f<'a>() { h('\\'', \"\\\"\"); dbg!(1) }", 1),
        ("src/utils.rs", "", 1),
        ("tests/common/mod.rs", "", 1),
        ("README.md", concat!("see /wo", "rk/x"), 1),
    ] {
        let wrong = check_one(path, text);
        assert_eq!(wrong.len(), count, "{path}: {text}: {wrong:#?}");
    }
}

#[test]
fn finds_what_is_too_big() {
    let lines = |count| "    g();\n".repeat(count);
    let function = |count| format!("fn f(\n    x: [u8; 4],\n) {{\n{}}}\n", lines(count));
    assert_eq!(check_one("src/a.rs", &function(66)), [""; 0]);
    let wrong = check_one("src/a.rs", &function(67));
    assert_eq!(wrong, ["src/a.rs:2: `f` has 71 lines, not 70"]);
    assert_eq!(check_one("src/a.rs", &lines(401)).len(), 1);
    assert_eq!(check_one("src/a.rs", &"// note\n\n".repeat(401)), [""; 0]);
    assert_eq!(check_one("src/a.rs", &"x".repeat(101)).len(), 1);
    let test = format!("#[test]\n{}", function(116));
    assert_eq!(check_one("tests/a.rs", &test), [""; 0]);
    let wrong = check(&[("src/a.rs".into(), "mod b;".into())]);
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn finds_what_crosses_layers() {
    for (path, text, count) in [
        ("src/proto/a.rs", "use std::sync::Arc;", 0),
        (
            "src/proto/a.rs",
            "use std::{fmt, sync::{Arc, Mutex}, net};",
            2,
        ),
        (
            "src/proto/a.rs",
            "use std::sync::{Arc as A, self};\nuse ::std::net::*;",
            2,
        ),
        ("src/proto/a.rs", "fn f(x: std::net::IpAddr) {}", 1),
        (
            "src/proto/a.rs",
            "use crate::proto::b::C;\nuse super::d::E;",
            0,
        ),
        ("src/proto/a.rs", "use crate::{proto::b, error::Error};", 1),
        (
            "src/proto/a/b.rs",
            "use super::super::c;\nuse super::super::super::error;",
            1,
        ),
        (
            "src/proto/a.rs",
            "#[cfg(test)]\nmod tests {\n    use std::thread;\n}",
            0,
        ),
        (
            "src/runtime/a.rs",
            "use crate::proto::b;\nuse crate::reply::C;",
            0,
        ),
        ("src/runtime/a.rs", "use crate::client::Client;", 1),
        (
            "src/client.rs",
            "use crate::runtime::a;\nuse std::sync::Mutex;",
            0,
        ),
    ] {
        let wrong = check_one(path, text);
        assert_eq!(wrong.len(), count, "{path}: {text}: {wrong:#?}");
    }
    let file = |path: &str, text: &str| (path.to_owned(), format!("//! Good.\n{text}"));
    let cycle = [
        file("src/proto/a.rs", "use super::b::B;"),
        file("src/proto/b/mod.rs", "use super::super::proto::c::C;"),
        file("src/proto/c.rs", "use crate::proto::a::A;"),
        file("src/proto/d.rs", "use super::{a, b, c};"),
        file("src/proto/session.rs", "use super::cluster;"),
    ];
    let wrong = check(&cycle);
    assert_eq!(wrong.len(), 4, "{wrong:#?}");
}

#[test]
fn leaves_tests_in_peace() {
    let file = |path: &str, text: &str| (path.to_owned(), format!("//! Good.\n{text}"));
    let files = [
        file("src/a.rs", "#[cfg(test)]\nmod tests;\nmod real;"),
        file("src/a/tests.rs", "fn f() { g().unwrap(); }"),
        file("src/a/tests/more.rs", "fn f() { g().unwrap(); }"),
        file("src/b/mod.rs", "#[cfg(test)]\npub(crate) mod model;"),
        file("src/b/model.rs", "fn f() { g().unwrap(); }"),
        file("src/a/real.rs", "fn f() { g().unwrap(); }"),
    ];
    let wrong = check(&files);
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    assert!(wrong[0].starts_with("src/a/real.rs:2:"), "{wrong:?}");
}
