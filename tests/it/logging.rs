//! What the client logs, and how loudly.

use std::sync::Mutex;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use reslot::Value;

use crate::calls::{builder, connect, kill_and_notice, run, words};
use crate::fake::FakeCluster;

/// All lines of all tests; each looks for those that name its own nodes.
struct Lines(Mutex<Vec<(Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = (record.level(), record.args().to_string());
        self.0.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

fn listen() {
    // The other test may have done so.
    log::set_logger(&LINES).ok();
    log::set_max_level(LevelFilter::Debug);
}

/// What was logged about a node, not counting what must be heard.
fn about(cluster: &FakeCluster, node: usize) -> Vec<(Level, String)> {
    let name = format!("node {}:", cluster.node(node).addr());
    let lines = LINES.0.lock().unwrap();
    let named = lines.iter().filter(|(_, line)| line.starts_with(&name));
    named.cloned().collect()
}

#[test]
fn closing_a_client_is_no_news() {
    listen();
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET bar 1").unwrap();
    client.close(Duration::from_secs(1)).unwrap();
    let lines = about(&cluster, 0);
    assert!(!lines.is_empty());
    assert!(
        lines.iter().all(|(level, _)| *level == Level::Debug),
        "{lines:?}"
    );
}

#[test]
fn a_node_out_of_reach_is_told_and_each_attempt_of_a_blocking_command_is_not() {
    listen();
    let cluster = FakeCluster::start(2);
    let short = Duration::from_millis(400);
    let client = builder(&cluster).response_timeout(short).connect().unwrap();
    kill_and_notice(&cluster, &client, 0, "bar");
    let attempts = |wanted: Level| {
        let lines = about(&cluster, 0).into_iter();
        let failed = lines.filter(|(_, line)| line.contains("cannot connect"));
        failed.filter(|(level, _)| *level == wanted).count()
    };
    assert!(attempts(Level::Warn) > 0);
    assert_eq!(attempts(Level::Debug), 0);
    let blocking = words("BLPOP bar 0.1").timeout(short);
    client.query::<Value>(blocking).unwrap_err();
    assert!(attempts(Level::Debug) > 0);
    assert_eq!(attempts(Level::Info), 0);
}
