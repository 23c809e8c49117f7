//! Beginnings and ends in any order, against a plain rule.

use super::super::Moving;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn moving(seq: i64) -> Notice {
    Notice::Moving(Moving {
        seq,
        within: SECOND,
        to: None,
    })
}

#[test]
fn each_beginning_has_its_end() {
    let now = Instant::now();
    let pairs = [
        (Notice::Begun(Work::Slots, 1), Notice::SlotsMoved(1, vec![])),
        (Notice::Begun(Work::Shard, 1), Notice::Ended(Work::Shard, 2)),
        (
            Notice::Begun(Work::Failover, 1),
            Notice::Ended(Work::Failover, 1),
        ),
    ];
    for (at, (begin, _)) in pairs.iter().enumerate() {
        for (other, (_, end)) in pairs.iter().enumerate() {
            let mut windows = Windows::default();
            windows.hear(begin, now);
            assert!(windows.is_open(now));
            windows.hear(end, now);
            assert_eq!(windows.is_open(now), at != other, "{begin:?} {end:?}");
        }
    }
    let mut windows = Windows::default();
    windows.hear(&moving(1), now);
    assert!(windows.is_open(now));
    windows.reconnected();
    assert!(!windows.is_open(now));
    windows.hear(&Notice::Begun(Work::Failover, 1), now);
    windows.reconnected();
    assert!(windows.is_open(now), "a failover may cost the connection");
}

#[test]
fn a_lost_end_relaxes_for_a_while_only() {
    let now = Instant::now();
    let mut windows = Windows::default();
    windows.hear(&Notice::Begun(Work::Slots, 1), now);
    // A copy does not make it longer.
    windows.hear(&Notice::Begun(Work::Slots, 1), now + 20 * SECOND);
    assert!(windows.is_open(now + 29 * SECOND));
    assert!(!windows.is_open(now + LONGEST));
    // A connection made meanwhile says so again.
    windows.hear(&Notice::Begun(Work::Slots, 1), now + LONGEST);
    assert!(windows.is_open(now + LONGEST));
}

#[test]
fn what_is_not_understood_ends_its_kind() {
    let now = Instant::now();
    let mut windows = Windows::default();
    windows.hear(&Notice::Begun(Work::Slots, 9), now);
    windows.hear(&Notice::Unreadable(Work::Shard), now);
    assert!(windows.is_open(now));
    windows.hear(&Notice::Unreadable(Work::Slots), now);
    assert!(!windows.is_open(now));
    windows.hear(&Notice::Begun(Work::Slots, 9), now);
    assert!(windows.is_open(now), "its number was not read");
}

#[test]
fn an_end_that_was_long_ago_is_forgotten() {
    let now = Instant::now();
    let mut windows = Windows::default();
    windows.hear(&Notice::SlotsMoved(1000, vec![]), now);
    // Another server may stand behind the address by then, and count anew.
    let later = now + REMEMBERED;
    windows.hear(&Notice::Begun(Work::Slots, 1), later);
    assert!(windows.is_open(later));
    windows.hear(&Notice::SlotsMoved(1, vec![]), later);
    assert!(!windows.is_open(later));
}

#[test]
fn windows_are_bounded() {
    let now = Instant::now();
    let mut windows = Windows::default();
    for seq in 0..10_000 {
        windows.hear(&Notice::Begun(Work::Shard, seq), now);
        assert!(windows.open.len() <= MOST);
    }
    windows.hear(&Notice::Ended(Work::Shard, 9_999), now);
    assert!(!windows.is_open(now));
}

/// All histories of up to five beginnings and ends of two numbers and two kinds: a window is open
/// exactly if something began that no later end covers, and no earlier one did.
#[test]
fn all_short_histories() {
    let now = Instant::now();
    let verbs: Vec<(bool, Work, i64)> = [true, false]
        .into_iter()
        .flat_map(|begins| {
            [Work::Slots, Work::Shard]
                .into_iter()
                .flat_map(move |work| (1..=2).map(move |seq| (begins, work, seq)))
        })
        .collect();
    for length in 0..=5 {
        for mut number in 0..verbs.len().pow(length) {
            let mut windows = Windows::default();
            let mut history = Vec::new();
            for _ in 0..length {
                let verb = verbs[number % verbs.len()];
                number /= verbs.len();
                history.push(verb);
                let (begins, work, seq) = verb;
                let notice = if begins {
                    Notice::Begun(work, seq)
                } else {
                    Notice::Ended(work, seq)
                };
                windows.hear(&notice, now);
            }
            // An end covers a beginning of its kind with no higher number, wherever it stands.
            let covered = |&&(_, work, seq): &&(bool, Work, i64)| {
                let covers = |end: &&(bool, Work, i64)| !end.0 && end.1 == work && end.2 >= seq;
                history.iter().any(|end| covers(&end))
            };
            let open = history.iter().filter(|verb| verb.0);
            let expected = open.filter(|verb| !covered(verb)).count() > 0;
            assert_eq!(windows.is_open(now), expected, "{history:?}");
        }
    }
}
