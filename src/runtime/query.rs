//! A topology query: a short-lived thread with a connection of its own, so that no busy or stuck
//! connection can hold it up.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use super::dial::Dialer;
use super::thread::Thread;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Event, QueryError, QueryId, Source};
use crate::proto::resp::encode::Encoded;
use crate::proto::topology::Topology;
use crate::proto::value::Value;
use crate::reply::Settler;

/// Asks `source` for its map; the answer comes as an event, whatever happens.
pub(super) fn start(
    id: QueryId,
    source: Source,
    dialer: Arc<Dialer>,
    report: Sender<Event<Settler>>,
    stop: Receiver<()>,
) -> io::Result<Thread> {
    Thread::spawn("topology", move || {
        let result = ask(&source, &dialer, &stop);
        // Without a coordinator nobody wants to know.
        drop(report.send(Event::Topology { query: id, result }));
    })
}

fn ask(source: &Source, dialer: &Dialer, stop: &Receiver<()>) -> Result<Topology, QueryError> {
    let (Source::Seed(addr) | Source::Node(addr)) = source;
    let failed = |error: &dyn std::fmt::Display| QueryError::Failed(format!("{addr}: {error}"));
    let open = match source {
        Source::Seed(addr) => dialer.open_seed(addr, stop),
        Source::Node(addr) => dialer.open_node(addr, stop),
    };
    let open = open.map_err(|error| failed(&error))?;
    let mut question = Encoded::new(b"CLUSTER");
    question.push(b"SLOTS");
    match dialer
        .ask(open, &question, stop)
        .map_err(|error| failed(&error))?
    {
        Value::Error(error) if error.line().contains("cluster support disabled") => {
            let text = format!("{addr}: {error}");
            Err(QueryError::NotACluster(NodeAddr::clone(addr), text))
        }
        Value::Error(error) => Err(failed(&error)),
        reply => Topology::parse(&reply, addr).map_err(|error| failed(&error)),
    }
}
