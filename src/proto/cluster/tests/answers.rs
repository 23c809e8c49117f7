//! Scenarios: answers that say "not here" or "not now", and how the cluster becomes known.

use std::time::Duration;

use super::desk::{A, A2, B, Desk, addr, halves, map, settings};
use crate::proto::cluster::{Event, QueryError, Settings};
use crate::proto::outcome::{Certainty, Reason};
use crate::proto::testing::{one_with, part};
use crate::proto::unit::{Facts, Target};

/// A1, T020: ASK sends this command elsewhere and leaves the map alone.
#[test]
fn ask_does_not_change_the_map() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    assert_eq!(desk.redirect("a", unit, "ASK 5 b:7000"), ["0 to b asking"]);
    assert!(desk.commit().is_empty());
    assert_eq!(desk.route(A).as_deref(), Some("a"));
}

/// A6, T021: a fresh target is not in the map.
#[test]
fn ask_to_an_unknown_node_starts_it() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    let did = desk.redirect("a", unit, "ASK 5 c:7000");
    let wanted = [
        "start c now",
        "0 to c asking",
        "refresh UnknownNode",
        "ask a",
    ];
    assert_eq!(did, wanted);
}

/// T025, T026: whatever the target answers is followed within the budget.
#[test]
fn the_target_of_ask_may_send_it_on() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    desk.redirect("a", unit, "ASK 5 b:7000");
    let unit = desk.take(0);
    let did = desk.redirect("b", unit, "ASK 5 c:7000");
    assert!(did.contains(&"0 to c asking".to_owned()), "{did:?}");
    let unit = desk.take(0);
    desk.redirect("c", unit, "MOVED 5 b:7000");
    // Everything of the slot is collected: from its owner, and from where ASK had sent some.
    assert_eq!(desk.commit(), ["a gives up [5]", "c gives up [5]"]);
    assert!(desk.hand_over().is_empty());
    assert!(desk.wait(60).contains(&"b takes [5]: [0]".to_owned()));
}

/// Of what ASK sent away, who has gone further is older.
#[test]
fn a_chain_of_asks_comes_back_in_order() {
    let mut desk = Desk::ready();
    let units: Vec<_> = (0..5).map(|_| desk.unit(A)).collect();
    let [first, second, third, fourth, fifth] = units.try_into().expect("five");
    desk.redirect("a", first, "ASK 5 b:7000");
    let first = desk.take(0);
    desk.redirect("b", first, "ASK 5 c:7000");
    desk.redirect("a", second, "ASK 5 b:7000");
    desk.redirect("a", third, "ASK 5 b:7000");
    desk.learned("a", "MOVED 5 d:7000");
    desk.commit();
    desk.park(fifth);
    let (second, third) = (desk.take(1), desk.take(2));
    desk.extracted("a", vec![fourth]);
    desk.extracted("b", vec![third]);
    desk.redirect("b", second, "MOVED 5 d:7000");
    let first = desk.take(0);
    desk.extracted("c", vec![first]);
    desk.all_cleared(&["a", "b", "c"]);
    let mut did = desk.commit();
    did.extend(desk.wait(60));
    assert!(
        did.contains(&"d takes [5]: [0, 1, 2, 3, 4]".to_owned()),
        "{did:?}"
    );
}

/// If the owner names another target, what the former one has still goes first.
#[test]
fn another_target_of_ask_waits_for_the_former() {
    let mut desk = Desk::ready();
    let (first, second) = (desk.unit(A), desk.unit(A));
    desk.redirect("a", first, "ASK 5 b:7000");
    let did = desk.redirect("a", second, "ASK 5 c:7000");
    assert!(!did.iter().any(|did| did.ends_with("asking")), "{did:?}");
    assert_eq!(desk.commit(), ["a gives up [5]", "b gives up [5]"]);
    let first = desk.take(0);
    desk.extracted("b", vec![first]);
    desk.all_cleared(&["a", "b"]);
    assert_eq!(desk.commit(), ["a takes [5]: [0, 1]"]);
}

/// What ASK sent to the node that takes the slot over stays there, unless something comes back.
#[test]
fn a_slot_that_follows_its_asked_units_overtakes_none() {
    let mut desk = Desk::ready();
    let (first, second) = (desk.unit(A), desk.unit(A));
    desk.redirect("a", first, "ASK 5 b:7000");
    desk.redirect("a", second, "ASK 5 b:7000");
    desk.learned("a", "MOVED 5 b:7000");
    assert_eq!(desk.commit(), ["a gives up [5]"]);
    let first = desk.take(0);
    desk.redirect("b", first, "ASK 5 c:7000");
    assert_eq!(desk.commit(), ["b gives up [5]"], "the second is behind it");
    let second = desk.take(1);
    desk.extracted("b", vec![second]);
    desk.all_cleared(&["a", "b"]);
    let mut did = desk.commit();
    did.extend(desk.wait(60));
    assert!(did.contains(&"b takes [5]: [0, 1]".to_owned()), "{did:?}");
}

/// A node that only ASK named is kept for a while, and gives back what it has before it ends.
#[test]
fn a_node_named_by_ask_gives_back_before_it_ends() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    desk.redirect("a", unit, "ASK 5 c:7000");
    desk.answer(Ok(halves()));
    let did = desk.wait(4000);
    assert!(!did.iter().any(|did| did.starts_with("c ")), "{did:?}");
    let did = desk.wait(2000);
    assert!(did.contains(&"c gives up [5]".to_owned()), "{did:?}");
    let unit = desk.take(0);
    desk.extracted("c", vec![unit]);
    desk.extracted("a", Vec::new());
    desk.all_cleared(&["a", "c"]);
    assert_eq!(desk.commit(), ["a takes [5]: [0]", "c ends"]);
}

/// TA1, TA2, T032: TRYAGAIN waits, goes to the owner, and costs no redirect.
#[test]
fn tryagain_goes_to_the_owner_and_does_not_eat_the_budget() {
    let settings = Settings {
        max_redirects: 0,
        ..settings()
    };
    let mut desk = Desk::with(settings, halves());
    let mut unit = desk.unit(A);
    for _ in 0..10 {
        assert!(desk.redirect("a", unit, "TRYAGAIN keys").is_empty());
        assert!(desk.commit().is_empty(), "its slot goes on");
        assert_eq!(desk.wait(500), ["0 to a"]);
        unit = desk.take(0);
        assert!(!unit.asking);
    }
    desk.ledger.discard(unit.ticket);
}

/// TA4: on a split slot of an old server, each attempt is ASK and TRYAGAIN.
#[test]
fn ask_and_tryagain_are_no_loop() {
    let settings = Settings {
        max_redirects: 1,
        ..settings()
    };
    let mut desk = Desk::with(settings, halves());
    let mut unit = desk.unit(A);
    for _ in 0..10 {
        assert_eq!(desk.redirect("a", unit, "ASK 5 b:7000"), ["0 to b asking"]);
        let asked = desk.take(0);
        assert!(desk.redirect("b", asked, "TRYAGAIN keys").is_empty());
        assert_eq!(desk.wait(500), ["0 to a"]);
        unit = desk.take(0);
    }
    desk.ledger.discard(unit.ticket);
}

/// O5: with strict order, TRYAGAIN is the end of its command.
#[test]
fn strict_order_surfaces_tryagain() {
    let settings = Settings {
        strict_order: true,
        ..settings()
    };
    let mut desk = Desk::with(settings, halves());
    let unit = desk.unit(A);
    assert_eq!(
        desk.redirect("a", unit, "TRYAGAIN keys"),
        ["0 fails: Server"]
    );
    let cause = desk.failures[&0].server_error().expect("the answer");
    assert_eq!(cause.code(), "TRYAGAIN");
}

/// T035: the deadline ends it, and names the cause.
#[test]
fn tryagain_for_ever_ends_with_the_deadline() {
    let mut desk = Desk::ready();
    let mut unit = desk.unit(A);
    unit.deadline = Some(desk.now + Duration::from_millis(3));
    desk.redirect("a", unit, "TRYAGAIN keys");
    assert_eq!(desk.wait(4), ["0 fails: Timeout"]);
    let failure = &desk.failures[&0];
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(
        failure.server_error().expect("the answer").code(),
        "TRYAGAIN"
    );
}

/// C1, C3, C4, T037, T040: the whole slot waits, so that nothing overtakes what was refused.
#[test]
fn a_node_that_cannot_serve_pauses_the_whole_slot() {
    for line in ["CLUSTERDOWN down", "LOADING data", "MASTERDOWN", "READONLY"] {
        let mut desk = Desk::ready();
        let (first, second, third) = (desk.unit(A), desk.unit(A), desk.unit(A));
        let did = desk.redirect("a", first, line);
        assert_eq!(did[0], "refresh NotServing");
        assert_eq!(desk.commit(), ["a gives up [5]"]);
        assert_eq!(desk.route(A), None);
        assert_eq!(desk.route(A2).as_deref(), Some("a"));
        desk.park(third);
        desk.redirect("a", second, line);
        assert!(desk.hand_over().is_empty(), "it pauses");
        assert_eq!(desk.wait(20), ["a takes [5]: [0, 1, 2]"]);
    }
}

/// R4: `?` is no address.
#[test]
fn an_unknown_endpoint_waits_for_a_map() {
    for line in ["MOVED 5 ?:7000", "ASK 5 ?:7000"] {
        let mut desk = Desk::ready();
        let unit = desk.unit(A);
        let did = desk.redirect("a", unit, line);
        assert!(!did.iter().any(|did| did.starts_with("start")), "{did:?}");
        assert!(did[0].starts_with("refresh"), "{did:?}");
        desk.commit();
        desk.answer(Ok(map(&[(0, 16383, "b")])));
        desk.commit();
        desk.hand_over();
        let did = desk.wait(20);
        assert!(desk.out.contains_key(&0), "{did:?}");
        assert_eq!(desk.route(A).as_deref(), Some("b"));
    }
}

/// PL3, T090: told not to follow, it learns all the same.
#[test]
fn without_following_it_learns() {
    let settings = Settings {
        follow_redirects: false,
        ..settings()
    };
    let mut desk = Desk::with(settings, halves());
    let unit = desk.unit(A);
    let did = desk.redirect("a", unit, "MOVED 5 b:7000");
    assert!(did.contains(&"0 fails: Server".to_owned()), "{did:?}");
    desk.commit();
    desk.hand_over();
    assert_eq!(desk.route(A).as_deref(), Some("b"));
}

/// A redirect that nobody waits for teaches, too.
#[test]
fn a_dead_command_teaches() {
    let mut desk = Desk::ready();
    let unit = desk.unit(A);
    desk.ledger.cancel(0);
    desk.redirect("a", unit, "MOVED 5 b:7000");
    desk.commit();
    assert_eq!(desk.hand_over(), ["b takes [5]: []"]);
}

/// M3: a replica that answers MOVED has lost its READONLY; the primary serves the command.
#[test]
fn a_replica_that_redirects_gets_a_new_connection() {
    let settings = Settings {
        replica_reads: true,
        ..settings()
    };
    let mut desk = Desk::with(settings, map(&[(0, 16383, "a+r")]));
    assert_eq!(desk.view.replicas.len(), 1);
    let unit = desk.unit(A);
    let did = desk.redirect("r", unit, "MOVED 5 a:7000");
    assert!(did.contains(&"replace r 1".to_owned()), "{did:?}");
    assert!(did.contains(&"0 to a".to_owned()), "{did:?}");
    assert_eq!(desk.view.replicas.len(), 1, "the replica stays");
}

/// A replica that cannot serve is left alone for a while, and the primary reads.
#[test]
fn a_replica_that_cannot_serve_is_avoided() {
    let settings = Settings {
        replica_reads: true,
        ..settings()
    };
    let mut desk = Desk::with(settings, map(&[(0, 16383, "a+r")]));
    let unit = desk.unit(A);
    let did = desk.redirect("r", unit, "MASTERDOWN link");
    assert!(did.contains(&"0 to a".to_owned()), "{did:?}");
    desk.commit();
    assert!(desk.view.replicas.is_empty());
    desk.wait(3000);
    assert_eq!(desk.view.replicas.len(), 1);
}

/// T194: while keys move, replicas would say nil for those that have left.
#[test]
fn reads_go_to_the_primary_while_keys_move() {
    let settings = Settings {
        replica_reads: true,
        ..settings()
    };
    let mut desk = Desk::with(settings, map(&[(0, 8191, "a+r"), (8192, 16383, "b")]));
    let unit = desk.unit(A);
    desk.redirect("a", unit, "ASK 5 b:7000");
    desk.commit();
    let slots = desk.view.primary_only.as_ref().expect("one slot");
    let slots: Vec<_> = slots.iter().map(|slot| slot.number()).collect();
    assert_eq!(slots, [A]);
}

/// A pipeline's part is divided by slots: only what is held waits.
#[test]
fn parts_are_divided_by_slots() {
    let mut desk = Desk::ready();
    desk.learned("a", "MOVED 5 b:7000");
    desk.commit();
    let unit = part(&desk.ledger, &[A, B, A]);
    desk.park(unit);
    let mut did = desk.commit();
    did.extend(desk.hand_over());
    assert_eq!(did, ["b takes [9000]: [1]", "b takes [5]: [0, 2]"]);
}

/// Commands without keys go to any primary, and wait if there is none.
#[test]
fn commands_without_keys_find_a_primary() {
    let mut desk = Desk::empty(settings());
    let facts = |target| Facts::new(target, false);
    let any = one_with(&desk.ledger, facts(Target::Any));
    assert!(desk.park(any).is_empty());
    desk.answer(Ok(map(&[(0, 16383, "a")])));
    assert_eq!(desk.wait(20), ["0 to a"]);
    let bound = one_with(&desk.ledger, facts(Target::Node));
    assert_eq!(desk.park(bound), ["1 fails: NodeGone"]);
    assert_eq!(desk.failures[&1].certainty(), Certainty::NotSent);
}

/// The client is usable when each primary was tried once, whether it could be reached or not.
#[test]
fn ready_when_every_primary_was_tried() {
    let mut desk = Desk::empty(settings());
    let did = desk.answer(Ok(halves()));
    assert_eq!(did, ["start a now", "start b now"]);
    let (a, b) = (desk.key("a"), desk.key("b"));
    assert!(desk.handle(Event::NodeUp { node: a }).is_empty());
    let did = desk.handle(Event::NodeDown { node: b });
    assert!(did.contains(&"ready".to_owned()), "{did:?}");
    assert!(
        !desk
            .handle(Event::NodeUp { node: b })
            .contains(&"ready".to_owned())
    );
}

/// A lazy client connects when it needs to, and is ready before.
#[test]
fn a_lazy_client_is_ready_with_the_map() {
    let settings = Settings {
        lazy: true,
        ..settings()
    };
    let mut desk = Desk::empty(settings);
    let did = desk.answer(Ok(halves()));
    assert_eq!(did, ["start a later", "start b later", "ready"]);
}

fn seeds(names: &[&str]) -> Settings {
    Settings {
        seeds: names.iter().map(|name| addr(name)).collect(),
        ..settings()
    }
}

/// All seeds are asked at once; the first map wins, and the others are not waited for.
#[test]
fn the_first_seed_that_answers_is_enough() {
    let mut desk = Desk::empty(seeds(&["x", "a", "y"]));
    assert_eq!(desk.queries.len(), 3);
    let failed = || Err(QueryError::Failed("refused".to_owned()));
    assert!(desk.answer(failed()).is_empty());
    desk.answer(Ok(halves()));
    assert!(desk.answer(failed()).is_empty(), "too late to matter");
    desk.commit();
    assert_eq!(desk.route(A).as_deref(), Some("a"));
}

/// If no seed answers, the reason of each is told.
#[test]
fn without_any_seed_it_says_why() {
    let mut desk = Desk::empty(seeds(&["x", "y"]));
    let failed = |why: &str| Err(QueryError::Failed(why.to_owned()));
    assert!(desk.answer(failed("no y")).is_empty());
    let did = desk.answer(failed("no x"));
    assert_eq!(did, [r#"not ready: ["no y", "no x"]"#]);
}

/// A single server that is no cluster serves every slot.
#[test]
fn a_single_server_serves_everything() {
    let single = || Err(QueryError::NotACluster(addr("a"), "no cluster".to_owned()));
    let mut desk = Desk::empty(seeds(&["a"]));
    assert_eq!(desk.answer(single()), ["start a now"]);
    desk.commit();
    assert!(desk.view.standalone);
    assert_eq!(desk.route(B).as_deref(), Some("a"));
    // Several seeds name a cluster.
    let mut desk = Desk::empty(seeds(&["a", "b"]));
    desk.answer(single());
    let did = desk.answer(single());
    assert!(did[0].starts_with("not ready"), "{did:?}");
}

/// One node of a cluster that lost its configuration does not take over everything.
#[test]
fn a_cluster_does_not_become_a_single_server() {
    let mut desk = Desk::ready();
    desk.handle(Event::Confused {
        from: desk.key("a"),
    });
    let lost = QueryError::NotACluster(addr("a"), "no cluster".to_owned());
    assert_eq!(desk.answer(Err(lost)), ["ask b"]);
    desk.answer(Ok(halves()));
    desk.commit();
    assert_eq!(desk.route(B).as_deref(), Some("b"));
    assert!(!desk.view.standalone);
}

/// F5, T049: failing nodes are not asked; if all fail, the old map stays and it tries again.
#[test]
fn refresh_goes_on_to_the_next_node() {
    let mut desk = Desk::ready();
    let node = desk.key("a");
    let did = desk.handle(Event::NodeDown { node });
    assert_eq!(did, ["refresh ConnectionLost", "ask b"]);
    let failed = || Err(QueryError::Failed("refused".to_owned()));
    assert_eq!(desk.answer(failed()), ["ask seed a"]);
    assert!(desk.answer(failed()).is_empty());
    assert_eq!(desk.route(A).as_deref(), Some("a"), "the old map stays");
    let did = desk.wait(1000);
    assert!(
        did.contains(&"refresh ConnectionLost".to_owned()),
        "{did:?}"
    );
    assert_eq!(desk.queries.len(), 1, "one at a time");
}

/// B3: the deadline ends a command that comes back too late to be sent again.
#[test]
fn a_redirect_after_the_deadline_is_a_timeout() {
    let mut desk = Desk::ready();
    let mut unit = desk.unit(A);
    unit.deadline = Some(desk.now);
    let did = desk.redirect("a", unit, "MOVED 5 b:7000");
    assert!(did.contains(&"0 fails: Timeout".to_owned()), "{did:?}");
    assert_eq!(desk.failures[&0].reason(), Reason::Timeout);
    desk.commit();
    desk.hand_over();
    assert_eq!(desk.route(A).as_deref(), Some("b"), "but it taught");
}
