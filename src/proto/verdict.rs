//! What follows from a reply: the command ended, or it did not run and is sent again.
//!
//! A verdict is per command; nothing here knows a pipeline. A chain is judged once, by all of its
//! replies together: EXEC alone hides why it was aborted.

use super::addr::NodeAddr;
use super::outcome::{Certainty, Failure, Outcome, Reason};
use super::redirect::{Author, Redirect, certainty_of};
use super::resp::fault::ReplyLimit;
use super::unit::{Target, Ticket, Unit};
use super::value::{ServerError, Value};

/// A reply, or the name of the limit that it exceeds.
pub(crate) type Reply = Result<Value, ReplyLimit>;

/// What follows from replies.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    /// A command ended.
    Settled(T, Outcome),
    /// Neighbouring commands of a pipeline ended: one outcome per place.
    Run(T, Vec<Outcome>),
    /// A command did not run and is to be sent elsewhere, or later.
    Redirected(Unit<T>, Redirect),
    /// A redirect that is not followed (its caller has gone, or it came with other errors), but
    /// tells where a slot is.
    Learned(Redirect),
    /// A redirect that names another slot than the command's: the node and this client do not
    /// agree on the cluster.
    Confused,
}

/// The redirect in a reply, if it is one. Who writes errors only counts if it is an error.
pub(crate) fn redirect_of(reply: &Reply, author: impl FnOnce() -> Author) -> Option<Redirect> {
    match reply {
        Ok(Value::Error(error)) => author().redirect_in(error),
        _ => None,
    }
}

/// Judges the reply of a single command.
pub(crate) fn judge<T: Ticket>(
    unit: Unit<T>,
    reply: Reply,
    node: &NodeAddr,
    out: &mut Vec<Answer<T>>,
) {
    let redirect = redirect_of(&reply, || unit.facts(0).author);
    let Some(redirect) = redirect.filter(|_| unit.facts(0).target != Target::Node) else {
        let outcome = outcome_of(&unit, 0, reply, node);
        return out.push(Answer::Settled(unit.ticket, outcome));
    };
    let asked = unit.slot(0);
    if redirect
        .slot()
        .is_some_and(|named| asked.is_some_and(|asked| asked != named))
    {
        let outcome = outcome_of(&unit, 0, reply, node);
        out.push(Answer::Settled(unit.ticket, outcome));
        return out.push(Answer::Confused);
    }
    let Ok(Value::Error(error)) = reply else {
        unreachable!("a redirect is an error reply")
    };
    redirected(unit, redirect, error, node, out);
}

fn redirected<T: Ticket>(
    mut unit: Unit<T>,
    redirect: Redirect,
    error: ServerError,
    node: &NodeAddr,
    out: &mut Vec<Answer<T>>,
) {
    let trail = unit.trail_mut();
    trail.attempts += 1;
    trail.cause = Some(error);
    trail.hop(node);
    unit.asking = false;
    let known = unit.failure(Reason::Timeout, Some(node));
    if unit.ticket.release(Some(known)) {
        out.push(Answer::Redirected(unit, redirect));
    } else {
        out.push(Answer::Learned(redirect));
    }
}

/// How the command at this place ended by this reply.
#[inline]
pub(crate) fn outcome_of<T>(
    unit: &Unit<T>,
    place: usize,
    reply: Reply,
    node: &NodeAddr,
) -> Outcome {
    match reply {
        Ok(Value::Error(error)) => {
            let certainty = unit.facts(place).author.certainty_by(&error);
            Err(server_failure(unit, place, certainty, error, node))
        }
        Ok(value) => Ok(value),
        Err(limit) => {
            let mut failure = sent_failure(unit, place, Reason::ReplyLimit, node);
            failure.detail = Some(limit.to_string().into());
            Err(failure)
        }
    }
}

fn sent_failure<T>(unit: &Unit<T>, place: usize, why: Reason, node: &NodeAddr) -> Box<Failure> {
    let mut failure = unit.failure_with(why, Certainty::Unknown, place, Some(node));
    failure.attempts += 1;
    failure
}

fn server_failure<T>(
    unit: &Unit<T>,
    place: usize,
    certainty: Certainty,
    error: ServerError,
    node: &NodeAddr,
) -> Box<Failure> {
    let mut failure = sent_failure(unit, place, Reason::Server, node);
    failure.certainty = certainty;
    failure.cause = Some(error);
    failure
}

/// Judges a chain by the replies of MULTI, its members and EXEC (rules of transactions: an array
/// is success, nil a lost watch, routing errors without any other error redirect the whole chain).
pub(crate) fn judge_chain<T: Ticket>(
    unit: Unit<T>,
    mut replies: Vec<Reply>,
    node: &NodeAddr,
    out: &mut Vec<Answer<T>>,
) {
    let exec = replies.pop().expect("a chain has at least MULTI and EXEC");
    match exec {
        Ok(Value::Error(error)) => judge_failed_chain(unit, replies, error, node, out),
        Ok(Value::Null) => {
            let mut failure = sent_failure(&unit, 0, Reason::WatchLost, node);
            failure.certainty = Certainty::Refused;
            out.push(Answer::Settled(unit.ticket, Err(failure)));
        }
        reply => {
            let outcome = outcome_of(&unit, 0, reply, node);
            out.push(Answer::Settled(unit.ticket, outcome));
        }
    }
}

fn judge_failed_chain<T: Ticket>(
    unit: Unit<T>,
    replies: Vec<Reply>,
    exec: ServerError,
    node: &NodeAddr,
    out: &mut Vec<Answer<T>>,
) {
    // If MULTI itself failed, the members ran one by one, each for itself.
    let multi_failed = matches!(replies.first(), Some(Ok(Value::Error(_)) | Err(_)));
    let ran = if multi_failed {
        replies[1..].iter().any(may_have_run)
    } else {
        certainty_of(&exec) != Certainty::Refused
    };
    let errors: Vec<(usize, ServerError)> = replies
        .into_iter()
        .enumerate()
        .filter_map(error_at)
        .collect();
    // EXEC's own error counts unless it only says that something failed before it.
    let mut all: Vec<&ServerError> = errors.iter().map(|(_, error)| error).collect();
    if exec.code() != "EXECABORT" && !multi_failed {
        all.push(&exec);
    }
    let first = all
        .iter()
        .find_map(|error| Some((Redirect::parse(error)?, (*error).clone())));
    let pure = all.iter().all(|error| Redirect::parse(error).is_some());
    let right_slot = first.as_ref().is_some_and(|(redirect, _)| {
        redirect
            .slot()
            .is_none_or(|named| unit.slot(0).is_none_or(|asked| asked == named))
    });
    match first {
        Some((redirect, error))
            if pure && right_slot && !ran && unit.facts(0).target != Target::Node =>
        {
            redirected(unit, redirect, error, node, out);
        }
        first => {
            let certainty = if ran {
                Certainty::Unknown
            } else {
                Certainty::Refused
            };
            let blamed = all.iter().find(|error| Redirect::parse(error).is_none());
            let error = blamed.map_or_else(|| exec.clone(), |error| (*error).clone());
            let mut failure = server_failure(&unit, 0, certainty, error, node);
            failure.members = members(errors);
            out.push(Answer::Settled(unit.ticket, Err(failure)));
            match first {
                Some((redirect, _)) if right_slot => out.push(Answer::Learned(redirect)),
                Some(_) => out.push(Answer::Confused),
                None => {}
            }
        }
    }
}

pub(crate) fn may_have_run(reply: &Reply) -> bool {
    !matches!(reply, Ok(Value::Error(error)) if certainty_of(error) == Certainty::Refused)
}

fn error_at((index, reply): (usize, Reply)) -> Option<(usize, ServerError)> {
    match reply {
        Ok(Value::Error(error)) => Some((index, error)),
        _ => None,
    }
}

/// Errors by the index of the member; that of MULTI itself has none.
fn members(errors: Vec<(usize, ServerError)>) -> Vec<(usize, ServerError)> {
    errors
        .into_iter()
        .filter_map(|(at, error)| Some((at.checked_sub(1)?, error)))
        .collect()
}

#[cfg(test)]
mod tests;
