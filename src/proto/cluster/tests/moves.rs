//! Scenarios: a slot changes its owner.

use std::time::Duration;

use super::desk::{A, A2, B, Desk, halves, map, settings};
use crate::proto::cluster::{Event, Settings};
use crate::proto::outcome::{Certainty, Reason};

/// T001, T004: the command follows at once; the refresh is only asked for.
#[test]
fn moved_is_followed_without_waiting_for_a_refresh() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    let did = desk.redirect("a", unit, "MOVED 5 b:7000");
    assert_eq!(did, ["refresh Moved", "ask b"]);
    assert_eq!(desk.commit(), ["a gives up [5]"]);
    assert_eq!(desk.route(A), None);
    assert_eq!(desk.route(A2).as_deref(), Some("a"), "others never pause");
    assert_eq!(desk.hand_over(), ["b takes [5]: [0]"]);
    // T002: and the way is known from now on.
    assert_eq!(desk.route(A).as_deref(), Some("b"));
}

/// The target need not be known; it is started and the slot is its own.
#[test]
fn moved_to_an_unknown_node_starts_it() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    let did = desk.redirect("a", unit, "MOVED 5 c:7000");
    assert_eq!(did, ["start c now", "refresh Moved", "ask c"]);
    desk.commit();
    assert_eq!(desk.hand_over(), ["c takes [5]: [0]"]);
}

/// T119, O2, O3: what came back, what waited there, what was parked since.
#[test]
fn a_hand_over_keeps_the_order() {
    let mut desk = Desk::ready();
    let units: Vec<_> = (0..6).map(|_| desk.unit(A)).collect();
    let [first, second, third, fourth, fifth, sixth] = units.try_into().expect("six");
    desk.redirect("a", first, "MOVED 5 b:7000");
    desk.commit();
    desk.park(fifth);
    desk.extracted("a", vec![third, fourth]);
    desk.redirect("a", second, "MOVED 5 b:7000");
    desk.park(sixth);
    assert!(desk.commit().is_empty(), "something is on the wire still");
    desk.cleared("a");
    assert_eq!(desk.commit(), ["b takes [5]: [0, 1, 2, 3, 4, 5]"]);
}

/// What was on a wire that broke comes after what was answered and before what waited.
#[test]
fn strays_of_a_lost_connection_keep_their_place() {
    let mut desk = Desk::ready();
    let units: Vec<_> = (0..4).map(|_| desk.unit(A)).collect();
    let [first, second, third, fourth] = units.try_into().expect("four");
    desk.redirect("a", first, "MOVED 5 b:7000");
    desk.commit();
    desk.park(fourth);
    desk.extracted("a", vec![third]);
    let from = desk.key("a");
    let units = vec![second];
    desk.handle(Event::Strays { from, units });
    desk.cleared("a");
    assert_eq!(desk.commit(), ["b takes [5]: [0, 1, 2, 3]"]);
}

/// One hand-over per slot at a time; a further change gives it another destination.
#[test]
fn a_second_change_while_held_only_changes_the_destination() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    desk.redirect("a", unit, "MOVED 5 b:7000");
    assert_eq!(desk.commit(), ["a gives up [5]"]);
    desk.learned("b", "MOVED 5 c:7000");
    assert!(desk.commit().is_empty());
    assert_eq!(desk.hand_over(), ["c takes [5]: [0]"]);
    // Back to where it came from, before it ever left: also one hand-over.
    desk.learned("c", "MOVED 5 b:7000");
    assert_eq!(desk.commit(), ["c gives up [5]"]);
    desk.learned("b", "MOVED 5 c:7000");
    assert_eq!(desk.hand_over(), ["c takes [5]: []"]);
}

/// T128, T129: a node that does not answer is cut off; what it had is settled by that.
#[test]
fn the_drain_limit_breaks_the_connection() {
    let mut desk = Desk::ready();
    desk.learned("a", "MOVED 5 b:7000");
    desk.commit();
    desk.extracted("a", Vec::new());
    assert!(desk.wait(999).iter().all(|did| did != "break a"));
    assert!(desk.wait(2).contains(&"break a".to_owned()));
    assert!(!desk.wait(5000).contains(&"break a".to_owned()), "once");
    desk.cleared("a");
    assert_eq!(desk.commit(), ["b takes [5]: []"]);
}

/// M4, T005, T006: a node that names itself gets one new connection, and the slot waits for it.
#[test]
fn moved_to_self_replaces_the_connection_that_said_so() {
    let mut desk = Desk::ready();
    let (one, two) = (desk.unit(A), desk.unit(A));
    let did = desk.redirect("a", one, "MOVED 5 a:7000");
    assert!(did.contains(&"replace a 1".to_owned()), "{did:?}");
    // The second names the same connection, so that it is replaced once.
    let did = desk.redirect("a", two, "MOVED 5 :7000");
    assert_eq!(did, ["replace a 1"]);
    assert_eq!(desk.commit(), ["a gives up [5]"]);
    assert_eq!(desk.hand_over(), ["a takes [5]: [0, 1]"]);
}

/// T007, B1, B4: two nodes that name each other end a command after N further sends.
#[test]
fn ping_pong_ends_by_the_budget() {
    for max_redirects in [0, 1, 2, 5] {
        let settings = Settings {
            max_redirects,
            ..settings()
        };
        let mut desk = Desk::with(settings, halves());
        let mut unit = desk.unit(A);
        let (mut sends, mut at) = (1, "a");
        loop {
            let to = if at == "a" { "b" } else { "a" };
            let did = desk.redirect(at, unit, &format!("MOVED 5 {to}:7000"));
            if did.iter().any(|did| did == "0 fails: TooManyRedirects") {
                break;
            }
            at = to;
            desk.commit();
            let mut did = desk.hand_over();
            did.extend(desk.wait(60));
            assert!(did.contains(&format!("{at} takes [5]: [0]")), "{did:?}");
            unit = desk.take(0);
            sends += 1;
        }
        assert_eq!(sends, max_redirects + 1);
        let failure = &desk.failures[&0];
        assert_eq!(failure.certainty(), Certainty::Refused);
        assert_eq!(failure.attempts(), sends);
        assert_eq!(failure.hops().len() as u32, sends);
        let cause = failure.server_error().expect("the last redirect");
        assert_eq!(cause.code(), "MOVED");
    }
}

/// B2: from the second redirect on the slot waits a little.
#[test]
fn a_second_redirect_waits_a_little() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    desk.redirect("a", unit, "MOVED 5 b:7000");
    desk.commit();
    assert_eq!(desk.hand_over(), ["b takes [5]: [0]"]);
    let unit = desk.take(0);
    desk.redirect("b", unit, "MOVED 5 a:7000");
    desk.commit();
    assert!(desk.hand_over().is_empty(), "not at once");
    assert!(desk.wait(1).contains(&"a takes [5]: [0]".to_owned()));
}

/// F3, T046: an older map does not overwrite a newer MOVED, and a newer map is asked for.
#[test]
fn a_stale_refresh_does_not_overwrite_a_newer_moved() {
    let mut desk = Desk::ready();
    desk.learned("a", "MOVED 6 b:7000");
    desk.commit();
    desk.hand_over();
    // The query is on its way when the next slot moves.
    desk.learned("a", "MOVED 5 b:7000");
    desk.commit();
    desk.hand_over();
    let old = map(&[(0, 5, "a"), (6, 6, "b"), (7, 8191, "a"), (8192, 16383, "b")]);
    assert!(
        desk.answer(Ok(old)).is_empty(),
        "not more often than every so often"
    );
    desk.commit();
    assert_eq!(desk.route(A).as_deref(), Some("b"));
    assert_eq!(desk.route(A2).as_deref(), Some("b"));
    let did = desk.wait(200);
    assert_eq!(
        did,
        ["refresh Moved", "ask b"],
        "the second was not answered"
    );
    // A map that is newer than the MOVED decides.
    desk.answer(Ok(halves()));
    desk.commit();
    desk.hand_over();
    assert_eq!(desk.route(A).as_deref(), Some("a"));
}

/// A refresh moves slots by the same steps.
#[test]
fn a_refresh_that_differs_hands_over() {
    let mut desk = Desk::ready();
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    desk.answer(Ok(map(&[(0, 5, "a"), (6, 16383, "b")])));
    assert_eq!(desk.commit(), ["a gives up [6, 7, 8, 9]"]);
    assert_eq!(desk.hand_over(), ["b takes [6, 7, 8, 9]: []"]);
    assert_eq!(desk.route(A).as_deref(), Some("a"));
}

/// F7, D1, N4: a node that vanished ends after its slots were handed over, not before.
#[test]
fn a_vanished_node_ends_after_the_hand_over() {
    let mut desk = Desk::ready();
    let (waiting, left) = (desk.unit(A), desk.unit(B));
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    desk.answer(Ok(map(&[(0, 16383, "b")])));
    assert_eq!(desk.commit(), ["a gives up [0, 1, 2, 3]"]);
    desk.extracted("a", vec![waiting]);
    assert!(desk.commit().is_empty(), "it has something on the wire");
    desk.cleared("a");
    assert_eq!(desk.commit(), ["b takes [0, 1, 2, 3]: [0]", "a ends"]);
    // What it still brings goes where it belongs.
    let node = desk.key("a");
    let units = vec![left];
    assert_eq!(desk.handle(Event::Retired { node, units }), ["1 to b"]);
}

/// A node that the map no longer names is named again before the commit that would end it.
#[test]
fn a_node_that_is_named_again_does_not_end() {
    let mut desk = Desk::ready();
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    desk.answer(Ok(map(&[(0, 16383, "b")])));
    desk.commit();
    for (name, _) in desk.barriers.clone() {
        desk.extracted(&name, Vec::new());
        desk.cleared(&name);
    }
    let unit = desk.unit(B);
    desk.redirect("b", unit, "MOVED 9000 a:7000");
    let did = desk.commit();
    assert!(!did.contains(&"a ends".to_owned()), "{did:?}");
    assert_eq!(desk.hand_over(), ["a takes [9000]: [0]"]);
}

/// T112, C2: a slot without owner keeps its commands until it has one.
#[test]
fn a_hole_in_the_map_parks_and_releases() {
    let mut desk = Desk::with(settings(), map(&[(0, 100, "a")]));
    assert_eq!(desk.route(B), None);
    let unit = desk.unit(B);
    assert!(desk.park(unit).is_empty());
    let did = desk.wait(1);
    assert_eq!(did, ["refresh Uncovered", "ask a"]);
    desk.answer(Ok(halves()));
    let did = desk.commit();
    assert_eq!(did, ["b takes [9000]: [0]"]);
    assert_eq!(desk.route(B).as_deref(), Some("b"));
}

/// C2: who waits too long for an owner hears so.
#[test]
fn a_parked_command_expires_as_uncovered() {
    let mut desk = Desk::with(settings(), map(&[(0, 100, "a")]));
    let mut unit = desk.unit(B);
    unit.deadline = Some(desk.now + Duration::from_millis(300));
    desk.park(unit);
    let did = desk.wait(500);
    assert!(
        did.contains(&"0 fails: SlotUncovered".to_owned()),
        "{did:?}"
    );
    assert_eq!(desk.failures[&0].certainty(), Certainty::NotSent);
}

/// T112: one map that leaves slots out is not believed, two are.
#[test]
fn a_hole_is_adopted_only_when_confirmed() {
    let mut desk = Desk::ready();
    let small = || map(&[(0, 8191, "a")]);
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    desk.answer(Ok(small()));
    desk.commit();
    assert_eq!(desk.route(B).as_deref(), Some("b"));
    let did = desk.wait(1000);
    assert!(did.contains(&"refresh Uncovered".to_owned()), "{did:?}");
    desk.answer(Ok(small()));
    assert_eq!(desk.commit(), ["b gives up [8192, 8193, 8194, 8195]"]);
    assert_eq!(desk.route(B), None);
    let did = desk.hand_over();
    assert_eq!(did, ["b ends"]);
    // And one that brings them back is believed at once.
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    desk.wait(5000);
    let did = desk.answer(Ok(halves()));
    assert!(did.contains(&"start b now".to_owned()), "{did:?}");
    desk.commit();
    assert_eq!(desk.route(B).as_deref(), Some("b"));
}

/// A unit that was parked before its slot was free goes out with the commit that frees it: what
/// its caller sends afterwards cannot overtake it.
#[test]
fn a_unit_parked_too_early_goes_out_with_the_commit() {
    let mut desk = Desk::empty(settings());
    desk.commit();
    desk.answer(Ok(halves()));
    let unit = desk.unit(A);
    assert!(desk.park(unit).is_empty(), "no effect of its own");
    assert_eq!(desk.commit(), ["a takes [5]: [0]"]);
    assert_eq!(desk.route(A).as_deref(), Some("a"));
}

/// Closing ends whatever waits here, each once.
#[test]
fn closing_settles_what_waits() {
    let mut desk = Desk::with(settings(), map(&[(0, 100, "a")]));
    let units = [desk.unit(B), desk.unit(A), desk.unit(A)];
    let [parked, delayed, returned] = units;
    desk.park(parked);
    desk.redirect("a", delayed, "TRYAGAIN");
    desk.redirect("a", returned, "MOVED 5 b:7000");
    assert_eq!(desk.cluster.waiting(), 3);
    desk.cluster.close();
    assert_eq!(desk.cluster.waiting(), 0);
    desk.wait(0);
    let reasons: Vec<_> = desk
        .failures
        .values()
        .map(|failure| failure.reason())
        .collect();
    assert_eq!(reasons, [Reason::Closed; 3]);
    let certainties: Vec<_> = desk.failures.values().map(|it| it.certainty()).collect();
    use Certainty::{NotSent, Refused};
    assert_eq!(certainties, [NotSent, Refused, Refused]);
}

/// T036, T131: who has gone is forgotten, wherever it waits.
#[test]
fn cancelled_units_leave_the_coordinator() {
    let mut desk = Desk::with(settings(), map(&[(0, 100, "a")]));
    let (parked, delayed, returned) = (desk.unit(B), desk.unit(A), desk.unit(A));
    desk.park(parked);
    desk.redirect("a", delayed, "TRYAGAIN");
    desk.redirect("a", returned, "MOVED 5 b:7000");
    desk.ledger.cancel_all(0..3);
    desk.cluster.forget_dead();
    assert_eq!(desk.cluster.waiting(), 0);
    desk.commit();
    assert_eq!(desk.hand_over(), ["b takes [5]: []"]);
}
