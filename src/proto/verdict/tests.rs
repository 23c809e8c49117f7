//! Every kind of reply against every kind of command, and every row of the rules of transactions.

use super::{Answer, Reply, judge, judge_chain};
use crate::proto::addr::NodeAddr;
use crate::proto::outcome::{Certainty, Failure, Outcome, Reason};
use crate::proto::redirect::Redirect;
use crate::proto::resp::fault::ReplyLimit;
use crate::proto::testing::{Ledger, TestTicket, chain, one_with, slot};
use crate::proto::unit::{Body, Facts, Target, Ticket, Unit};
use crate::proto::value::{ServerError, Value};

fn node() -> NodeAddr {
    NodeAddr::new("a", 1)
}

fn error(line: &str) -> Reply {
    Ok(Value::Error(ServerError::new(line)))
}

/// What came of a unit, for comparison.
#[derive(Debug, PartialEq)]
enum Got {
    Value(Value),
    /// The code of the error that is named, and how certain it is.
    Failed(String, Certainty),
    Redirected(Redirect),
    /// Nobody waits for it, but it teaches.
    Learned,
    Confused,
}

fn read(ledger: &Ledger, answers: Vec<Answer<TestTicket>>) -> Vec<Got> {
    let each = answers.into_iter().map(|answer| match answer {
        Answer::Settled(ticket, outcome) => {
            ledger.discard(ticket);
            settled(outcome)
        }
        Answer::Redirected(unit, redirect) => {
            assert_eq!(unit.attempts(), 1);
            let trail = unit.trail.as_ref().expect("it was sent");
            assert!(trail.cause.is_some());
            assert_eq!(trail.hops, [node()]);
            assert!(!unit.asking, "the prefix belongs to one send");
            assert!(!ledger.place(unit.ticket.places()[0]).claimed);
            ledger.discard(unit.ticket);
            Got::Redirected(redirect)
        }
        Answer::Learned(_) => Got::Learned,
        Answer::Confused => Got::Confused,
        Answer::Run(..) => panic!("single units only"),
    });
    each.collect()
}

fn settled(outcome: Outcome) -> Got {
    match outcome {
        Ok(value) => Got::Value(value),
        Err(failure) => {
            assert_eq!(failure.attempts(), 1);
            assert_eq!(failure.node(), Some(&node()));
            let code = failure.server_error().map_or("", ServerError::code);
            Got::Failed(code.to_owned(), failure.certainty())
        }
    }
}

fn failed(code: &str, certainty: Certainty) -> Got {
    Got::Failed(code.to_owned(), certainty)
}

fn judge_one(target: Target, reply: Reply) -> Vec<Got> {
    let ledger = Ledger::new();
    let repeatable = false;
    let mut unit = one_with(&ledger, Facts::new(target, repeatable));
    unit.asking = true;
    assert!(unit.ticket.claim());
    let mut answers = Vec::new();
    judge(unit, reply, &node(), &mut answers);
    let got = read(&ledger, answers);
    ledger.check_all_settled_once();
    got
}

const TARGETS: [fn() -> Target; 3] = [|| Target::Slot(slot(5)), || Target::Any, || Target::Node];

/// Data is data, whatever it says.
#[test]
fn values_settle_every_target() {
    for value in [
        Value::Null,
        Value::Ok,
        Value::Integer(1),
        Value::Simple(b"MOVED 5 b:1".to_vec()),
        Value::Bulk(b"-MOVED 5 b:1".to_vec()),
        Value::Array(vec![Value::Error(ServerError::new("MOVED 5 b:1"))]),
    ] {
        for target in TARGETS {
            let got = judge_one(target(), Ok(value.clone()));
            assert_eq!(got, [Got::Value(value.clone())]);
        }
    }
}

/// Every routing error is followed, but for a command that was addressed to this very node.
#[test]
fn routing_errors_redirect_what_may_go_elsewhere() {
    for line in [
        "MOVED 5 b:1",
        "ASK 5 b:1",
        "MOVED 5 :7001",
        "MOVED 5 ?:7001",
        "TRYAGAIN keys are split",
        "CLUSTERDOWN Hash slot not served",
        "LOADING dataset",
        "MASTERDOWN no link",
        "READONLY replica",
        "UNBLOCKED demoted",
    ] {
        let redirect = Redirect::parse(&ServerError::new(line)).expect("a redirect");
        let code = ServerError::new(line).code().to_owned();
        for target in TARGETS {
            let got = judge_one(target(), error(line));
            let wanted = match target() {
                Target::Node => failed(&code, Certainty::Refused),
                Target::Slot(_) | Target::Any => Got::Redirected(redirect.clone()),
            };
            assert_eq!(got, [wanted], "{line}");
        }
    }
}

/// T009, T016: what only looks like a redirect is an error like others.
#[test]
fn other_errors_surface_with_what_they_prove() {
    use Certainty::{Refused, Unknown};
    for (line, certainty) in [
        ("ERR unknown", Unknown),
        ("WRONGTYPE Operation", Unknown),
        ("OOM command not allowed", Unknown),
        ("NOSCRIPT no matching script", Refused),
        ("CROSSSLOT Keys in request", Refused),
        ("NOPERM this user", Refused),
        ("EXECABORT Transaction discarded", Refused),
        ("MOVED 16384 b:1", Refused),
        ("MOVED 5", Refused),
        ("MOVED __proto__ b:1", Refused),
        ("MOVEDX 5 b:1", Unknown),
        ("ERR MOVED 5 b:1", Unknown),
        ("", Unknown),
    ] {
        let code = ServerError::new(line).code().to_owned();
        for target in TARGETS {
            let got = judge_one(target(), error(line));
            assert_eq!(got, [failed(&code, certainty)], "{line}");
        }
    }
}

/// A reply over a limit was still an answer: the command may have run.
#[test]
fn a_reply_over_a_limit_is_a_failure_of_its_own_command() {
    for target in TARGETS {
        let ledger = Ledger::new();
        let facts = Facts::new(target(), true);
        let unit = one_with(&ledger, facts);
        let mut answers = Vec::new();
        judge(unit, Err(ReplyLimit::Depth), &node(), &mut answers);
        let Some(Answer::Settled(ticket, Err(failure))) = answers.pop() else {
            panic!("settled")
        };
        assert_eq!(failure.reason(), Reason::ReplyLimit);
        assert_eq!(failure.certainty(), Certainty::Unknown);
        ledger.discard(ticket);
    }
}

/// T011: the node and this client do not agree on the cluster; nothing is followed.
#[test]
fn a_redirect_for_another_slot_is_not_followed() {
    for line in ["MOVED 6 b:1", "ASK 6 b:1"] {
        let code = ServerError::new(line).code().to_owned();
        let got = judge_one(Target::Slot(slot(5)), error(line));
        assert_eq!(got, [failed(&code, Certainty::Refused), Got::Confused]);
        // Without a slot of its own there is nothing to disagree on.
        let got = judge_one(Target::Any, error(line));
        assert!(matches!(&got[..], [Got::Redirected(_)]));
    }
}

const QUEUED: &str = "+QUEUED";
const OK: &str = "+OK";

/// A reply from its first character.
fn reply(text: &str) -> Reply {
    match text {
        "nil" => Ok(Value::Null),
        "array" => Ok(Value::Array(vec![Value::Integer(1), Value::Integer(2)])),
        OK => Ok(Value::Ok),
        _ => match text.strip_prefix('+') {
            Some(simple) => Ok(Value::Simple(simple.as_bytes().to_vec())),
            None => error(text),
        },
    }
}

/// Judges a chain of slot 5 with two members by the replies of MULTI, members and EXEC.
fn judge_four(unit: Unit<TestTicket>, ledger: &Ledger, replies: [&str; 4]) -> Vec<Got> {
    let mut answers = Vec::new();
    let replies = replies.iter().map(|text| reply(text)).collect();
    judge_chain(unit, replies, &node(), &mut answers);
    read(ledger, answers)
}

fn judge_transaction(replies: [&str; 4]) -> Vec<Got> {
    let ledger = Ledger::new();
    let unit = chain(&ledger, 5);
    assert!(unit.ticket.claim());
    let got = judge_four(unit, &ledger, replies);
    ledger.check_all_settled_once();
    got
}

fn redirected(line: &str) -> Vec<Got> {
    let redirect = Redirect::parse(&ServerError::new(line)).expect("a redirect");
    vec![Got::Redirected(redirect)]
}

const MOVED: &str = "MOVED 5 b:1";
const ASK: &str = "ASK 5 b:1";
const ABORT: &str = "EXECABORT Transaction discarded because of previous errors.";

/// X2 a: an array is success, whatever its elements say.
#[test]
fn an_array_is_success() {
    let value = Value::Array(vec![Value::Integer(1), Value::Integer(2)]);
    let got = judge_transaction([OK, QUEUED, QUEUED, "array"]);
    assert_eq!(got, [Got::Value(value)]);
}

/// X8, T016: an error inside the array is the result of its command and no redirect.
#[test]
fn an_error_element_is_data() {
    let ledger = Ledger::new();
    let unit = chain(&ledger, 5);
    let array = Value::Array(vec![
        Value::Error(ServerError::new(MOVED)),
        Value::Integer(1),
    ]);
    let queued = || reply(QUEUED);
    let replies = vec![reply(OK), queued(), queued(), Ok(array.clone())];
    let mut answers = Vec::new();
    judge_chain(unit, replies, &node(), &mut answers);
    assert_eq!(read(&ledger, answers), [Got::Value(array)]);
}

/// X2 b, T065: nil is a lost watch and is never retried.
#[test]
fn nil_is_a_lost_watch() {
    let ledger = Ledger::new();
    let unit = chain(&ledger, 5);
    let replies = [OK, QUEUED, QUEUED, "nil"].map(reply).into();
    let mut answers = Vec::new();
    judge_chain(unit, replies, &node(), &mut answers);
    let Some(Answer::Settled(ticket, Err(failure))) = answers.pop() else {
        panic!("settled")
    };
    assert_eq!(failure.reason(), Reason::WatchLost);
    assert_eq!(failure.certainty(), Certainty::Refused);
    ledger.discard(ticket);
}

/// X2 c, X3, X4, X6, X7, T056, T059 to T062: routing errors, wherever they stand, redirect the
/// whole chain by the first of them.
#[test]
fn routing_errors_redirect_the_whole_chain() {
    for line in [
        MOVED,
        ASK,
        "TRYAGAIN keys",
        "CLUSTERDOWN down",
        "LOADING data",
        "MASTERDOWN link",
        "READONLY replica",
    ] {
        for replies in [
            [OK, line, QUEUED, ABORT],
            [OK, QUEUED, line, ABORT],
            [OK, line, line, ABORT],
            // Nothing was wrong until EXEC.
            [OK, QUEUED, QUEUED, line],
            [OK, line, "CLUSTERDOWN", ABORT],
            [OK, line, QUEUED, "MOVED 5 c:1"],
        ] {
            assert_eq!(judge_transaction(replies), redirected(line), "{replies:?}");
        }
    }
}

/// X2 d, T064: with any other error the chain ends with that error; the redirect still teaches.
#[test]
fn another_error_surfaces_but_the_redirect_teaches() {
    let arity = "ERR wrong number of arguments";
    let refused = |code: &str| failed(code, Certainty::Refused);
    for (replies, wanted) in [
        ([OK, arity, QUEUED, ABORT], vec![refused("ERR")]),
        (
            [OK, arity, MOVED, ABORT],
            vec![refused("ERR"), Got::Learned],
        ),
        (
            [OK, MOVED, "NOPERM no", ABORT],
            vec![refused("NOPERM"), Got::Learned],
        ),
        (
            [OK, "OOM memory", "TRYAGAIN", ABORT],
            vec![refused("OOM"), Got::Learned],
        ),
    ] {
        assert_eq!(judge_transaction(replies), wanted, "{replies:?}");
    }
}

/// All errors of members are attached, by index.
#[test]
fn a_failed_chain_names_the_errors_of_its_members() {
    let ledger = Ledger::new();
    let unit = chain(&ledger, 5);
    let replies = [OK, "ERR first", "ERR second", ABORT].map(reply).into();
    let mut answers = Vec::new();
    judge_chain(unit, replies, &node(), &mut answers);
    let Some(Answer::Settled(ticket, Err(failure))) = answers.pop() else {
        panic!("settled")
    };
    let failure: Failure = *failure;
    let members: Vec<_> = failure
        .members()
        .iter()
        .map(|(at, error)| (*at, error.line()))
        .collect();
    assert_eq!(members, [(0, "ERR first"), (1, "ERR second")]);
    assert_eq!(
        failure.server_error().map(ServerError::line),
        Some("ERR first")
    );
    ledger.discard(ticket);
}

/// X2 e: an abort without a cause surfaces as it is.
#[test]
fn an_abort_alone_surfaces() {
    let got = judge_transaction([OK, QUEUED, QUEUED, ABORT]);
    assert_eq!(got, [failed("EXECABORT", Certainty::Refused)]);
}

/// An error of EXEC that proves nothing leaves everything open.
#[test]
fn an_unknown_error_of_exec_may_have_run() {
    let got = judge_transaction([OK, QUEUED, QUEUED, "ERR who knows"]);
    assert_eq!(got, [failed("ERR", Certainty::Unknown)]);
    let got = judge_transaction([OK, MOVED, QUEUED, "ERR who knows"]);
    assert_eq!(got, [failed("ERR", Certainty::Unknown), Got::Learned]);
}

/// If MULTI itself was refused, every member stood alone.
#[test]
fn a_refused_multi_leaves_members_to_themselves() {
    let no_multi = "ERR EXEC without MULTI";
    let loading = "LOADING data";
    for (replies, wanted) in [
        // Nobody ran anything: it is sent again.
        ([loading, loading, loading, loading], redirected(loading)),
        ([loading, loading, loading, no_multi], redirected(loading)),
        ([loading, MOVED, MOVED, no_multi], redirected(loading)),
        // The node was ready from the second member on.
        (
            [loading, loading, OK, no_multi],
            vec![failed("ERR", Certainty::Unknown), Got::Learned],
        ),
        // An error of which it is not known that nothing ran.
        (
            [loading, loading, "WRONGTYPE", no_multi],
            vec![failed("WRONGTYPE", Certainty::Unknown), Got::Learned],
        ),
        (
            ["NOPERM multi", "NOPERM", "NOPERM", no_multi],
            vec![failed("NOPERM", Certainty::Refused)],
        ),
    ] {
        assert_eq!(judge_transaction(replies), wanted, "{replies:?}");
    }
}

/// A redirect for another slot, or for a chain of this very node, is not followed.
#[test]
fn a_chain_follows_only_redirects_of_its_own_slot() {
    let got = judge_transaction([OK, "MOVED 6 b:1", QUEUED, ABORT]);
    assert_eq!(
        got,
        [failed("EXECABORT", Certainty::Refused), Got::Confused]
    );
    let ledger = Ledger::new();
    let mut unit = chain(&ledger, 5);
    if let Body::Chain { target, .. } = &mut unit.body {
        *target = Target::Node;
    }
    let got = judge_four(unit, &ledger, [OK, MOVED, QUEUED, ABORT]);
    assert_eq!(got, [failed("EXECABORT", Certainty::Refused), Got::Learned]);
}

/// A chain whose caller has gone is not sent again, but teaches.
#[test]
fn a_chain_without_caller_only_teaches() {
    let ledger = Ledger::new();
    let unit = chain(&ledger, 5);
    ledger.cancel(0);
    let got = judge_four(unit, &ledger, [OK, MOVED, QUEUED, ABORT]);
    assert_eq!(got, [Got::Learned]);
    ledger.check_all_settled_once();
}
