//! What was submitted, what servers did about it, and how it ended.

use std::collections::BTreeMap;
use std::ops::Range;

use super::world::Deed;
use crate::proto::outcome::{Certainty, Outcome, Reason};
use crate::proto::redirect::Redirect;
use crate::proto::testing::wire::{ANY, Command};
use crate::proto::testing::{Ledger, TestTicket};
use crate::proto::value::Value;

/// One command or chain.
#[derive(Debug)]
pub(super) struct Record {
    thread: usize,
    commands: Vec<Command>,
    /// When it was executed, as numbers of deeds, and over which connection.
    runs: Vec<(usize, u64)>,
    /// How often it was executed, also when nobody listened any more.
    count: u32,
    tried_again: u32,
    redirects: u32,
    /// How it ended; `None` while it is open, or when its caller has gone.
    end: Option<Result<(), (Reason, Certainty)>>,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    records: BTreeMap<usize, Record>,
    /// The places that one caller waits for together.
    pub(super) submissions: Vec<Range<usize>>,
    deeds: usize,
    /// Pairs of places of which the older was refused while the younger was behind it on the same
    /// connection. If the server runs the younger there all the same, nobody can help it.
    on_one_wire: BTreeMap<(usize, usize), u64>,
}

impl Book {
    pub(super) fn submitted(&mut self, thread: usize, place: usize, commands: Vec<Command>) {
        let record = Record {
            thread,
            commands,
            runs: Vec::new(),
            count: 0,
            tried_again: 0,
            redirects: 0,
            end: None,
        };
        self.records.insert(place, record);
    }

    pub(super) fn done(&mut self, deed: &Deed, ledger: &Ledger, connection: u64, abandoned: bool) {
        self.deeds += 1;
        let (Deed::Saw(place) | Deed::Ran(place) | Deed::Refused(place, _)) = deed;
        let record = self.records.get_mut(place).expect("submitted before");
        let write = record.commands.iter().any(|command| command.write);
        let unsent = ledger.place(*place).proven_unsent;
        match deed {
            Deed::Saw(_) => assert!(!unsent, "place {place} was seen after a proven cancel"),
            Deed::Ran(_) => {
                assert!(!unsent, "place {place} ran after a proven cancel");
                record.count += 1;
                assert!(
                    record.count == 1 || !write,
                    "place {place}: a write ran twice"
                );
                if !abandoned {
                    record.runs.push((self.deeds, connection));
                }
            }
            Deed::Refused(..) => {}
        }
    }

    /// A command was refused while another was behind it, or was written before the node heard
    /// that it is to give up the slot.
    pub(super) fn behind(&mut self, place: usize, other: usize, connection: u64) {
        self.on_one_wire.insert((place, other), connection);
    }

    /// The client has read that a command is to go elsewhere.
    pub(super) fn redirected(&mut self, place: usize, redirect: &Redirect) {
        let record = self.records.get_mut(&place).expect("submitted before");
        match redirect {
            Redirect::Moved(..) | Redirect::Ask(..) => record.redirects += 1,
            Redirect::TryAgain => record.tried_again += 1,
            _ => {}
        }
    }

    /// A ticket ends. Values must name their own places; errors must tell the truth.
    pub(super) fn settle(&mut self, ledger: &Ledger, ticket: TestTicket, outcomes: Vec<Outcome>) {
        let places = ticket.places();
        assert_eq!(places.len(), outcomes.len());
        for (place, outcome) in places.into_iter().zip(outcomes) {
            let record = self.records.get_mut(&place).expect("submitted before");
            let write = record.commands.iter().any(|command| command.write);
            record.end = Some(match outcome {
                Ok(value) => {
                    let number = Value::Integer(place as i64);
                    let own = value == number || value == Value::Array(vec![number]);
                    assert!(own, "{value:?} for place {place}");
                    assert!(!record.runs.is_empty(), "place {place} never ran");
                    Ok(())
                }
                Err(failure) => {
                    assert_ne!(failure.reason(), Reason::Server, "{failure}: place {place}");
                    let open = failure.certainty() == Certainty::Unknown;
                    assert!(
                        open || record.count == 0 || !write,
                        "place {place} ran: {failure}"
                    );
                    Err((failure.reason(), failure.certainty()))
                }
            });
        }
        ledger.discard(ticket);
    }

    pub(super) fn is_open(&self, ledger: &Ledger, places: &Range<usize>) -> bool {
        places.clone().any(|place| ledger.place(place).settled == 0)
    }

    /// At the end: the order of each thread's commands on each key, and the redirect budget.
    pub(super) fn check(&self, ledger: &Ledger, max_redirects: u32) {
        let mut lines: BTreeMap<(usize, u16, u8), Vec<(usize, usize)>> = BTreeMap::new();
        for (&place, record) in &self.records {
            if ledger.place(place).cancelled {
                continue;
            }
            let most = max_redirects + 1 + record.tried_again;
            assert!(record.redirects <= most, "place {place}: {record:?}");
            if record.end != Some(Ok(())) || record.tried_again > 0 {
                continue;
            }
            // The last run of a read is the one whose value the caller got.
            let (run, connection) = *record.runs.last().expect("it succeeded");
            let keyed = record.commands.iter().filter(|command| command.slot != ANY);
            for command in keyed {
                for &key in &command.keys {
                    let name = (record.thread, command.slot, key);
                    let line = lines.entry(name).or_default();
                    for &(older, earlier) in line.iter().filter(|&&(older, _)| older != place) {
                        let excused = self.on_one_wire.get(&(older, place)) == Some(&connection);
                        assert!(
                            earlier < run || excused,
                            "{place} ran before {older}: thread, slot, key {name:?}"
                        );
                    }
                    line.push((place, run));
                }
            }
        }
    }

    /// How many ended well.
    pub(super) fn successes(&self) -> usize {
        let ends = self.records.values().map(|record| record.end);
        ends.filter(|end| *end == Some(Ok(()))).count()
    }
}
