//! Commands that only make sense on all primaries: sent to each, combined into one reply.

use std::sync::Arc;
use std::time::Instant;

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::error::{Error, Result};
use crate::proto::command::Aggregate;
use crate::proto::outcome::{Certainty, Failure, Outcome};
use crate::proto::resp::encode::Encoded;
use crate::proto::unit::{Body, Bytes, Facts, Target, Unit};
use crate::proto::value::Value;
use crate::request::Request;
use crate::runtime::routes::{Pick, Snapshot};

/// Sends a command to every primary at once. Without a rule for combining, the reply is an array
/// of the replies in the order of the nodes' addresses.
///
/// An error names its node. Other nodes may have run the command all the same.
pub(crate) fn run(core: &Arc<Core>, request: &Request, how: Option<Aggregate>) -> Result<Value> {
    let mut replies = Vec::new();
    let mut failures = Vec::new();
    for outcome in ask_all(core, request, request.deadline)? {
        match outcome {
            Ok(reply) => replies.push(reply),
            Err(failure) => failures.push(*failure),
        }
    }
    let one_suffices = how == Some(Aggregate::AnySucceeds) && !replies.is_empty();
    if !failures.is_empty() && !one_suffices {
        return Err(blame(failures, !replies.is_empty(), how).into());
    }
    let Some(how) = how else {
        return Ok(Value::Array(replies));
    };
    how.combine(replies).ok_or_else(|| Error::Conversion {
        wanted: "replies that can be combined",
        reply: "replies of different kinds".into(),
    })
}

/// The first failure stands for the whole. That one node certainly did not run the command says
/// nothing about the others.
fn blame(mut failures: Vec<Failure>, ran: bool, how: Option<Aggregate>) -> Box<Failure> {
    let unknown = |failure: &Failure| failure.certainty() == Certainty::Unknown;
    let ran = ran || failures.iter().any(unknown);
    let mut first = failures.swap_remove(0);
    if ran && how.is_none_or(Aggregate::may_change) {
        first.certainty = Certainty::Unknown;
    }
    Box::new(first)
}

fn ask_all(core: &Arc<Core>, request: &Request, deadline: Option<Instant>) -> Result<Vec<Outcome>> {
    let snapshot = with_primaries(core, deadline, request.cancel.as_ref())?;
    let primaries = snapshot.primaries().into_iter();
    let cells: Vec<_> = primaries
        .map(|addr| {
            let facts = Facts::new(Target::Node, false);
            let bytes = Bytes::Own(request.encoded.as_bytes().to_vec(), 0);
            let (cell, settler) = core.cell(1, None);
            // A token that is cancelled already ends the cell here, and nothing is sent.
            let token = request.cancel.as_ref();
            let registration = token.map(|token| token.register(core, &cell));
            let unit = Unit::new(settler, Body::One(bytes, facts), deadline);
            let when_full = core.config.when_full;
            core.routes.submit(unit, &Pick::Node(addr), when_full);
            (cell, registration)
        })
        .collect();
    let outcomes = cells.into_iter().map(|(cell, _registration)| {
        core.wait(&cell, deadline);
        cell.take_one()
    });
    Ok(outcomes.collect())
}

/// The routes, once there are any: a client may be made before it has seen the cluster.
fn with_primaries(
    core: &Arc<Core>,
    deadline: Option<Instant>,
    cancel: Option<&CancelToken>,
) -> Result<Arc<Snapshot>> {
    let snapshot = core.routes.snapshot();
    if !snapshot.view.primaries.is_empty() {
        return Ok(snapshot);
    }
    core.ask_any(Encoded::new(b"PING"), deadline, cancel.as_slice())?;
    Ok(core.routes.snapshot())
}
