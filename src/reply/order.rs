//! In which order the commands of a pipeline ended, once one of them is sent again.

use std::collections::{BTreeSet, HashMap};

use crate::proto::outcome::{Certainty, Outcome};
use crate::proto::slot::Slot;

/// Written down from the first time on that a command is put back to be sent again: before that
/// nothing can be out of order, and nothing is written down.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Places of commands that were sent again.
    again: BTreeSet<u32>,
    /// Places that have ended since and may have run, in this order. What ended before ran before.
    ended: Vec<u32>,
    /// Places that were claimed since, in this order. What was claimed before may have run before,
    /// however late its reply is.
    claimed: Vec<u32>,
}

/// A command as its pipeline knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Its index in the pipeline.
    pub(crate) index: usize,
    pub(crate) slot: Option<Slot>,
    /// It ran, as far as is known.
    pub(crate) may_have_run: bool,
}

/// Whether a command that ended so may have run.
pub(crate) fn may_have_run(outcome: &Outcome) -> bool {
    match outcome {
        Ok(_) => true,
        Err(failure) => failure.certainty() == Certainty::Unknown,
    }
}

impl Order {
    /// The command of a place is put back.
    pub(super) fn again(&mut self, place: u32) {
        self.again.insert(place);
    }

    /// Commands are about to be written, in this order.
    pub(super) fn claimed(&mut self, places: std::ops::Range<u32>) {
        self.claimed.extend(places);
    }

    /// Commands that may have run have ended, in this order.
    pub(super) fn ended(&mut self, places: Vec<u32>) {
        self.ended.extend(places);
    }

    /// The indices of the commands that ran after a later one of their slot, in order. `commands`
    /// are all of the pipeline, by place.
    pub(crate) fn overtaken(&self, commands: &[Ran]) -> Vec<usize> {
        let (ended, claimed) = (
            ranks(&self.ended, commands.len()),
            ranks(&self.claimed, commands.len()),
        );
        let mut places: Vec<usize> = (0..commands.len()).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(commands[place].index));
        let mut overtaken = Vec::new();
        // The first of the later commands that ended, and the first that was written.
        let mut first: HashMap<Slot, (usize, usize)> = HashMap::new();
        for place in places {
            let command = commands[place];
            let Some(slot) = command.slot.filter(|_| command.may_have_run) else {
                continue;
            };
            let first = first.entry(slot).or_insert((usize::MAX, usize::MAX));
            let was_overtaken = first.0 < ended[place] || first.1 < claimed[place];
            if was_overtaken && self.again.contains(&(place as u32)) {
                overtaken.push(command.index);
            }
            *first = (ended[place].min(first.0), claimed[place].min(first.1));
        }
        overtaken.reverse();
        overtaken
    }
}

/// For each place when it was listed last, from 1 on; 0 if it is not listed.
fn ranks(list: &[u32], places: usize) -> Vec<usize> {
    let mut ranks = vec![0; places];
    for (rank, &place) in (1..).zip(list) {
        ranks[place as usize] = rank;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands by slot, in the order of their places and of the pipeline.
    fn commands(slots: &[u16]) -> Vec<Ran> {
        let command = |(index, &slot)| Ran {
            index,
            slot: Slot::new(slot),
            may_have_run: true,
        };
        slots.iter().enumerate().map(command).collect()
    }

    fn order(again: &[u32], ended: &[u32]) -> Order {
        Order {
            again: again.iter().copied().collect(),
            ended: ended.to_vec(),
            claimed: ended.to_vec(),
        }
    }

    #[test]
    fn only_a_later_command_of_the_same_slot_overtakes() {
        let all = commands(&[1, 2, 1, 2]);
        for (again, ended, overtaken) in [
            (&[0][..], &[1, 0, 2, 3][..], &[][..]),
            (&[0], &[1, 2, 3, 0], &[0]),
            // What is not listed ended before anything was sent again.
            (&[1], &[1], &[1]),
            (&[3], &[3], &[]),
            (&[0, 1], &[2, 3, 1, 0], &[0, 1]),
            // All of a slot is sent again, in order.
            (&[0, 2], &[1, 3, 0, 2], &[]),
        ] {
            assert_eq!(order(again, ended).overtaken(&all), overtaken, "{ended:?}");
        }
    }

    #[test]
    fn what_did_not_run_overtakes_nothing_and_is_not_overtaken() {
        let order = order(&[0], &[1, 0]);
        for place in [0, 1] {
            let mut all = commands(&[1, 1]);
            assert_eq!(order.overtaken(&all), [0]);
            all[place].may_have_run = false;
            assert_eq!(order.overtaken(&all), [0; 0]);
        }
    }

    #[test]
    fn what_was_written_before_may_have_run_before_its_reply_came() {
        let all = commands(&[1, 1]);
        for (claimed, overtaken) in [(&[0][..], &[0][..]), (&[0, 1], &[]), (&[0, 1, 0], &[0])] {
            let order = Order {
                claimed: claimed.to_vec(),
                ..order(&[0], &[0, 1])
            };
            assert_eq!(order.overtaken(&all), overtaken, "{claimed:?}");
        }
    }

    #[test]
    fn later_is_by_the_pipeline_and_not_by_the_place() {
        let mut all = commands(&[1, 1]);
        (all[0].index, all[1].index) = (1, 0);
        assert_eq!(order(&[1], &[1]).overtaken(&all), [0]);
        assert_eq!(order(&[0], &[1, 0]).overtaken(&all), [0; 0]);
    }
}
