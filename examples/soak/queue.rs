//! Queues: one thread pushes growing numbers, another one takes them with commands that block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use reslot::{CancelToken, cmd};

use crate::arena::{Arena, Excuse, Fate, PATIENCE};
use crate::blows::Span;
use crate::keys::Key;
use crate::random::Random;
use crate::tally::Kind;

/// The pushing thread waits while so many numbers were not taken.
const BACKLOG: usize = 50;

/// What the two threads of a queue know about it.
#[derive(Debug)]
pub(crate) struct Queue {
    key: Key,
    pushes: Vec<(Fate, Span)>,
    pops: Vec<(usize, Span)>,
    /// Calls that may have taken a number without telling which.
    lost_pops: usize,
}

/// Pushes and takes until all is over.
pub(crate) fn run(arena: &Arena, thread: usize, mut random: Random) -> Queue {
    let key = Key::anywhere(&mut random, &format!("queue:{thread}"));
    let taken = AtomicUsize::new(0);
    let (tokens, later) = channel::<(CancelToken, Duration)>();
    let of_producer = random.clone();
    let (pushes, (pops, lost_pops)) = std::thread::scope(|scope| {
        scope.spawn(move || {
            for (token, delay) in later {
                std::thread::park_timeout(delay);
                token.cancel();
            }
        });
        let producer = scope.spawn(|| push(arena, &key, &taken, of_producer));
        let pops = take(arena, &key, &taken, &tokens, random);
        drop(tokens);
        let pushes = producer.join();
        (pushes.unwrap_or_default(), pops)
    });
    Queue {
        key,
        pushes,
        pops,
        lost_pops,
    }
}

fn push(arena: &Arena, key: &Key, taken: &AtomicUsize, mut random: Random) -> Vec<(Fate, Span)> {
    let mut pushes: Vec<(Fate, Span)> = Vec::new();
    let mut ahead = 0;
    while !arena.is_over() {
        // Lost numbers are never taken: the backlog counts from the last look on.
        if pushes.len() - ahead > BACKLOG + taken.load(Ordering::Relaxed) {
            std::thread::park_timeout(random.millis(1, 20));
            ahead += 1;
            continue;
        }
        if random.chance(10) {
            std::thread::park_timeout(random.millis(0, 300));
        }
        let command = cmd("RPUSH").arg(key.name()).arg(pushes.len());
        let call = || arena.client.query::<usize>(command);
        let (result, span) = arena.timed(Kind::Push, PATIENCE, call);
        let slot = Some(key.slot());
        let fate = arena.fate(Kind::Push, span, slot, Excuse::default(), &result);
        pushes.push((fate, span));
    }
    pushes
}

fn take(
    arena: &Arena,
    key: &Key,
    taken: &AtomicUsize,
    tokens: &Sender<(CancelToken, Duration)>,
    mut random: Random,
) -> (Vec<(usize, Span)>, usize) {
    let (mut pops, mut lost) = (Vec::new(), 0);
    while !arena.is_over() {
        let block = random.millis(20, 1_500);
        let name = *random.pick(&["BLPOP", "BLPOP", "BRPOP"]);
        let seconds = format!("{:.3}", block.as_secs_f64());
        let mut command = cmd(name).arg(key.name()).arg(seconds);
        let mut excuse = Excuse::default();
        let mut limit = block + PATIENCE;
        match random.below(10) {
            0 | 1 => {
                let token = CancelToken::new();
                command = command.cancel_token(&token);
                excuse.cancel = true;
                let _ = tokens.send((token, random.millis(0, 100)));
            }
            2 => {
                limit = random.millis(50, 700);
                command = command.timeout(limit);
                excuse.short = true;
            }
            _ => {}
        }
        let call = || arena.client.query::<Option<(String, usize)>>(command);
        let (result, span) = arena.timed(Kind::Pop, limit, call);
        let fate = arena.fate(Kind::Pop, span, Some(key.slot()), excuse, &result);
        lost += usize::from(fate == Fate::Unknown);
        if let Ok(Some((from, number))) = result {
            if from != key.name() {
                let wanted = key.name();
                arena.violation(&format!("a pop of {wanted} gave {number} of {from}"));
            }
            pops.push((number, span));
            taken.fetch_add(1, Ordering::Relaxed);
        }
    }
    (pops, lost)
}

impl Queue {
    /// Compares what was taken, and what is left, with what was pushed.
    pub(crate) fn check(&self, arena: &Arena) {
        let name = self.key.name();
        let read = || {
            let command = cmd("LRANGE").arg(name).arg(0).arg(-1);
            arena.client.query::<Vec<usize>>(command)
        };
        let (left, span) = arena.timed(Kind::Single, PATIENCE, read);
        let slot = Some(self.key.slot());
        arena.fate(Kind::Single, span, slot, Excuse::default(), &left);
        let Ok(left) = left else { return };
        let mut seen: HashMap<usize, Vec<Span>> = HashMap::new();
        let at_end = left.into_iter().map(|number| (number, span));
        for (number, span) in self.pops.iter().copied().chain(at_end) {
            seen.entry(number).or_default().push(span);
        }
        let excused = |span: &Span| arena.blows.excuse_loss(self.key.slot(), *span);
        for (number, spans) in &seen {
            let fate = self.pushes.get(*number).map(|(fate, _)| *fate);
            if matches!(fate, None | Some(Fate::Absent)) {
                self.complain(arena, *number, &format!("was taken, its push is {fate:?}"));
            }
            // What a lost primary had taken is there again.
            let again = spans.len() - 1;
            if again > 0 && spans.iter().filter(|span| excused(span)).count() < again {
                self.complain(arena, *number, &format!("was taken {} times", again + 1));
            }
        }
        let missing = self.pushes.iter().enumerate().filter(|(number, push)| {
            push.0 == Fate::Ran && !seen.contains_key(number) && !excused(&push.1)
        });
        let missing: Vec<usize> = missing.map(|(number, _)| number).collect();
        if missing.len() > self.lost_pops {
            let lost = self.lost_pops;
            let text = format!("is gone, as are all of {missing:?}; {lost} pops are unknown");
            self.complain(arena, missing[0], &text);
        }
    }

    fn complain(&self, arena: &Arena, number: usize, what: &str) {
        let span = self.pushes.get(number).map(|(_, span)| *span);
        let pushed = span.map(|span| (arena.clock(span.asked), arena.clock(span.told)));
        let (name, slot) = (self.key.name(), self.key.slot());
        arena.violation(&format!(
            "queue {name} (slot {slot}): {number}, pushed {pushed:?}, {what}"
        ));
    }
}
