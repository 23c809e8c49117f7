//! Commands that only make sense on all primaries: sent to each, combined into one reply.

use std::time::Instant;

use crate::client::Core;
use crate::error::{Error, Result};
use crate::proto::command::Aggregate;
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::unit::{Body, Bytes, Facts, Target};
use crate::proto::value::Value;
use crate::request::Request;
use crate::runtime::routes::Pick;

/// Sends a command to every primary at once. Without a rule for combining, the reply is an array
/// of the replies in the order of the nodes' addresses.
pub(crate) fn run(core: &Core, request: &Request, how: Option<Aggregate>) -> Result<Value> {
    let replies = ask_all(core, request, request.deadline)?;
    match how {
        None => Ok(Value::Array(replies)),
        Some(how) => match how.combine(replies) {
            Some(Value::Error(error)) => {
                let mut failure = Failure::new(Reason::Server, Certainty::Unknown);
                failure.cause = Some(error);
                Err(Error::from(failure))
            }
            Some(value) => Ok(value),
            None => Err(Error::Conversion {
                wanted: "replies that can be combined",
                reply: "replies of different kinds".into(),
            }),
        },
    }
}

fn ask_all(core: &Core, request: &Request, deadline: Option<Instant>) -> Result<Vec<Value>> {
    let snapshot = core.routes.snapshot();
    let primaries = snapshot.view.primaries.iter();
    let nodes = primaries.filter_map(|key| snapshot.nodes.get(key.index())?.as_ref());
    let mut addrs: Vec<_> = nodes.map(|node| node.wire.records.addr.clone()).collect();
    addrs.sort();
    let cells: Vec<_> = addrs
        .into_iter()
        .map(|addr| {
            let facts = Facts {
                target: Target::Node,
                repeatable: false,
            };
            let bytes = Bytes::Own(request.encoded.as_bytes().to_vec(), 0);
            core.submit(Body::One(bytes, facts), &Pick::Node(addr), deadline)
        })
        .collect();
    cells
        .into_iter()
        .map(|cell| {
            core.wait(&cell, deadline);
            Ok(cell.take_one()?)
        })
        .collect()
}
